package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * A connection to a service whose connector is a {@link ServiceConnector}: a blocking stream of bytes each way, as a socket is, for
 * clients that speak a protocol themselves. One thread may read while another one writes.
 *
 * <p>{@link #next} shows bytes where they came, in memory that the library has fetched them into; {@link #read} copies them.
 */
public final class ServiceChannel implements ByteChannel {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private final ServiceClient client;
    private final ServiceStream stream;
    private final Duration patience;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    /** What the program reads now. Only the thread that reads knows it. */
    private ServiceStream.Lent lent = new ServiceStream.Lent(NOTHING, null);

    /** A thread waits. It looks again before it sleeps, and now and then. */
    private volatile boolean isWaiting;

    private volatile boolean closed;

    /**
     * A channel over a stream.
     *
     * @param client whose it is
     * @param stream the stream, which is nobody else's
     * @param patience how long a read or a write waits for the peer
     */
    ServiceChannel(ServiceClient client, ServiceStream stream, Duration patience) {
        this.client = client;
        this.stream = stream;
        this.patience = patience;
        stream.listen(new ServiceStream.Listener() {
            @Override
            public void onReadable() {
                wake();
            }

            @Override
            public void onWritable() {
                wake();
            }
        });
    }

    /** There may be something new for a thread that waits here. */
    void wake() {
        if (isWaiting) {
            lock.lock();
            try {
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    /** Waits for {@link #wake}, unless something is there already. */
    void sleep(long ns, BooleanSupplier isThere) throws InterruptedException {
        lock.lock();
        try {
            isWaiting = true;
            if (!isThere.getAsBoolean()) {
                long ignored = changed.awaitNanos(ns);
            }
        } finally {
            isWaiting = false;
            lock.unlock();
        }
    }

    private void await(BooleanSupplier isThere, String what) throws IOException {
        if (!isThere.getAsBoolean()) {
            client.await(this, isThere, patience, what);
        }
    }

    /**
     * The next bytes, where they came. Waits for them.
     *
     * @return the bytes, which stay as they are until the next call of this or {@link #read}, or the channel is closed; null at the
     *     end of the stream
     * @throws IOException if the stream has failed, the peer is silent for too long, or the channel is closed
     */
    public ByteBuffer next() throws IOException {
        if (closed) {
            throw new EOFException("the channel is closed");
        }
        if (lent != null && lent.bytes().hasRemaining()) {
            return lent.bytes();
        }
        if (lent != null) {
            stream.giveBack(lent);
        }
        lent = null;
        while (true) {
            await(stream::isReadable, "reading");
            ServiceStream.Lent next = stream.lend();
            if (next == null) {
                return null;
            }
            lent = next;
            if (next.bytes().hasRemaining()) {
                return next.bytes();
            }
        }
    }

    @Override
    public int read(ByteBuffer to) throws IOException {
        if (!to.hasRemaining()) {
            return 0;
        }
        ByteBuffer from = next();
        if (from == null) {
            return -1;
        }
        int bytes = Math.min(from.remaining(), to.remaining());
        to.put(from.slice(from.position(), bytes));
        from.position(from.position() + bytes);
        return bytes;
    }

    /** Writes all of it. Waits while the peer has no room. */
    @Override
    public int write(ByteBuffer from) throws IOException {
        int bytes = from.remaining();
        while (!stream.write(from)) {
            await(stream::isWritable, "writing");
        }
        return bytes;
    }

    /** Ends the direction to the peer: it reads the end behind what was written. */
    public void shutdownOutput() {
        stream.writeEnd();
    }

    @Override
    public boolean isOpen() {
        return !closed;
    }

    /** Ends both directions. What {@link #next} has shown is not there any more: no other thread reads it now. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (lent != null) {
            stream.giveBack(lent);
            lent = null;
        }
        stream.writeEnd();
        stream.closeInput();
    }
}
