package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Consumer;
import org.cci.CciException;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;
import org.cci.ServiceItem;
import org.cci.ServiceMessage;

/**
 * Streams of bytes over one service, any number with each partner. One thread calls {@link #turn} again and again: it takes what
 * comes, and never waits for a partner. Or it calls {@link #receive} and {@link #flush}, which may wait.
 *
 * <p>Few bytes travel in a message; more are lent as a long item, which the reader's side fetches into a window of its own. What a
 * partner may take here is bounded: its streams, and the bytes that were not read yet.
 */
final class StreamMultiplexer implements AutoCloseable, Turns.Receiver {
    /** The most bytes of one message of a stream: the longer, the less each byte costs. */
    static final int PART_BYTES_MAX = 4 << 20;
    /** The most of them that are copied before they are sent. */
    static final int COPIED_BYTES_MAX = 1 << 20;
    /** Fewer bytes than these are copied out of the window that they came in. */
    private static final int KEPT_BYTES_MIN = 16 << 10;
    /** What may be sent before the other side has announced its room. */
    static final int ROOM_AT_FIRST_BYTES = 16 << 10;
    /** Streams with one partner. */
    private static final int STREAMS_OF_PARTNER_MAX = 256;
    /** A partner that takes nothing of what waits for it for so long is given up. */
    private static final long STUCK_NS = 30_000_000_000L;
    /** A stream that was closed here and not by the partner ends after so long. */
    private static final long LINGER_NS = 30_000_000_000L;
    /** How often all that is looked for. */
    private static final long SWEEP_NS = 1_000_000_000;
    /** A partner with which nothing is exchanged for so long keeps no memory for what is sent. */
    private static final long QUIET_NS = 2_000_000_000;
    /** Partners that are remembered not to have announced all that they took. */
    private static final int DOUBTED_MAX = 1024;

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
    /**
     * Partners that were forgotten before they had taken all that was sent: what they announce later may be of these messages. Null:
     * they were too many to be remembered.
     */
    private Set<ServiceId> doubted = new HashSet<>();
    /** Partners that something may be sent to, when the thread that receives has done with what came. */
    private final Set<Partner> dirty = new LinkedHashSet<>();

    private volatile Thread receiver;
    private int streams;
    private long lastNumber;
    private long sweptNs = System.nanoTime();
    private volatile long lingerNs = LINGER_NS;
    private volatile long stuckNs = STUCK_NS;
    /** What the next long item is fetched into. */
    private ServiceBuffer window;

    /** Who takes calls; null: they are refused. */
    private volatile Consumer<ServiceMessage> requests;

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

    /** Has calls of the service taken, too, by the thread that receives. */
    void onRequest(Consumer<ServiceMessage> taker) {
        requests = taker;
    }

    int windowBytes() {
        return windowBytes;
    }

    /** For how long a stream that was closed here may wait for the partner to end its direction. */
    void lingerFor(Duration time) {
        lingerNs = time.toNanos();
    }

    /** After which time without anything that is taken a partner is given up. */
    void giveUpAfter(Duration time) {
        stuckNs = time.toNanos();
    }

