package org.cci;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A connection of a messenger: messages of any length, which are copied before a call returns, and calls. */
public final class MessengerConnection implements AutoCloseable {
    final Messenger messenger;
    private final Attribute attribute;
    /** Its number in C; 0 when it is not open. Under the lock. */
    long number;
    /** Those that were not answered, by their numbers. Under the lock. */
    final Map<Long, Request> requests = new HashMap<>();

    private DisconnectReason reason;
    private volatile Object attachment;

    MessengerConnection(Messenger messenger, Attribute attribute) {
        this.messenger = messenger;
        this.attribute = attribute;
    }

    /**
     * Starts to send a message. Ends in one {@link MessengerEvent.Sent} with this context.
     *
     * @param message the bytes that remain in the buffer, which are copied
     * @param context any number that comes back with the event
     * @return false if there is no room: take events, then try again; nothing was started
     * @throws IllegalArgumentException if the message is longer than the connection takes
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if the connection has ended
     */
    public boolean trySend(ByteBuffer message, long context) {
        Operation operation = new Operation("sending", null, false);
        operation.raisesEvent = true;
        operation.eventContext = context;
        operation.of = this;
        messenger.enter();
        try {
            return messenger.startNumbered(operation, number -> start(message, number));
        } finally {
            messenger.exit();
        }
    }

    /**
     * Sends a message, and waits until the peer's library has it.
     *
     * @param message the bytes that remain in the buffer
     * @param timeout how long to wait, for room and for the end
     * @throws InterruptedException if the thread is interrupted; the message may arrive
     * @throws IllegalArgumentException if the message is longer than the connection takes
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if it can't be delivered, is refused, or not in time
     */
    public void send(ByteBuffer message, Duration timeout) throws InterruptedException {
        Operation operation = new Operation("sending", null, false);
        operation.of = this;
        messenger.waitFor(operation, timeout, number -> start(message, number));
    }

    /**
     * Sends a message.
     *
     * @param message the bytes that remain in the buffer, which are copied
     * @return a future that completes when the peer's library has it, or fails with a {@link PeerException}; with a
     *     {@link SystemException} of {@link Status#NO_BUFFERS} if there was no room
     * @throws IllegalArgumentException if the message is longer than the connection takes
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if the connection has ended
     */
    public CompletableFuture<Void> sendAsync(ByteBuffer message) {
        Operation operation = new Operation("sending", null, true);
        operation.of = this;
        return messenger.startForFuture(operation, number -> start(message, number));
    }

    /**
     * Asks the peer, and waits for the reply.
     *
     * @param request the bytes that remain in the buffer
     * @param timeout how long to wait
     * @return the reply, to be closed
     * @throws InterruptedException if the thread is interrupted; the call goes on until its timeout
     * @throws IllegalArgumentException if the request is too long, or the connection is unreliable
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if there is no reply: {@link Status#REPLY_ERROR} with the code and details of the server's program
     */
    public Payload call(ByteBuffer request, Duration timeout) throws InterruptedException {
        Operation operation = new Operation("a call", null, false);
        operation.of = this;
        // The library ends the call at its timeout, and reports that a moment later.
        Object reply = messenger.waitFor(
                operation, timeout.plusSeconds(5), number -> startCall(operation, request, timeout, number));
        return (Payload) reply;
    }

    /**
     * Sends a request to the peer. Cancelling the future gives the call up, and the server is notified.
     *
     * @param request the bytes that remain in the buffer, which are copied
     * @param timeout how long to wait
     * @return a future of the reply, which is to be closed; it may fail with a {@link PeerException}, and with a
     *     {@link SystemException} of {@link Status#NO_BUFFERS} if there was no room
     * @throws IllegalArgumentException if the request is too long, or the connection is unreliable
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if the connection has ended
     */
    public CompletableFuture<Payload> callAsync(ByteBuffer request, Duration timeout) {
        Operation operation = new Operation("a call", null, true);
        operation.of = this;
        CompletableFuture<Payload> future =
                messenger.startForFuture(operation, number -> startCall(operation, request, timeout, number));
        future.whenComplete((reply, failure) -> {
            if (future.isCancelled()) {
                messenger.cancelCall(operation);
            }
        });
        return future;
    }

    private boolean start(ByteBuffer message, long context) {
        long to = target();
        int code = Messenger.withNative(message, data -> RawMessenger.send(messenger.handle, to, data, context, 0));
        return taken(code, "sending");
    }

    private boolean startCall(Operation operation, ByteBuffer request, Duration timeout, long context) {
        long to = target();
        long time = messenger.timeout(timeout);
        int code = Messenger.withNative(
                request, data -> RawMessenger.call(messenger.handle, to, data, time, context, messenger.out));
        boolean taken = taken(code, "a call");
        operation.call = taken ? Raw.getLong(messenger.out) : 0;
        return taken;
    }

    private static boolean taken(int code, String what) {
        if (code == Status.NO_BUFFERS.code) {
            return false;
        }
        Failure.check(code, what);
        return true;
    }

    private long target() {
        if (number == 0) {
            throw reason == null
                    ? new IllegalStateException("the connection is closed")
                    : new PeerException(Status.DISCONNECTED, "the connection has ended: " + reason);
        }
        return number;
    }

    /** It has ended, not by this side. Under the lock. */
    void lost(DisconnectReason why) {
        reason = why;
        number = 0;
    }

    /**
     * Closes the connection from this side; never blocks. Short messages that were sent before are still delivered; long ones
     * and calls that are under way fail. Closing again does nothing.
     */
    @Override
    public void close() {
        messenger.lock.lock();
        try {
            if (number != 0 && messenger.isOpen()) {
                RawMessenger.disconnect(messenger.handle, number);
                messenger.connections.remove(number);
                number = 0;
            }
        } finally {
            messenger.exit();
        }
    }

    /**
     * Whether messages can be sent now, as far as is known.
     *
     * @return true if it is open
     */
    public boolean isOpen() {
        messenger.lock.lock();
        try {
            return number != 0;
        } finally {
            messenger.exit();
        }
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
     * Says, in lines for people, which path it takes, and what holds it up now.
     *
     * @return the lines
     * @throws IllegalStateException if the connection was closed by this side
     * @throws PeerException if the connection has ended
     */
    public String explain() {
        messenger.enter();
        try {
            Failure.check(
                    RawMessenger.explain(messenger.handle, target(), messenger.out), "explaining a connection");
            return Raw.takeText(Raw.getLong(messenger.out));
        } finally {
            messenger.exit();
        }
    }
}
