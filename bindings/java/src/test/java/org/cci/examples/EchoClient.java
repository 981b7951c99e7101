package org.cci.examples;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.Message;

/**
 * An echo client: sends lines and prints what comes back.
 *
 * <p>{@code EchoClient URI LINE...}
 */
public final class EchoClient {
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private EchoClient() {}

    /**
     * Runs it.
     *
     * @param arguments the URI of the server, and lines
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        try (Context context = Context.open();
                Endpoint endpoint = context.openEndpoint(EndpointOptions.DEFAULTS)) {
            Connection server = endpoint.connect(arguments[0], Attribute.RELIABLE_ORDERED, new byte[0], PATIENCE);
            for (int i = 1; i < arguments.length; i++) {
                server.send(ByteBuffer.wrap(arguments[i].getBytes(StandardCharsets.UTF_8)), PATIENCE);
                Event event = endpoint.await(PATIENCE);
                if (!(event instanceof Event.Received received)) {
                    throw new IllegalStateException("no echo, but " + event);
                }
                try (Message message = received.message()) {
                    System.out.println(StandardCharsets.UTF_8.decode(message.buffer()));
                }
            }
        }
    }
}
