package org.cci;

import java.util.Objects;

/** Which bytes a read or a write of remote memory moves. Values never change. */
public final class Transfer {
    final Region local;
    final long localOffset;
    final RegionHandle remote;
    final long remoteOffset;
    final long bytes;
    final boolean fenced;
    final byte[] notification;

    private Transfer(
            Region local, long localOffset, RegionHandle remote, long remoteOffset, long bytes, boolean fenced,
            byte[] notification) {
        this.local = local;
        this.localOffset = localOffset;
        this.remote = remote;
        this.remoteOffset = remoteOffset;
        this.bytes = bytes;
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
        return new Transfer(Objects.requireNonNull(local, "local"), localOffset, remote, remoteOffset, bytes, false, null);
    }

    /**
     * Has everything that was started earlier on the connection be complete at the peer first. Without it operations may
     * overtake one another, and messages.
     *
     * @return a changed transfer
     */
    public Transfer fenced() {
        return new Transfer(local, localOffset, remote, remoteOffset, bytes, true, notification);
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
        return new Transfer(local, localOffset, remote, remoteOffset, bytes, fenced, message.clone());
    }
}
