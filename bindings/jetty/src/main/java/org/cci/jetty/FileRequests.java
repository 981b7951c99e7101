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
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.cci.CciException;
import org.cci.PeerException;
import org.cci.ServiceBuffer;
import org.cci.ServiceContent;
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
    /** The longest path, bytes. */
    private static final int PATH_BYTES_MAX = 1024;
    /** Requests that wait for their turn. */
    private static final int WAITING_MAX = 1024;

    private final Path root;
    private final Executor executor;
    /** Under its own monitor, as is {@link #answers}. */
    private final ArrayDeque<ServiceMessage> waiting = new ArrayDeque<>();

    /** One thread is about what waits. */
    private boolean answers;
    /**
     * Answers for a folder.
     *
     * @param folder the folder; nothing outside of it is served, wherever links lead
     * @param executor who reads files, one at a time
     * @throws IOException if there is no such folder
     */
    FileRequests(Path folder, Executor executor) throws IOException {
        root = folder.toRealPath();
        this.executor = executor;
    }

    /** Has a request answered soon. */
    void take(ServiceMessage message) {
        boolean begins = false;
        synchronized (waiting) {
            boolean waits = waiting.size() < WAITING_MAX && message.from() != null && message.longItemCount() == 0;
            if (waits) {
                waiting.add(message);
                begins = !answers;
                answers = true;
            } else {
                refuse(message, "too much is asked for at once");
            }
        }
        if (begins) {
            try {
                executor.execute(this::answerAll);
            } catch (RejectedExecutionException e) {
                // The server stops.
                answerAll();
            }
        }
    }

    private void answerAll() {
        for (ServiceMessage next = next(); next != null; next = next()) {
            answer(next);
        }
    }

    private ServiceMessage next() {
        synchronized (waiting) {
            answers = !waiting.isEmpty();
            return waiting.poll();
        }
    }

    private void answer(ServiceMessage message) {
        try {
            answerFor(message);
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
        }
    }

    private static void refuse(ServiceMessage message, String reason) {
        try {
            message.request().refuse(reason);
        } catch (CciException e) {
            // Its client has gone.
        }
    }

    private void answerFor(ServiceMessage message) throws IOException {
        if (message.itemCount() < 2 || message.item(1).remaining() > PATH_BYTES_MAX) {
            throw new IllegalArgumentException("no path, or one over 1,024 bytes");
        }
        String what = StandardCharsets.US_ASCII.decode(message.item(0)).toString();
        Path path = find(StandardCharsets.UTF_8.newDecoder().decode(message.item(1)).toString());
        if (what.equals("about") && message.itemCount() == 2) {
            message.request().answer(about(path, Files.size(path)));
            return;
        }
        if (what.equals("read") && message.itemCount() == 4) {
            answerPart(message.request(), path, word(message.item(2)), word(message.item(3)));
            return;
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

    private static void answerPart(ServiceRequest request, Path path, long offset, long length) throws IOException {
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
            long size = file.size();
            ServiceContent content = ServiceContent.of(about(path, size));
            // Numbers of 64 bits without a sign: those that are negative here are the largest.
            long wanted = length < 0 ? PART_BYTES_MAX : Math.min(length, PART_BYTES_MAX);
            long bytes = offset < 0 || offset > size ? 0 : Math.min(wanted, size - offset);
            if (bytes == 0) {
                request.answer(content);
                return;
            }
            // The library keeps the memory until the client has fetched from it, and uses it again then.
            try (ServiceBuffer buffer = ServiceBuffer.allocate(bytes)) {
                ByteBuffer to = buffer.segment().asByteBuffer();
                while (to.hasRemaining()) {
                    if (file.read(to, offset + to.position()) < 0) {
                        throw new EOFException("the file has become shorter while it was read");
                    }
                }
                request.answer(content.withLongItems(buffer.item()));
            }
        }
    }
}
