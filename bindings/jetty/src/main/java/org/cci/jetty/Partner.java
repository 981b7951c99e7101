package org.cci.jetty;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;

/**
 * A service that streams lead to, and what is to be sent to it. A message has as many frames as there is space for. A service keeps
 * 8 messages of a partner at least, and drops what is more: no more than {@link #MESSAGES_MAX} are on their way until the partner
 * has announced that it took some. Beyond these, few bytes wait, however much room the partner says that it has.
 */
final class Partner {
    /** The frames of one message, with the bytes that travel in it, while the path to the partner is not known: every path takes so much. */
    private static final int MESSAGE_BYTES_MIN = 1000;
    /** Bytes go in so many messages, if nothing else is sent, rather than as a long item, which takes longer: 4 KiB and their head in datagrams of an Ethernet. */
    private static final int SPLIT_MESSAGES_MAX = 4;
    /** The most bytes that go so: where messages are longer, fewer of them take more. */
    private static final int SPLIT_BYTES_MAX = 5904;
    /** More bytes than these are a long item of their own; fewer share one with others. */
    static final int SHARED_BYTES_MAX = 16 << 10;
    /** The most bytes of a long item for a partner on this host. It copies each to the same memory, which so stays in its core's cache. */
    static final int SAME_HOST_PART_BYTES_MAX = 512 << 10;
    /** The length of a long item that is shared. */
    private static final int SHARED_PART_BYTES = 64 << 10;
    /** With two that only have {@link Frame.Kind#TOOK} they are 8. */
    private static final int MESSAGES_MAX = 6;
    /** Bytes of all streams that wait to be sent. One part may always wait. */
    private static final long WAITING_BYTES_MAX = StreamMultiplexer.COPIED_BYTES_MAX;
    /** So many are taken before that is announced by whoever reads, and by whoever receives. */
    static final int READ_MESSAGES = 4;

    static final int RECEIVED_MESSAGES = 5;

    /** What waits to be sent: a frame, and its bytes: few, or a part. */
    private record Waiting(Frame frame, ByteBuffer few, Part part) {
        int bytes() {
            return frame.kind() == Frame.Kind.DATA ? frame.count() : 0;
        }
    }

    /** A part that is with the partner, until it has taken so many messages. */
    private record Lent(Part part, long until) {}

    /** A message. */
    private static final class Outgoing {
        final ByteBuffer frames;
        boolean isCounted;
        /** The long item behind it: a part, or few bytes of several streams. */
        Part part;

        ServiceBuffer shared;
        int sharedBytes;
        /** Bytes that wait no more. */
        int bytes;

        Outgoing(int bytesMax) {
            frames = ByteBuffer.allocate(bytesMax);
        }
    }

    final ServiceId id;
    /** Whether memory that it announces to have fetched is used again. */
    private final boolean reuses;
    /** Its streams: those that it opened, and those that were opened here. Under the lock of the multiplexer. */
    private final Map<Long, ServiceStream> accepted = new HashMap<>();

    private final Map<Long, ServiceStream> opened = new HashMap<>();
    private final PartPool parts = new PartPool(StreamMultiplexer.COPIED_BYTES_MAX);
    private final PartPool longParts = new PartPool(StreamMultiplexer.PART_BYTES_MAX);
    private final PartPool sharedParts = new PartPool(SHARED_PART_BYTES);
    /** Held while a message is sent, so that nothing comes between the two of a long item. */
    private final ReentrantLock sending = new ReentrantLock();
    /** Under its own monitor, as is what is below up to {@link #over}. */
    private final ArrayDeque<Waiting> queue = new ArrayDeque<>();
    /** Bytes that wait, with those that are about to. */
    private long waitingBytes;
    /** The most bytes of the frames of one message, with those that travel in it. It changes under the monitor, and only grows. */
    private volatile int messageBytesMax = MESSAGE_BYTES_MIN;

    /** The most bytes of a long item that is sent from where it is. */
    private volatile int lentBytesMax = StreamMultiplexer.PART_BYTES_MAX;

