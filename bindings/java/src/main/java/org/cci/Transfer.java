package org.cci;

import java.util.List;
import java.util.Objects;

/** Which bytes a read or a write of remote memory moves. Values never change. */
public final class Transfer {
    /** The most segments in a list. */
    public static final int SEGMENTS_MAX = SegmentLists.SEGMENTS_MAX;

    final Region local;
    final long localOffset;
    final RegionHandle remote;
    final long remoteOffset;
    final long bytes;
    /** Instead of all above: several runs of bytes. Null if there is one at each side. */
    final SegmentLists lists;

    final boolean fenced;
    final byte[] notification;

    private Transfer(
            Region local, long localOffset, RegionHandle remote, long remoteOffset, long bytes, SegmentLists lists,
            boolean fenced, byte[] notification) {
        this.local = local;
        this.localOffset = localOffset;
        this.remote = remote;
        this.remoteOffset = remoteOffset;
        this.bytes = bytes;
        this.lists = lists;
        this.fenced = fenced;
        this.notification = notification;
    }

    /**
     * A transfer between memory of this side's and of the peer's.
     *
     * @param local memory of this endpoint
     * @param localOffset where the bytes begin there
     * @param remote memory of the peer
     * @param remoteOffset where the bytes begin there
     * @param bytes how many, not 0
     * @return the transfer, to be read or written
     */
    public static Transfer of(Region local, long localOffset, RegionHandle remote, long remoteOffset, long bytes) {
        Objects.requireNonNull(remote, "remote");
        Objects.requireNonNull(local, "local");
        return new Transfer(local, localOffset, remote, remoteOffset, bytes, null, false, null);
    }

    /**
     * A transfer between memory that is not contiguous: moves the segments of one list, in order, into those of the other. Both
     * lists have the same number of bytes in all, but may be divided differently. It is one operation: it ends once, and a
     * notification comes behind all of the data.
     *
     * @param local memory of this endpoint
     * @param remote memory of the peer
     * @return the transfer, to be read or written; starting it throws an {@code IllegalArgumentException} if the lists have different
     *     lengths or no bytes, or make more than {@link #SEGMENTS_MAX} runs that are contiguous at both sides
     * @throws IllegalArgumentException if a list is empty, or has more than {@link #SEGMENTS_MAX} segments
     */
    public static Transfer of(List<LocalSegment> local, List<RemoteSegment> remote) {
        return new Transfer(null, 0, null, 0, 0, new SegmentLists(local, remote), false, null);
    }

    /**
     * Has everything that was started earlier on the connection be complete at the peer first. Without it operations may
     * overtake one another, and messages.
     *
     * @return a changed transfer
     */
    public Transfer fenced() {
        return new Transfer(local, localOffset, remote, remoteOffset, bytes, lists, true, notification);
    }

    /**
     * Sends a message behind the data: the peer's program gets it when they are in place. If the transfer fails, it is not
     * delivered.
     *
     * @param message at least one byte, and at most {@link Connection#maxSendBytes}
     * @return a changed transfer
     * @throws IllegalArgumentException if it is empty
     */
    public Transfer notifying(byte[] message) {
        if (message.length == 0) {
            throw new IllegalArgumentException("a notification has at least one byte");
        }
        return new Transfer(local, localOffset, remote, remoteOffset, bytes, lists, fenced, message.clone());
    }
}
