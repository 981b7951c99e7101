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
 * A service that streams lead to, and what is to be sent to it. A service keeps 8 messages of a partner at least, and drops what is
 * more: no more than {@link #MESSAGES_MAX} are on their way until the partner has announced that it took some. Beyond these, few
 * bytes wait, however much room the partner says that it has.
 */
final class Partner {
    /** With two {@link Frame.Kind#TOOK} they are 8. */
    private static final int MESSAGES_MAX = 6;
    /** Bytes of all streams that wait to be sent. One part may always wait. */
    private static final long WAITING_BYTES_MAX = StreamMultiplexer.PART_BYTES_MAX;
    /** So many are taken before that is announced. */
    private static final int ANNOUNCED_MESSAGES = 3;

    /** What waits to be sent: a frame, and its bytes. */
    private record Waiting(Frame frame, ByteBuffer inline, ServiceBuffer part) {
        int bytes() {
            return frame.kind() == Frame.Kind.DATA ? frame.count() : 0;
        }

        int messages() {
            return frame.isCounted() ? part == null ? 1 : 2 : 0;
        }
    }

    final ServiceId id;
    /** Its streams: those that it opened, and those that were opened here. Under the lock of the multiplexer. */
    private final Map<Long, ServiceStream> accepted = new HashMap<>();

    private final Map<Long, ServiceStream> opened = new HashMap<>();
    /** Held while a message is sent, so that nothing comes between the two of a long part. */
    private final ReentrantLock sending = new ReentrantLock();
    /** Under its own monitor, as is what is below up to {@link #over}. */
    private final ArrayDeque<Waiting> queue = new ArrayDeque<>();
    /** Bytes that wait, with those that are about to. */
    private long waitingBytes;
    /** Streams that had no space for bytes to wait. */
    private final Set<ServiceStream> crowdedOut = new HashSet<>();

    private int roomMessages = MESSAGES_MAX;
    /** When something was sent or taken last, or began to wait. */
    private long movedNs = System.nanoTime();

    private boolean over;
    /** The stream whose bytes are a long item in the next message, and its frame. Only the thread that receives knows. */
    ServiceStream awaits;

    Frame awaitsFrame;
    private int taken;

    Partner(ServiceId id) {
        this.id = id;
    }

    Map<Long, ServiceStream> streams(boolean openedHere) {
        return openedHere ? opened : accepted;
    }

    int count() {
        return accepted.size() + opened.size();
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

    /** Puts something behind all that waits; for data, there is space. {@link #drain} sends it. */
    void enqueue(Frame frame, ByteBuffer inline, ServiceBuffer part) {
        synchronized (queue) {
            if (!over) {
                if (queue.isEmpty()) {
                    movedNs = System.nanoTime();
                }
                queue.add(new Waiting(frame, inline, part));
                return;
            }
        }
        if (part != null) {
            part.close();
        }
    }

    /**
     * Sends what may be sent, unless another thread is about it, which sends this, too. It looks for the partner if that has gone,
     * for up to 10 s.
     */
    void drain(Service from) {
        while (isSendable() && sending.tryLock()) {
            try {
                drainLocked(from);
            } finally {
                sending.unlock();
            }
        }
    }

    private boolean isSendable() {
        synchronized (queue) {
            Waiting next = queue.peek();
            return next != null && next.messages() <= roomMessages;
        }
    }

    private void drainLocked(Service from) {
        for (Waiting next = next(); next != null; next = next()) {
            if (next.part != null) {
                // The library keeps the memory until it was fetched.
                try (ServiceBuffer part = next.part) {
                    from.send(id, next.frame.toBytes());
                    from.sendLong(id, part.item());
                }
            } else if (next.inline != null) {
                from.send(id, next.frame.toBytes(), next.inline);
            } else {
                from.send(id, next.frame.toBytes());
            }
            callCrowdedOut(next.bytes());
        }
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

    private Waiting next() {
        synchronized (queue) {
            Waiting next = queue.peek();
            if (next == null || next.messages() > roomMessages) {
                return null;
            }
            roomMessages -= next.messages();
            movedNs = System.nanoTime();
            return queue.poll();
        }
    }

    /** The partner took messages. */
    void took(int messages) {
        synchronized (queue) {
            roomMessages = Math.min(MESSAGES_MAX, roomMessages + messages);
            movedNs = System.nanoTime();
        }
    }

    /** A message of the partner's was taken. Returns how many are to be announced; 0: none yet. */
    int take(int messages) {
        taken += messages;
        if (taken < ANNOUNCED_MESSAGES) {
            return 0;
        }
        int announced = taken;
        taken = 0;
        return announced;
    }

    /** What was taken and not announced yet. */
    int takenLast() {
        return taken;
    }

    /** Whether something waits, and the partner took nothing for so long, whatever it says. */
    boolean isStuck(long ns) {
        synchronized (queue) {
            return !queue.isEmpty() && System.nanoTime() - movedNs > ns;
        }
    }

    boolean hasNothingToSend() {
        synchronized (queue) {
            return queue.isEmpty();
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
                    waiting.part.close();
                }
                return isOf;
            });
        }
        callCrowdedOut(purged[0]);
    }

    /** Nothing is sent any more. */
    void end() {
        synchronized (queue) {
            over = true;
            for (Waiting waiting = queue.poll(); waiting != null; waiting = queue.poll()) {
                if (waiting.part != null) {
                    waiting.part.close();
                }
            }
        }
        callCrowdedOut(0);
    }
}