    private volatile boolean isPathKnown;
    /** Streams that had no space for bytes to wait. */
    private final Set<ServiceStream> crowdedOut = new HashSet<>();

    /** Messages that were sent, and taken by the partner. */
    private long sentMessages;

    private long tookMessages;
    private final ArrayDeque<Lent> lent = new ArrayDeque<>();
    /** Messages of the partner's that were taken, and not announced yet. */
    private int taken;
    /** When something was sent or taken last, or began to wait. */
    private long movedNs = System.nanoTime();

    private boolean over;
    /** Frames whose first bytes are the long item in the next message. Only the thread that receives knows. */
    ByteBuffer awaits;

    /**
     * A partner.
     *
     * @param id the service
     * @param reuses whether memory that it says it has fetched is used again
     */
    Partner(ServiceId id, boolean reuses) {
        this.id = id;
        this.reuses = reuses;
    }

    Map<Long, ServiceStream> streams(boolean openedHere) {
        return openedHere ? opened : accepted;
    }

    int count() {
        return accepted.size() + opened.size();
    }

    /** Bytes that travel in a message, behind their frame and one about messages that were taken. */
    int inlineBytesMax() {
        return messageBytesMax - 2 * Frame.BYTES;
    }

    /** The most bytes that travel as a long item from where they are. */
    int lentBytesMax() {
        return lentBytesMax;
    }

    /** Whether so many bytes are better sent in a few messages than as a long item, now. */
    boolean splits(long bytes) {
        return bytes <= Math.min(SPLIT_MESSAGES_MAX * inlineBytesMax(), SPLIT_BYTES_MAX) && isFree(SPLIT_MESSAGES_MAX);
    }

    /** Asks how long messages on the path to the partner may be, until that is known. */
    private void learnPath(Service from) {
        if (isPathKnown) {
            return;
        }
        int bytes = from.shortItemBytesMax(id);
        String transport = from.transport(id);
        if (bytes > 0 && transport != null) {
            if (transport.equals("shm")) {
                lentBytesMax = SAME_HOST_PART_BYTES_MAX;
            }
            synchronized (queue) {
                messageBytesMax = Math.max(bytes, MESSAGE_BYTES_MIN);
                isPathKnown = true;
            }
        }
    }

    private PartPool pool(long bytes) {
        return bytes <= StreamMultiplexer.COPIED_BYTES_MAX ? parts : longParts;
    }

    /** A buffer for one part of so many bytes. */
    ServiceBuffer takeBuffer(int bytes) {
        return pool(bytes).take();
    }

    /** Takes such a buffer back. */
    void giveBack(ServiceBuffer buffer, boolean isReusable) {
        pool(buffer.segment().byteSize()).giveBack(buffer, isReusable);
    }

    /** The first bytes of such a buffer. */
    Part part(ServiceBuffer buffer, int bytes) {
        return pool(buffer.segment().byteSize()).part(buffer, bytes);
    }

    /** Makes space for bytes of a stream to wait. False: there is none now, and the stream is called when there may be. */
    boolean reserve(ServiceStream stream, int bytes) {
        synchronized (queue) {
            if (!hasSpaceFor(stream)) {
                return false;
            }
            waitingBytes += bytes;
            return true;
        }
    }

    /** Whether bytes of a stream may wait. If not, the stream is called when they may. */
    boolean hasSpaceFor(ServiceStream stream) {
        synchronized (queue) {
            if (over || waitingBytes < WAITING_BYTES_MAX) {
                return true;
            }
            crowdedOut.add(stream);
            return false;
        }
    }

    /** Whether nothing waits, and so many messages may be sent. */
    private boolean isFree(int messages) {
        synchronized (queue) {
            return queue.isEmpty() && MESSAGES_MAX - (sentMessages - tookMessages) >= messages;
        }
    }

