package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import org.cci.CciException;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;
import org.cci.ServiceItem;
import org.cci.ServiceMessage;

/**
 * Streams of bytes over one service, any number with each partner. One thread calls {@link #turn} again and again: it takes what
 * comes, and never waits for a partner.
 *
 * <p>Up to {@link #INLINE_BYTES_MAX} bytes travel in a message; more are lent as a long item, which the reader's side fetches into a
 * window of its own. What a partner may take here is bounded: its streams, and the bytes that were not read yet.
 */
final class StreamMultiplexer implements AutoCloseable {
    /** The most bytes of one message of a stream. */
    static final int PART_BYTES_MAX = 1 << 20;
    /** Bytes that travel in a message beside the frame. */
    static final int INLINE_BYTES_MAX = 1900;
    /** What may be sent before the other side has announced its room. */
    static final int ROOM_AT_FIRST_BYTES = 16 << 10;
    /** Streams with one partner. */
    private static final int STREAMS_OF_PARTNER_MAX = 256;
    /** A partner that takes nothing of what waits for it for so long is given up. */
    private static final long STUCK_NS = 30_000_000_000L;
    /** How often that is looked for. */
    private static final long SWEEP_NS = 1_000_000_000;

    /** Takes a stream that a partner opens. */
    interface Acceptor {
        void accept(ServiceStream stream);
    }

    private final Service service;
    private final int windowBytes;
    private final int streamsMax;
    private final Executor executor;
    private final Acceptor acceptor;
    private final WindowPool windows;
    private final Map<ServiceId, Partner> partners = new HashMap<>();
    private int streams;
    private long lastNumber;
    private long sweptNs = System.nanoTime();
    /** What the next long item is fetched into. */
    private ServiceBuffer window;

    private volatile boolean closed;

    /**
     * Streams over a service.
     *
     * @param service the service, which is nobody else's and ends with this
     * @param windowBytes what may wait to be read on each stream, bytes
     * @param streamsMax how many streams there may be
     * @param executor what sends for the thread that receives
     * @param acceptor who takes those that partners open; null: nobody
     */
    StreamMultiplexer(Service service, int windowBytes, int streamsMax, Executor executor, Acceptor acceptor) {
        this.service = service;
        this.windowBytes = windowBytes;
        this.streamsMax = streamsMax;
        this.executor = executor;
        this.acceptor = acceptor;
        windows = new WindowPool(Math.min(windowBytes, PART_BYTES_MAX));
    }

    int windowBytes() {
        return windowBytes;
    }

    ServiceId id() {
        return service.id();
    }

    /** Opens a stream. It looks for the service, for up to 10 s. */
    ServiceStream open(ServiceId to) throws IOException {
        ServiceStream stream;
        synchronized (this) {
            if (closed) {
                throw new EOFException("the streams are closed");
            }
            if (streams >= streamsMax) {
                throw new IOException("there are " + streamsMax + " streams already");
            }
            Partner partner = partners.computeIfAbsent(to, Partner::new);
            lastNumber++;
            stream = new ServiceStream(this, partner, true, lastNumber, ROOM_AT_FIRST_BYTES, windowBytes);
            partner.streams(true).put(lastNumber, stream);
            streams++;
        }
        send(stream, Frame.Kind.OPEN, windowBytes);
        return stream;
    }

    // ------------------------------------------------------------------------------------------------------ sending

    /** Says something of a stream: by a thread that may wait for a partner that has gone. */
    void send(ServiceStream stream, Frame.Kind kind, int count) {
        stream.partner.enqueue(new Frame(kind, stream.openedHere, count, stream.number), null, null);
        drain(stream.partner);
    }

