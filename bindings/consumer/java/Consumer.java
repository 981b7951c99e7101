import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;

/** A program that has the dependency which the guide shows, and nothing else: sends itself a message. */
public final class Consumer {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private Consumer() {}

    public static void main(String[] arguments) throws Exception {
        EndpointOptions options = EndpointOptions.DEFAULTS.progressThread(true);
        try (Context context = Context.open();
                Endpoint client = context.openEndpoint(options);
                Endpoint server = context.openEndpoint(options)) {
            CompletableFuture<Connection> opening =
                    client.connectAsync(server.uri(), Attribute.RELIABLE_ORDERED, new byte[0], PATIENCE);
            if (server.await(PATIENCE) instanceof Event.Requested requested) {
                requested.request().accept();
            }
            opening.get().send(ByteBuffer.wrap("hello".getBytes(UTF_8)), PATIENCE);
            Event event = server.await(PATIENCE);
            while (event != null && !(event instanceof Event.Received)) {
                event = server.await(PATIENCE);
            }
            if (event instanceof Event.Received received) {
                System.out.println("consumer: " + UTF_8.decode(received.message().buffer()));
            }
        }
    }
}