    /** Puts something behind all that waits; for data, there is space. {@link #drain} sends it. */
    void enqueue(Frame frame, ByteBuffer few, Part part) {
        synchronized (queue) {
            if (!over) {
                if (queue.isEmpty()) {
                    movedNs = System.nanoTime();
                }
                queue.add(new Waiting(frame, few, part));
                return;
            }
        }
        if (part != null) {
            part.owner().release(false);
        }
    }

    /**
     * Sends what may be sent, unless another thread is about it, which sends this, too. It looks for the partner if that has gone,
     * for up to 10 s.
     */
    void drain(Service from) {
        drain(from, RECEIVED_MESSAGES);
    }

    /** Sends what may be sent, and announces what was taken if it is so many messages. */
    void drain(Service from, int announced) {
        while (isSendable(announced) && sending.tryLock()) {
            try {
                learnPath(from);
                for (Outgoing next = next(announced); next != null; next = next(announced)) {
                    send(from, next);
                }
            } finally {
                sending.unlock();
            }
        }
    }

    private boolean isSendable(int announced) {
        synchronized (queue) {
            Waiting next = queue.peek();
            return !over && (taken >= announced || (next != null && hasRoomFor(next)));
        }
    }

    private boolean hasRoomFor(Waiting next) {
        int room = MESSAGES_MAX - (int) (sentMessages - tookMessages);
        return !next.frame.isCounted() || room >= (isLong(next) ? 2 : 1);
    }

    private boolean isLong(Waiting next) {
        return next.part != null || (next.few != null && next.few.remaining() > inlineBytesMax());
    }

    /** Takes as much as one message has space for. Null: nothing may be sent. */
    private Outgoing next(int announced) {
        synchronized (queue) {
            Waiting first = queue.peek();
            boolean hasFirst = first != null && hasRoomFor(first);
            if (over || (!hasFirst && taken < announced)) {
                return null;
            }
            Outgoing message = new Outgoing(messageBytesMax);
            if (taken > 0) {
                new Frame(Frame.Kind.TOOK, false, taken, 0).putInto(message.frames);
                taken = 0;
            }
            try {
                for (Waiting next = first; next != null && hasRoomFor(next) && add(next, message); next = queue.peek()) {
                    queue.poll();
                    message.bytes += next.bytes();
                }
            } catch (RuntimeException e) {
                if (message.shared != null) {
                    message.shared.close();
                }
                throw e;
            }
            if (message.shared != null) {
                message.part = sharedParts.part(message.shared, message.sharedBytes);
            }
            sentMessages += (message.isCounted ? 1 : 0) + (message.part == null ? 0 : 1);
            movedNs = System.nanoTime();
            return message;
        }
    }

    /** Adds a frame to a message. False: there is no space. */
    private boolean add(Waiting next, Outgoing message) {
        boolean isFew = next.few != null && !isLong(next);
        if (message.frames.remaining() < Frame.BYTES + (isFew ? next.few.remaining() : 0)) {
            return false;
        }
        if (next.part != null) {
            if (message.part != null || message.shared != null) {
                return false;
            }
            message.part = next.part;
        } else if (next.few != null && !isFew) {
            if (message.part != null || message.sharedBytes + next.few.remaining() > SHARED_PART_BYTES) {
                return false;
            }
            if (message.shared == null) {
                message.shared = sharedParts.take();
            }
            int bytes = next.few.remaining();
            message.shared.segment().asSlice(message.sharedBytes, bytes).asByteBuffer().put(next.few);
            message.sharedBytes += bytes;
        }
        next.frame.isLong(isLong(next) || next.part != null || (next.few != null && !isFew)).putInto(message.frames);
        if (isFew) {
            message.frames.put(next.few);
        }
        message.isCounted |= next.frame.isCounted();
        return true;
    }

    private void send(Service from, Outgoing message) {
        boolean isSent = false;
        try {
            from.send(id, message.frames.flip());
            if (message.part != null) {
                from.sendLong(id, message.part.item());
            }
            isSent = true;
        } finally {
            if (message.part != null) {
                lend(message.part, isSent);
            }
        }
        callCrowdedOut(message.bytes);
    }

