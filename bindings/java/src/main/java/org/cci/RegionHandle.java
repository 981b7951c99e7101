package org.cci;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Names a region, and proves the right to use it: 32 bytes that a program sends to those who may. */
public final class RegionHandle {
    /** Its length in bytes. */
    public static final int BYTES = 32;

    private final byte[] bytes;

    private RegionHandle(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * A handle that came from a peer.
     *
     * @param bytes {@link #BYTES} bytes
     * @return the handle
     * @throws IllegalArgumentException if it is not so many
     */
    public static RegionHandle ofBytes(byte[] bytes) {
        if (bytes.length != BYTES) {
            throw new IllegalArgumentException("a region handle has " + BYTES + " bytes, not " + bytes.length);
        }
        return new RegionHandle(bytes.clone());
    }

    /**
     * A handle that came from a peer, from the position of a buffer on, which moves behind it.
     *
     * @param buffer the buffer
     * @return the handle
     * @throws java.nio.BufferUnderflowException if fewer than {@link #BYTES} bytes remain
     */
    public static RegionHandle get(ByteBuffer buffer) {
        byte[] bytes = new byte[BYTES];
        buffer.get(bytes);
        return new RegionHandle(bytes);
    }

    /** One that C shows at an address. */
    static RegionHandle at(long address) {
        return new RegionHandle(ConnectionRequest.bytes(address, BYTES));
    }

    /**
     * Its bytes, for a peer.
     *
     * @return a copy
     */
    public byte[] toBytes() {
        return bytes.clone();
    }

    /**
     * Puts its bytes into a buffer, for a peer.
     *
     * @param buffer the buffer, whose position moves
     * @throws java.nio.BufferOverflowException if fewer than {@link #BYTES} bytes remain
     */
    public void put(ByteBuffer buffer) {
        buffer.put(bytes);
    }

    /** Puts it where C can read it. */
    void write(long address) {
        java.lang.foreign.MemorySegment.copy(
                bytes, 0, Raw.MEMORY, java.lang.foreign.ValueLayout.JAVA_BYTE, address, BYTES);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof RegionHandle handle && Arrays.equals(bytes, handle.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /** Says nothing of what it proves. */
    @Override
    public String toString() {
        return "region handle";
    }
}
