package org.cci.jetty;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.cci.Service;
import org.cci.ServiceId;

/**
 * Connections to services whose connector is a {@link ServiceConnector}, for clients that speak a protocol themselves. It has no
 * thread: of those that wait on its channels, one takes what comes for all.
 *
 * <pre>{@code
 * try (ServiceClient client = new ServiceClient();
 *         ServiceChannel channel = client.open(ServiceId.of("files"), Duration.ofSeconds(10))) {
 *     channel.write(request);
 *     ByteBuffer answer = channel.next();
 * }
 * }</pre>
 *
 * <p>A service that was killed is looked for by whoever has something to send to it, for up to 10 s; meanwhile the other channels
 * may wait, too.
 */
public final class ServiceClient implements AutoCloseable {
    /** What may wait to be read on each channel. */
    private static final int WINDOW_BYTES = 16 << 20;
    /** Channels to all services. */
    private static final int CHANNELS_MAX = 256;
    /** How long one look for what comes takes. */
    private static final long LOOK_NS = 100_000_000;
    /** How often a thread that waits looks whether it should take what comes. */
    private static final long NAP_NS = 20_000_000;
    /** A service that is silent for so long is asked whether it still knows a channel. */
    private static final long SILENCE_NS = 500_000_000;

    private final StreamMultiplexer streams =
            new StreamMultiplexer(Service.registerAny(), WINDOW_BYTES, CHANNELS_MAX, Runnable::run, null);
    /** Held by the thread that takes what comes. */
    private final ReentrantLock leading = new ReentrantLock();
    /** Those on which others wait. */
    private final ConcurrentLinkedQueue<ServiceChannel> waiting = new ConcurrentLinkedQueue<>();

    /** Opens a service of this process for the answers. */
    public ServiceClient() {}

    /**
     * Opens a channel.
     *
     * @param service the service
     * @param patience how long a read or a write waits for the peer
     * @return the channel, to be closed
     * @throws IOException if the service was not found within 10 s, or there are too many channels
     */
    public ServiceChannel open(ServiceId service, Duration patience) throws IOException {
        return new ServiceChannel(this, streams.open(service), patience);
    }

    /** Waits on a channel. */
    void await(ServiceChannel channel, BooleanSupplier isThere, Duration patience, String what) throws IOException {
        long deadline = System.nanoTime() + patience.toNanos();
        try {
            while (!isThere.getAsBoolean()) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new SocketTimeoutException(what + " took longer than " + patience.toMillis() + " ms");
                }
                if (leading.tryLock()) {
                    try {
                        lead(isThere, deadline);
                    } finally {
                        leading.unlock();
                        ServiceChannel next = waiting.peek();
                        if (next != null) {
                            next.wake();
                        }
                    }
                } else {
                    waiting.add(channel);
                    try {
                        channel.sleep(Math.min(left, NAP_NS), () -> isThere.getAsBoolean() || !leading.isLocked());
                    } finally {
                        waiting.remove(channel);
                    }
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            InterruptedIOException interrupted = new InterruptedIOException(what + " was interrupted");
            interrupted.initCause(e);
            throw interrupted;
        } catch (IllegalStateException e) {
            throw new IOException("the client is closed", e);
        }
    }

    private void lead(BooleanSupplier isThere, long deadline) throws InterruptedException {
        try {
            for (long left = 1; left > 0 && !isThere.getAsBoolean(); left = deadline - System.nanoTime()) {
                Duration look = Duration.ofNanos(Math.min(LOOK_NS, deadline - System.nanoTime()));
                if (!streams.receive(look)) {
                    streams.silent(SILENCE_NS).forEach(streams::ask);
                }
                streams.flush();
            }
        } finally {
            streams.rest();
        }
    }

    /** Ends all channels. */
    @Override
    public void close() {
        streams.close();
        leading.lock();
        try {
            streams.closeWindows();
        } finally {
            leading.unlock();
        }
    }
}