    /**
     * Sends the first bytes of the buffers, for which there is space, and moves their positions. Without memory for them the stream
     * fails.
     */
    void send(ServiceStream stream, ByteBuffer[] buffers, int bytes, int sequence) throws IOException {
        boolean isLong = bytes > INLINE_BYTES_MAX;
        Frame frame = new Frame(Frame.Kind.DATA, stream.openedHere, isLong, sequence, bytes, stream.number);
        if (isLong) {
            ServiceBuffer part = allocate(stream, bytes);
            move(buffers, part.segment().asByteBuffer());
            stream.partner.enqueue(frame, null, part);
        } else {
            ByteBuffer inline = ByteBuffer.allocate(bytes);
            move(buffers, inline);
            stream.partner.enqueue(frame, inline.flip(), null);
        }
        drain(stream.partner);
    }

    /** Sends the end. */
    void sendEnd(ServiceStream stream, int sequence) {
        Frame frame = new Frame(Frame.Kind.END, stream.openedHere, false, sequence, 0, stream.number);
        stream.partner.enqueue(frame, null, null);
        drain(stream.partner);
        endedHere(stream);
    }

    private ServiceBuffer allocate(ServiceStream stream, int bytes) throws IOException {
        try {
            return ServiceBuffer.allocate(bytes);
        } catch (CciException e) {
            stream.partner.callCrowdedOut(bytes);
            stream.reset();
            throw new IOException(e.getMessage(), e);
        }
    }

    private static void move(ByteBuffer[] from, ByteBuffer to) {
        for (ByteBuffer buffer : from) {
            int bytes = Math.min(buffer.remaining(), to.remaining());
            to.put(buffer.slice(buffer.position(), bytes));
            buffer.position(buffer.position() + bytes);
        }
    }

    /** Sends what waits for a partner. If the partner is gone, its streams fail. */
    private void drain(Partner partner) {
        try {
            partner.drain(service);
        } catch (CciException | IllegalStateException e) {
            failAll(partner, new IOException(e.getMessage(), e));
        }
        forgetIdle(partner);
    }

    private void failAll(Partner partner, IOException why) {
        List<ServiceStream> all;
        synchronized (this) {
            all = new ArrayList<>(partner.streams(true).values());
            all.addAll(partner.streams(false).values());
        }
        partner.end();
        all.forEach(stream -> end(stream, why));
        synchronized (this) {
            partners.remove(partner.id, partner);
        }
    }

    /** Gives partners up that take nothing. */
    private void sweep() {
        List<Partner> stuck = new ArrayList<>();
        synchronized (this) {
            sweptNs = System.nanoTime();
            for (Partner partner : partners.values()) {
                if (partner.isStuck(STUCK_NS)) {
                    stuck.add(partner);
                }
            }
        }
        stuck.forEach(partner -> failAll(partner, new IOException("the peer takes nothing")));
    }

    /** Tells the partner that a stream is over. */
    void reset(ServiceStream stream) {
        stream.partner.purge(stream);
        stream.partner.enqueue(new Frame(Frame.Kind.RESET, stream.openedHere, 0, stream.number), null, null);
        drain(stream.partner);
        forget(stream);
    }

    /** The end was written. */
    void endedHere(ServiceStream stream) {
        if (stream.isOver()) {
            forget(stream);
        }
    }

    private void forget(ServiceStream stream) {
        synchronized (this) {
            if (stream.partner.streams(stream.openedHere).remove(stream.number, stream)) {
                streams--;
            }
        }
        forgetIdle(stream.partner);
    }

    private void forgetIdle(Partner partner) {
        synchronized (this) {
            if (partner.count() > 0 || !partner.hasNothingToSend() || !partners.remove(partner.id, partner)) {
                return;
            }
        }
        // Another object will count for it.
        int taken = partner.takenLast();
        if (taken > 0) {
            later(partner.id, new Frame(Frame.Kind.TOOK, false, taken, 0));
        }
    }

    /** Windows that hold bytes which nobody has read yet, and the one that waits for more. */
    int windowsInUse() {
        return windows.inUse();
    }

    void giveBack(ServiceBuffer buffer) {
        windows.giveBack(buffer);
    }

