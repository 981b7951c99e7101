package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.util.concurrent.CompletableFuture;

/** Somebody wants to connect. Answer once, from any thread. */
public final class ConnectionRequest implements AutoCloseable {
    private final Endpoint endpoint;
    /** The event in C; 0 when it was answered. Under the lock of the endpoint. */
    private long event;

    private final byte[] payload;
    private final Attribute attribute;

    ConnectionRequest(Endpoint endpoint, long event, byte[] payload, Attribute attribute) {
        this.endpoint = endpoint;
        this.event = event;
        this.payload = payload;
        this.attribute = attribute;
    }

    /**
     * What the client sent along.
     *
     * @return a copy of at most 1024 bytes
     */
    public byte[] payload() {
        return payload.clone();
    }

    /**
     * What kind of connection it asks for.
     *
     * @return what it should promise
     */
    public Attribute attribute() {
        return attribute;
    }

    /**
     * Accepts it on the endpoint that it came to. Ends in one {@link Event.Accepted} or {@link Event.AcceptFailed}.
     *
     * @return the connection, which can be used from {@link Event.Accepted} on
     * @throws IllegalStateException if it was answered, or the endpoint is closed
     * @throws PeerException if the peer has given up, or may not connect
     * @throws SystemException if there is no memory
     */
    public Connection accept() {
        return acceptOn(endpoint);
    }

    /**
     * Accepts it on another endpoint of the same kind of device, which gets the event.
     *
     * @param other the endpoint
     * @return the connection
     * @throws IllegalArgumentException if the other endpoint is on another kind of device
     * @throws IllegalStateException if it was answered, or an endpoint is closed
     * @throws PeerException as {@link #accept}
     * @throws SystemException as {@link #accept}
     */
    public Connection acceptOn(Endpoint other) {
        return accept(other, null);
    }

    /**
     * Accepts it on the endpoint that it came to, without an event.
     *
     * @return a future of the open connection
     * @throws IllegalStateException as {@link #accept}
     * @throws PeerException as {@link #accept}
     * @throws SystemException as {@link #accept}
     */
    public CompletableFuture<Connection> acceptAsync() {
        Operation opening = new Operation("accepting a connection", null, true);
        accept(endpoint, opening);
        return Intake.futureOf(opening);
    }

    private Connection accept(Endpoint other, Operation opening) {
        // Two locks: always in the same order.
        Endpoint first = other.number < endpoint.number ? other : endpoint;
        Endpoint second = first == endpoint ? other : endpoint;
        first.enter();
        try {
            second.enter();
            try {
                return acceptLocked(other, opening);
            } finally {
                second.exit();
            }
        } finally {
            first.exit();
        }
    }

    private Connection acceptLocked(Endpoint other, Operation opening) {
        long answered = take();
        Connection connection = other.connections.add(new Connection(other, attribute, opening));
        int code = Raw.acceptOn(answered, other.handle, connection.id);
        if (code != 0) {
            RuntimeException failure = Failure.of(code, "accepting a connection");
            other.connections.remove(connection);
            giveBack(answered);
            throw failure;
        }
        Failure.check(Raw.returnEvent(answered), "returning a request");
        return connection;
    }

    /**
     * Rejects it: the peer's attempt ends with {@link Status#CONNECTION_REFUSED}.
     *
     * @throws IllegalStateException if it was answered, or the endpoint is closed
     */
    public void reject() {
        endpoint.enter();
        try {
            giveBack(take());
        } finally {
            endpoint.exit();
        }
    }

    /** Rejects it unless it was answered. */
    @Override
    public void close() {
        endpoint.lock.lock();
        try {
            if (event != 0) {
                giveBack(take());
            }
        } finally {
            endpoint.exit();
        }
    }

    private long take() {
        if (event == 0) {
            throw new IllegalStateException("the connection request was answered, or its endpoint is closed");
        }
        long taken = event;
        event = 0;
        endpoint.requests.remove(this);
        return taken;
    }

    /** Refuses it, if it has no answer. */
    private static void giveBack(long event) {
        if (Raw.returnEvent(event) != 0) {
            Raw.reject(event);
            Raw.returnEvent(event);
        }
    }

    /** A copy of memory of the library's. */
    static byte[] bytes(long address, int length) {
        byte[] copy = new byte[length];
        java.lang.foreign.MemorySegment.copy(
                Raw.MEMORY, java.lang.foreign.ValueLayout.JAVA_BYTE, address, copy, 0, length);
        return copy;
    }

    @Override
    public String toString() {
        return "request for " + attribute + " with " + payload.length + " bytes";
    }

    static long payloadAddress(long event) {
        return Raw.MEMORY.get(JAVA_LONG, event + 8);
    }
}
