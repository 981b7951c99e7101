package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.util.List;

/** The segments of a transfer, and how C gets them. Values never change. */
final class SegmentLists {
    /** The most segments that C takes in a list. */
    static final int SEGMENTS_MAX = 1024;

    /** A {@code cci_rma_segment_t}: where the handle is, the offset, the length. */
    private static final long STRUCT_BYTES = 24;

    private static final long REMOTE_OFFSET = SEGMENTS_MAX * STRUCT_BYTES;
    private static final long HANDLES_OFFSET = 2 * REMOTE_OFFSET;

    /** What the longest lists take for C. */
    static final long BYTES = HANDLES_OFFSET + (long) SEGMENTS_MAX * RegionHandle.BYTES;

    private final List<LocalSegment> local;
    private final List<RemoteSegment> remote;

    SegmentLists(List<LocalSegment> local, List<RemoteSegment> remote) {
        this.local = List.copyOf(local);
        this.remote = List.copyOf(remote);
        for (int count : new int[] {this.local.size(), this.remote.size()}) {
            if (count == 0 || count > SEGMENTS_MAX) {
                throw new IllegalArgumentException("a list has 1 to " + SEGMENTS_MAX + " segments, not " + count);
            }
        }
    }

    int localCount() {
        return local.size();
    }

    int remoteCount() {
        return remote.size();
    }

    /** Where the list of the peer's segments is, in memory where both were written. */
    static long remoteAt(long address) {
        return address + REMOTE_OFFSET;
    }

    /** Writes both lists for C, to an address with room for {@link #BYTES}. Under the lock. */
    void write(RegionTable regions, long address) {
        long at = address;
        for (LocalSegment segment : local) {
            at = write(at, regions.target(segment.region()), segment.offset(), segment.bytes());
        }
        at = remoteAt(address);
        long handle = address + HANDLES_OFFSET;
        for (RemoteSegment segment : remote) {
            segment.handle().write(handle);
            at = write(at, handle, segment.offset(), segment.bytes());
            handle += RegionHandle.BYTES;
        }
    }

    private static long write(long at, long handle, long offset, long bytes) {
        Raw.MEMORY.set(JAVA_LONG, at, handle);
        Raw.MEMORY.set(JAVA_LONG, at + 8, offset);
        Raw.MEMORY.set(JAVA_LONG, at + 16, bytes);
        return at + STRUCT_BYTES;
    }
}
