package org.cci.examples;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import org.cci.PeerException;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;
import org.cci.ServiceItem;
import org.cci.ServiceMessage;

/**
 * Fetches a file from a {@link FileServer}, which may be killed and started anew meanwhile.
 *
 * <p>{@code FileClient NAME FILE TO} prints how far it is after each 8 MiB.
 */
public final class FileClient {
    private static final long STEP_BYTES = 8 << 20;
    /** How long one part may take, and how often it is asked for. */
    private static final Duration PART_TIMEOUT = Duration.ofSeconds(2);

    private static final int TRIES = 30;

    private final Service service = Service.registerAny();
    private final ServiceId server;
    private final ServiceBuffer window = ServiceBuffer.allocate(FileServer.PART_BYTES_MAX);
    private boolean offered;
    private long number;

    private FileClient(ServiceId server) {
        this.server = server;
    }

    /**
     * Runs it.
     *
     * @param arguments the service's name, the file's name there, and where it goes
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        FileClient client = new FileClient(ServiceId.of(arguments[0]));
        try (FileChannel to = FileChannel.open(
                        Path.of(arguments[2]), StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                        StandardOpenOption.TRUNCATE_EXISTING);
                Service service = client.service;
                ServiceBuffer window = client.window) {
            client.fetch(arguments[1], to);
        }
    }

    private void fetch(String name, FileChannel to) throws IOException, InterruptedException {
        long bytes = 0;
        long shown = 0;
        long total = Long.MAX_VALUE;
        for (int tries = 0; bytes < total; tries++) {
            if (tries == TRIES) {
                throw new IOException("no answer after " + TRIES + " tries");
            }
            Part part = ask(name, bytes);
            if (part == null) {
                continue;
            }
            if (part.fileBytes < 0) {
                throw new IOException("there is no file " + name);
            }
            total = part.fileBytes;
            bytes += part.item == null ? 0 : to.write(part.item.bytes(), bytes);
            tries = -1;
            if (bytes / STEP_BYTES > shown) {
                shown = bytes / STEP_BYTES;
                System.out.println(bytes + " of " + total + " bytes");
            }
        }
        System.out.println("fetched " + bytes + " bytes");
    }

    /** What came of one request. */
    private record Part(long fileBytes, ServiceItem item) {}

    /** Asks for a part of the file. Null: no answer came in time. */
    private Part ask(String name, long offset) throws InterruptedException {
        if (!offered) {
            service.offerWindow(window.item());
            offered = true;
        }
        number++;
        try {
            service.send(
                    server,
                    ByteBuffer.allocate(24).putLong(number).putLong(offset).putLong(FileServer.PART_BYTES_MAX).flip(),
                    StandardCharsets.UTF_8.encode(name));
        } catch (PeerException e) {
            // It may be between two lives.
            System.out.println("looking again: " + e.getMessage());
            return null;
        }
        long fileBytes = Long.MIN_VALUE;
        long deadline = System.nanoTime() + PART_TIMEOUT.toNanos();
        while (true) {
            try (ServiceMessage message = service.receive(Duration.ofNanos(Math.max(0, deadline - System.nanoTime())))) {
                if (message == null) {
                    return null;
                }
                if (message.longItemCount() > 0) {
                    ServiceItem item = message.longItem(0);
                    offered = item == null;
                    if (fileBytes >= 0) {
                        return item == null ? null : new Part(fileBytes, item);
                    }
                } else if (message.itemCount() == 1) {
                    ByteBuffer answer = message.item(0);
                    // An answer to an earlier request came late.
                    if (answer.remaining() == 24 && answer.getLong() == number) {
                        fileBytes = answer.getLong();
                        if (answer.getLong() == 0) {
                            return new Part(fileBytes, null);
                        }
                    } else {
                        fileBytes = Long.MIN_VALUE;
                    }
                }
            }
            if (offered) {
                continue;
            }
            // A late item has taken the window.
            service.offerWindow(window.item());
            offered = true;
        }
    }
}
