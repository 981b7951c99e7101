package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of the library's for long items, windows and return buffers of {@link Service services}, shown without a copy. It lives
 * until it is closed. A long item that a receiver has yet to fetch from it still comes after that: the library keeps the memory
 * for so long.
 */
public final class ServiceBuffer implements AutoCloseable {
    private static final int CLOSED = -1;

    /** All that are open, by their addresses: long items come in some of them. */
    private static final ConcurrentSkipListMap<Long, ServiceBuffer> OPEN = new ConcurrentSkipListMap<>();

    private final long address;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    /** Calls that name it at this moment, or {@link #CLOSED}. */
    private final AtomicInteger users = new AtomicInteger();

    private ServiceBuffer(long address, long bytes) {
        this.address = address;
        segment = MemorySegment.ofAddress(address).reinterpret(bytes, arena, null);
        OPEN.put(address, this);
    }

    /**
     * A buffer of zeros.
     *
     * @param bytes its length, 1 to 4294967295
     * @return the buffer
     * @throws IllegalArgumentException if it is no such length
     * @throws SystemException if there is no memory
     */
    public static ServiceBuffer allocate(long bytes) {
        checkLength(bytes);
        long address = RawServices.alloc(bytes);
        if (address == 0) {
            throw new SystemException(Status.NO_MEMORY, "a buffer of " + bytes + " bytes: " + Raw.lastError());
        }
        return new ServiceBuffer(address, bytes);
    }

    static void checkLength(long bytes) {
        if (bytes <= 0 || bytes > 0xffff_ffffL) {
            throw new IllegalArgumentException("a buffer has 1 to 4294967295 bytes, and not " + bytes);
        }
    }

    /** A received item: in a buffer that is open, or else in memory of the library's, which is added to the new buffers. */
    static ServiceItem received(long address, long bytes, List<ServiceBuffer> added) {
        Map.Entry<Long, ServiceBuffer> below = OPEN.floorEntry(address);
        if (below != null && address + bytes <= below.getKey() + below.getValue().segment.byteSize()) {
            return new ServiceItem(below.getValue(), address - below.getKey(), bytes);
        }
        ServiceBuffer buffer = new ServiceBuffer(address, bytes);
        added.add(buffer);
        return buffer.item();
    }

    /**
     * All of it.
     *
     * @return a segment that every thread may use until the buffer is closed
     */
    public MemorySegment segment() {
        return segment;
    }

    /**
     * All of it, to be sent or offered.
     *
     * @return the whole buffer as an item
     */
    public ServiceItem item() {
        return new ServiceItem(this, 0, segment.byteSize());
    }

    /**
     * A part of it, to be sent or offered.
     *
     * @param offset where it begins, bytes
     * @param length how long it is, bytes
     * @return the part as an item
     * @throws IndexOutOfBoundsException if it is not in the buffer
     */
    public ServiceItem item(long offset, long length) {
        Objects.checkFromIndexSize(offset, length, segment.byteSize());
        return new ServiceItem(this, offset, length);
    }

    /** A call begins that names this buffer. */
    void enter() {
        int before = users.getAndUpdate(count -> count == CLOSED ? CLOSED : count + 1);
        if (before == CLOSED) {
            throw new IllegalStateException("the buffer is closed");
        }
    }

    /** A call has ended that names this buffer. */
    void exit() {
        users.decrementAndGet();
    }

    long address() {
        return address;
    }

    /**
     * Frees it. Nothing is written to it any more. Closing again does nothing.
     *
     * @throws IllegalStateException if a call that names it is under way, or native code uses its segment at this moment
     */
    @Override
    public void close() {
        if (!users.compareAndSet(0, CLOSED)) {
            if (users.get() == CLOSED) {
                return;
            }
            throw new IllegalStateException("the buffer is in use by a call");
        }
        try {
            arena.close();
        } catch (IllegalStateException e) {
            users.set(0);
            throw e;
        }
        OPEN.remove(address);
        RawServices.free(address);
    }

    @Override
    public String toString() {
        return "buffer of " + segment.byteSize() + " bytes";
    }
}
