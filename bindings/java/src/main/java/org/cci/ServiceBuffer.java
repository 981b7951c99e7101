package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
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

    private ServiceBuffer(long address, long bytes, boolean isFile) {
        this.address = address;
        MemorySegment all = MemorySegment.ofAddress(address).reinterpret(bytes, arena, null);
        segment = isFile ? all.asReadOnly() : all;
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
        return new ServiceBuffer(address, bytes, false);
    }

    /**
     * A file, to be sent as long items or parts of some. Its bytes are read when a partner fetches them, from the system's page cache to
     * where they go: nothing is copied before. A partner on this host that belongs to the same user is given the file itself, open for
     * reading, and can read all of it. If the file becomes shorter, an item that it does not have any more can't be fetched, and who
     * reads the {@link #segment} gets an {@link InternalError}, as with any file that is mapped.
     *
     * <p>Such a buffer is for reading only: it is neither a window nor a return buffer.
     *
     * @param path a regular file that has a byte at least
     * @return the buffer, as long as the file is now
     * @throws IOException if there is no such file, or no memory
     */
    public static ServiceBuffer ofFile(Path path) throws IOException {
        try (Arena temporary = Arena.ofConfined()) {
            long name = temporary.allocateFrom(path.toString()).address();
            MemorySegment size = temporary.allocate(JAVA_LONG);
            long address = RawServices.fileMap(name, size.address());
            if (address == 0) {
                throw new IOException(Raw.lastError());
            }
            return new ServiceBuffer(address, size.get(JAVA_LONG, 0), true);
        }
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
        ServiceBuffer buffer = new ServiceBuffer(address, bytes, false);
        added.add(buffer);
        return buffer.item();
    }

    /**
     * All of it.
     *
     * @return a segment, which for a file is for reading only, that every thread may use until the buffer is closed
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
