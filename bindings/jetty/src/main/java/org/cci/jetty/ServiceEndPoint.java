package org.cci.jetty;

import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import org.cci.ServiceId;
import org.eclipse.jetty.io.AbstractEndPoint;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.EndPoint;
import org.eclipse.jetty.io.EofException;
import org.eclipse.jetty.util.BufferUtil;
import org.eclipse.jetty.util.thread.Scheduler;

/** A stream between services, as Jetty's end of a connection. */
final class ServiceEndPoint extends AbstractEndPoint implements ServiceStream.Listener {
    private final ServiceStream stream;
    private final ServiceId local;
    private final Executor executor;
    /** Called when it is closed. */
    private final Consumer<EndPoint> closed;
    private final Runnable fillable = () -> getFillInterest().fillable();
    private final Runnable writable = () -> getWriteFlusher().completeWrite();

    ServiceEndPoint(
            Scheduler scheduler, Executor executor, ServiceStream stream, ServiceId local, Consumer<EndPoint> closed) {
        super(scheduler);
        this.stream = stream;
        this.local = local;
        this.executor = executor;
        this.closed = closed;
    }

    /** Whom it leads to. */
    Partner partner() {
        return stream.partner;
    }

    @Override
    public void onReadable() {
        if (getFillInterest().isInterested()) {
            executor.execute(fillable);
        }
    }

    @Override
    public void onWritable() {
        if (getWriteFlusher().isPending()) {
            executor.execute(writable);
        }
    }

    @Override
    public int fill(ByteBuffer buffer) throws IOException {
        if (isInputShutdown()) {
            return -1;
        }
        int position = BufferUtil.flipToFill(buffer);
        int filled;
        try {
            filled = stream.read(buffer);
        } finally {
            BufferUtil.flipToFlush(buffer, position);
        }
        if (filled > 0) {
            notIdle();
        } else if (filled < 0) {
            shutdownInput();
        }
        return filled;
    }

    @Override
    protected void needsFillInterest() throws IOException {
        // Bytes may have come before there was interest.
        if (stream.isReadable()) {
            executor.execute(fillable);
        }
    }

    @Override
    public boolean flush(ByteBuffer... buffers) throws IOException {
        if (isOutputShutdown()) {
            throw new EofException();
        }
        boolean all = stream.write(buffers);
        notIdle();
        return all;
    }

    @Override
    protected void onIncompleteFlush() {
        // Room may have come before the flusher was pending.
        if (stream.isWritable()) {
            executor.execute(writable);
        }
    }

    @Override
    protected void doShutdownOutput() {
        stream.writeEnd();
    }

    @Override
    protected void doClose() {
        stream.writeEnd();
        stream.closeInput();
    }

    @Override
    public void onClose(Throwable cause) {
        super.onClose(cause);
        Connection connection = getConnection();
        if (connection != null) {
            connection.onClose(cause);
        }
        closed.accept(this);
    }

    @Override
    public SocketAddress getLocalSocketAddress() {
        return new ServiceAddress(local);
    }

    @Override
    public SocketAddress getRemoteSocketAddress() {
        return new ServiceAddress(stream.partner.id);
    }

    @Override
    public Object getTransport() {
        return stream;
    }
}
