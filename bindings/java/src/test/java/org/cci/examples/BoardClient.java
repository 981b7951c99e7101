package org.cci.examples;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.cci.Atomic;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.Memory;
import org.cci.Message;
import org.cci.Region;
import org.cci.RegionHandle;
import org.cci.Transfer;

/**
 * Writes lines on a {@link BoardServer}'s board, and reads them back.
 *
 * <p>{@code BoardClient URI LINE...}
 */
public final class BoardClient {
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private BoardClient() {}

    /**
     * Runs it.
     *
     * @param arguments the URI of the server, and lines
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        int length = BoardServer.LINE_BYTES;
        try (Context context = Context.open();
                Endpoint endpoint = context.openEndpoint(EndpointOptions.DEFAULTS);
                Memory memory = endpoint.allocate(2L * length);
                Region local = memory.register()) {
            Connection server = endpoint.connect(arguments[0], Attribute.RELIABLE_ORDERED, new byte[0], PATIENCE);
            RegionHandle board = board(endpoint);
            for (int i = 1; i < arguments.length; i++) {
                // Each line of the board is one client's: the counter says whose turn it is.
                long line = server.remoteMemory().atomic(Atomic.fetchAdd(1), board, 0, PATIENCE) % BoardServer.LINES;
                ByteBuffer text = memory.segment().asSlice(0, length).asByteBuffer();
                text.put(new byte[length]).rewind().put(arguments[i].getBytes(StandardCharsets.UTF_8));
                byte[] number = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder()).putLong(line).array();
                Transfer there = Transfer.of(local, 0, board, (line + 1) * length, length);
                server.remoteMemory().write(there.notifying(number), PATIENCE);
                Transfer back = Transfer.of(local, length, board, (line + 1) * length, length);
                server.remoteMemory().read(back, PATIENCE);
                System.out.println(StandardCharsets.UTF_8
                        .decode(memory.segment().asSlice(length).asByteBuffer())
                        .toString()
                        .trim());
            }
        }
    }

    private static RegionHandle board(Endpoint endpoint) throws InterruptedException {
        Event event = endpoint.await(PATIENCE);
        if (!(event instanceof Event.Received received)) {
            throw new IllegalStateException("no board, but " + event);
        }
        try (Message message = received.message()) {
            return RegionHandle.ofBytes(message.toByteArray());
        }
    }
}