    synchronized int streamCount() {
        return streams;
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
            Partner partner = partners.computeIfAbsent(to, this::newPartner);
            lastNumber++;
            stream = new ServiceStream(this, partner, true, lastNumber, ROOM_AT_FIRST_BYTES, windowBytes);
            partner.streams(true).put(lastNumber, stream);
            streams++;
        }
        send(stream, Frame.Kind.OPEN, windowBytes);
        stream.check();
        return stream;
    }

    // ------------------------------------------------------------------------------------------------------ sending

    /** Says something of a stream: by a thread that may wait for a partner that has gone. */
    void send(ServiceStream stream, Frame.Kind kind, int count) {
        stream.partner.enqueue(new Frame(kind, stream.openedHere, count, stream.number), null, null);
        drain(stream.partner);
    }

    private Partner newPartner(ServiceId id) {
        return new Partner(id, doubted != null && !doubted.contains(id));
    }

    /**
     * Sends the first bytes of the buffers, for which there is space, and moves their positions. Without memory for them the stream
     * fails.
     */
    void send(ServiceStream stream, ByteBuffer[] buffers, int bytes, int sequence) throws IOException {
        Partner partner = stream.partner;
        Frame frame = new Frame(Frame.Kind.DATA, stream.openedHere, false, sequence, bytes, stream.number);
        if (bytes <= Partner.SHARED_BYTES_MAX) {
            ByteBuffer few = ByteBuffer.allocate(bytes);
            move(buffers, few);
            partner.enqueue(frame, few.flip(), null);
            drain(partner);
        } else {
            ServiceBuffer buffer = allocate(stream, bytes);
            move(buffers, buffer.segment().asSlice(0, bytes).asByteBuffer());
            partner.enqueue(frame, null, partner.part(buffer, bytes));
            drainNow(partner);
        }
    }

    /** Sends the first bytes of a buffer, for which there is space, from where they are, and moves its position. */
    void send(ServiceStream stream, Lendable memory, ByteBuffer buffer, int bytes, int sequence) {
        Frame frame = new Frame(Frame.Kind.DATA, stream.openedHere, false, sequence, bytes, stream.number);
        stream.partner.enqueue(frame, null, memory.part(buffer, bytes));
        buffer.position(buffer.position() + bytes);
        drainNow(stream.partner);
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
            return stream.partner.takeBuffer(bytes);
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

    /** Sends what waits for a partner: at once, or, by the thread that receives, when it has done with what came. */
    private void drain(Partner partner) {
        if (Thread.currentThread() == receiver) {
            synchronized (dirty) {
                dirty.add(partner);
            }
        } else {
            drainNow(partner);
        }
    }

    private void drainNow(Partner partner) {
        drainNow(partner, Partner.RECEIVED_MESSAGES);
    }

    /** Sends what waits for a partner. If the partner is gone, its streams fail. */
    private void drainNow(Partner partner, int announced) {
        try {
            partner.drain(service, announced);
        } catch (CciException | IllegalStateException e) {
            failAll(partner, new IOException(e.getMessage(), e));
        }
        forgetIdle(partner);
    }

    /** Somebody has read what a partner sent. The partner gets a report of that if it may wait for one. */
    void wasRead(Partner partner) {
        if (partner.isToBeAnnounced()) {
            drainNow(partner, Partner.READ_MESSAGES);
        }
    }

    /** Sends what was to be sent since something was received. It may wait for partners that have gone. */
    @Override
    public void flush() {
        for (Partner next = nextDirty(); next != null; next = nextDirty()) {
            drainNow(next);
        }
    }

    private Partner nextDirty() {
        synchronized (dirty) {
            var first = dirty.iterator();
            if (!first.hasNext()) {
                return null;
            }
            Partner next = first.next();
            first.remove();
            return next;
        }
    }

    /** This thread receives no more: what it has to send leaves at once. */
    void rest() {
        receiver = null;
        flush();
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
            remove(partner);
        }
    }

    /** Forgets a partner. With the lock. */
    private boolean remove(Partner partner) {
        if (!partners.remove(partner.id, partner)) {
            return false;
        }
        if (doubted != null && !partner.hasTakenAll()) {
            doubted.add(partner.id);
            if (doubted.size() > DOUBTED_MAX) {
                doubted = null;
            }
        }
        return true;
    }

    /** Gives partners up that take nothing, ends streams that only this side has closed, and forgets partners that are gone. */
    void sweep() {
        List<Partner> stuck = new ArrayList<>();
        List<Partner> gone = new ArrayList<>();
        List<ServiceStream> accepted = new ArrayList<>();
        synchronized (this) {
            sweptNs = System.nanoTime();
            for (Partner partner : partners.values()) {
                accepted.addAll(partner.streams(false).values());
                if (partner.isStuck(stuckNs)) {
                    stuck.add(partner);
                } else if (partner.isQuiet(stuckNs) && partner.count() == 0) {
                    gone.add(partner);
                } else if (partner.isQuiet(QUIET_NS)) {
                    partner.trim();
                }
            }
            gone.forEach(this::remove);
        }
        gone.forEach(Partner::end);
        stuck.forEach(partner -> failAll(partner, new IOException("the peer takes nothing")));
        accepted.forEach(stream -> stream.endIfClosedFor(lingerNs));
    }

    /** Notifies the partner that a stream is over. */
    void reset(ServiceStream stream) {
        stream.partner.purge(stream);
        resetBehind(stream);
    }

    /** Notifies the partner that a stream is over, behind what waits to be sent. */
    void resetBehind(ServiceStream stream) {
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
            boolean isIdle = partner.count() == 0 && partner.hasNothingToSend() && partner.hasTakenAll();
            if (!isIdle || !remove(partner)) {
                return;
            }
        }
        partner.end();
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

    /** Says something to a partner, when the thread that receives has done with what came. */
    private void later(Partner partner, Frame frame) {
        partner.enqueue(frame, null, null);
        synchronized (dirty) {
            dirty.add(partner);
        }
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
        boolean came = receive(timeout);
        receiver = null;
        boolean isDirty;
        synchronized (dirty) {
            isDirty = !dirty.isEmpty();
        }
        if (isDirty) {
            execute(this::flush);
        }
        return came;
    }

    /**
     * Takes one message, if one comes in time. What this thread has to send then waits for {@link #flush}.
     *
     * @return whether one came
     */
    @Override
    public boolean receive(Duration timeout) throws InterruptedException {
        receiver = Thread.currentThread();
        if (window == null) {
            ServiceBuffer next = windows.take();
            service.offerWindow(next.item());
            window = next;
        }
        if (System.nanoTime() - sweptNs > SWEEP_NS) {
            sweep();
        }
        Consumer<ServiceMessage> taker = requests;
        try (ServiceMessage message = taker == null ? service.receive(timeout) : service.receiveRequest(timeout)) {
            if (message == null) {
                return false;
            }
            if (message.request() != null) {
                if (message.longItemCount() > 0 && message.longItem(0) != null) {
                    // It is in the window, which nobody reads.
                    windows.giveBack(window);
                    window = null;
                }
                taker.accept(message);
                return true;
            }
            if (message.from() != null) {
                received(message);
            }
            return true;
        }
    }

    private void received(ServiceMessage message) {
        ServiceId from = message.from();
        Partner partner;
        synchronized (this) {
            partner = partners.get(from);
        }
        if (message.longItemCount() > 0) {
            receivedLong(from, partner, message.longItem(0));
            return;
        }
        boolean isCounted = false;
        for (int index = 0; index < message.itemCount(); index++) {
            isCounted |= Frame.isCounted(message.item(index));
            partner = receivedFrames(from, partner, message.item(index), null);
        }
        if (isCounted) {
            taken(from, partner);
        }
    }

    /** A long item that frames speak of. */
    private static final class Arrived {
        final ByteBuffer bytes;
        final ServiceBuffer window;
        /** Somebody reads the window now. */
        boolean isKept;

        Arrived(ByteBuffer bytes, ServiceBuffer window) {
            this.bytes = bytes;
            this.window = window;
        }

        /** The next bytes. Null: so many did not come. */
        ByteBuffer next(int count) {
            if (count == 0 || count > bytes.remaining()) {
                return null;
            }
            ByteBuffer next = bytes.slice(bytes.position(), count);
            isKept = count == bytes.capacity() && count >= KEPT_BYTES_MIN;
            bytes.position(bytes.position() + count);
            return isKept ? next : ByteBuffer.allocate(count).put(next).flip();
        }
    }

    /** Frames came. From the first one on that has a long item, they wait until that has arrived. Returns the partner, if it is one. */
    private Partner receivedFrames(ServiceId from, Partner known, ByteBuffer bytes, Arrived arrived) {
        Partner partner = known;
        for (Frame frame = Frame.parse(bytes); frame != null; frame = Frame.parse(bytes)) {
            boolean isData = frame.kind() == Frame.Kind.DATA;
            if (isData && frame.isLong() && arrived == null) {
                if (partner != null) {
                    partner.awaits = bytes.position(bytes.position() - Frame.BYTES);
                } else {
                    unknown(from, frame);
                }
                return partner;
            }
            ByteBuffer data = null;
            ServiceBuffer kept = null;
            if (isData && frame.isLong()) {
                data = arrived.next(frame.count());
                kept = data != null && arrived.isKept ? arrived.window : null;
            } else if (isData) {
                int count = Math.min(frame.count(), bytes.remaining());
                data = count == frame.count() && count > 0 ? bytes.slice(bytes.position(), count) : null;
                bytes.position(bytes.position() + count);
            }
            if (frame.kind() == Frame.Kind.OPEN) {
                partner = opened(from, partner, frame);
            } else if (partner != null && frame.kind() == Frame.Kind.TOOK) {
                partner.took(frame.count());
                synchronized (dirty) {
                    dirty.add(partner);
                }
            } else {
                ServiceStream stream = partner == null ? null : find(partner, frame);
                boolean isTaken = false;
                if (stream == null) {
                    unknown(from, frame);
                } else {
                    stream.heard();
                    isTaken = received(stream, frame, data, kept);
                }
                if (kept != null && !isTaken) {
                    arrived.isKept = false;
                }
            }
        }
        return partner;
    }

    /** A message was taken, which is announced to its sender now or later. */
    private void taken(ServiceId from, Partner partner) {
        boolean isKnown;
        synchronized (this) {
            isKnown = partner != null && partners.get(from) == partner;
        }
        if (!isKnown) {
            later(from, new Frame(Frame.Kind.TOOK, false, 1, 0));
        } else if (partner.take()) {
            synchronized (dirty) {
                dirty.add(partner);
            }
        }
    }

    /** The stream that a partner means. */
    private synchronized ServiceStream find(Partner partner, Frame frame) {
        return partner.streams(!frame.isFromOpener()).get(frame.stream());
    }

    /** A frame of a stream came, with its bytes; null: they are not there. Returns whether these were taken. */
    private boolean received(ServiceStream stream, Frame frame, ByteBuffer data, ServiceBuffer kept) {
        switch (frame.kind()) {
            case DATA -> {
                if (data != null && stream.received(frame, data, kept)) {
                    return true;
                }
                broken(stream);
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
        return false;
    }

    /** The long item that the last frames spoke of. Anything else is dropped. */
    private void receivedLong(ServiceId from, Partner partner, ServiceItem item) {
        ByteBuffer frames = partner == null ? null : partner.awaits;
        ServiceBuffer used = item != null && item.buffer() == window ? window : null;
        if (used != null) {
            window = null;
        }
        boolean isKept = false;
        if (frames != null) {
            partner.awaits = null;
            Arrived arrived = new Arrived(used == null ? ByteBuffer.allocate(0) : item.bytes(), used);
            receivedFrames(from, partner, frames, arrived);
            isKept = arrived.isKept;
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
                partner = partners.computeIfAbsent(from, this::newPartner);
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
