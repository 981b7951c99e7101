package org.cci;

import java.util.concurrent.CompletableFuture;

/** Something under way that raises no event of its own: who waits for it, or whose future it is. Under the lock of its intake. */
final class Operation {
    /** What it is, for the exception. */
    final String what;
    /** Completed when it ends, outside of the lock; null if somebody waits. */
    final CompletableFuture<Object> future;
    /** The connection that it is of. */
    final Connection connection;
    /** Where an atomic leaves the value before, or null. */
    ResultSlots.Slot slot;
    /** With an event at its end: the context that the program gave. */
    long eventContext;
    /** Whether an event reports its end. */
    boolean raisesEvent;

    /** The connection that it is of, if that is a messenger's. */
    MessengerConnection of;
    /** The number of a call, by which it can be cancelled. */
    long call;
    boolean done;
    Object result;
    RuntimeException failure;

    Operation(String what, Connection connection, boolean forFuture) {
        this.what = what;
        this.connection = connection;
        this.future = forFuture ? new CompletableFuture<>() : null;
    }

    /** What it came to, for who has waited. */
    Object outcome() {
        if (failure != null) {
            // Its stack is that of who found it; this one is of who waits.
            failure.setStackTrace(Thread.currentThread().getStackTrace());
            throw failure;
        }
        return result;
    }
}
