package org.cci.jetty;

import java.util.ArrayDeque;
import org.cci.ServiceBuffer;

/** Buffers that long items are fetched into, used again. */
final class WindowPool {
    private static final int IDLE_MAX = 16;

    private final long bytes;
    private final ArrayDeque<ServiceBuffer> idle = new ArrayDeque<>();
    private boolean closed;

    WindowPool(long bytes) {
        this.bytes = bytes;
    }

    ServiceBuffer take() {
        synchronized (this) {
            ServiceBuffer buffer = idle.poll();
            if (buffer != null) {
                return buffer;
            }
        }
        return ServiceBuffer.allocate(bytes);
    }

    void giveBack(ServiceBuffer buffer) {
        synchronized (this) {
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
