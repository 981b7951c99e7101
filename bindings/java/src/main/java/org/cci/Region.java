package org.cci;

import java.lang.foreign.MemorySegment;

/** A range of memory that was registered: for peers, as far as it allows them, and for operations of its own endpoint. */
public final class Region implements AutoCloseable {
    private final RegionTable table;
    private final MemorySegment segment;
    private final RegionHandle handle;
    /** Whose memory it is, if it is the library's. */
    final Memory memory;
    /** Where C has the handle; 0 when the region is closed. Under the lock. */
    private long address;
    /** Reports the end of the program's arena. */
    private ArenaEnd arenaEnd;

    Region(RegionTable table, MemorySegment segment, Memory memory, long address, ArenaEnd arenaEnd) {
        this.table = table;
        this.segment = segment;
        this.memory = memory;
        this.address = address;
        this.arenaEnd = arenaEnd;
        handle = RegionHandle.at(address);
    }

    /**
     * What peers need to access it.
     *
     * @return the handle
     */
    public RegionHandle handle() {
        return handle;
    }

    /**
     * The memory. What peers write there is seen at the latest behind a message that was sent behind it.
     *
     * @return the segment
     */
    public MemorySegment segment() {
        return segment;
    }

    /**
     * Ends the registration. When this returns, no peer reads or changes the memory any more. Operations of this endpoint that
     * use it should be over; those that are not fail with {@link Status#RMA_HANDLE}. Closing again does nothing.
     */
    @Override
    public void close() {
        table.close(this);
    }

    // ----------------------------------------------------------------------------------------------- under the lock

    /** Where C has the handle, for a call. */
    long target() {
        if (address == 0) {
            throw new IllegalStateException("the region is closed: by itself, with its arena or with its endpoint");
        }
        return address;
    }

    boolean isOf(RegionTable other) {
        return table == other;
    }

    /** Closes it; returns where C has the handle, or 0 if it is closed already. */
    long take() {
        long taken = address;
        address = 0;
        if (arenaEnd != null) {
            arenaEnd.forget();
            arenaEnd = null;
        }
        return taken;
    }

    @Override
    public String toString() {
        return "region of " + segment.byteSize() + " bytes";
    }

    /** What an arena does before it frees the memory: it ends the region. */
    static final class ArenaEnd implements java.util.function.Consumer<MemorySegment> {
        private volatile Region region;
        private final RegionTable table;

        ArenaEnd(RegionTable table) {
            this.table = table;
        }

        void watch(Region region) {
            this.region = region;
        }

        void forget() {
            region = null;
        }

        @Override
        public void accept(MemorySegment segment) {
            table.arenaEnds(this, segment);
        }

        Region region() {
            return region;
        }
    }
}
