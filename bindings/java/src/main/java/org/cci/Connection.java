package org.cci;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A connection to one peer. It carries messages of up to {@link #maxSendBytes} bytes, which are copied before a call returns.
 *
 * <p>Three forms of each operation: {@code trySend} starts it, with an event at its end if it is given a context; {@code send}
 * waits for its end; {@code sendAsync} gives a future. A reliable send ends when the peer's library has the message.
 */
public final class Connection implements AutoCloseable {
    private enum State {
        OPENING,
        OPEN,
        /** By this side, or it was never open. */
        CLOSED,
        /** Not by this side. */
        LOST
    }

    final Endpoint endpoint;
    private final Attribute attribute;
    /** The number that C keeps for it. */
    long id;
    /** Who waits for it to open, instead of an event. */
    Operation opening;

    private State state = State.OPENING;
    /** Its address in C, while it is open. */
    private long address;

    private int maxSendBytes;
    private DisconnectReason reason;
    /** Completions to come. Its number is not given to another one before they have. */
    private int underWay;

    private volatile Object attachment;

    Connection(Endpoint endpoint, Attribute attribute, Operation opening) {
        this.endpoint = endpoint;
        this.attribute = attribute;
        this.opening = opening;
    }

    // ------------------------------------------------------------------------------- for the endpoint, under its lock

    /** It is open. False if the program has closed it meanwhile. */
    boolean opened(long address, int maxSendBytes) {
        opening = null;
        if (state != State.OPENING) {
            Raw.disconnect(address);
            endpoint.connections.remove(this);
            return false;
        }
        this.address = address;
        this.maxSendBytes = maxSendBytes;
        state = State.OPEN;
        return true;
    }

    /** It could not be opened. False if the program has closed it meanwhile. */
    boolean failed() {
        opening = null;
        boolean wanted = state == State.OPENING;
        state = State.CLOSED;
        endpoint.connections.remove(this);
        return wanted;
    }

    /** It has ended. False if the program has closed it before. */
    boolean lost(DisconnectReason reason) {
        if (state != State.OPEN) {
            return false;
        }
        this.reason = reason;
        leave(State.LOST);
        return true;
    }

    private void leave(State next) {
        Raw.disconnect(address);
        state = next;
        address = 0;
        if (underWay == 0) {
            endpoint.connections.remove(this);
        }
    }

    boolean isClosedHere() {
        return state == State.CLOSED;
    }

    void endpointClosed() {
        state = State.CLOSED;
        address = 0;
        if (opening != null) {
            endpoint.end(opening, null, Failure.ended(Status.DISCONNECTED, opening.what));
            opening = null;
        }
    }

    void started() {
        underWay++;
    }

    void completed() {
        underWay--;
        if (underWay == 0 && state != State.OPEN && state != State.OPENING) {
            endpoint.connections.remove(this);
        }
    }

    /** Its address in C, for a call. */
    long target() {
        return switch (state) {
            case OPEN -> address;
            case OPENING -> throw new IllegalStateException("the connection is not open yet");
            case CLOSED -> throw new IllegalStateException("the connection is closed");
            case LOST -> throw new PeerException(Status.DISCONNECTED, "the connection has ended: " + reason);
        };
    }

    // ----------------------------------------------------------------------------------------------------- sending

    /**
     * Starts to send a message. Ends in one {@link Event.Sent} with this context. If it was taken, the buffer's position is
     * at its limit then, as with channels.
     *
     * @param message the bytes that remain in the buffer
     * @param context any number that is not negative
     * @return false if there is no room: take events, then try again; nothing was started
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}, or the context is negative
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(ByteBuffer message, long context) {
        return start(message, checked(context), 0);
    }

    /**
     * Starts to send a message, without an event at its end. All else is as with a context.
     *
     * @param message the bytes that remain in the buffer
     * @return false if there is no room
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(ByteBuffer message) {
        return start(message, 0, Raw.FLAG_SILENT);
    }

    /**
     * Starts to send a message. Ends in one {@link Event.Sent} with this context.
     *
     * @param message the bytes, native or not
     * @param context any number that is not negative
     * @return false if there is no room: take events, then try again; nothing was started
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}, or the context is negative
     * @throws IllegalStateException if the connection is not open or was closed by this side, or the segment is not alive
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(MemorySegment message, long context) {
        return start(message, checked(context), 0);
    }

    /**
     * Starts to send a message, without an event at its end. All else is as with a context.
     *
     * @param message the bytes, native or not
     * @return false if there is no room
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open or was closed by this side, or the segment is not alive
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(MemorySegment message) {
        return start(message, 0, Raw.FLAG_SILENT);
    }

    /**
     * Starts to send a message that was received on this endpoint, from where it is and without an event at its end.
     *
     * @param message the message, which stays as it is
     * @return false if there is no room
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}, or is of another endpoint
     * @throws IllegalStateException if the connection is not open or was closed by this side, or the message is closed
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(Message message) {
        if (message.connection().endpoint != endpoint) {
            throw new IllegalArgumentException("the message is of another endpoint");
        }
        endpoint.enter();
        try {
            return startAt(target(), message.addressLocked(), message.length(), 0, Raw.FLAG_SILENT);
        } finally {
            endpoint.exit();
        }
    }

    /**
     * Starts to send one message that is gathered from several buffers. Ends in one {@link Event.Sent} with this context. If it was
     * taken, the buffers' positions are at their limits then.
     *
     * @param parts the bytes that remain in each
     * @param context any number that is not negative
     * @return false if there is no room: take events, then try again; nothing was started
     * @throws IllegalArgumentException if they are together longer than {@link #maxSendBytes}, or the context is negative
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(ByteBuffer[] parts, long context) {
        return start(parts, checked(context), 0);
    }

    /**
     * Sends a message, and waits until the peer's library has it.
     *
     * @param message the bytes that remain in the buffer
     * @param timeout how long to wait, for room and for the end
     * @throws InterruptedException if the thread is interrupted; the message may arrive
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if it can't be delivered, or not in time
     */
    public void send(ByteBuffer message, Duration timeout) throws InterruptedException {
        sendAndWait(message, timeout);
    }

    /**
     * Sends a message, and waits until the peer's library has it.
     *
     * @param message the bytes, native or not
     * @param timeout how long to wait, for room and for the end
     * @throws InterruptedException if the thread is interrupted; the message may arrive
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open or was closed by this side, or the segment is not alive
     * @throws PeerException if it can't be delivered, or not in time
     */
    public void send(MemorySegment message, Duration timeout) throws InterruptedException {
        sendAndWait(message, timeout);
    }

    /**
     * Sends one message that is gathered from several buffers, and waits until the peer's library has it.
     *
     * @param parts the bytes that remain in each
     * @param timeout how long to wait, for room and for the end
     * @throws InterruptedException if the thread is interrupted; the message may arrive
     * @throws IllegalArgumentException if they are together longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if it can't be delivered, or not in time
     */
    public void send(ByteBuffer[] parts, Duration timeout) throws InterruptedException {
        sendAndWait(parts, timeout);
    }

    /**
     * Sends a message.
     *
     * @param message the bytes that remain in the buffer
     * @return a future that completes when the peer's library has it, or fails with a {@link PeerException}; with a
     *     {@link SystemException} of {@link Status#NO_BUFFERS} if there was no room
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open, or was closed by this side
     * @throws PeerException if the connection has ended
     */
    public CompletableFuture<Void> sendAsync(ByteBuffer message) {
        return sendForFuture(message);
    }

    /**
     * Sends a message.
     *
     * @param message the bytes, native or not
     * @return a future, as for a buffer
     * @throws IllegalArgumentException if the message is longer than {@link #maxSendBytes}
     * @throws IllegalStateException if the connection is not open or was closed by this side, or the segment is not alive
     * @throws PeerException if the connection has ended
     */
    public CompletableFuture<Void> sendAsync(MemorySegment message) {
        return sendForFuture(message);
    }

    private static long checked(long context) {
        if (context < 0) {
            throw new IllegalArgumentException("a context must not be negative: " + context);
        }
        return context;
    }

    /** Copies the message to the scratch memory and starts to send it. */
    private boolean start(Object message, long context, int flags) {
        endpoint.enter();
        try {
            return startLocked(message, context, flags);
        } finally {
            endpoint.exit();
        }
    }

    private boolean startLocked(Object message, long context, int flags) {
        long to = target();
        if (message instanceof ByteBuffer buffer) {
            int length = checkLength(buffer.remaining());
            Intake.copy(buffer, endpoint.scratchBuffer, 0);
            boolean taken = startAt(to, endpoint.scratchAddress, length, context, flags);
            if (taken) {
                buffer.position(buffer.limit());
            }
            return taken;
        }
        if (message instanceof MemorySegment segment) {
            int length = checkLength(segment.byteSize());
            MemorySegment.copy(segment, 0, endpoint.scratch, 0, length);
            return startAt(to, endpoint.scratchAddress, length, context, flags);
        }
        ByteBuffer[] parts = (ByteBuffer[]) message;
        long length = 0;
        for (ByteBuffer part : parts) {
            length += part.remaining();
        }
        int at = 0;
        checkLength(length);
        for (ByteBuffer part : parts) {
            Intake.copy(part, endpoint.scratchBuffer, at);
            at += part.remaining();
        }
        boolean taken = startAt(to, endpoint.scratchAddress, (int) length, context, flags);
        for (int i = 0; taken && i < parts.length; i++) {
            parts[i].position(parts[i].limit());
        }
        return taken;
    }

    private boolean startAt(long to, long from, int length, long context, int flags) {
        checkLength(length);
        return taken(Raw.send(to, from, length, context, flags), "sending", flags);
    }

    /** Whether a call has started an operation. */
    boolean taken(int code, String what, int flags) {
        if (code == Status.NO_BUFFERS.code) {
            return false;
        }
        Failure.check(code, what);
        if ((flags & Raw.FLAG_SILENT) == 0) {
            started();
        }
        return true;
    }

    private int checkLength(long length) {
        if (length > maxSendBytes) {
            throw new IllegalArgumentException(
                    "the message has " + length + " bytes, and the connection takes " + maxSendBytes);
        }
        return (int) length;
    }

    private void sendAndWait(Object message, Duration timeout) throws InterruptedException {
        endpoint.waitFor(new Operation("sending", this, false), timeout, context -> startLocked(message, context, 0));
    }

    private CompletableFuture<Void> sendForFuture(Object message) {
        return endpoint.startForFuture(new Operation("sending", this, true), context -> startLocked(message, context, 0));
    }

    // --------------------------------------------------------------------------------------------------- remote memory

    /**
     * Operations on the peer's memory.
     *
     * @return them
     */
    public RemoteMemory remoteMemory() {
        return new RemoteMemory(this);
    }

    // ------------------------------------------------------------------------------------------------------ the rest

    /**
     * Closes the connection from this side; never blocks. Messages that were sent before are still delivered, or fail. No event
     * comes for it. Closing again does nothing.
     */
    @Override
    public void close() {
        endpoint.lock.lock();
        try {
            switch (state) {
                case OPEN -> leave(State.CLOSED);
                case OPENING -> state = State.CLOSED;
                default -> {}
            }
        } finally {
            endpoint.exit();
        }
    }

    /**
     * Whether messages can be sent now, as far as is known.
     *
     * @return true if it is open
     */
    public boolean isOpen() {
        endpoint.lock.lock();
        try {
            return state == State.OPEN;
        } finally {
            endpoint.exit();
        }
    }

    /**
     * The longest message, bytes: the smaller of the two sides'.
     *
     * @return 0 until it is open
     */
    public int maxSendBytes() {
        return maxSendBytes;
    }

    /**
     * The endpoint that it belongs to.
     *
     * @return the endpoint
     */
    public Endpoint endpoint() {
        return endpoint;
    }

    /**
     * What it promises.
     *
     * @return the attribute
     */
    public Attribute attribute() {
        return attribute;
    }

    /**
     * What the program has attached.
     *
     * @return the object, or null
     */
    public Object attachment() {
        return attachment;
    }

    /**
     * Attaches an object of the program's, for its own use.
     *
     * @param attachment the object, or null
     */
    public void attach(Object attachment) {
        this.attachment = attachment;
    }

    /**
     * Chooses how long a reliable send may take.
     *
     * @param timeout from 1 µs to 71 minutes
     * @throws IllegalArgumentException if it is out of range
     * @throws IllegalStateException if the connection is not open
     */
    public void setSendTimeout(Duration timeout) {
        ConnectionCalls.setOption(this, Raw.OPT_CONN_SEND_TIMEOUT, EndpointOptions.microseconds(timeout, 1));
    }

    /**
     * How long a reliable send may take.
     *
     * @return the time
     * @throws IllegalStateException if the connection is not open
     */
    public Duration sendTimeout() {
        return ConnectionCalls.time(this, Raw.OPT_CONN_SEND_TIMEOUT);
    }

    /**
     * Asks for {@link Event.Silent} when the peer is silent for so long.
     *
     * @param timeout up to 71 minutes; zero: off
     * @throws IllegalArgumentException if it is out of range
     * @throws IllegalStateException if the connection is not open
     */
    public void setKeepalive(Duration timeout) {
        ConnectionCalls.setOption(this, Raw.OPT_CONN_KEEPALIVE_TIMEOUT, EndpointOptions.microseconds(timeout, 0));
    }

    /**
     * After how long {@link Event.Silent} comes.
     *
     * @return the time; zero: it is off, as it is when the event has come
     * @throws IllegalStateException if the connection is not open
     */
    public Duration keepalive() {
        return ConnectionCalls.time(this, Raw.OPT_CONN_KEEPALIVE_TIMEOUT);
    }

    /**
     * Says who is at the other end, if that was proved.
     *
     * @return the name of its key, or the DNS names of its certificate with commas between
     * @throws SystemException with {@link Status#NOT_FOUND} if the connection is not encrypted
     * @throws IllegalStateException if the connection is not open
     */
    public String peerNames() {
        return ConnectionCalls.peerNames(this);
    }

    /**
     * Says, in lines for people, which path it takes, which others were tried, and what holds it up now.
     *
     * @return the lines
     * @throws IllegalStateException if the connection is not open
     */
    public String explain() {
        return ConnectionCalls.explain(this);
    }

    /**
     * Its counters.
     *
     * @return a JSON object
     * @throws IllegalStateException if the connection is not open
     */
    public String counters() {
        return ConnectionCalls.counters(this);
    }
}