    /** The streams that were opened here and on which nothing came for so long. */
    synchronized List<ServiceStream> silent(long ns) {
        List<ServiceStream> silent = new ArrayList<>();
        for (Partner partner : partners.values()) {
            for (ServiceStream stream : partner.streams(true).values()) {
                if (stream.silentNs() > ns) {
                    silent.add(stream);
                }
            }
        }
        return silent;
    }

    /** Asks the partner whether a stream still stands. If it does not, the stream fails. */
    void ask(ServiceStream stream) {
        stream.heard();
        later(stream.partner, new Frame(Frame.Kind.ASK, stream.openedHere, 0, stream.number));
    }

    /** Says something to a partner, by another thread: this one does not wait for whom it may have to look for. */
    private void later(Partner partner, Frame frame) {
        partner.enqueue(frame, null, null);
        execute(() -> drain(partner));
    }

    private void execute(Runnable task) {
        try {
            executor.execute(task);
        } catch (RejectedExecutionException e) {
            // The server ends, and its connections with it.
        }
    }

    /** Says something to who is no partner. */
    private void later(ServiceId to, Frame frame) {
        execute(() -> {
            try {
                service.send(to, frame.toBytes());
            } catch (CciException | IllegalStateException e) {
                // Who is not reached asks again.
            }
        });
    }

    // ---------------------------------------------------------------------------------------------------- receiving

    /**
     * Takes one message, if one comes in time.
     *
     * @return whether one came
     */
    boolean turn(Duration timeout) throws InterruptedException {
        if (window == null) {
            ServiceBuffer next = windows.take();
            service.offerWindow(next.item());
            window = next;
        }
        if (System.nanoTime() - sweptNs > SWEEP_NS) {
            sweep();
        }
        try (ServiceMessage message = service.receive(timeout)) {
            if (message == null) {
                return false;
            }
            if (message.from() != null) {
                received(message);
            }
            return true;
        }
    }

    private void received(ServiceMessage message) {
        Partner partner;
        synchronized (this) {
            partner = partners.get(message.from());
        }
        if (message.longItemCount() > 0) {
            receivedLong(message.from(), partner, message.longItem(0));
            return;
        }
        Frame frame = message.itemCount() == 0 ? null : Frame.parse(message.item(0));
        if (frame == null) {
            return;
        }
        if (frame.kind() == Frame.Kind.OPEN) {
            partner = opened(message.from(), partner, frame);
        } else if (partner != null && frame.kind() == Frame.Kind.TOOK) {
            partner.took(frame.count());
            Partner goesOn = partner;
            execute(() -> drain(goesOn));
        } else {
            ServiceStream stream = partner == null ? null : find(partner, frame);
            if (stream == null) {
                unknown(message.from(), frame);
            } else {
                stream.heard();
                received(stream, frame, message);
            }
        }
        if (frame.isCounted()) {
            taken(message.from(), partner);
        }
    }

    /** A message was taken, which is announced to its sender now or later. */
    private void taken(ServiceId from, Partner partner) {
        boolean isKnown;
        synchronized (this) {
            isKnown = partner != null && partners.get(from) == partner;
        }
        int announced = isKnown ? partner.take(1) : 1;
        if (announced > 0) {
            later(from, new Frame(Frame.Kind.TOOK, false, announced, 0));
        }
    }

    /** The stream that a partner means. */
    private synchronized ServiceStream find(Partner partner, Frame frame) {
        return partner.streams(!frame.isFromOpener()).get(frame.stream());
    }

    private void received(ServiceStream stream, Frame frame, ServiceMessage message) {
        switch (frame.kind()) {
            case DATA -> {
                if (frame.isLong()) {
                    stream.partner.awaits = stream;
                    stream.partner.awaitsFrame = frame;
                } else {
                    ByteBuffer bytes = message.itemCount() == 2 ? message.item(1) : ByteBuffer.allocate(0);
                    boolean isWhole = frame.count() > 0 && bytes.remaining() == frame.count();
                    if (!isWhole || !stream.received(frame, bytes, null)) {
                        broken(stream);
                    }
                }
            }
            case ROOM -> stream.receivedRoom(frame.count());
            case END -> {
                if (stream.receivedEnd(frame)) {
                    endedHere(stream);
                } else {
                    broken(stream);
                }
            }
            case RESET -> {
                IOException why = new EOFException("the peer has closed the stream");
                if (frame.count() == 0) {
                    end(stream, why);
                } else {
                    // It was started anew: it knows none of the streams.
                    failAll(stream.partner, why);
                }
            }
            case ASK -> later(stream.partner, new Frame(Frame.Kind.STANDS, stream.openedHere, 0, stream.number));
            case STANDS, OPEN, TOOK -> {}
        }
    }

