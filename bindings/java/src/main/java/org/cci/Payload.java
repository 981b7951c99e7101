package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * Bytes that came to a messenger: a message, a request or a reply of any length, in memory of the library's until it is closed.
 *
 * <p>{@link #segment} and {@link #buffer} show it without a copy. Such a view belongs to the thread that asked for it: other
 * threads can't use it, and only that thread can close the payload then. The other methods suit every thread, and take the lock:
 * long memory goes back to the system when it is closed.
 */
public final class Payload implements AutoCloseable {
    private final Messenger messenger;
    private final long address;
    private final long length;
    /** The event in C; 0 when it was returned. Written under the lock. */
    private long event;

    private Arena viewArena;
    private MemorySegment view;
    private Thread viewThread;

    Payload(Messenger messenger, long event) {
        this.messenger = messenger;
        this.event = event;
        address = Raw.getLong(event + 24);
        length = Raw.getLong(event + 32);
        messenger.payloads.add(this);
    }

    /**
     * Its length in bytes.
     *
     * @return 0 or more
     */
    public long length() {
        return length;
    }

    /**
     * A byte of it.
     *
     * @param offset where, bytes from its start
     * @return the byte
     * @throws IndexOutOfBoundsException if it is not there
     * @throws IllegalStateException if the payload or its messenger is closed
     */
    public byte getByte(long offset) {
        messenger.enter();
        try {
            return messenger.memory.get(JAVA_BYTE, at(offset, 1));
        } finally {
            messenger.exit();
        }
    }

    /**
     * Copies bytes out of it.
     *
     * @param offset where they begin, bytes from its start
     * @param to where they go
     * @param start where they begin there
     * @param count how many
     * @throws IndexOutOfBoundsException if they are not all there, or there is no room for them
     * @throws IllegalStateException if the payload, its messenger or the segment is closed
     */
    public void copyTo(long offset, MemorySegment to, long start, long count) {
        messenger.enter();
        try {
            MemorySegment.copy(messenger.memory, at(offset, count), to, start, count);
        } finally {
            messenger.exit();
        }
    }

    /**
     * A copy of it.
     *
     * @return its bytes
     * @throws IllegalStateException if the payload or its messenger is closed, or it is longer than an array can be
     */
    public byte[] toByteArray() {
        if (length > Integer.MAX_VALUE - 8) {
            throw new IllegalStateException("the payload of " + length + " bytes is longer than an array can be");
        }
        byte[] copy = new byte[(int) length];
        copyTo(0, MemorySegment.ofArray(copy), 0, length);
        return copy;
    }

    /**
     * Shows it without a copy, to this thread, until it is closed.
     *
     * @return a read-only segment
     * @throws IllegalStateException if the payload or its messenger is closed
     * @throws WrongThreadException if another thread has a view of it
     */
    public MemorySegment segment() {
        messenger.enter();
        try {
            checkOut();
            if (view == null) {
                viewArena = Arena.ofConfined();
                view = MemorySegment.ofAddress(address).reinterpret(length, viewArena, null).asReadOnly();
                viewThread = Thread.currentThread();
            } else if (viewThread != Thread.currentThread()) {
                throw new WrongThreadException("the payload is shown to " + viewThread);
            }
            return view;
        } finally {
            messenger.exit();
        }
    }

    /**
     * Shows it without a copy, to this thread, until it is closed.
     *
     * @return a read-only buffer, big-endian as buffers are at first
     * @throws IllegalStateException if the payload or its messenger is closed
     * @throws UnsupportedOperationException if it is longer than a buffer can be
     * @throws WrongThreadException if another thread has a view of it
     */
    public ByteBuffer buffer() {
        return segment().asByteBuffer();
    }

    /**
     * Gives the memory back. Views of it end. Closing again does nothing.
     *
     * @throws WrongThreadException if another thread has a view of it
     * @throws IllegalStateException if native code uses a view of it at this moment
     */
    @Override
    public void close() {
        messenger.lock.lock();
        try {
            if (event != 0) {
                giveBack();
            }
        } finally {
            messenger.exit();
        }
    }

    // ----------------------------------------------------------------------------------------------- under the lock

    private void giveBack() {
        if (viewArena != null) {
            viewArena.close();
            viewArena = null;
            view = null;
            viewThread = null;
        }
        long returned = event;
        event = 0;
        messenger.payloads.remove(this);
        RawMessenger.returnEvent(returned);
    }

    /** At the end of the messenger: one with a view of another thread's stays until that closes it. */
    void messengerClosed() {
        if (viewArena == null || viewThread == Thread.currentThread()) {
            giveBack();
        }
    }

    /** The event in C, to be answered. */
    long eventLocked() {
        checkOut();
        return event;
    }

    private long at(long offset, long count) {
        checkOut();
        return address + Objects.checkFromIndexSize(offset, count, length);
    }

    private void checkOut() {
        if (event == 0) {
            throw new IllegalStateException("the payload is closed, or its messenger is");
        }
    }

    @Override
    public String toString() {
        return "payload of " + length + " bytes";
    }
}
