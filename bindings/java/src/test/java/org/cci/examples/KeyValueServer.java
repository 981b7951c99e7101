package org.cci.examples;

import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.cci.Service;
import org.cci.ServiceMessage;
import org.cci.ServiceRequest;

/**
 * A key-value service. A call has the items {@code put}, a key and a value, or {@code get} and a key. Each put is in a file before it
 * is answered, so that the service may be killed at any time, and be started anew, or elsewhere, with the same file.
 *
 * <p>{@code KeyValueServer NAME FILE} prints how many keys it has, and serves until its standard input ends.
 */
public final class KeyValueServer {
    private static final int HEAD_BYTES = 8;

    private final Map<ByteBuffer, ByteBuffer> values = new HashMap<>();
    private final FileChannel log;

    private KeyValueServer(FileChannel log) throws java.io.IOException {
        this.log = log;
        ByteBuffer all = ByteBuffer.allocate(Math.toIntExact(log.size()));
        while (all.hasRemaining() && log.read(all) >= 0) {
            // It goes on.
        }
        all.flip();
        int whole = 0;
        while (all.remaining() >= HEAD_BYTES) {
            int key = all.getInt();
            int value = all.getInt();
            if (all.remaining() < key + value) {
                break;
            }
            values.put(part(all, key), part(all, value));
            whole = all.position();
        }
        // The end of what was being written when it was killed.
        log.truncate(whole).position(whole);
    }

    private static ByteBuffer part(ByteBuffer all, int bytes) {
        ByteBuffer part = all.slice(all.position(), bytes);
        all.position(all.position() + bytes);
        return part;
    }

    private void put(ByteBuffer key, ByteBuffer value) throws java.io.IOException {
        ByteBuffer entry = ByteBuffer.allocate(HEAD_BYTES + key.remaining() + value.remaining());
        entry.putInt(key.remaining()).putInt(value.remaining()).put(key.duplicate()).put(value.duplicate()).flip();
        while (entry.hasRemaining()) {
            log.write(entry);
        }
        values.put(key, value);
    }

    private void answer(ServiceMessage message, ServiceRequest request) throws java.io.IOException {
        String what = message.itemCount() == 0 ? "" : StandardCharsets.UTF_8.decode(message.item(0)).toString();
        if (what.equals("put") && message.itemCount() == 3) {
            put(message.item(1), message.item(2));
            request.answer();
        } else if (what.equals("get") && message.itemCount() == 2) {
            ByteBuffer value = values.get(message.item(1));
            if (value == null) {
                request.refuse("there is no such key");
            } else {
                request.answer(value.duplicate());
            }
        } else {
            request.refuse("neither put, a key and a value nor get and a key");
        }
    }

    /**
     * Runs it.
     *
     * @param arguments the service's name, and the file
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        try (Service service = Service.register(arguments[0]);
                FileChannel log = FileChannel.open(
                        Path.of(arguments[1]), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            KeyValueServer server = new KeyValueServer(log);
            System.out.println("serving " + server.values.size() + " keys");
            AtomicBoolean ended = Input.ended();
            while (!ended.get()) {
                try (ServiceMessage message = service.receiveRequest(Duration.ofMillis(100))) {
                    if (message != null && message.request() != null) {
                        server.answer(message, message.request());
                    }
                }
            }
        }
    }
}
