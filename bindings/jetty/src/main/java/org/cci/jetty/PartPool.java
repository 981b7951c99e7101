package org.cci.jetty;

import java.util.ArrayDeque;
import java.util.concurrent.atomic.AtomicLong;
import org.cci.ServiceBuffer;

/**
 * Buffers for what is sent to one partner, used again when it has fetched them: their memory is warm, and nobody clears it. They
 * are not shared with other partners, since a partner may look at what it was lent for longer than it says.
 */
final class PartPool {
    /** Idle buffers of one partner, and the bytes of those of all. */
    private static final int IDLE_MAX = 4;

    private static final long IDLE_BYTES_MAX = 64 << 20;
    private static final AtomicLong IDLE_BYTES = new AtomicLong();

    private final int bytes;
    private final ArrayDeque<ServiceBuffer> idle = new ArrayDeque<>();
    private boolean closed;

    /**
     * A pool.
     *
     * @param bytes the length of its buffers
     */
    PartPool(int bytes) {
        this.bytes = bytes;
    }

    /** A buffer with whatever it holds. */
    ServiceBuffer take() {
        synchronized (this) {
            ServiceBuffer buffer = idle.poll();
            if (buffer != null) {
                IDLE_BYTES.addAndGet(-bytes);
                return buffer;
            }
        }
        return ServiceBuffer.allocate(bytes);
    }

    /** The first bytes of a buffer of this pool, as a part. */
    Part part(ServiceBuffer buffer, int count) {
        return new Part(buffer.item(0, count), isFetched -> giveBack(buffer, isFetched));
    }

    /** Takes a buffer back, which may still be fetched from if it is not reusable. */
    void giveBack(ServiceBuffer buffer, boolean isReusable) {
        synchronized (this) {
            if (isReusable && !closed && idle.size() < IDLE_MAX && IDLE_BYTES.addAndGet(bytes) <= IDLE_BYTES_MAX) {
                idle.push(buffer);
                return;
            }
            if (isReusable && !closed && idle.size() < IDLE_MAX) {
                IDLE_BYTES.addAndGet(-bytes);
            }
        }
        buffer.close();
    }

    /** Frees the idle buffers. */
    void trim() {
        ArrayDeque<ServiceBuffer> freed;
        synchronized (this) {
            freed = new ArrayDeque<>(idle);
            idle.clear();
            IDLE_BYTES.addAndGet(-(long) bytes * freed.size());
        }
        freed.forEach(ServiceBuffer::close);
    }

    /** Frees the idle buffers, and those that are given back later. */
    void close() {
        synchronized (this) {
            closed = true;
        }
        trim();
    }
}
