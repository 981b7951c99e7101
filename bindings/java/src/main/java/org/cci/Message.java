package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A received message, in the receive buffer where it came. It is read in place, by any thread, until it is closed.
 *
 * <p>{@link #segment} and {@link #buffer} show it without a copy. Such a view belongs to the thread that asked for it: other
 * threads can't use it, and only that thread can close the message then. The other methods allocate nothing and suit every
 * thread.
 *
 * <p>Each message that is kept occupies a receive buffer. When all are occupied, nothing more is received.
 */
public final class Message implements AutoCloseable {
    private final Endpoint endpoint;
    private Connection connection;
    /** The event in C; 0 when it was returned. Written under the lock. */
    private long event;

    private long address;
    private int length;
    /** It goes back by itself when the handler returns. */
    private boolean lent;
    /** The scope of views, of the thread that asked for them. */
    private Arena viewArena;

    private MemorySegment view;
    private Thread viewThread;

    /** Those that the program has are linked in a ring. */
    private Message before = this;

    private Message behind = this;

    Message(Endpoint endpoint) {
        this.endpoint = endpoint;
    }

    // ----------------------------------------------------------------------------------------------- for the endpoint

    private void hold(Connection connection, long event) {
        this.connection = connection;
        this.event = event;
        length = Raw.getInt(event + 4);
        address = Raw.getLong(event + 8);
        Message head = endpoint.messages;
        before = head.before;
        behind = head;
        before.behind = this;
        head.before = this;
    }

    Message own(Connection connection, long event) {
        hold(connection, event);
        return this;
    }

    void lend(Connection connection, long event) {
        hold(connection, event);
        lent = true;
    }

    /** The same message, lent to a handler. */
    Message lentAgain() {
        lent = true;
        return this;
    }

    boolean isOut() {
        return event != 0;
    }

    /** Under the lock, by the thread that it was lent to. */
    void giveBackLent() {
        lent = false;
        if (event != 0) {
            giveBack();
        }
    }

    private void giveBack() {
        if (viewArena != null) {
            // The thread of the views alone may do this, and nobody while native code uses one.
            viewArena.close();
            viewArena = null;
            view = null;
            viewThread = null;
        }
        long returned = event;
        event = 0;
        unlink();
        Raw.returnEvent(returned);
    }

    private void unlink() {
        before.behind = behind;
        behind.before = before;
        before = this;
        behind = this;
    }

    /** At the end of the endpoint, from its ring: those with views of other threads stay until these close them. */
    void closeOthers() {
        Message next;
        for (Message message = behind; message != this; message = next) {
            next = message.behind;
            if (message.viewArena == null || message.viewThread == Thread.currentThread()) {
                message.giveBack();
            } else {
                message.unlink();
            }
        }
    }

    /** Where it is in memory, for a call under the lock. */
    long addressLocked() {
        checkOut();
        return address;
    }

    // ------------------------------------------------------------------------------------------------------- reading

    /**
     * The connection that it came on.
     *
     * @return the connection
     */
    public Connection connection() {
        return connection;
    }

    /**
     * Its length in bytes.
     *
     * @return 0 or more
     */
    public int length() {
        return length;
    }

    /**
     * A byte of it.
     *
     * @param offset where, bytes from its start
     * @return the byte
     * @throws IndexOutOfBoundsException if it is not in the message
     * @throws IllegalStateException if the message or its endpoint is closed
     */
    public byte getByte(int offset) {
        return endpoint.memory.get(JAVA_BYTE, at(offset, 1));
    }

    /**
     * Four bytes of it, in the byte order of this machine.
     *
     * @param offset where, bytes from its start, at any alignment
     * @return the number
     * @throws IndexOutOfBoundsException if they are not all in the message
     * @throws IllegalStateException if the message or its endpoint is closed
     */
    public int getInt(int offset) {
        return endpoint.memory.get(JAVA_INT_UNALIGNED, at(offset, 4));
    }

    /**
     * Eight bytes of it, in the byte order of this machine.
     *
     * @param offset where, bytes from its start, at any alignment
     * @return the number
     * @throws IndexOutOfBoundsException if they are not all in the message
     * @throws IllegalStateException if the message or its endpoint is closed
     */
    public long getLong(int offset) {
        return endpoint.memory.get(JAVA_LONG_UNALIGNED, at(offset, 8));
    }

    /**
     * Copies bytes out of it.
     *
     * @param offset where they begin, bytes from the message's start
     * @param to where they go
     * @param start the first index there
     * @param count how many
     * @throws IndexOutOfBoundsException if they are not all in the message, or there is no room for them
     * @throws IllegalStateException if the message or its endpoint is closed
     */
    public void copyTo(int offset, byte[] to, int start, int count) {
        MemorySegment.copy(endpoint.memory, JAVA_BYTE, at(offset, count), to, start, count);
    }

    /**
     * Copies bytes out of it.
     *
     * @param offset where they begin, bytes from the message's start
     * @param to where they go
     * @param start where they begin there
     * @param count how many
     * @throws IndexOutOfBoundsException if they are not all in the message, or there is no room for them
     * @throws IllegalStateException if the message, its endpoint or the segment is closed
     */
    public void copyTo(int offset, MemorySegment to, long start, int count) {
        MemorySegment.copy(endpoint.memory, at(offset, count), to, start, count);
    }

    /**
     * A copy of it.
     *
     * @return its bytes
     * @throws IllegalStateException if the message or its endpoint is closed
     */
    public byte[] toByteArray() {
        byte[] copy = new byte[length];
        copyTo(0, copy, 0, length);
        return copy;
    }

    /**
     * Shows it without a copy, to this thread, until it is closed.
     *
     * @return a read-only segment
     * @throws IllegalStateException if the message or its endpoint is closed
     * @throws WrongThreadException if another thread has a view of it
     */
    public MemorySegment segment() {
        endpoint.enter();
        try {
            checkOut();
            if (view == null) {
                viewArena = Arena.ofConfined();
                view = MemorySegment.ofAddress(address).reinterpret(length, viewArena, null).asReadOnly();
                viewThread = Thread.currentThread();
            } else if (viewThread != Thread.currentThread()) {
                throw new WrongThreadException("the message is shown to " + viewThread);
            }
            return view;
        } finally {
            endpoint.exit();
        }
    }

    /**
     * Shows it without a copy, to this thread, until it is closed.
     *
     * @return a read-only buffer, big-endian as buffers are at first
     * @throws IllegalStateException if the message or its endpoint is closed
     * @throws WrongThreadException if another thread has a view of it
     */
    public ByteBuffer buffer() {
        return segment().asByteBuffer();
    }

    /**
     * Makes a message that is lent to a handler the program's, until it closes it.
     *
     * @return the same message, to be used from now on; the lent one is closed
     * @throws IllegalStateException if it is not lent
     */
    public Message keep() {
        endpoint.enter();
        try {
            checkOut();
            if (!lent) {
                throw new IllegalStateException("the message is the program's already");
            }
            Message kept = new Message(endpoint);
            kept.viewArena = viewArena;
            kept.view = view;
            kept.viewThread = viewThread;
            viewArena = null;
            view = null;
            viewThread = null;
            unlink();
            kept.hold(connection, event);
            event = 0;
            return kept;
        } finally {
            endpoint.exit();
        }
    }

    /**
     * Gives the buffer back. Views of it end. Closing again does nothing.
     *
     * @throws WrongThreadException if another thread has a view of it
     * @throws IllegalStateException if native code uses a view of it at this moment
     */
    @Override
    public void close() {
        endpoint.lock.lock();
        try {
            if (event != 0) {
                giveBack();
            }
        } finally {
            endpoint.exit();
        }
    }

    private long at(int offset, int count) {
        checkOut();
        return address + Objects.checkFromIndexSize(offset, count, length);
    }

    private void checkOut() {
        if (event == 0) {
            throw new IllegalStateException("the message is closed, or its endpoint is");
        }
    }

    @Override
    public String toString() {
        return "message of " + length + " bytes";
    }
}
