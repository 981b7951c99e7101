package org.cci.jetty;

import java.util.ArrayDeque;
import org.cci.ServiceBuffer;

/** Buffers that long items are fetched into, used again. */
final class WindowPool {
    private static final int IDLE_MAX = 16;

    private final long bytes;
    private final ArrayDeque<ServiceBuffer> idle = new ArrayDeque<>();
    private int inUse;
    private boolean closed;

    WindowPool(long bytes) {
        this.bytes = bytes;
    }

    ServiceBuffer take() {
        synchronized (this) {
            ServiceBuffer buffer = idle.isEmpty() ? ServiceBuffer.allocate(bytes) : idle.poll();
            inUse++;
            return buffer;
        }
    }

    synchronized int inUse() {
        return inUse;
    }

    void giveBack(ServiceBuffer buffer) {
        synchronized (this) {
            inUse--;
            if (!closed && idle.size() < IDLE_MAX) {
                idle.push(buffer);
                return;
            }
        }
        buffer.close();
    }

    void close() {
        synchronized (this) {
            closed = true;
        }
        for (ServiceBuffer buffer = idle.poll(); buffer != null; buffer = idle.poll()) {
            buffer.close();
        }
    }
}
