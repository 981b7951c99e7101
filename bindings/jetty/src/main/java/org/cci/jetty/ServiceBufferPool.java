package org.cci.jetty;

import org.cci.ServiceBuffer;
import org.eclipse.jetty.io.ByteBufferPool;
import org.eclipse.jetty.io.RetainableByteBuffer;
import org.eclipse.jetty.util.BufferUtil;

/**
 * Buffers for Jetty's cache, which clients of a {@link ServiceConnector} fetch from where they are: nothing is copied in this
 * process. What is in such a buffer must not change as long as the cache has it, so it is no pool for other uses. A buffer that is
 * released is freed when no partner may fetch from it any more.
 */
public final class ServiceBufferPool implements ByteBufferPool {
    /** A pool. */
    public ServiceBufferPool() {}

    @Override
    public RetainableByteBuffer.Mutable acquire(int bytes, boolean isDirect) {
        if (!isDirect || bytes <= Partner.SHARED_BYTES_MAX) {
            return ByteBufferPool.NON_POOLING.acquire(bytes, isDirect);
        }
        ServiceBuffer buffer = ServiceBuffer.allocate(bytes);
        RetainableByteBuffer.Mutable acquired = new Lendable(buffer, bytes, isReusable -> buffer.close()).retainable();
        BufferUtil.reset(acquired.getByteBuffer());
        return acquired;
    }

    @Override
    public void clear() {}
}
