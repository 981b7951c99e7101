package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.function.Consumer;

/** A long message that a peer wants to send. It is received or refused, now or later. */
public final class Offer {
    private final Messenger messenger;
    private final MessengerConnection connection;
    private final long id;
    private final long length;
    /** Reports the end of the arena that it is received into. */
    private ArenaEnd arenaEnd;

    Offer(Messenger messenger, MessengerConnection connection, long id, long length) {
        this.messenger = messenger;
        this.connection = connection;
        this.id = id;
        this.length = length;
    }

    /**
     * The connection that it came on.
     *
     * @return the connection
     */
    public MessengerConnection connection() {
        return connection;
    }

    /**
     * The length of the message in bytes.
     *
     * @return the length
     */
    public long length() {
        return length;
    }

    /**
     * Receives it into memory that the library lends. Ends in one {@link MessengerEvent.Received}, or in a
     * {@link MessengerEvent.OfferEnded} that says why not.
     *
     * @throws IllegalArgumentException if it has ended, is being received already, or is longer than may be lent
     * @throws IllegalStateException if the messenger is closed
     */
    public void receive() {
        messenger.enter();
        try {
            Failure.check(RawMessenger.receive(messenger.handle, id), "receiving a message");
        } finally {
            messenger.exit();
        }
    }

    /**
     * Receives it into memory of the program's, which it must leave alone until {@link MessengerEvent.OfferEnded}.
     *
     * @param segment native memory, at least as long as the message
     * @param arena the arena that it is of: if it ends before, the message is refused with the code 0
     * @throws IllegalArgumentException if the segment is too short, not native, read-only or not of the arena; or the offer has
     *     ended, or is being received already
     * @throws IllegalStateException if the messenger or the arena is closed
     * @throws WrongThreadException if the arena is of another thread
     */
    public void receiveInto(MemorySegment segment, Arena arena) {
        if (!segment.isNative() || segment.isReadOnly()) {
            throw new IllegalArgumentException("a message is received into native memory that can be written");
        }
        if (!segment.scope().equals(arena.scope())) {
            throw new IllegalArgumentException("the segment is not of this arena");
        }
        if (!segment.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException("the segment is of another thread");
        }
        messenger.enter();
        try {
            // As with regions: it waits for the lock, and comes before the memory is freed.
            ArenaEnd end = new ArenaEnd();
            MemorySegment unused = segment.reinterpret(arena, end);
            assert unused != null;
            int code = RawMessenger.receiveInto(messenger.handle, id, segment.address(), segment.byteSize(), 0);
            Failure.check(code, "receiving a message");
            end.offer = this;
            arenaEnd = end;
        } finally {
            messenger.exit();
        }
    }

    /**
     * Refuses it, or stops receiving it. The sender's send ends with {@link Status#REFUSED}.
     *
     * @param code a number that both programs understand
     * @throws IllegalArgumentException if it has ended
     * @throws IllegalStateException if the messenger is closed
     */
    public void refuse(int code) {
        messenger.enter();
        try {
            Failure.check(RawMessenger.refuse(messenger.handle, id, code), "refusing a message");
            ended();
        } finally {
            messenger.exit();
        }
    }

    /** It has ended: its memory is the program's. Under the lock. */
    void ended() {
        messenger.offers.remove(id);
        if (arenaEnd != null) {
            arenaEnd.offer = null;
            arenaEnd = null;
        }
    }

    /** What an arena does before it frees the memory: it stops the message. */
    private final class ArenaEnd implements Consumer<MemorySegment> {
        private volatile Offer offer;

        @Override
        public void accept(MemorySegment segment) {
            messenger.lock.lock();
            try {
                if (offer != null && messenger.isOpen()) {
                    RawMessenger.refuse(messenger.handle, id, 0);
                    ended();
                }
            } finally {
                messenger.exit();
            }
        }
    }

    @Override
    public String toString() {
        return "offer of " + length + " bytes";
    }
}
