package org.cci;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BooleanSupplier;

/** Two endpoints of one process, driven by turns, and a connection between them. */
final class Pair implements AutoCloseable {
    /** A safety net: a machine that is busy fails nothing. */
    static final Duration PATIENCE = Duration.ofSeconds(60);

    static final byte[] NOTHING = {};

    final Context context = Context.open();
    final Endpoint client;
    final Endpoint server;
    Connection toServer;
    Connection toClient;

    /** Messages, copied, as they came. */
    final List<byte[]> atServer = new ArrayList<>();

    final List<byte[]> atClient = new ArrayList<>();
    final List<Event.Sent> sentByClient = new ArrayList<>();
    /** Everything else. */
    final Deque<Event> otherAtServer = new ArrayDeque<>();

    final Deque<Event> otherAtClient = new ArrayDeque<>();

    Pair(String device) {
        this(device, EndpointOptions.DEFAULTS);
    }

    Pair(String device, EndpointOptions options) {
        client = context.device(device).open(options);
        server = context.device(device).open(options);
    }

    /** Two endpoints that are connected. */
    static Pair connected(String device) {
        return connected(device, EndpointOptions.DEFAULTS, Attribute.RELIABLE_ORDERED);
    }

    static Pair connected(String device, EndpointOptions options, Attribute attribute) {
        Pair pair = new Pair(device, options);
        pair.connect(attribute);
        return pair;
    }

    void connect(Attribute attribute) {
        toServer = client.startConnecting(server.uri(), attribute, NOTHING, PATIENCE);
        until("a request", () -> !otherAtServer.isEmpty());
        toClient = ((Event.Requested) otherAtServer.remove()).request().accept();
        until("an open connection", () -> !otherAtServer.isEmpty() && !otherAtClient.isEmpty());
        assertTrue(otherAtServer.remove() instanceof Event.Accepted);
        assertTrue(otherAtClient.remove() instanceof Event.Connected);
    }

    void turn() {
        for (Event event; (event = server.poll()) != null; ) {
            take(event, atServer, new ArrayList<>(), otherAtServer);
        }
        for (Event event; (event = client.poll()) != null; ) {
            take(event, atClient, sentByClient, otherAtClient);
        }
    }

    private static void take(Event event, List<byte[]> messages, List<Event.Sent> sent, Deque<Event> other) {
        if (event instanceof Event.Received received) {
            try (Message message = received.message()) {
                messages.add(message.toByteArray());
            }
        } else if (event instanceof Event.Sent ended) {
            sent.add(ended);
        } else {
            other.add(event);
        }
    }

    void until(String what, BooleanSupplier done) {
        until(what, done, this::turn);
    }

    static void until(String what, BooleanSupplier done, Runnable turn) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() - deadline > 0) {
                fail("waited too long for " + what);
            }
            turn.run();
        }
    }

    /** Bytes that follow from a number and a length. */
    static byte[] pattern(int number, int length) {
        byte[] bytes = new byte[length];
        new java.util.Random(number * 8209L + length).nextBytes(bytes);
        return bytes;
    }

    @Override
    public void close() {
        context.close();
    }
}
