package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.cci.CciException;
import org.cci.PeerException;
import org.cci.ServiceBuffer;
import org.cci.ServiceContent;
import org.cci.ServiceId;
import org.cci.ServiceMessage;
import org.cci.ServiceRequest;
import org.cci.SystemException;

/**
 * Answers what the command {@code cci get} asks: {@code about} and a path, or {@code read}, a path, where to begin, and how many
 * bytes. The answer has the file's length and when it was changed, and to {@code read} the bytes as a long item.
 */
final class FileRequests {
    /** The most bytes of one answer. */
    private static final int PART_BYTES_MAX = 4 << 20;
    /** Items of a request for a part. */
    private static final int READ_ITEMS = 4;
    /** The longest path, bytes. */
    private static final int PATH_BYTES_MAX = 1024;
    /** Requests that wait for their turn. */
    private static final int WAITING_MAX = 1024;
    /** Requests of one client among them. */
    private static final int WAITING_OF_ONE_MAX = 256;
    /** Answers whose bytes are lent at a time. Requests for more wait until some are back. */
    static final int LENT_MAX = 64;
    /** Answers that are lent to one client, of which the command has 4. */
    static final int LENT_TO_ONE_MAX = 8;

    private final Path root;
    private final Executor executor;
    private final int lentMax;
    /** Under its own monitor, as are the fields below. */
    private final ArrayDeque<ServiceMessage> waiting = new ArrayDeque<>();

    /** One thread is about what waits. */
    private boolean answers;
    /** How many requests wait, by client. */
    private final Map<ServiceId, Integer> waitingOf = new HashMap<>();
    /** How many answers are lent, or are about to be, by client. */
    private final Map<ServiceId, Integer> lentTo = new HashMap<>();

    private int lent;

    /**
     * Answers for a folder.
     *
     * @param folder the folder; nothing outside of it is served, wherever links lead
     * @param executor who reads files, one at a time
     * @throws IOException if there is no such folder
     */
    FileRequests(Path folder, Executor executor) throws IOException {
        this(folder, executor, LENT_MAX);
    }

    /** Answers for a folder, of which so many at most are lent at a time. */
    FileRequests(Path folder, Executor executor, int lentMax) throws IOException {
        root = folder.toRealPath();
        this.executor = executor;
        this.lentMax = lentMax;
    }

    /** How many answers are lent. */
    int lent() {
        synchronized (waiting) {
            return lent;
        }
    }

    /** How many requests wait. */
    int waiting() {
        synchronized (waiting) {
            return waiting.size();
        }
    }

    /** Has a request answered soon. */
    void take(ServiceMessage message) {
        synchronized (waiting) {
            ServiceId client = message.from();
            boolean waits = client != null && message.longItemCount() == 0 && waiting.size() < WAITING_MAX
                    && waitingOf.getOrDefault(client, 0) < WAITING_OF_ONE_MAX;
            if (waits) {
                waiting.add(message);
                waitingOf.merge(client, 1, Integer::sum);
            } else {
                refuse(message, "too much is asked for at once");
            }
        }
        begin();
    }

    /** Has somebody answer what waits. */
    private void begin() {
        synchronized (waiting) {
            if (answers || waiting.isEmpty()) {
                return;
            }
            answers = true;
        }
        try {
            executor.execute(this::answerAll);
        } catch (RejectedExecutionException e) {
            // The server stops.
            answerAll();
        }
    }

    private void answerAll() {
        for (ServiceMessage next = next(); next != null; next = next()) {
            answer(next);
        }
    }

    /** The first request that can be answered now. If its answer may lend, that is counted. */
    private ServiceMessage next() {
        synchronized (waiting) {
            for (Iterator<ServiceMessage> all = waiting.iterator(); all.hasNext(); ) {
                ServiceMessage message = all.next();
                ServiceId client = message.from();
                if (mayLend(message)) {
                    if (lent >= lentMax || lentTo.getOrDefault(client, 0) >= LENT_TO_ONE_MAX) {
                        continue;
                    }
                    lent++;
                    lentTo.merge(client, 1, Integer::sum);
                }
                all.remove();
                waitingOf.computeIfPresent(client, FileRequests::oneLess);
                return message;
            }
            answers = false;
            return null;
        }
    }

