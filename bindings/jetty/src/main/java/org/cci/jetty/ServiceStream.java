package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.concurrent.locks.ReentrantLock;
import org.cci.ServiceBuffer;

/**
 * A stream of bytes each way between two services. What the reader has no room for stays with the writer. Reading
 * never blocks, and writing does only while a partner is looked for that has gone.
 */
final class ServiceStream {
    /** Called when something has changed, by the thread that receives: it must not block. */
    interface Listener {
        /** There is something to read: bytes, the end, or a failure. */
        void onReadable();

        /** There is room to write again, or the stream has failed. */
        void onWritable();
    }

    private static final Listener NOBODY = new Listener() {
        @Override
        public void onReadable() {}

        @Override
        public void onWritable() {}
    };

    /** Bytes that came: in an array, or in a window. */
    private record Chunk(ByteBuffer bytes, ServiceBuffer window) {}

    private final StreamMultiplexer multiplexer;
    final Partner partner;
    final boolean openedHere;
    final long number;
    private final ReentrantLock lock = new ReentrantLock();
    private final ArrayDeque<Chunk> chunks = new ArrayDeque<>();
    private volatile Listener listener = NOBODY;
    /** What the peer has room for. */
    private long room;
    /** What may still come, and what was read and not announced yet. */
    private long owed;

    private long read;
    /** How many parts and ends were sent, and came, modulo 65536. */
    private int sent;

    private int came;
    /** Nobody reads any more, and the peer has not ended its direction. */
    private boolean inputClosed;

    private long inputClosedNs;

    private boolean ended;
    private boolean endSent;
    private IOException failure;
    /** When the peer was heard last. */
    private volatile long heardNs = System.nanoTime();

    ServiceStream(StreamMultiplexer multiplexer, Partner partner, boolean openedHere, long number, long room, long owed) {
        this.multiplexer = multiplexer;
        this.partner = partner;
        this.openedHere = openedHere;
        this.number = number;
        this.room = room;
        this.owed = owed;
    }

    void listen(Listener to) {
        listener = to;
    }

    /**
     * Copies bytes that came.
     *
     * @return how many; 0: none is there now; -1: the end
     * @throws IOException if the stream has failed
     */
    int read(ByteBuffer to) throws IOException {
        int count = 0;
        long announced = 0;
        lock.lock();
        try {
            for (Chunk chunk = chunks.peek(); chunk != null && to.hasRemaining(); chunk = chunks.peek()) {
                int bytes = Math.min(chunk.bytes.remaining(), to.remaining());
                to.put(chunk.bytes.slice(chunk.bytes.position(), bytes));
                chunk.bytes.position(chunk.bytes.position() + bytes);
                count += bytes;
                if (!chunk.bytes.hasRemaining()) {
                    release(chunks.poll());
                }
            }
            if (count == 0 && to.hasRemaining()) {
                if (ended) {
                    return -1;
                }
                if (failure != null) {
                    throw failure;
                }
                return 0;
            }
            announced = announce(count);
        } finally {
            lock.unlock();
        }
        if (announced > 0) {
            multiplexer.send(this, Frame.Kind.ROOM, (int) announced);
        } else {
            multiplexer.wasRead(partner);
        }
        return count;
    }

    /** Bytes that are read where they came: in an array, or in a window. */
    record Lent(ByteBuffer bytes, ServiceBuffer window) {}

    /**
     * The next bytes that came, where they are, until they are given back. Only if something is readable.
     *
     * @return them; none: null at the end
     * @throws IOException if the stream has failed
     */
    Lent lend() throws IOException {
        lock.lock();
        try {
            Chunk chunk = chunks.poll();
            if (chunk != null) {
                return new Lent(chunk.bytes, chunk.window);
            }
            if (ended) {
                return null;
            }
            if (failure != null) {
                throw failure;
            }
            return new Lent(ByteBuffer.allocate(0), null);
        } finally {
            lock.unlock();
        }
    }

    /** What was lent was read. */
    void giveBack(Lent lent) {
        if (lent.window != null) {
            multiplexer.giveBack(lent.window);
        }
        long announced;
        lock.lock();
        try {
            announced = announce(lent.bytes.limit());
        } finally {
            lock.unlock();
        }
        if (announced > 0) {
            multiplexer.send(this, Frame.Kind.ROOM, (int) announced);
        } else {
            multiplexer.wasRead(partner);
        }
    }

    /** Bytes were read. Returns how many are to be announced. With the lock. */
    private long announce(long bytes) {
        read += bytes;
        if (read < multiplexer.windowBytes() / 4 || ended || failure != null) {
            return 0;
        }
        long announced = read;
        owed += read;
        read = 0;
        return announced;
    }

    /**
     * Sends what the peer has room for, in order, and moves the buffers' positions.
     *
     * @return whether all of it was sent
     * @throws IOException if the stream has failed, or its end was sent
     */
    boolean write(ByteBuffer... buffers) throws IOException {
        long all = 0;
        for (ByteBuffer buffer : buffers) {
            all += buffer.remaining();
        }
        int copiedBytesMax = partner.splits(all) ? partner.inlineBytesMax() : StreamMultiplexer.COPIED_BYTES_MAX;
        while (true) {
            // What can be sent from where it is goes by itself.
            long left = 0;
            long copied = 0;
            Lendable memory = null;
            ByteBuffer lent = null;
            for (ByteBuffer buffer : buffers) {
                boolean isLong = memory == null && buffer.remaining() > Partner.SHARED_BYTES_MAX;
                Lendable of = isLong ? Lendable.of(buffer) : null;
                if (of != null) {
                    memory = of;
                    lent = buffer;
                }
                copied += memory == null ? buffer.remaining() : 0;
                left += buffer.remaining();
            }
            boolean lends = copied == 0 && memory != null;
            int part;
            int sequence;
            lock.lock();
            try {
                if (failure != null) {
                    throw failure;
                }
                if (endSent) {
                    throw new EOFException("the end of the stream was written");
                }
                long most = lends
                        ? Math.min(lent.remaining(), partner.lentBytesMax())
                        : Math.min(copied, copiedBytesMax);
                part = (int) Math.min(most, room);
                if (part == 0) {
                    return left == 0;
                }
                if (!partner.reserve(this, part)) {
                    return false;
                }
                room -= part;
                sequence = nextSent();
            } finally {
                lock.unlock();
            }
            if (lends) {
                multiplexer.send(this, memory, lent, part, sequence);
            } else {
                multiplexer.send(this, buffers, part, sequence);
            }
        }
    }

