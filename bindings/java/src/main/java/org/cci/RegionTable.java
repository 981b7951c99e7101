package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.HashSet;
import java.util.Set;

/** The memory and the regions of an endpoint. */
final class RegionTable {
    private final Endpoint endpoint;
    private final Set<Memory> memories = new HashSet<>();
    private final Set<Region> regions = new HashSet<>();
    /** Made when the first atomic needs it. */
    private ResultSlots results;
    /** Where C finds lists of segments; 0 until the first ones. */
    private long listAddress;

    RegionTable(Endpoint endpoint) {
        this.endpoint = endpoint;
    }

    Memory allocate(long bytes) {
        if (bytes <= 0) {
            throw new IllegalArgumentException("memory must have a positive number of bytes, not " + bytes);
        }
        endpoint.enter();
        try {
            Failure.check(Raw.rmaAlloc(endpoint.handle, bytes, endpoint.out), "allocating memory");
            Memory memory = new Memory(this, Raw.getLong(endpoint.out), bytes);
            memories.add(memory);
            return memory;
        } finally {
            endpoint.exit();
        }
    }

    void free(Memory memory) {
        endpoint.lock.lock();
        try {
            if (memory.isClosed()) {
                return;
            }
            if (memory.isRegistered()) {
                throw new IllegalStateException("the memory is registered: close its regions first");
            }
            // Whoever reads it at this moment gets an exception; only then is it let go.
            memory.closeView();
            memories.remove(memory);
            Failure.check(Raw.rmaFree(endpoint.handle, memory.address()), "freeing memory");
        } finally {
            endpoint.exit();
        }
    }

    /** Registers memory of the library's. */
    Region register(Memory memory, MemorySegment part, Connection only, int flags) {
        endpoint.enter();
        try {
            memory.checkOpen();
            Region region = new Region(this, part, memory, rawRegister(part, only, flags), null);
            memory.count(1);
            regions.add(region);
            return region;
        } finally {
            endpoint.exit();
        }
    }

    /** Registers memory of the program's. */
    Region register(MemorySegment segment, Arena arena, Connection only, int flags) {
        check(segment, arena, flags);
        endpoint.enter();
        try {
            // Before it is registered: if the arena ends meanwhile, it waits for the lock, and then ends the region. An arena
            // does what was added last first, so the memory is still there then.
            Region.ArenaEnd end = new Region.ArenaEnd(this);
            MemorySegment unused = segment.reinterpret(arena, end);
            assert unused != null;
            Region region = new Region(this, segment, null, rawRegister(segment, only, flags), end);
            end.watch(region);
            regions.add(region);
            return region;
        } finally {
            endpoint.exit();
        }
    }

    private static void check(MemorySegment segment, Arena arena, int flags) {
        if (!segment.isNative()) {
            throw new IllegalArgumentException("memory of the Java heap can't be registered, as it moves: allocate native memory");
        }
        if (segment.byteSize() == 0) {
            throw new IllegalArgumentException("an empty segment can't be registered");
        }
        if (segment.isReadOnly() && Access.changes(flags)) {
            throw new IllegalArgumentException("peers can't be allowed to change a read-only segment");
        }
        if (!segment.scope().equals(arena.scope())) {
            throw new IllegalArgumentException("the segment is not of this arena");
        }
        if (!segment.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException("the segment is of another thread");
        }
    }

    private long rawRegister(MemorySegment segment, Connection only, int flags) {
        long address = segment.address();
        long bytes = segment.byteSize();
        int code;
        if (only == null) {
            code = Raw.rmaRegister(endpoint.handle, address, bytes, flags, endpoint.out);
        } else {
            if (only.endpoint != endpoint) {
                throw new IllegalArgumentException("the connection is of another endpoint");
            }
            code = Raw.rmaRegisterConn(only.target(), address, bytes, flags, endpoint.out);
        }
        Failure.check(code, "registering memory");
        return Raw.getLong(endpoint.out);
    }

    /** Where C has the handle of an open region of this endpoint. */
    long target(Region region) {
        if (!region.isOf(this)) {
            throw new IllegalArgumentException("the region is of another endpoint");
        }
        return region.target();
    }

    /** Where lists of segments are written for C: {@link SegmentLists#BYTES} that last as long as the endpoint. */
    long listAddress() {
        if (listAddress == 0) {
            listAddress = endpoint.arena.allocate(SegmentLists.BYTES, 8).address();
        }
        return listAddress;
    }

    void close(Region region) {
        endpoint.lock.lock();
        try {
            deregister(region);
        } finally {
            endpoint.exit();
        }
    }

    private void deregister(Region region) {
        long address = region.take();
        if (address == 0) {
            return;
        }
        regions.remove(region);
        if (region.memory != null) {
            region.memory.count(-1);
        }
        Failure.check(Raw.rmaDeregister(endpoint.handle, address), "closing a region");
    }

    /** In the thread that closes an arena, before the arena's memory is freed. */
    void arenaEnds(Region.ArenaEnd end, MemorySegment segment) {
        endpoint.lock.lock();
        try {
            Region region = end.region();
            if (region == null) {
                return;
            }
            deregister(region);
            // The library remembers what it has found mapped.
            Failure.check(
                    Raw.rmaInvalidate(endpoint.handle, segment.address(), segment.byteSize()), "ending a region");
        } finally {
            endpoint.exit();
        }
    }

    /** Where the value before an atomic goes. */
    ResultSlots results() {
        if (results == null) {
            results = new ResultSlots(allocate(ResultSlots.BYTES));
        }
        return results;
    }

    /** An operation has ended: with the value before, if it was an atomic that has one. */
    void ended(Operation operation, Status status) {
        Object result = null;
        if (operation.slot != null) {
            result = operation.slot.value();
            results.giveBack(operation.slot);
        }
        RuntimeException failure = status == Status.SUCCESS ? null : Failure.ended(status, operation.what);
        endpoint.end(operation, result, failure);
    }

    void closeViews() {
        for (Memory memory : memories) {
            memory.closeView();
        }
    }

    void closeAll() {
        for (Region region : Set.copyOf(regions)) {
            deregister(region);
        }
        // The memory itself ends with the endpoint.
        memories.clear();
    }
}
