package org.cci;

import java.util.Objects;

/**
 * A run of bytes in memory of this side's, in a {@link Transfer} of several. Values never change.
 *
 * @param region the memory
 * @param offset where the run begins there, bytes
 * @param bytes how long it is; it may be 0
 */
public record LocalSegment(Region region, long offset, long bytes) {
    /** A run of bytes. Whether it is in the region is checked when the transfer starts. */
    public LocalSegment {
        Objects.requireNonNull(region, "region");
    }
}