    /** Ends this direction: nothing more comes. */
    void writeEnd() {
        int sequence;
        lock.lock();
        try {
            if (endSent || failure != null) {
                return;
            }
            endSent = true;
            sequence = nextSent();
        } finally {
            lock.unlock();
        }
        multiplexer.sendEnd(this, sequence);
    }

    private int nextSent() {
        int sequence = sent;
        sent = (sent + 1) & 0xffff;
        return sequence;
    }

    /** Fails if the stream has failed. */
    void check() throws IOException {
        lock.lock();
        try {
            if (failure != null) {
                throw failure;
            }
        } finally {
            lock.unlock();
        }
    }

    /** Whether a read would give something: bytes, the end, or a failure. */
    boolean isReadable() {
        lock.lock();
        try {
            return !chunks.isEmpty() || ended || failure != null;
        } finally {
            lock.unlock();
        }
    }

    /** Whether a write would take something, or fail. */
    boolean isWritable() {
        lock.lock();
        try {
            return failure != null || (room > 0 && partner.hasSpaceFor(this));
        } finally {
            lock.unlock();
        }
    }

    /** There may be room for what was not written. */
    void maybeWritable() {
        listener.onWritable();
    }

    /**
     * Nobody reads any more. What the peer still sends is answered with a reset. A peer that has opened the stream, and to which the end
     * was written, gets all before that first: a reset at once would overtake what waits to be sent. It has a time to end its direction.
     */
    void closeInput() {
        boolean wasRead;
        lock.lock();
        try {
            wasRead = ended && chunks.isEmpty();
            inputClosed = endSent && !openedHere && !ended && failure == null;
            inputClosedNs = System.nanoTime();
            releaseAll();
        } finally {
            lock.unlock();
        }
        if (wasRead) {
            multiplexer.endedHere(this);
        } else if (!inputClosed) {
            reset();
        }
    }

    /** Ends it, whatever is under way. */
    void reset() {
        if (fail(new EOFException("the stream is closed"))) {
            multiplexer.reset(this);
        }
    }

    /** Ends it if this side has closed it for so long, and the peer has not. The peer gets what waits to be sent, and then a reset. */
    void endIfClosedFor(long ns) {
        lock.lock();
        try {
            if (!inputClosed || ended || System.nanoTime() - inputClosedNs < ns) {
                return;
            }
        } finally {
            lock.unlock();
        }
        if (fail(new EOFException("the peer has not closed the stream, which was closed here"))) {
            multiplexer.resetBehind(this);
        }
    }

    /** Whether both sides have ended it, or it has failed. */
    boolean isOver() {
        lock.lock();
        try {
            return failure != null || (ended && endSent);
        } finally {
            lock.unlock();
        }
    }

    // --------------------------------------------------------------------------------- by the thread that receives

    /** Something came from the peer. */
    void heard() {
        heardNs = System.nanoTime();
    }

    /** For how long nothing came. */
    long silentNs() {
        return System.nanoTime() - heardNs;
    }

    /** Bytes came. False: they are not taken, as some before them are missing, there is no room for them, or the stream is over. */
    boolean received(Frame frame, ByteBuffer bytes, ServiceBuffer window) {
        lock.lock();
        try {
            owed -= bytes.remaining();
            if (owed < 0 || inputClosed || !isNext(frame)) {
                return false;
            }
            chunks.add(new Chunk(bytes, window));
        } finally {
            lock.unlock();
        }
        listener.onReadable();
        return true;
    }

    void receivedRoom(int bytes) {
        lock.lock();
        try {
            // A peer may say anything.
            room = Math.min(room + bytes, Integer.MAX_VALUE);
        } finally {
            lock.unlock();
        }
        listener.onWritable();
    }

    /** Nothing more comes. False: something before it is missing, or the stream is over. */
    boolean receivedEnd(Frame frame) {
        lock.lock();
        try {
            if (!isNext(frame)) {
                return false;
            }
            ended = true;
        } finally {
            lock.unlock();
        }
        listener.onReadable();
        return true;
    }

    private boolean isNext(Frame frame) {
        if (frame.sequence() != came || ended || failure != null) {
            return false;
        }
        came = (came + 1) & 0xffff;
        return true;
    }

    /** The stream is over. False: it was before. */
    boolean fail(IOException why) {
        lock.lock();
        try {
            if (failure != null) {
                return false;
            }
            failure = why;
            // What came before the end can still be read.
            if (!ended) {
                releaseAll();
            }
        } finally {
            lock.unlock();
        }
        listener.onReadable();
        listener.onWritable();
        return true;
    }

    private void releaseAll() {
        for (Chunk chunk = chunks.poll(); chunk != null; chunk = chunks.poll()) {
            release(chunk);
        }
    }

    private void release(Chunk chunk) {
        if (chunk.window != null) {
            multiplexer.giveBack(chunk.window);
        }
    }
}