    private void lend(Part part, boolean isSent) {
        synchronized (queue) {
            if (isSent && reuses && !over) {
                lent.add(new Lent(part, sentMessages));
                return;
            }
        }
        part.owner().release(false);
    }

    /** Bytes for which there was space do not wait after all, or no more: streams that had no space are called. */
    void callCrowdedOut(int bytes) {
        List<ServiceStream> called;
        synchronized (queue) {
            waitingBytes -= bytes;
            if (crowdedOut.isEmpty() || (!over && waitingBytes >= WAITING_BYTES_MAX)) {
                return;
            }
            called = List.copyOf(crowdedOut);
            crowdedOut.clear();
        }
        called.forEach(ServiceStream::maybeWritable);
    }

    /** The partner took messages. It has what was lent with them. */
    void took(int messages) {
        while (true) {
            Part fetched = null;
            synchronized (queue) {
                tookMessages = Math.min(sentMessages, tookMessages + messages);
                messages = 0;
                movedNs = System.nanoTime();
                if (!lent.isEmpty() && lent.peek().until <= tookMessages) {
                    fetched = lent.poll().part;
                }
            }
            if (fetched == null) {
                return;
            }
            fetched.owner().release(true);
        }
    }

    /** A message of the partner's was taken. Whether that is to be announced. */
    boolean take() {
        synchronized (queue) {
            taken++;
            return taken >= RECEIVED_MESSAGES;
        }
    }

    /** Whether so many messages were taken that whoever reads may say so. */
    boolean isToBeAnnounced() {
        synchronized (queue) {
            return taken >= READ_MESSAGES;
        }
    }

    /** What was taken and not announced yet: somebody else announces it. */
    int takenLast() {
        synchronized (queue) {
            int last = taken;
            taken = 0;
            return last;
        }
    }

    /** Whether something waits, and the partner took nothing for so long, whatever it says. */
    boolean isStuck(long ns) {
        synchronized (queue) {
            return !queue.isEmpty() && System.nanoTime() - movedNs > ns;
        }
    }

    /** Whether nothing was sent or taken for so long. */
    boolean isQuiet(long ns) {
        synchronized (queue) {
            return queue.isEmpty() && System.nanoTime() - movedNs > ns;
        }
    }

    /** Frees memory that waits to be used again. */
    void trim() {
        parts.trim();
        longParts.trim();
        sharedParts.trim();
    }

    /** Whether nothing waits. */
    boolean hasNothingToSend() {
        synchronized (queue) {
            return queue.isEmpty();
        }
    }

    /** Whether the partner has taken all that was sent. */
    boolean hasTakenAll() {
        synchronized (queue) {
            return sentMessages == tookMessages;
        }
    }

    /** What waits of a stream that is over is not sent any more. */
    void purge(ServiceStream stream) {
        int[] purged = {0};
        synchronized (queue) {
            crowdedOut.remove(stream);
            queue.removeIf(waiting -> {
                boolean isOf = waiting.frame.stream() == stream.number
                        && waiting.frame.isFromOpener() == stream.openedHere
                        && waiting.frame.kind() != Frame.Kind.RESET;
                if (isOf) {
                    purged[0] += waiting.bytes();
                }
                if (isOf && waiting.part != null) {
                    waiting.part.owner().release(false);
                }
                return isOf;
            });
        }
        callCrowdedOut(purged[0]);
    }

    /** Nothing is sent any more. */
    void end() {
        ArrayDeque<Part> kept = new ArrayDeque<>();
        synchronized (queue) {
            over = true;
            for (Waiting waiting = queue.poll(); waiting != null; waiting = queue.poll()) {
                if (waiting.part != null) {
                    kept.add(waiting.part);
                }
            }
            lent.forEach(each -> kept.add(each.part));
            lent.clear();
        }
        kept.forEach(part -> part.owner().release(false));
        parts.close();
        longParts.close();
        sharedParts.close();
        callCrowdedOut(0);
    }
}
