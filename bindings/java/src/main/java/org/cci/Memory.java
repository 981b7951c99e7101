package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Memory of the library: zeroed at first, aligned to a page. It lives until it, or its endpoint, is closed. */
public final class Memory implements AutoCloseable {
    private final RegionTable table;
    private final long address;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    /** Regions of it. Under the lock. */
    private int registered;

    private boolean closed;

    Memory(RegionTable table, long address, long bytes) {
        this.table = table;
        this.address = address;
        segment = MemorySegment.ofAddress(address).reinterpret(bytes, arena, null);
    }

    /**
     * All of it.
     *
     * @return a segment that every thread may use until the memory is closed
     */
    public MemorySegment segment() {
        return segment;
    }

    /**
     * Registers all of it, so that peers may access it.
     *
     * @param access what they may do; nothing: it is only for operations of this endpoint
     * @return the region, to be closed before the memory
     * @throws IllegalStateException if the memory is closed
     * @throws SystemException if there are too many regions
     */
    public Region register(Access... access) {
        return register(0, segment.byteSize(), access);
    }

    /**
     * Registers a part of it.
     *
     * @param offset where it begins, bytes
     * @param length how long it is, bytes
     * @param access what peers may do
     * @return the region, to be closed before the memory
     * @throws IndexOutOfBoundsException if it is not in the memory
     * @throws IllegalArgumentException if it is empty
     * @throws IllegalStateException if the memory is closed
     * @throws SystemException if there are too many regions
     */
    public Region register(long offset, long length, Access... access) {
        return table.register(this, segment.asSlice(offset, length), null, Access.flags(access));
    }

    /**
     * Registers all of it for the peer of one connection alone.
     *
     * @param connection the connection
     * @param access what the peer may do
     * @return the region, to be closed before the memory
     * @throws IllegalArgumentException if the connection is of another endpoint
     * @throws IllegalStateException if the memory is closed, or the connection is not open
     * @throws SystemException if there are too many regions
     */
    public Region registerFor(Connection connection, Access... access) {
        return registerFor(connection, 0, segment.byteSize(), access);
    }

    /**
     * Registers a part of it for the peer of one connection alone.
     *
     * @param connection the connection
     * @param offset where the part begins, bytes
     * @param length how long it is, bytes
     * @param access what the peer may do
     * @return the region, to be closed before the memory
     * @throws IndexOutOfBoundsException if it is not in the memory
     * @throws IllegalArgumentException if the connection is of another endpoint, or the part is empty
     * @throws IllegalStateException if the memory is closed, or the connection is not open
     * @throws SystemException if there are too many regions
     */
    public Region registerFor(Connection connection, long offset, long length, Access... access) {
        return table.register(this, segment.asSlice(offset, length), connection, Access.flags(access));
    }

    /**
     * Frees it. Closing again does nothing.
     *
     * @throws IllegalStateException if some of it is registered, or native code uses its segment at this moment
     */
    @Override
    public void close() {
        table.free(this);
    }

    // ----------------------------------------------------------------------------------------------- under the lock

    void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the memory is closed, or its endpoint is");
        }
    }

    boolean isClosed() {
        return closed;
    }

    long address() {
        return address;
    }

    void count(int change) {
        registered += change;
    }

    boolean isRegistered() {
        return registered > 0;
    }

    void closeView() {
        if (!closed) {
            arena.close();
            closed = true;
        }
    }

    @Override
    public String toString() {
        return "memory of " + segment.byteSize() + " bytes";
    }
}
