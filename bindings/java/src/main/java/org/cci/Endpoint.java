package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What a program opens on a device. It owns all buffers and connections.
 *
 * <p>Progress is made inside the calls of the endpoint, and in its progress thread if it has one
 * ({@link EndpointOptions#progressThread}). The blocking forms make progress while they wait, and keep the events that come
 * meanwhile. Futures complete in whichever thread makes progress: a program that does nothing but wait for them needs the
 * progress thread.
 */
public final class Endpoint extends Intake<Event> {
    /** The longest payload of a connection request, bytes. */
    public static final int PAYLOAD_BYTES_MAX = 1024;

    private static final AtomicLong NUMBERS = new AtomicLong();
    /** The longest message of any device, bytes. */
    private static final int SEND_BYTES_MAX = 8192;
    /** Endpoints are locked in the order of these. */
    final long number = NUMBERS.incrementAndGet();

    final ConnectionTable connections = new ConnectionTable();
    final Set<ConnectionRequest> requests = new HashSet<>();
    final RegionTable regions = new RegionTable(this);

    /** A message on its way to C. */
    final MemorySegment scratch = arena.allocate(SEND_BYTES_MAX, 64);
    final ByteBuffer scratchBuffer = scratch.asByteBuffer();
    final long scratchAddress = scratch.address();

    /** Messages that the program has, in a ring that begins and ends here. */
    final Message messages = new Message(this);

    private final Device device;
    private final String uri;
    /** For {@link #poll(int, EventHandler)}; null while one runs. */
    private Message lendable = new Message(this);

    Endpoint(Context context, Device device, EndpointOptions options) {
        super(context);
        this.device = device;
        lock.lock();
        try (Arena temporary = Arena.ofConfined()) {
            context.enter(this);
            boolean opened = false;
            try {
                long service = options.service == null ? 0 : temporary.allocateFrom(options.service).address();
                long where = device == null ? 0 : device.address;
                Failure.check(Raw.createEndpoint(where, service, options.write(temporary), out), "opening an endpoint");
                handle = Raw.getLong(out);
                Raw.MEMORY.set(JAVA_INT, out, 1);
                Failure.check(Raw.setOpt(handle, Raw.OPT_ENDPT_DISCONNECT_EVENTS, out), "opening an endpoint");
                Failure.check(Raw.getOpt(handle, Raw.OPT_ENDPT_URI, out), "opening an endpoint");
                uri = Raw.takeText(Raw.getLong(out));
                opened = true;
            } finally {
                if (!opened) {
                    context.leave(this);
                    arena.close();
                }
            }
            if (options.progressThread) {
                startProgress("cci-" + number);
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
     * The device that it was opened on.
     *
     * @return the device, or null if it is the default one
     */
    public Device device() {
        return device;
    }

    // -------------------------------------------------------------------------------------------------- connections

    /**
     * Starts connecting to an endpoint; never blocks. Ends in one {@link Event.Connected} or {@link Event.ConnectFailed}.
     *
     * @param uri what {@link #uri} gave at the peer; {@link Context#resolve} puts an address for a name
     * @param attribute what the connection should promise
     * @param payload shown to the peer's program with the request; 1024 bytes at most
     * @param timeout how long to try; null: for ever
     * @return the connection, which can be used from {@link Event.Connected} on
     * @throws IllegalArgumentException if the URI can't be understood, the device does not lead there, or the payload is too
     *     long
     * @throws IllegalStateException if the endpoint is closed
     * @throws UnsupportedOperationException if the device has no multicast
     * @throws SystemException if there is no memory, or the system refuses
     */
    public Connection startConnecting(String uri, Attribute attribute, byte[] payload, Duration timeout) {
        return connect(uri, attribute, payload, timeout, null);
    }

    /**
     * Connects to an endpoint, and waits for it.
     *
     * @param uri as {@link #startConnecting}
     * @param attribute as {@link #startConnecting}
     * @param payload as {@link #startConnecting}
     * @param timeout how long to try and to wait
     * @return the open connection
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalArgumentException as {@link #startConnecting}
     * @throws IllegalStateException as {@link #startConnecting}, also while waiting
     * @throws PeerException if the peer rejects, nobody listens, or nobody answers in time
     * @throws SystemException as {@link #startConnecting}
     */
    public Connection connect(String uri, Attribute attribute, byte[] payload, Duration timeout)
            throws InterruptedException {
        long deadline = deadline(timeout.plusSeconds(1));
        Operation opening = new Operation("connecting to " + uri, null, false);
        enter();
        try {
            connect(uri, attribute, payload, timeout, opening);
            return (Connection) awaitEnd(opening, deadline);
        } finally {
            exit();
        }
    }

    /**
     * Connects to an endpoint, without an event.
     *
     * @param uri as {@link #startConnecting}
     * @param attribute as {@link #startConnecting}
     * @param payload as {@link #startConnecting}
     * @param timeout as {@link #startConnecting}
     * @return a future of the open connection, which may fail with a {@link PeerException}
     * @throws IllegalArgumentException as {@link #startConnecting}
     * @throws IllegalStateException as {@link #startConnecting}
     * @throws SystemException as {@link #startConnecting}
     */
    public CompletableFuture<Connection> connectAsync(
            String uri, Attribute attribute, byte[] payload, Duration timeout) {
        Operation opening = new Operation("connecting to " + uri, null, true);
        connect(uri, attribute, payload, timeout, opening);
        return futureOf(opening);
    }

    private Connection connect(String uri, Attribute attribute, byte[] payload, Duration timeout, Operation opening) {
        if (payload.length > PAYLOAD_BYTES_MAX) {
            throw new IllegalArgumentException(
                    "the payload has " + payload.length + " bytes, and " + PAYLOAD_BYTES_MAX + " at most are sent");
        }
        enter();
        try (Arena temporary = Arena.ofConfined()) {
            scratchBuffer.put(0, payload);
            long text = temporary.allocateFrom(uri).address();
            long time = timeout(timeout);
            Connection connection = connections.add(new Connection(this, attribute, opening));
            int code = Raw.connect(
                    handle, text, scratchAddress, payload.length, attribute.ordinal(), connection.id, time);
            if (code != 0) {
                connections.remove(connection);
                throw Failure.of(code, "connecting to " + uri);
            }
            return connection;
        } finally {
            exit();
        }
    }

    // ------------------------------------------------------------------------------------------------------- events

    /**
     * Makes progress, and gives what came to a handler, in order. It never blocks, and allocates nothing for messages and
     * completions. The lock is not held while the handler runs. An exception of the handler's is passed on; the message that
     * it was lent is given back.
     *
     * @param max the most events to handle
     * @param handler called once for each
     * @return how many were handled
     * @throws IllegalStateException if the endpoint is closed
     */
    public int poll(int max, EventHandler handler) {
        Message message = null;
        int count = 0;
        try {
            while (count < max) {
                Event event;
                long raw = 0;
                Connection connection = null;
                long context = 0;
                int status = 0;
                enter();
                try {
                    if (message == null) {
                        message = takeLendable();
                    } else {
                        message.giveBackLent();
                    }
                    event = queued();
                    if (event == null) {
                        raw = nextRaw();
                        if (raw == 0) {
                            break;
                        }
                        int type = Raw.getInt(raw);
                        if (type == Raw.EVENT_RECV) {
                            connection = connectionAt(raw + 16);
                            if (connection == null || connection.isClosedHere()) {
                                Raw.returnEvent(raw);
                                continue;
                            }
                            message.lend(connection, raw);
                        } else if (type == Raw.EVENT_SEND) {
                            connection = connectionAt(raw + 8);
                            context = Raw.getLong(raw + 16);
                            status = Raw.getInt(raw + 4);
                            Raw.returnEvent(raw);
                            completed(connection);
                        } else {
                            event = translate(raw);
                            if (event == null) {
                                continue;
                            }
                        }
                    }
                } finally {
                    exit();
                }
                count++;
                if (event != null) {
                    dispatch(event, handler);
                } else if (message.isOut()) {
                    handler.onMessage(connection, message);
                } else {
                    handler.onSent(connection, context, Status.of(status));
                }
            }
            return count;
        } finally {
            if (message != null) {
                putLendable(message);
            }
        }
    }

    private static void dispatch(Event event, EventHandler handler) {
        if (event instanceof Event.Received received) {
            try (Message message = received.message()) {
                Message lent = message.lentAgain();
                handler.onMessage(received.connection(), lent);
            }
        } else if (event instanceof Event.Sent sent) {
            handler.onSent(sent.connection(), sent.context(), sent.status());
        } else {
            handler.onEvent(event);
        }
    }

    private Message takeLendable() {
        Message message = lendable != null ? lendable : new Message(this);
        lendable = null;
        return message;
    }

    private void putLendable(Message message) {
        lock.lock();
        try {
            message.giveBackLent();
            lendable = message;
        } finally {
            exit();
        }
    }

    /** The next event in C that is for the program; 0 if there is none. */
    private long nextRaw() {
        while (mayAsk()) {
            int code = Raw.getEvent(handle, out);
            if (code != 0) {
                nothing(code);
                return 0;
            }
            long event = Raw.getLong(out);
            if (!isForOperation(event)) {
                return event;
            }
            translate(event);
        }
        return 0;
    }

    private boolean isForOperation(long event) {
        return switch (Raw.getInt(event)) {
            case Raw.EVENT_SEND -> Raw.getLong(event + 16) < 0;
            case Raw.EVENT_CONNECT, Raw.EVENT_ACCEPT -> {
                Connection connection = connections.get(Raw.getLong(event + 8));
                yield connection == null || connection.opening != null;
            }
            default -> false;
        };
    }

    @Override
    int rawGet(long eventOut) {
        return Raw.getEvent(handle, eventOut);
    }

    @Override
    int rawWait(long timeout, long eventOut) {
        return Raw.waitEvent(handle, timeout, eventOut);
    }

    @Override
    Event translate(long event) {
        int type = Raw.getInt(event);
        switch (type) {
            case Raw.EVENT_RECV -> {
                Connection connection = connectionAt(event + 16);
                if (connection == null || connection.isClosedHere()) {
                    Raw.returnEvent(event);
                    return null;
                }
                return new Event.Received(connection, new Message(this).own(connection, event));
            }
            case Raw.EVENT_CONNECT_REQUEST -> {
                int length = Raw.getInt(event + 4);
                byte[] payload = ConnectionRequest.bytes(ConnectionRequest.payloadAddress(event), length);
                var request = new ConnectionRequest(this, event, payload, Attribute.of(Raw.getInt(event + 16)));
                requests.add(request);
                return new Event.Requested(request);
            }
            default -> {
                Event translated = translateShort(type, event);
                Raw.returnEvent(event);
                return translated;
            }
        }
    }

    /** What holds nothing of the event. */
    private Event translateShort(int type, long event) {
        switch (type) {
            case Raw.EVENT_SEND -> {
                Status status = Status.of(Raw.getInt(event + 4));
                long context = Raw.getLong(event + 16);
                if (context < 0) {
                    Operation operation = operations.remove(context);
                    completed(operation.connection);
                    regions.ended(operation, status);
                    return null;
                }
                Connection connection = connectionAt(event + 8);
                completed(connection);
                return new Event.Sent(connection, context, status);
            }
            case Raw.EVENT_CONNECT, Raw.EVENT_ACCEPT -> {
                return opened(type == Raw.EVENT_CONNECT, event);
            }
            case Raw.EVENT_KEEPALIVE_TIMEDOUT -> {
                return new Event.Silent(connectionAt(event + 8));
            }
            case Raw.EVENT_DISCONNECTED -> {
                Connection connection = connectionAt(event + 8);
                DisconnectReason reason = DisconnectReason.of(Raw.getInt(event + 4));
                if (connection == null || !connection.lost(reason)) {
                    return null;
                }
                return new Event.Disconnected(connection, reason);
            }
            case Raw.EVENT_DEVICE_FAILED -> {
                return new Event.DeviceFailed();
            }
            default -> {
                // Of a later version of the library.
                return null;
            }
        }
    }

    private Event opened(boolean connected, long event) {
        Connection connection = connections.get(Raw.getLong(event + 8));
        long address = Raw.getLong(event + 16);
        Status status = Status.of(Raw.getInt(event + 4));
        if (connection == null) {
            return null;
        }
        Operation opening = connection.opening;
        if (status == Status.SUCCESS) {
            boolean wanted = connection.opened(address, Raw.getInt(address));
            if (!wanted) {
                return null;
            }
            if (opening != null) {
                end(opening, connection, null);
                return null;
            }
            return connected ? new Event.Connected(connection) : new Event.Accepted(connection);
        }
        String reason = Raw.lastError();
        boolean wanted = connection.failed();
        if (opening != null) {
            end(opening, null, Failure.of(status, opening.what + ": " + reason));
            return null;
        }
        if (!wanted) {
            return null;
        }
        return connected
                ? new Event.ConnectFailed(connection, status, reason)
                : new Event.AcceptFailed(connection, status, reason);
    }

    /** The connection whose address in C is at an address. */
    private Connection connectionAt(long at) {
        return connections.get(Raw.getLong(Raw.getLong(at) + 24));
    }

    private static void completed(Connection connection) {
        if (connection != null) {
            connection.completed();
        }
    }

    // ------------------------------------------------------------------------------------------------------ the end

    @Override
    void discard(Event event) {
        if (event instanceof Event.Received received) {
            received.message().close();
        } else if (event instanceof Event.Requested requested) {
            requested.request().close();
        }
    }

    @Override
    void closeViews() {
        regions.closeViews();
    }

    @Override
    void rawClose() {
        regions.closeAll();
        for (ConnectionRequest request : Set.copyOf(requests)) {
            request.close();
        }
        messages.closeOthers();
        for (Connection connection : connections.all()) {
            connection.endpointClosed();
        }
        Failure.check(Raw.destroyEndpoint(handle), "closing an endpoint");
    }

    @Override
    String kind() {
        return "endpoint";
    }

    // -------------------------------------------------------------------------------------------------- remote memory

    /**
     * Allocates memory of the library for remote access: zeroed, aligned to a page. Peers on the same host that were given a
     * handle of it map it, so that their operations are plain copies.
     *
     * @param bytes how many, rounded up to whole pages
     * @return the memory, to be closed
     * @throws IllegalArgumentException if it is not positive
     * @throws IllegalStateException if the endpoint is closed
     * @throws SystemException if there is no memory
     */
    public Memory allocate(long bytes) {
        return regions.allocate(bytes);
    }

    /**
     * Registers memory of the program's, so that peers may access it.
     *
     * @param segment native memory
     * @param arena the arena that it is of: if it ends before the region is closed, the region ends with it, and peers are
     *     refused from then on
     * @param access what peers may do; nothing: it is only for operations of this endpoint
     * @return the region, to be closed
     * @throws IllegalArgumentException if the segment is not native, empty, read-only although peers may write, or not of the
     *     arena
     * @throws IllegalStateException if the endpoint or the arena is closed
     * @throws WrongThreadException if the arena is of another thread
     * @throws SystemException if there are too many regions, or the system refuses
     */
    public Region register(MemorySegment segment, Arena arena, Access... access) {
        return regions.register(segment, arena, null, Access.flags(access));
    }

    /**
     * Registers memory of the program's for the peer of one connection alone. All else is as with {@link #register}.
     *
     * @param connection the connection
     * @param segment native memory
     * @param arena the arena that it is of
     * @param access what the peer may do
     * @return the region, to be closed
     * @throws IllegalArgumentException as {@link #register}, and if the connection is of another endpoint
     * @throws IllegalStateException as {@link #register}, and if the connection is not open
     * @throws WrongThreadException if the arena is of another thread
     * @throws SystemException as {@link #register}
     */
    public Region registerFor(Connection connection, MemorySegment segment, Arena arena, Access... access) {
        return regions.register(segment, arena, connection, Access.flags(access));
    }

    // -------------------------------------------------------------------------------------------------- looking in

    /**
     * Counters of messages, bytes, operations, retransmissions, drops and memory.
     *
     * @return a JSON object
     * @throws IllegalStateException if the endpoint is closed
     */
    public String counters() {
        enter();
        try {
            Failure.check(Raw.getCounters(handle, 0, out), "reading counters");
            return Raw.takeText(Raw.getLong(out));
        } finally {
            exit();
        }
    }

    /**
     * The cap on every byte that the endpoint holds.
     *
     * @return bytes
     * @throws IllegalStateException if the endpoint is closed
     */
    public long memoryCapBytes() {
        return option(Raw.OPT_ENDPT_MEMORY_CAP);
    }

    /**
     * What the endpoint holds now.
     *
     * @return bytes
     * @throws IllegalStateException if the endpoint is closed
     */
    public long memoryUsedBytes() {
        return option(Raw.OPT_ENDPT_MEMORY_USED);
    }

    private long option(int name) {
        enter();
        try {
            Failure.check(Raw.getOpt(handle, name, out), "reading an option");
            return Raw.MEMORY.get(JAVA_LONG, out);
        } finally {
            exit();
        }
    }

    /**
     * How many connections there are, opening ones and those included that have ended and still have sends under way.
     *
     * @return how many
     */
    public int connectionCount() {
        lock.lock();
        try {
            return connections.size();
        } finally {
            exit();
        }
    }

    @Override
    public String toString() {
        return "endpoint " + uri;
    }
}
