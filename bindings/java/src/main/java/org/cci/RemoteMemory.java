package org.cci;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * Operations on the memory of a connection's peer, which takes no part in them: its library does the work when it makes progress.
 *
 * <p>With each form of each operation: the offsets may have any alignment, except of atomics. The local memory must stay as it is
 * until the end. A handle, a range or a right that the peer refuses, and a local region that was closed, end the operation with
 * {@link Status#RMA_HANDLE}.
 */
public final class RemoteMemory {
    private final Connection connection;
    private final Endpoint endpoint;

    RemoteMemory(Connection connection) {
        this.connection = connection;
        endpoint = connection.endpoint;
    }

    /**
     * Starts to write to the peer's memory. Ends in one {@link Event.Sent} with this context.
     *
     * @param transfer which bytes
     * @param context any number that is not negative
     * @return false if there is no room: take events, then try again; nothing was started
     * @throws IllegalArgumentException if a local range is not in its region, a region is of another endpoint, the
     *     notification is too long, there are no bytes, lists are as {@link Transfer#of(java.util.List, java.util.List)}
     *     forbids, or the connection is unreliable
     * @throws IllegalStateException if a local region is closed, or the connection is not open
     * @throws PeerException if the connection has ended
     */
    public boolean tryWrite(Transfer transfer, long context) {
        return start(transfer, Raw.FLAG_WRITE, context);
    }

    /**
     * Starts to write to the peer's memory, without an event at its end, however it ends. All else is as with a context.
     *
     * @param transfer which bytes
     * @return false if there is no room
     * @throws IllegalArgumentException as with a context
     * @throws IllegalStateException as with a context
     * @throws PeerException as with a context
     */
    public boolean tryWrite(Transfer transfer) {
        return start(transfer, Raw.FLAG_WRITE | Raw.FLAG_SILENT, 0);
    }

    /**
     * Writes to the peer's memory, and waits until the data are in place.
     *
     * @param transfer which bytes
     * @param timeout how long to wait
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalArgumentException as {@link #tryWrite}
     * @throws IllegalStateException as {@link #tryWrite}
     * @throws PeerException if it fails: with {@link Status#RMA_HANDLE} nothing was touched
     */
    public void write(Transfer transfer, Duration timeout) throws InterruptedException {
        wait("writing to remote memory", transfer, Raw.FLAG_WRITE, timeout);
    }

    /**
     * Writes to the peer's memory.
     *
     * @param transfer which bytes
     * @return a future that completes when the data are in place, or fails with a {@link PeerException}
     * @throws IllegalArgumentException as {@link #tryWrite}
     * @throws IllegalStateException as {@link #tryWrite}
     * @throws PeerException as {@link #tryWrite}
     */
    public CompletableFuture<Void> writeAsync(Transfer transfer) {
        return future("writing to remote memory", transfer, Raw.FLAG_WRITE);
    }

    /**
     * Starts to read from the peer's memory. Ends in one {@link Event.Sent} with this context.
     *
     * @param transfer which bytes
     * @param context any number that is not negative
     * @return false if there is no room
     * @throws IllegalArgumentException as {@link #tryWrite}
     * @throws IllegalStateException as {@link #tryWrite}
     * @throws PeerException as {@link #tryWrite}
     */
    public boolean tryRead(Transfer transfer, long context) {
        return start(transfer, Raw.FLAG_READ, context);
    }

    /**
     * Starts to read from the peer's memory, without an event at its end, however it ends. All else is as with a context.
     *
     * @param transfer which bytes
     * @return false if there is no room
     * @throws IllegalArgumentException as with a context
     * @throws IllegalStateException as with a context
     * @throws PeerException as with a context
     */
    public boolean tryRead(Transfer transfer) {
        return start(transfer, Raw.FLAG_READ | Raw.FLAG_SILENT, 0);
    }

    /**
     * Reads from the peer's memory, and waits until the data are here.
     *
     * @param transfer which bytes
     * @param timeout how long to wait
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalArgumentException as {@link #tryWrite}
     * @throws IllegalStateException as {@link #tryWrite}
     * @throws PeerException if it fails
     */
    public void read(Transfer transfer, Duration timeout) throws InterruptedException {
        wait("reading remote memory", transfer, Raw.FLAG_READ, timeout);
    }

    /**
     * Reads from the peer's memory.
     *
     * @param transfer which bytes
     * @return a future that completes when the data are here, or fails with a {@link PeerException}
     * @throws IllegalArgumentException as {@link #tryWrite}
     * @throws IllegalStateException as {@link #tryWrite}
     * @throws PeerException as {@link #tryWrite}
     */
    public CompletableFuture<Void> readAsync(Transfer transfer) {
        return future("reading remote memory", transfer, Raw.FLAG_READ);
    }

    /**
     * Starts to change a word of the peer's memory. Ends in one {@link Event.Sent} with this context.
     *
     * @param atomic the change
     * @param remote the peer's memory, registered with {@link Access#ATOMIC}
     * @param offset where the word is, a multiple of its width
     * @param result where the value before goes, as 8 bytes; null if it is not wanted, or there is none
     * @param resultOffset where there
     * @param context any number that is not negative
     * @return false if there is no room
     * @throws IllegalArgumentException if the result's place is not in its region, or the region is of another endpoint
     * @throws IllegalStateException if the region is closed, or the connection is not open
     * @throws PeerException if the connection has ended
     */
    public boolean tryAtomic(
            Atomic atomic, RegionHandle remote, long offset, Region result, long resultOffset, long context) {
        if (context < 0) {
            throw new IllegalArgumentException("a context must not be negative: " + context);
        }
        return start(atomic, remote, offset, result, resultOffset, context, 0);
    }

    /**
     * Starts to change a word of the peer's memory, without an event at its end, however it ends. All else is as with a context.
     *
     * @param atomic the change
     * @param remote the peer's memory, registered with {@link Access#ATOMIC}
     * @param offset where the word is, a multiple of its width
     * @param result where the value before goes, as 8 bytes; null if it is not wanted, or there is none
     * @param resultOffset where there
     * @return false if there is no room
     * @throws IllegalArgumentException as with a context
     * @throws IllegalStateException as with a context
     * @throws PeerException as with a context
     */
    public boolean tryAtomic(Atomic atomic, RegionHandle remote, long offset, Region result, long resultOffset) {
        return start(atomic, remote, offset, result, resultOffset, 0, Raw.FLAG_SILENT);
    }

    private boolean start(
            Atomic atomic, RegionHandle remote, long offset, Region result, long resultOffset, long context, int flags) {
        endpoint.enter();
        try {
            return rawAtomic(atomic, remote, offset, result, resultOffset, context, flags);
        } finally {
            endpoint.exit();
        }
    }

    /**
     * Changes a word of the peer's memory, and waits until that is done.
     *
     * @param atomic the change
     * @param remote the peer's memory, registered with {@link Access#ATOMIC}
     * @param offset where the word is, a multiple of its width
     * @param timeout how long to wait
     * @return the value before; 0 if the change gives none
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalStateException if the connection is not open
     * @throws PeerException if it fails: {@link Status#RMA_OPERATION} if the word is not aligned
     */
    public long atomic(Atomic atomic, RegionHandle remote, long offset, Duration timeout) throws InterruptedException {
        Operation operation = new Operation("changing remote memory", connection, false);
        Object before = endpoint.waitFor(operation, timeout, number -> startAtomic(operation, atomic, remote, offset, number));
        return before == null ? 0 : (Long) before;
    }

    /**
     * Changes a word of the peer's memory.
     *
     * @param atomic the change
     * @param remote the peer's memory, registered with {@link Access#ATOMIC}
     * @param offset where the word is, a multiple of its width
     * @return a future of the value before, which is null if the change gives none; it may fail with a {@link PeerException}
     * @throws IllegalStateException if the connection is not open
     * @throws PeerException if the connection has ended
     */
    public CompletableFuture<Long> atomicAsync(Atomic atomic, RegionHandle remote, long offset) {
        Operation operation = new Operation("changing remote memory", connection, true);
        return endpoint.startForFuture(operation, number -> startAtomic(operation, atomic, remote, offset, number));
    }

    private boolean start(Transfer transfer, int flags, long context) {
        if (context < 0) {
            throw new IllegalArgumentException("a context must not be negative: " + context);
        }
        endpoint.enter();
        try {
            return raw(transfer, flags, context);
        } finally {
            endpoint.exit();
        }
    }

    private void wait(String what, Transfer transfer, int flags, Duration timeout) throws InterruptedException {
        endpoint.waitFor(new Operation(what, connection, false), timeout, number -> raw(transfer, flags, number));
    }

    private CompletableFuture<Void> future(String what, Transfer transfer, int flags) {
        return endpoint.startForFuture(new Operation(what, connection, true), number -> raw(transfer, flags, number));
    }

    private boolean raw(Transfer transfer, int directionAndSilence, long context) {
        long to = connection.target();
        int length = 0;
        long message = 0;
        if (transfer.notification != null) {
            length = transfer.notification.length;
            if (length > connection.maxSendBytes()) {
                throw new IllegalArgumentException("the notification has " + length + " bytes, and the connection takes "
                        + connection.maxSendBytes());
            }
            endpoint.scratchBuffer.put(0, transfer.notification);
            message = endpoint.scratchAddress;
        }
        int flags = directionAndSilence | (transfer.fenced ? Raw.FLAG_FENCE : 0);
        int code = transfer.lists == null
                ? rawOne(to, transfer, message, length, context, flags)
                : rawLists(to, transfer.lists, message, length, context, flags);
        return connection.taken(code, "accessing remote memory", flags);
    }

    private int rawOne(long to, Transfer transfer, long message, int length, long context, int flags) {
        long local = endpoint.regions.target(transfer.local);
        transfer.remote.write(endpoint.handles);
        return Raw.rma(
                to, message, length, local, transfer.localOffset, endpoint.handles, transfer.remoteOffset, transfer.bytes,
                context, flags);
    }

    private int rawLists(long to, SegmentLists lists, long message, int length, long context, int flags) {
        long address = endpoint.regions.listAddress();
        lists.write(endpoint.regions, address);
        return Raw.rmav(
                to, message, length, address, lists.localCount(), SegmentLists.remoteAt(address), lists.remoteCount(),
                context, flags);
    }

    private boolean startAtomic(Operation operation, Atomic atomic, RegionHandle remote, long offset, long number) {
        if (!atomic.givesValue()) {
            return rawAtomic(atomic, remote, offset, null, 0, number, 0);
        }
        ResultSlots slots = endpoint.regions.results();
        ResultSlots.Slot slot = slots.take();
        if (slot == null) {
            return false;
        }
        boolean started = false;
        try {
            started = rawAtomic(atomic, remote, offset, slot.region(), slot.offset, number, 0);
        } finally {
            if (started) {
                operation.slot = slot;
            } else {
                slots.giveBack(slot);
            }
        }
        return started;
    }

    private boolean rawAtomic(
            Atomic atomic, RegionHandle remote, long offset, Region result, long resultOffset, long context, int flags) {
        long to = connection.target();
        long resultHandle = result == null ? 0 : endpoint.regions.target(result);
        remote.write(endpoint.handles);
        int code = Raw.atomic(
                to, atomic.code, atomic.width, atomic.operand, atomic.compare, endpoint.handles, offset, resultHandle,
                resultOffset, context, flags | (atomic.fenced ? Raw.FLAG_FENCE : 0));
        return connection.taken(code, "changing remote memory", flags);
    }
}
