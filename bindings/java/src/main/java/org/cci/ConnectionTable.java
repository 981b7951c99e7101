package org.cci;

import java.util.Arrays;

/**
 * Connections by the numbers that C keeps for them. A number has a generation: that of a connection that is gone names no
 * later one.
 */
final class ConnectionTable {
    private static final int FEW = 16;
    private static final long GENERATION_MASK = 0x3fff_ffffL;

    private Connection[] slots = new Connection[FEW];
    private int[] generations = new int[FEW];
    private int[] free = new int[FEW];
    private int freeCount;
    private int used;

    Connection add(Connection connection) {
        int slot = freeCount > 0 ? free[--freeCount] : used++;
        if (slot == slots.length) {
            int more = slots.length * 2;
            slots = Arrays.copyOf(slots, more);
            generations = Arrays.copyOf(generations, more);
            free = Arrays.copyOf(free, more);
        }
        generations[slot]++;
        connection.id = (generations[slot] & GENERATION_MASK) << 32 | slot;
        slots[slot] = connection;
        return connection;
    }

    /** The connection of a number, or null if it is gone. */
    Connection get(long id) {
        int slot = (int) id;
        if (slot < 0 || slot >= used) {
            return null;
        }
        Connection connection = slots[slot];
        return connection != null && connection.id == id ? connection : null;
    }

    void remove(Connection connection) {
        int slot = (int) connection.id;
        if (slots[slot] == connection) {
            slots[slot] = null;
            free[freeCount++] = slot;
        }
    }

    /** How many there are. */
    int size() {
        return used - freeCount;
    }

    /** All of them. */
    Connection[] all() {
        return Arrays.stream(slots).filter(connection -> connection != null).toArray(Connection[]::new);
    }
}
