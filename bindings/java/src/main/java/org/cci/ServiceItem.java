package org.cci;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A part of a buffer: a long item of a message, or a return buffer that is offered.
 *
 * @param buffer the buffer
 * @param offset where it begins there, bytes
 * @param length how long it is, bytes
 */
public record ServiceItem(ServiceBuffer buffer, long offset, long length) {
    /**
     * A part of a buffer.
     *
     * @throws IndexOutOfBoundsException if it is not in the buffer
     */
    public ServiceItem {
        Objects.checkFromIndexSize(offset, length, buffer.segment().byteSize());
    }

    /**
     * Its bytes, without a copy.
     *
     * @return a segment that every thread may use until the buffer is closed
     */
    public MemorySegment segment() {
        return buffer.segment().asSlice(offset, length);
    }

    /**
     * Its bytes, without a copy.
     *
     * @return a buffer, big-endian as buffers are at first
     * @throws UnsupportedOperationException if it is longer than a buffer can be
     */
    public ByteBuffer bytes() {
        return segment().asByteBuffer();
    }
}
