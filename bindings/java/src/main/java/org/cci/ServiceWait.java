package org.cci;

import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;

/** How threads wait for something in the library: a platform thread sleeps there, and a virtual one gives its carrier up. */
final class ServiceWait {
    /** The longest that one wait in the library takes, after which its thread looks around. */
    private static final int SLICE_MS = 20;
    /** How long a virtual thread parks at most between looks. */
    private static final long PARK_NS_MAX = 1_000_000;

    private static final int SPINS = 64;

    private ServiceWait() {}

    /**
     * Looks until something is there, or the time has come.
     *
     * @param deadline of {@link System#nanoTime}
     * @param check throws if the wait is to end
     * @param look gives what is there, or null; it may sleep for so many milliseconds
     * @return what is there, or null if nothing came in time
     */
    static <T> T until(long deadline, Runnable check, IntFunction<T> look) throws InterruptedException {
        for (long turn = 0; ; turn++) {
            check.run();
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            long leftNs = deadline - System.nanoTime();
            boolean sleeps = leftNs > 0 && !Thread.currentThread().isVirtual();
            T found = look.apply(sleeps ? (int) Math.min(SLICE_MS, leftNs / 1_000_000 + 1) : 0);
            if (found != null || leftNs <= 0) {
                return found;
            }
            if (!sleeps) {
                pauseVirtual(turn, leftNs);
            }
        }
    }

    private static void pauseVirtual(long turn, long leftNs) {
        if (turn < SPINS) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(Math.min(leftNs, PARK_NS_MAX));
        }
    }
}
