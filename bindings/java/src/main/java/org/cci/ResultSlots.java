package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

/** Registered words in which atomics leave the value before. Under the lock of the endpoint. */
final class ResultSlots {
    static final int BYTES = 4096;
    private static final int WORD_BYTES = 8;
    private static final int COUNT = BYTES / WORD_BYTES;

    private final Memory memory;
    private final Region region;
    private final Slot[] free = new Slot[COUNT];
    private int freeCount;

    ResultSlots(Memory memory) {
        this.memory = memory;
        region = memory.register();
        while (freeCount < COUNT) {
            free[freeCount] = new Slot(freeCount * WORD_BYTES);
            freeCount++;
        }
    }

    /** A word; null if all are in use. */
    Slot take() {
        return freeCount == 0 ? null : free[--freeCount];
    }

    void giveBack(Slot slot) {
        free[freeCount++] = slot;
    }

    /** One word. */
    final class Slot {
        final long offset;

        private Slot(long offset) {
            this.offset = offset;
        }

        Region region() {
            return region;
        }

        long value() {
            return memory.segment().get(JAVA_LONG, offset);
        }
    }
}
