package org.cci.examples;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.cci.Access;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.Memory;
import org.cci.Message;
import org.cci.Region;

/**
 * A board that clients write to, by remote memory: a counter, and lines of 64 bytes behind it.
 *
 * <p>{@code BoardServer DEVICE} prints its URI, and each line that a client says it has written, until its standard input ends.
 */
public final class BoardServer {
    /** Where the lines begin, and how long each is. */
    static final int LINE_BYTES = 64;
    /** How many there are. */
    static final int LINES = 63;

    private BoardServer() {}

    /**
     * Runs it.
     *
     * @param arguments the device
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        try (Context context = Context.open();
                Endpoint endpoint = context.device(arguments[0]).open(EndpointOptions.DEFAULTS);
                Memory board = endpoint.allocate((LINES + 1) * LINE_BYTES);
                Region region = board.register(Access.READ, Access.WRITE, Access.ATOMIC)) {
            System.out.println(endpoint.uri());
            AtomicBoolean ended = Input.ended();
            while (!ended.get()) {
                Event event = endpoint.await(Duration.ofMillis(100));
                if (event instanceof Event.Requested requested) {
                    requested.request().accept();
                } else if (event instanceof Event.Accepted accepted) {
                    accepted.connection().trySend(ByteBuffer.wrap(region.handle().toBytes()));
                } else if (event instanceof Event.Received received) {
                    try (Message message = received.message()) {
                        long line = message.getLong(0);
                        byte[] text = board.segment()
                                .asSlice(LINE_BYTES * (line + 1), LINE_BYTES)
                                .toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
                        System.out.println(line + " of " + board.segment().get(JAVA_LONG, 0) + ": "
                                + new String(text, StandardCharsets.UTF_8).trim());
                    }
                }
            }
        }
    }
}
