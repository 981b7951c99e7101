package org.cci.examples;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.EventHandler;
import org.cci.Message;

/**
 * An echo server: takes every client and sends back what comes.
 *
 * <p>{@code EchoServer DEVICE [SERVICE]} prints its URI and serves until its standard input ends.
 */
public final class EchoServer implements EventHandler {
    private EchoServer() {}

    /**
     * Runs it.
     *
     * @param arguments the device, and perhaps the service
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        EndpointOptions options = EndpointOptions.DEFAULTS;
        if (arguments.length > 1) {
            options = options.service(arguments[1]);
        }
        try (Context context = Context.open();
                Endpoint endpoint = context.device(arguments[0]).open(options)) {
            System.out.println(endpoint.uri());
            AtomicBoolean ended = Input.ended();
            EchoServer server = new EchoServer();
            while (!ended.get()) {
                // As long as something comes there is no pause; then it sleeps until more does.
                for (int idle = 0; idle < 1000; idle++) {
                    if (endpoint.poll(64, server) > 0) {
                        idle = 0;
                    }
                }
                Event event = endpoint.await(Duration.ofMillis(100));
                if (event instanceof Event.Received received) {
                    try (Message message = received.message()) {
                        server.onMessage(received.connection(), message);
                    }
                } else if (event != null) {
                    server.onEvent(event);
                }
            }
        }
    }

    @Override
    public void onMessage(Connection connection, Message message) {
        if (!connection.isOpen()) {
            return;
        }
        // Straight from the receive buffer, without an event at the end.
        if (!connection.trySend(message)) {
            try {
                // The client does not take its answers: wait for room.
                connection.send(ByteBuffer.wrap(message.toByteArray()), Duration.ofSeconds(10));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void onEvent(Event event) {
        if (event instanceof Event.Requested requested) {
            requested.request().accept();
        }
    }
}
