package org.cci;

import java.nio.ByteBuffer;

/** What a client asks. Answer once, in any order and from any thread; answering closes the request. */
public final class Request implements AutoCloseable {
    private final Messenger messenger;
    private final MessengerConnection connection;
    private final Payload payload;
    private final long id;

    Request(Messenger messenger, MessengerConnection connection, Payload payload, long id) {
        this.messenger = messenger;
        this.connection = connection;
        this.payload = payload;
        this.id = id;
    }

    /**
     * What was sent with it. It ends with the answer.
     *
     * @return the bytes
     */
    public Payload payload() {
        return payload;
    }

    /**
     * Answers with bytes, which are copied, and which may be those of the request.
     *
     * @param reply the bytes that remain in the buffer
     * @return false if there is no room: take events, then try again
     * @throws IllegalArgumentException if the reply is too long
     * @throws IllegalStateException if it was answered or closed, or the messenger is closed
     * @throws PeerException if nobody waits for the answer any more; the request is closed
     * @throws SystemException if there is no memory; it can be answered again
     */
    public boolean tryReply(ByteBuffer reply) {
        return answer(event -> Messenger.withNative(
                reply, data -> RawMessenger.reply(messenger.handle, event, data)));
    }

    /**
     * Answers with an error of the program's own.
     *
     * @param code a number that both programs understand
     * @param details bytes that say more
     * @return false if there is no room: take events, then try again
     * @throws IllegalArgumentException if the bytes are too many
     * @throws IllegalStateException if it was answered or closed, or the messenger is closed
     * @throws PeerException if nobody waits for the answer any more; the request is closed
     * @throws SystemException if there is no memory; it can be answered again
     */
    public boolean tryReplyError(int code, ByteBuffer details) {
        return answer(event -> Messenger.withNative(
                details, data -> RawMessenger.replyError(messenger.handle, event, code, data)));
    }

    private interface Answer {
        int to(long event);
    }

    private boolean answer(Answer answer) {
        messenger.enter();
        try {
            int code = answer.to(payload.eventLocked());
            if (code == Status.NO_BUFFERS.code) {
                return false;
            }
            RuntimeException failure = code == 0 ? null : Failure.of(code, "answering a request");
            if (failure == null || failure instanceof PeerException) {
                close();
            }
            if (failure != null) {
                throw failure;
            }
            return true;
        } finally {
            messenger.exit();
        }
    }

    /** Drops it unless it was answered; its client is notified. */
    @Override
    public void close() {
        messenger.lock.lock();
        try {
            connection.requests.remove(id, this);
            payload.close();
        } finally {
            messenger.exit();
        }
    }
}
