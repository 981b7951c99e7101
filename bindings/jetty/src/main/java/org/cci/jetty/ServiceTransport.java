package org.cci.jetty;

import java.net.SocketAddress;
import java.time.Duration;
import java.util.Map;
import org.cci.Service;
import org.cci.ServiceId;
import org.eclipse.jetty.io.ClientConnector;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.Transport;
import org.eclipse.jetty.util.Promise;

/**
 * What Jetty's {@code HttpClient} reaches services by. Requests name the service that they go to:
 *
 * <pre>{@code
 * try (ServiceTransport transport = new ServiceTransport()) {
 *     ContentResponse response = client.newRequest("http://files/a.txt")
 *             .transport(transport.to(ServiceId.of("files")))
 *             .send();
 * }
 * }</pre>
 *
 * <p>A connection to a service that was killed fails as soon as that is found out, and so do its requests; the next request
 * makes a connection to wherever the service is then.
 */
public final class ServiceTransport implements AutoCloseable {
    /** What may wait to be read on each connection. */
    private static final int WINDOW_BYTES = 4 << 20;
    /** Connections to all services. */
    private static final int CONNECTIONS_MAX = 256;
    /** How long one look for what comes takes. */
    private static final Duration LOOK = Duration.ofMillis(100);
    /** A service that is silent for so long is asked whether it still knows a connection. */
    private static final long SILENCE_NS = 500_000_000;

    private final StreamMultiplexer streams;
    private final Thread receiver = new Thread(this::receive, "cci-service-transport");
    private volatile boolean closed;

    /** Opens a service of this process for the answers, and starts a daemon thread that takes what comes. */
    public ServiceTransport() {
        this(Service.registerAny());
    }

    /**
     * A transport by a service.
     *
     * @param service the service, which is nobody else's and ends with this
     */
    ServiceTransport(Service service) {
        streams = new StreamMultiplexer(service, WINDOW_BYTES, CONNECTIONS_MAX, Thread::startVirtualThread, null);
        receiver.setDaemon(true);
        receiver.start();
    }

    /**
     * A transport to a service.
     *
     * @param service the service
     * @return what requests are given; those to one service share their connections
     */
    public Transport to(ServiceId service) {
        return new To(this, service);
    }

    /**
     * A transport to a service.
     *
     * @param all what all of them share
     * @param service the service
     */
    private record To(ServiceTransport all, ServiceId service) implements Transport {
        @Override
        public SocketAddress getSocketAddress() {
            return new ServiceAddress(service);
        }

        @Override
        public boolean requiresDomainNameResolution() {
            return false;
        }

        @Override
        public void connect(SocketAddress address, Map<String, Object> context) {
            @SuppressWarnings("unchecked")
            Promise<Connection> promise =
                    (Promise<Connection>) context.get(ClientConnector.CONNECTION_PROMISE_CONTEXT_KEY);
            try {
                ClientConnector connector = (ClientConnector) context.get(ClientConnector.CONTEXT_KEY);
                ServiceStream stream = all.streams.open(service);
                ServiceEndPoint endPoint = new ServiceEndPoint(
                        connector.getScheduler(), connector.getExecutor(), stream, all.streams.id(), closed -> {});
                endPoint.setIdleTimeout(connector.getIdleTimeout().toMillis());
                stream.listen(endPoint);
                Transport transport = (Transport) context.get(Transport.CONTEXT_KEY);
                Connection connection = transport.newConnection(endPoint, context);
                endPoint.setConnection(connection);
                endPoint.onOpen();
                connection.onOpen();
                promise.succeeded(connection);
            } catch (Exception e) {
                promise.failed(e);
            }
        }
    }

    private void receive() {
        try {
            while (!closed) {
                streams.turn(LOOK);
                for (ServiceStream silent : streams.silent(SILENCE_NS)) {
                    streams.ask(silent);
                }
            }
        } catch (InterruptedException | IllegalStateException e) {
            // It is closed.
        }
        streams.closeWindows();
    }

    /** Ends all connections. */
    @Override
    public void close() {
        closed = true;
        streams.close();
    }
}
