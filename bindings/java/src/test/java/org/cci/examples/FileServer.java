package org.cci.examples;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.cci.PeerException;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceMessage;

/**
 * A service that gives parts of the files of a folder.
 *
 * <p>{@code FileServer NAME FOLDER} serves until its standard input ends. A request has two items: a number that the answer
 * repeats, an offset and a length, 8 bytes each, and the file's name. The answer has the number, the file's length, and how many
 * bytes follow as a long item in a message of their own; -1 for the length: there is no such file.
 */
public final class FileServer {
    /** The most bytes of an answer. */
    static final int PART_BYTES_MAX = 1 << 20;

    private FileServer() {}

    /**
     * Runs it.
     *
     * @param arguments the service's name and the folder
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]).toRealPath();
        try (Service service = Service.register(arguments[0])) {
            System.out.println("serving " + folder);
            AtomicBoolean ended = Input.ended();
            while (!ended.get()) {
                try (ServiceMessage request = service.receive(Duration.ofMillis(100))) {
                    if (request != null && request.from() != null && request.itemCount() == 2) {
                        answer(service, folder, request);
                    }
                } catch (PeerException e) {
                    // The client has gone.
                    System.err.println(e.getMessage());
                }
            }
        }
    }

    private static void answer(Service service, Path folder, ServiceMessage request) {
        ByteBuffer asked = request.item(0);
        if (asked.remaining() != 24) {
            return;
        }
        long number = asked.getLong();
        long offset = asked.getLong();
        long length = asked.getLong();
        String name = StandardCharsets.UTF_8.decode(request.item(1)).toString();
        try (FileChannel file = open(folder, name)) {
            long left = Math.max(0, file.size() - Math.max(0, offset));
            int bytes = (int) Math.min(PART_BYTES_MAX, Math.min(left, Math.max(0, length)));
            service.send(request.from(), answer(number, file.size(), bytes));
            if (bytes > 0) {
                // The library keeps the memory until the client has fetched it.
                try (ServiceBuffer buffer = ServiceBuffer.allocate(bytes)) {
                    ByteBuffer part = buffer.segment().asByteBuffer();
                    while (part.hasRemaining() && file.read(part, offset + part.position()) > 0) {}
                    service.sendLong(request.from(), buffer.item());
                }
            }
        } catch (IOException e) {
            service.send(request.from(), answer(number, -1, 0));
        }
    }

    private static ByteBuffer answer(long number, long fileBytes, long bytes) {
        return ByteBuffer.allocate(24).putLong(number).putLong(fileBytes).putLong(bytes).flip();
    }

    /** A file in the folder, and nowhere else. */
    private static FileChannel open(Path folder, String name) throws IOException {
        Path path = folder.resolve(name).toRealPath();
        if (!path.startsWith(folder) || !Files.isRegularFile(path)) {
            throw new IOException("no file of this folder");
        }
        return FileChannel.open(path);
    }
}
