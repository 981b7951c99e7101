package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * What a messenger takes. 0 stands for the default, and every default is meant to be right.
 *
 * @param wholeBytesMax the longest message that comes whole: 1 MiB; longer ones are offered first
 * @param messageBytesMax the longest message that is taken at all: 1 TiB
 * @param lentBytesMax cap on the memory that the library lends for long messages: 64 MiB
 * @param stagedBytesMax cap on copies of long messages that are being sent: 64 MiB
 */
public record MessengerLimits(long wholeBytesMax, long messageBytesMax, long lentBytesMax, long stagedBytesMax) {
    /** All defaults. */
    public static final MessengerLimits DEFAULTS = new MessengerLimits(0, 0, 0, 0);

    private static final int SIZE_BYTES = 40;

    /**
     * Limits.
     *
     * @throws IllegalArgumentException if one is negative
     */
    public MessengerLimits {
        if (wholeBytesMax < 0 || messageBytesMax < 0 || lentBytesMax < 0 || stagedBytesMax < 0) {
            throw new IllegalArgumentException("a limit must not be negative");
        }
    }

    /** The struct cci_messenger_limits_t. */
    long write(Arena arena) {
        MemorySegment struct = arena.allocate(SIZE_BYTES, 8);
        struct.set(ValueLayout.JAVA_INT, 0, SIZE_BYTES);
        struct.set(ValueLayout.JAVA_LONG, 8, wholeBytesMax);
        struct.set(ValueLayout.JAVA_LONG, 16, messageBytesMax);
        struct.set(ValueLayout.JAVA_LONG, 24, lentBytesMax);
        struct.set(ValueLayout.JAVA_LONG, 32, stagedBytesMax);
        return struct.address();
    }
}
