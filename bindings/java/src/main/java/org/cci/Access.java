package org.cci;

/** What peers may do with a region. */
public enum Access {
    /** Read it. */
    READ(Raw.FLAG_READ),
    /** Write to it. */
    WRITE(Raw.FLAG_WRITE),
    /** Change words of it by atomic operations. */
    ATOMIC(1 << 16);

    private final int flag;

    Access(int flag) {
        this.flag = flag;
    }

    static int flags(Access... access) {
        int flags = 0;
        for (Access one : access) {
            flags |= one.flag;
        }
        return flags;
    }

    /** Whether memory with these flags must be writable. */
    static boolean changes(int flags) {
        return (flags & (WRITE.flag | ATOMIC.flag)) != 0;
    }
}
