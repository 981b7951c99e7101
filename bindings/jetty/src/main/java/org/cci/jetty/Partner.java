package org.cci.jetty;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;

/**
 * A service that streams lead to, and what is to be sent to it. A service keeps 8 messages of a partner at least, and drops what is
 * more: no more than {@link #MESSAGES_MAX} are on their way until the partner has announced that it took some.
 */
final class Partner {
    /** With two {@link Frame.Kind#TOOK} they are 8. */
    private static final int MESSAGES_MAX = 6;
    /** So many are taken before that is announced. */
    private static final int ANNOUNCED_MESSAGES = 3;

    /** What waits to be sent: a frame, and its bytes. */
    private record Waiting(Frame frame, ByteBuffer inline, ServiceBuffer part) {
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
    /** Under its own monitor, as is the room. */
    private final ArrayDeque<Waiting> queue = new ArrayDeque<>();

    private int roomMessages = MESSAGES_MAX;
    /** When the partner was heard last. */
    private volatile long heardNs = System.nanoTime();
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

    /** Puts something behind all that waits. {@link #drain} sends it. */
    void enqueue(Frame frame, ByteBuffer inline, ServiceBuffer part) {
        synchronized (queue) {
            if (!over) {
                queue.add(new Waiting(frame, inline, part));
                return;
            }
        }
        if (part != null) {
            part.close();
        }
    }

    /** Sends what may be sent. It looks for the partner if that has gone, for up to 10 s. */
    void drain(Service from) {
        sending.lock();
        try {
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
            }
        } finally {
            sending.unlock();
        }
    }

    private Waiting next() {
        synchronized (queue) {
            Waiting next = queue.peek();
            if (next == null || next.messages() > roomMessages) {
                return null;
            }
            roomMessages -= next.messages();
            return queue.poll();
        }
    }

    /** The partner took messages. */
    void took(int messages) {
        synchronized (queue) {
            roomMessages = Math.min(MESSAGES_MAX, roomMessages + messages);
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

    /** Something came from the partner. */
    void heard() {
        heardNs = System.nanoTime();
    }

    /** Whether something waits for room, and nothing came from the partner for so long. */
    boolean isStuck(long ns) {
        return !hasNothingToSend() && System.nanoTime() - heardNs > ns;
    }

    boolean hasNothingToSend() {
        synchronized (queue) {
            return queue.isEmpty();
        }
    }

    /** What waits of a stream that is over is not sent any more. */
    void purge(ServiceStream stream) {
        synchronized (queue) {
            queue.removeIf(waiting -> {
                boolean isOf = waiting.frame.stream() == stream.number
                        && waiting.frame.isFromOpener() == stream.openedHere
                        && waiting.frame.kind() != Frame.Kind.RESET;
                if (isOf && waiting.part != null) {
                    waiting.part.close();
                }
                return isOf;
            });
        }
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
    }
}