    /** Only what asks for a part is answered with one. */
    private static boolean mayLend(ServiceMessage message) {
        return message.itemCount() == READ_ITEMS;
    }

    private static Integer oneLess(ServiceId client, Integer count) {
        return count == 1 ? null : Integer.valueOf(count - 1);
    }

    /** Nothing is lent to a client any more that was, or might have been. */
    private void returned(ServiceId client) {
        synchronized (waiting) {
            lent--;
            lentTo.computeIfPresent(client, FileRequests::oneLess);
        }
    }

    private void answer(ServiceMessage message) {
        boolean lends = false;
        try {
            lends = answerFor(message);
        } catch (SystemException e) {
            refuse(message, "no memory for it now");
        } catch (PeerException e) {
            // Its client has gone.
        } catch (EOFException e) {
            refuse(message, e.getMessage());
        } catch (IOException | InvalidPathException e) {
            refuse(message, "no such file here");
        } catch (IllegalArgumentException e) {
            refuse(message, e.getMessage());
        } finally {
            if (mayLend(message) && !lends) {
                returned(message.from());
            }
        }
    }

    private static void refuse(ServiceMessage message, String reason) {
        try {
            message.request().refuse(reason);
        } catch (CciException e) {
            // Its client has gone.
        }
    }

    /** Returns whether the answer lends: then it is counted until that is over. */
    private boolean answerFor(ServiceMessage message) throws IOException {
        if (message.itemCount() < 2 || message.item(1).remaining() > PATH_BYTES_MAX) {
            throw new IllegalArgumentException("no path, or one over 1,024 bytes");
        }
        String what = StandardCharsets.US_ASCII.decode(message.item(0)).toString();
        Path path = find(StandardCharsets.UTF_8.newDecoder().decode(message.item(1)).toString());
        if (what.equals("about") && message.itemCount() == 2) {
            message.request().answer(about(path, Files.size(path)));
            return false;
        }
        if (what.equals("read") && message.itemCount() == READ_ITEMS) {
            return answerPart(message, path, word(message.item(2)), word(message.item(3)));
        }
        throw new IllegalArgumentException("not a request for a file");
    }

    private static long word(ByteBuffer item) {
        if (item.remaining() != Long.BYTES) {
            throw new IllegalArgumentException("no range");
        }
        return item.order(ByteOrder.LITTLE_ENDIAN).getLong();
    }

    /** A file in the folder. */
    private Path find(String path) throws IOException {
        Path found = root.resolve(path.replaceFirst("^/+", "")).toRealPath();
        if (!found.startsWith(root) || !Files.isRegularFile(found)) {
            throw new IOException("no file of the folder");
        }
        return found;
    }

    private static ByteBuffer about(Path path, long bytes) throws IOException {
        ByteBuffer about = ByteBuffer.allocate(2 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        return about.putLong(bytes).putLong(Files.getLastModifiedTime(path).to(TimeUnit.NANOSECONDS)).flip();
    }

    private boolean answerPart(ServiceMessage message, Path path, long offset, long length) throws IOException {
        ServiceRequest request = message.request();
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
            long size = file.size();
            ServiceContent content = ServiceContent.of(about(path, size));
            // Numbers of 64 bits without a sign: those that are negative here are the largest.
            long wanted = length < 0 ? PART_BYTES_MAX : Math.min(length, PART_BYTES_MAX);
            long bytes = offset < 0 || offset > size ? 0 : Math.min(wanted, size - offset);
            if (bytes == 0) {
                request.answer(content);
                return false;
            }
            // The library keeps the memory until the client has fetched from it, and uses it again then.
            try (ServiceBuffer buffer = ServiceBuffer.allocate(bytes)) {
                ByteBuffer to = buffer.segment().asByteBuffer();
                while (to.hasRemaining()) {
                    if (file.read(to, offset + to.position()) < 0) {
                        throw new EOFException("the file has become shorter while it was read");
                    }
                }
                request.lend(content.withLongItems(buffer.item())).thenRun(() -> {
                    returned(message.from());
                    begin();
                });
                return true;
            }
        }
    }
}
