package org.cci.jetty;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import org.cci.Service;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.server.AbstractConnector;
import org.eclipse.jetty.server.ConnectionFactory;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;

/**
 * A connector of Jetty by which clients reach a server by the name of a service, wherever it is: handlers and servlets serve over
 * it as over TCP, beside other connectors of the same server.
 *
 * <pre>{@code
 * Server server = new Server();
 * server.addConnector(new ServiceConnector(server, "files"));
 * }</pre>
 *
 * <p>The service is registered when the connector is started. If the name is taken, starting fails.
 */
public final class ServiceConnector extends AbstractConnector {
    /** What may wait to be read on each connection. */
    private static final int WINDOW_BYTES = 256 << 10;
    /** Connections of all clients. */
    private static final int CONNECTIONS_MAX = 1024;
    /** How long one look for what comes takes. */
    private static final Duration LOOK = Duration.ofMillis(200);

    /** How long a client may take to fetch what is lent to it, which is never more than a few MiB. */
    private static final Duration LEASE = Duration.ofSeconds(60);
    /** How long a client whose connection has ended may come back and ask for an answer again. */
    private static final Duration DISCONNECTED = Duration.ofSeconds(5);
    /** How long something for a client that has gone keeps a thread. */
    private static final Duration RESOLVE = Duration.ofSeconds(1);

    /** One takes what comes, and serves connections; another one goes on with that where a handler takes long. */
    private static final int THREADS = 2;

    private final String name;
    private StreamMultiplexer streams;
    private Turns turns;
    private Path folder;

    /**
     * A connector for HTTP.
     *
     * @param server the server
     * @param name the service's name
     */
    public ServiceConnector(Server server, String name) {
        this(server, name, new HttpConnectionFactory(new HttpConfiguration()));
    }

    /**
     * A connector for other protocols, or HTTP with a configuration.
     *
     * @param server the server
     * @param name the service's name
     * @param factories what makes connections, the default one first
     */
    public ServiceConnector(Server server, String name, ConnectionFactory... factories) {
        super(server, null, null, null, THREADS, factories);
        this.name = name;
        setName(name);
    }

    /**
     * Lets the command {@code cci get SERVICE/PATH}, and whoever else asks as it does, fetch the files of a folder. It speaks no
     * HTTP: handlers, and what they check, are not asked. What clients ask for and do not fetch takes up to 32 MiB of memory for each,
     * and 256 MiB for all, until they have had it for a minute, or have been gone for 5 s. Requests for more wait so long.
     *
     * @param root the folder, nothing outside of which is given out, wherever links lead; null, as at first: there is none
     */
    public synchronized void setFolder(Path root) {
        folder = root;
    }

    private synchronized FileRequests requests() throws IOException {
        return folder == null ? null : new FileRequests(folder, getExecutor());
    }

    @Override
    protected void doStart() throws Exception {
        FileRequests files = requests();
        Service service = Service.register(name);
        service.setLease(LEASE, DISCONNECTED);
        service.setResolveTimeout(RESOLVE);
        synchronized (this) {
            turns = new Turns(getExecutor());
            streams = new StreamMultiplexer(service, WINDOW_BYTES, CONNECTIONS_MAX, getExecutor(), this::accepted);
            if (files != null) {
                streams.onRequest(files::take);
            }
        }
        try {
            super.doStart();
        } catch (Exception e) {
            service.close();
            throw e;
        }
    }

    @Override
    protected void doStop() throws Exception {
        StreamMultiplexer ending = streams();
        if (ending != null) {
            // The acceptor leaves when the service ends.
            ending.close();
        }
        super.doStop();
        if (ending != null) {
            ending.closeWindows();
        }
    }

    @Override
    protected void accept(int acceptor) throws IOException, InterruptedException {
        StreamMultiplexer all = streams();
        try {
            turns().turn(all, LOOK);
        } catch (IllegalStateException e) {
            if (isRunning()) {
                throw e;
            }
        }
    }

    private synchronized Turns turns() {
        return turns;
    }

    /** The streams of a connector that was started. */
    synchronized StreamMultiplexer streams() {
        return streams;
    }

    /** A client has opened a connection. */
    private void accepted(ServiceStream stream) {
        ServiceEndPoint endPoint =
                new ServiceEndPoint(getScheduler(), turns(), stream, streams().id(), this::onEndPointClosed);
        endPoint.setIdleTimeout(getIdleTimeout());
        stream.listen(endPoint);
        endPoint.onOpen();
        onEndPointOpened(endPoint);
        Connection connection = getDefaultConnectionFactory().newConnection(this, endPoint);
        endPoint.setConnection(connection);
        connection.onOpen();
    }

    @Override
    public Object getTransport() {
        return streams();
    }

    @Override
    public String toString() {
        return "ServiceConnector{" + name + "}";
    }
}
