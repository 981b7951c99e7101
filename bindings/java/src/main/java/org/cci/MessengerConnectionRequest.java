package org.cci;

import java.util.concurrent.CompletableFuture;

/** Somebody wants to connect to a messenger. Answer once, from any thread. */
public final class MessengerConnectionRequest implements AutoCloseable {
    private final Messenger messenger;
    private final byte[] payload;
    private final Attribute attribute;
    /** The event in C; 0 when it was answered. Under the lock. */
    private long event;

    MessengerConnectionRequest(Messenger messenger, long event, byte[] payload, Attribute attribute) {
        this.messenger = messenger;
        this.event = event;
        this.payload = payload;
        this.attribute = attribute;
    }

    /**
     * What the client sent along.
     *
     * @return a copy
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
     * Accepts it. Ends in one {@link MessengerEvent.Accepted} or {@link MessengerEvent.AcceptFailed}.
     *
     * @throws IllegalStateException if it was answered, or the messenger is closed
     * @throws PeerException if the peer has given up, or may not connect
     * @throws SystemException if there is no memory
     */
    public void accept() {
        Operation opening = new Operation("accepting a connection", null, false);
        opening.raisesEvent = true;
        accept(opening);
    }

    /**
     * Accepts it, without an event.
     *
     * @return a future of the open connection
     * @throws IllegalStateException as {@link #accept}
     * @throws PeerException as {@link #accept}
     * @throws SystemException as {@link #accept}
     */
    public CompletableFuture<MessengerConnection> acceptAsync() {
        Operation opening = new Operation("accepting a connection", null, true);
        accept(opening);
        return Intake.futureOf(opening);
    }

    private void accept(Operation opening) {
        messenger.enter();
        try {
            if (event == 0) {
                throw new IllegalStateException("the connection request was answered, or its messenger is closed");
            }
            opening.of = new MessengerConnection(messenger, attribute);
            long number = messenger.operations.add(opening);
            int code = RawMessenger.accept(messenger.handle, event, number);
            RuntimeException failure = code == 0 ? null : Failure.of(code, "accepting a connection");
            if (failure != null) {
                messenger.operations.remove(number);
            }
            giveBack();
            if (failure != null) {
                throw failure;
            }
        } finally {
            messenger.exit();
        }
    }

    /** Rejects it unless it was answered: the peer's attempt ends with {@link Status#CONNECTION_REFUSED}. */
    @Override
    public void close() {
        messenger.lock.lock();
        try {
            giveBack();
        } finally {
            messenger.exit();
        }
    }

    /** One that was not answered is rejected by that. Under the lock. */
    private void giveBack() {
        if (event != 0) {
            RawMessenger.returnEvent(event);
            event = 0;
            messenger.requests.remove(this);
        }
    }
}