    /** The long item of the stream that the last frame named. Anything else is dropped. */
    private void receivedLong(ServiceId from, Partner partner, ServiceItem item) {
        ServiceStream stream = partner == null ? null : partner.awaits;
        ServiceBuffer used = item != null && item.buffer() == window ? window : null;
        if (used != null) {
            window = null;
        }
        boolean isKept = false;
        if (stream != null) {
            partner.awaits = null;
            boolean isWhole = used != null && item.length() == partner.awaitsFrame.count();
            isKept = isWhole && stream.received(partner.awaitsFrame, item.bytes(), used);
            if (!isKept) {
                broken(stream);
            }
        }
        taken(from, partner);
        if (used != null && !isKept) {
            windows.giveBack(used);
        }
    }

    /** What came is not what the stream can go on with. */
    private void broken(ServiceStream stream) {
        later(stream.partner, new Frame(Frame.Kind.RESET, stream.openedHere, 0, stream.number));
        end(stream, new IOException("bytes of the stream were lost, or more came than there was room for"));
    }

    /** A partner opens a stream. Returns the partner, if it is one. */
    private Partner opened(ServiceId from, Partner known, Frame frame) {
        ServiceStream stream = null;
        Partner partner = known;
        synchronized (this) {
            boolean hasRoom = !closed && acceptor != null && streams < streamsMax && frame.isFromOpener()
                    && (known == null || known.count() < STREAMS_OF_PARTNER_MAX);
            if (hasRoom) {
                partner = partners.computeIfAbsent(from, Partner::new);
                if (!partner.streams(false).containsKey(frame.stream())) {
                    stream = new ServiceStream(this, partner, false, frame.stream(), frame.count(), windowBytes);
                    partner.streams(false).put(frame.stream(), stream);
                    streams++;
                }
            }
        }
        if (stream == null) {
            later(from, new Frame(Frame.Kind.RESET, false, 0, frame.stream()));
            return partner;
        }
        later(partner, new Frame(Frame.Kind.ROOM, false, windowBytes - ROOM_AT_FIRST_BYTES, stream.number));
        acceptor.accept(stream);
        return partner;
    }

    /** Somebody speaks of a stream that is not there: it is over here, or this process has been started anew. */
    private void unknown(ServiceId from, Frame frame) {
        if (frame.kind() != Frame.Kind.RESET && frame.kind() != Frame.Kind.STANDS && frame.kind() != Frame.Kind.TOOK) {
            later(from, new Frame(Frame.Kind.RESET, !frame.isFromOpener(), 1, frame.stream()));
        }
    }

    private void end(ServiceStream stream, IOException why) {
        if (stream.fail(why)) {
            stream.partner.purge(stream);
            forget(stream);
        }
    }

    // ------------------------------------------------------------------------------------------------------ the end

    /** Ends all streams and the service. */
    @Override
    public void close() {
        List<ServiceStream> all = new ArrayList<>();
        synchronized (this) {
            closed = true;
            for (Partner partner : partners.values()) {
                all.addAll(partner.streams(true).values());
                all.addAll(partner.streams(false).values());
            }
        }
        all.forEach(ServiceStream::reset);
        service.close();
    }

    /** Frees the windows: by the thread that has called {@link #turn}, when it does so no more. */
    void closeWindows() {
        if (window != null) {
            windows.giveBack(window);
            window = null;
        }
        windows.close();
    }
}
