package org.cci;

import java.util.Arrays;

/** Operations by the numbers that go through C with them: negative ones, as the program's own contexts are not. */
final class OperationTable {
    private static final int FEW = 64;

    private Operation[] slots = new Operation[FEW];
    private int[] free = new int[FEW];
    private int freeCount;
    private int used;

    /** Gives a number to an operation. */
    long add(Operation operation) {
        int slot = freeCount > 0 ? free[--freeCount] : used++;
        if (slot == slots.length) {
            slots = Arrays.copyOf(slots, slots.length * 2);
            free = Arrays.copyOf(free, free.length * 2);
        }
        slots[slot] = operation;
        return ~(long) slot;
    }

    /** Takes the operation of a number, which is free again. */
    Operation remove(long number) {
        int slot = (int) ~number;
        Operation operation = slots[slot];
        slots[slot] = null;
        free[freeCount++] = slot;
        return operation;
    }

    /** Takes all. */
    Operation[] removeAll() {
        Operation[] all = Arrays.stream(slots).filter(operation -> operation != null).toArray(Operation[]::new);
        slots = new Operation[FEW];
        free = new int[FEW];
        freeCount = 0;
        used = 0;
        return all;
    }
}
