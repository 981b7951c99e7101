package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.ToIntFunction;

/**
 * An endpoint whose connections carry messages of any length, and calls. Its peers are messengers, too, in Java or in another
 * language. Progress, waits and futures are as with an {@link Endpoint}.
 */
public final class Messenger extends Intake<MessengerEvent> {
    private static final int STATUS = 4;
    private static final int CONNECTION = 8;
    private static final int CONTEXT = 16;
    private static final int POINTER = 24;
    private static final int LENGTH = 32;
    private static final int ID = 40;
    private static final int CODE = 48;
    private static final int NOT_SENT = 52;
    /** What is kept of the words of a server that answers with an error. */
    private static final int DETAILS_BYTES_MAX = 64 << 10;

    final Map<Long, MessengerConnection> connections = new HashMap<>();
    final Map<Long, Offer> offers = new HashMap<>();
    final Set<Payload> payloads = new HashSet<>();
    final Set<MessengerConnectionRequest> requests = new HashSet<>();
    private final String uri;

    Messenger(Context context, Device device, EndpointOptions options, MessengerLimits limits) {
        super(context);
        lock.lock();
        try (Arena temporary = Arena.ofConfined()) {
            context.enter(this);
            boolean opened = false;
            try {
                long service = options.service == null ? 0 : temporary.allocateFrom(options.service).address();
                long where = device == null ? 0 : device.address;
                long how = options.write(temporary);
                Failure.check(
                        RawMessenger.open(where, service, how, limits.write(temporary), out), "opening a messenger");
                handle = Raw.getLong(out);
                Failure.check(RawMessenger.uri(handle, out), "opening a messenger");
                uri = Raw.takeText(Raw.getLong(out));
                opened = true;
            } finally {
                if (!opened) {
                    context.leave(this);
                    arena.close();
                }
            }
            if (options.progressThread) {
                startProgress("cci-messenger");
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * What others connect to.
     *
     * @return such as {@code udp://192.0.2.1:4791}
     */
    public String uri() {
        return uri;
    }

    /**
     * Connects to another messenger, and waits for it.
     *
     * @param uri what {@link #uri} gave at the peer
     * @param attribute what the connection should promise; calls and long messages need a reliable one
     * @param payload shown to the peer's program with the request; 1016 bytes at most
     * @param timeout how long to try and to wait
     * @return the open connection
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalArgumentException if the URI can't be understood, or the payload is too long
     * @throws IllegalStateException if the messenger is closed, also while waiting
     * @throws PeerException if the peer rejects, nobody listens, or nobody answers in time
     * @throws SystemException if there is no memory, or the system refuses
     */
    public MessengerConnection connect(String uri, Attribute attribute, byte[] payload, Duration timeout)
            throws InterruptedException {
        long deadline = deadline(timeout.plusSeconds(1));
        Operation opening = new Operation("connecting to " + uri, null, false);
        enter();
        try {
            connect(uri, attribute, payload, timeout, opening);
            return (MessengerConnection) awaitEnd(opening, deadline);
        } finally {
            exit();
        }
    }

    /**
     * Connects to another messenger.
     *
     * @param uri as {@link #connect}
     * @param attribute as {@link #connect}
     * @param payload as {@link #connect}
     * @param timeout how long to try; null: for ever
     * @return a future of the open connection, which may fail with a {@link PeerException}
     * @throws IllegalArgumentException as {@link #connect}
     * @throws IllegalStateException as {@link #connect}
     * @throws SystemException as {@link #connect}
     */
    public CompletableFuture<MessengerConnection> connectAsync(
            String uri, Attribute attribute, byte[] payload, Duration timeout) {
        Operation opening = new Operation("connecting to " + uri, null, true);
        connect(uri, attribute, payload, timeout, opening);
        return futureOf(opening);
    }

    private void connect(String uri, Attribute attribute, byte[] payload, Duration timeout, Operation opening) {
        enter();
        try (Arena temporary = Arena.ofConfined()) {
            long text = temporary.allocateFrom(uri).address();
            long time = timeout(timeout);
            opening.of = new MessengerConnection(this, attribute);
            long number = operations.add(opening);
            int code = withNative(
                    ByteBuffer.wrap(payload),
                    data -> RawMessenger.connect(handle, text, data, attribute.ordinal(), number, time));
            if (code != 0) {
                operations.remove(number);
                throw Failure.of(code, "connecting to " + uri);
            }
        } finally {
            exit();
        }
    }

    /**
     * Counters of the messenger and of its endpoint.
     *
     * @return a JSON object
     * @throws IllegalStateException if the messenger is closed
     */
    public String counters() {
        enter();
        try {
            Failure.check(RawMessenger.getCounters(handle, 0, out), "reading counters");
            return Raw.takeText(Raw.getLong(out));
        } finally {
            exit();
        }
    }

    /** Calls with the bytes that remain in a buffer, in native memory that stays during the call. */
    static int withNative(ByteBuffer buffer, ToIntFunction<MemorySegment> call) {
        if (!buffer.hasRemaining()) {
            return call.applyAsInt(MemorySegment.NULL);
        }
        MemorySegment bytes = MemorySegment.ofBuffer(buffer);
        int code;
        if (bytes.isNative()) {
            code = call.applyAsInt(bytes);
        } else {
            try (Arena temporary = Arena.ofConfined()) {
                MemorySegment copy = temporary.allocate(bytes.byteSize());
                code = call.applyAsInt(copy.copyFrom(bytes));
            }
        }
        return code;
    }

    /** The call may have ended meanwhile. */
    void cancelCall(Operation operation) {
        lock.lock();
        try {
            if (isOpen() && !operation.done && operation.call != 0) {
                RawMessenger.cancelCall(handle, operation.call);
            }
        } finally {
            exit();
        }
    }

    // ------------------------------------------------------------------------------------------------------- events

    @Override
    int rawGet(long eventOut) {
        return RawMessenger.getEvent(handle, eventOut);
    }

    @Override
    int rawWait(long timeout, long eventOut) {
        return RawMessenger.waitEvent(handle, timeout, eventOut);
    }

    @Override
    MessengerEvent translate(long event) {
        int type = Raw.getInt(event);
        MessengerConnection connection = connections.get(Raw.getLong(event + CONNECTION));
        if (type == RawMessenger.MESSAGE && connection != null) {
            return new MessengerEvent.Received(connection, received(event));
        }
        if (type == RawMessenger.REQUEST && connection != null) {
            long id = Raw.getLong(event + ID);
            Request request = new Request(this, connection, new Payload(this, event), id);
            connection.requests.put(id, request);
            return new MessengerEvent.Asked(connection, request);
        }
        if (type == RawMessenger.REPLY && Raw.getInt(event + STATUS) == 0) {
            end(operations.remove(Raw.getLong(event + CONTEXT)), new Payload(this, event), null);
            return null;
        }
        if (type == RawMessenger.CONNECT_REQUEST) {
            byte[] payload = bytes(event, Endpoint.PAYLOAD_BYTES_MAX);
            var request = new MessengerConnectionRequest(this, event, payload, Attribute.of(Raw.getInt(event + CODE)));
            requests.add(request);
            return new MessengerEvent.Requested(request);
        }
        MessengerEvent translated = translateShort(type, connection, event);
        RawMessenger.returnEvent(event);
        return translated;
    }

    /** A message; if it was offered, the offer has ended. */
    private Payload received(long event) {
        Offer offer = offers.get(Raw.getLong(event + ID));
        if (offer != null) {
            offer.ended();
        }
        return new Payload(this, event);
    }

    /** What holds nothing of the event. */
    private MessengerEvent translateShort(int type, MessengerConnection connection, long event) {
        return switch (type) {
            case RawMessenger.SENT -> sent(event);
            case RawMessenger.REPLY -> failed(event);
            case RawMessenger.CONNECT, RawMessenger.ACCEPT -> opened(event);
            case RawMessenger.RECEIVED -> {
                Offer offer = offers.get(Raw.getLong(event + ID));
                if (offer == null) {
                    yield null;
                }
                offer.ended();
                Status status = Status.of(Raw.getInt(event + STATUS));
                yield new MessengerEvent.OfferEnded(offer.connection(), offer, status);
            }
            case RawMessenger.DEVICE_FAILED -> new MessengerEvent.DeviceFailed();
            default -> connection == null ? null : translateOf(type, connection, event);
        };
    }

    /** What is reported about a connection that is open here. */
    private MessengerEvent translateOf(int type, MessengerConnection connection, long event) {
        return switch (type) {
            case RawMessenger.OFFER -> {
                long id = Raw.getLong(event + ID);
                Offer offer = new Offer(this, connection, id, Raw.getLong(event + LENGTH));
                offers.put(id, offer);
                yield new MessengerEvent.Offered(connection, offer);
            }
            case RawMessenger.REQUEST_CANCELLED -> {
                Request request = connection.requests.remove(Raw.getLong(event + ID));
                yield request == null ? null : new MessengerEvent.AskedNoMore(connection, request);
            }
            case RawMessenger.KEEPALIVE_TIMEDOUT -> new MessengerEvent.Silent(connection);
            case RawMessenger.DISCONNECTED -> {
                DisconnectReason reason = DisconnectReason.of(Raw.getInt(event + CODE));
                connections.remove(connection.number);
                connection.lost(reason);
                yield new MessengerEvent.Disconnected(connection, reason);
            }
            default -> null;
        };
    }

    private MessengerEvent sent(long event) {
        Operation operation = operations.remove(Raw.getLong(event + CONTEXT));
        Status status = Status.of(Raw.getInt(event + STATUS));
        if (operation.raisesEvent) {
            return new MessengerEvent.Sent(operation.of, operation.eventContext, status);
        }
        end(operation, null, status == Status.SUCCESS ? null : failure(operation, status, event));
        return null;
    }

    private MessengerEvent failed(long event) {
        Operation operation = operations.remove(Raw.getLong(event + CONTEXT));
        end(operation, null, failure(operation, Status.of(Raw.getInt(event + STATUS)), event));
        return null;
    }

    private static RuntimeException failure(Operation operation, Status status, long event) {
        String text = operation.what + ": " + Failure.describe(status);
        if (Raw.getInt(event + NOT_SENT) != 0) {
            text += "; the server has not seen the request";
        }
        if (status == Status.REPLY_ERROR || status == Status.REFUSED) {
            int code = Raw.getInt(event + CODE);
            return new PeerException(status, text + " " + code, code, bytes(event, DETAILS_BYTES_MAX));
        }
        if (status == Status.TOO_LONG) {
            // The sender can't know what the receiver takes.
            return new PeerException(status, text + ": " + Raw.getLong(event + LENGTH) + " bytes at most");
        }
        return Failure.of(status, text);
    }

    private MessengerEvent opened(long event) {
        Operation opening = operations.remove(Raw.getLong(event + CONTEXT));
        Status status = Status.of(Raw.getInt(event + STATUS));
        if (status == Status.SUCCESS) {
            MessengerConnection connection = opening.of;
            connection.number = Raw.getLong(event + CONNECTION);
            connections.put(connection.number, connection);
            if (opening.raisesEvent) {
                return new MessengerEvent.Accepted(connection);
            }
            end(opening, connection, null);
            return null;
        }
        String reason = Raw.lastError();
        if (opening.raisesEvent) {
            return new MessengerEvent.AcceptFailed(status, reason);
        }
        end(opening, null, Failure.of(status, opening.what + ": " + reason));
        return null;
    }

    /** A copy of what an event shows. */
    private static byte[] bytes(long event, int max) {
        byte[] copy = new byte[(int) Math.min(max, Raw.getLong(event + LENGTH))];
        MemorySegment.copy(Raw.MEMORY, JAVA_BYTE, Raw.getLong(event + POINTER), copy, 0, copy.length);
        return copy;
    }

    // ------------------------------------------------------------------------------------------------------ the end

    @Override
    void discard(MessengerEvent event) {
        // What events hold is in the tables.
    }

    @Override
    void closeViews() {
        // Views of payloads have scopes of their own, which end with these.
    }

    @Override
    void rawClose() {
        for (MessengerConnectionRequest request : Set.copyOf(requests)) {
            request.close();
        }
        for (Payload payload : Set.copyOf(payloads)) {
            payload.messengerClosed();
        }
        for (MessengerConnection connection : connections.values()) {
            connection.number = 0;
        }
        for (Offer offer : Set.copyOf(offers.values())) {
            offer.ended();
        }
        Failure.check(RawMessenger.close(handle), "closing a messenger");
    }

    @Override
    String kind() {
        return "messenger";
    }

    @Override
    public String toString() {
        return "messenger " + uri;
    }
}
