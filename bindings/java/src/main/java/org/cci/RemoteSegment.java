package org.cci;

import java.util.Objects;

/**
 * A run of bytes in memory of the peer's, in a {@link Transfer} of several. Values never change.
 *
 * @param handle names the memory
 * @param offset where the run begins there, bytes
 * @param bytes how long it is; it may be 0
 */
public record RemoteSegment(RegionHandle handle, long offset, long bytes) {
    /** A run of bytes. The peer checks whether it is in the region. */
    public RemoteSegment {
        Objects.requireNonNull(handle, "handle");
    }
}
