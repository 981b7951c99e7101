package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.cci.ServiceId;
import org.eclipse.jetty.client.CompletableResponseListener;
import org.eclipse.jetty.client.ContentResponse;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.eclipse.jetty.util.resource.ResourceFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that clients fetch from where the server has them. */
class FilesTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int[] SIZES = {0, 1, 1900, 5000, 20_000, 300_000, 3_000_000};
    private static final String[] PATHS = {"/cached/", "/read/"};

    @TempDir
    Path folder;

    private final String name = "files-" + ProcessHandle.current().pid();
    private final Server server = new Server();
    private final ServerConnector tcp = new ServerConnector(server);
    private final HttpClient http = new HttpClient();
    private ServiceClient client;

    private static byte[] content(int bytes, int version) {
        byte[] content = new byte[bytes];
        new Random(bytes + 31L * version).nextBytes(content);
        return content;
    }

    private ContextHandler handler(String path, long cachedBytes) {
        ServiceResourceHandler files = new ServiceResourceHandler();
        files.setCachedBytesMax(cachedBytes, 1 << 30);
        files.setBaseResource(ResourceFactory.of(server).newResource(folder));
        return new ContextHandler(files, path);
    }

    @BeforeEach
    void start() throws Exception {
        for (int bytes : SIZES) {
            Files.write(folder.resolve("f" + bytes), content(bytes, 0));
        }
        server.setHandler(new ContextHandlerCollection(handler("/cached", 1 << 30), handler("/read", 0)));
        tcp.setHost("localhost");
        server.addConnector(tcp);
        server.addConnector(new ServiceConnector(server, name));
        server.start();
        http.start();
        client = new ServiceClient();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        http.stop();
        server.stop();
    }

    /** One request on a channel, and the body of its answer, which has so many bytes. */
    private static byte[] fetch(ServiceChannel channel, String path, int bytes) throws IOException {
        String request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
        channel.write(ByteBuffer.wrap(request.getBytes(StandardCharsets.US_ASCII)));
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
            head.append((char) channel.next().get());
        }
        assertTrue(head.toString().startsWith("HTTP/1.1 200"), head.toString());
        ByteBuffer body = ByteBuffer.allocate(bytes);
        while (body.hasRemaining()) {
            assertTrue(channel.read(body) > 0, "the end of " + path);
        }
        return body.array();
    }

    private ServiceChannel open() throws IOException {
        return client.open(ServiceId.of(name), PATIENCE);
    }

    @Test
    void aFileThatChangesIsFetchedAnewAndOneThatBecomesShorterEndsTheConnection() throws Exception {
        Path path = folder.resolve("f3000000");
        try (ServiceChannel channel = open()) {
            for (int version = 1; version < 4; version++) {
                // In place, and by another file of the same length and time.
                byte[] now = content(3_000_000, version);
                if (version == 2) {
                    FileTime before = Files.getLastModifiedTime(path);
                    Files.move(Files.write(folder.resolve("other"), now), path, StandardCopyOption.REPLACE_EXISTING);
                    Files.setLastModifiedTime(path, before);
                } else {
                    Files.write(path, now);
                }
                assertArrayEquals(now, fetch(channel, "/read/f3000000", 3_000_000), "version " + version);
            }
        }
        // The server learns of it while it sends: it has promised 64 MiB.
        int promised = 64 << 20;
        Path large = Files.write(folder.resolve("large"), new byte[promised]);
        try (ServiceChannel channel = open()) {
            String request = "GET /read/large HTTP/1.1\r\nHost: x\r\n\r\n";
            channel.write(ByteBuffer.wrap(request.getBytes(StandardCharsets.US_ASCII)));
            ByteBuffer some = channel.next();
            try (FileChannel shorter = FileChannel.open(large, StandardOpenOption.WRITE)) {
                shorter.truncate(1 << 20);
            }
            long read = some.remaining();
            assertThrows(IOException.class, () -> {
                for (ByteBuffer next = channel.next(); next != null; next = channel.next()) {
                    next.position(next.limit());
                }
                throw new EOFException("the connection has ended");
            });
            assertTrue(read < promised);
        }
        try (ServiceChannel channel = open()) {
            assertArrayEquals(content(300_000, 0), fetch(channel, "/read/f300000", 300_000), "the server goes on");
        }
    }

    @Test
    void filesComeWholeByEveryWay() throws Exception {
        try (ServiceChannel channel = open();
                ServiceTransport transport = new ServiceTransport()) {
            for (int bytes : SIZES) {
                for (String path : PATHS) {
                    byte[] content = content(bytes, 0);
                    assertArrayEquals(content, fetch(channel, path + "f" + bytes, bytes));
                    var byTcp = http.newRequest("http://localhost:" + tcp.getLocalPort() + path + "f" + bytes);
                    assertArrayEquals(content, body(byTcp));
                    assertArrayEquals(content, body(byService(transport, path + "f" + bytes)));
                    if (bytes > 10) {
                        byte[] part = Arrays.copyOfRange(content, 7, bytes - 2);
                        String range = "bytes=7-" + (bytes - 3);
                        assertArrayEquals(part, body(byService(transport, path + "f" + bytes)
                                .headers(headers -> headers.put("Range", range))));
                    }
                }
            }
        }
    }

    private Request byService(ServiceTransport transport, String path) {
        return http.newRequest("http://" + name + path).transport(transport.to(ServiceId.of(name)));
    }

    private static byte[] body(Request request) throws Exception {
        ContentResponse response = new CompletableResponseListener(
                        request.timeout(PATIENCE.toSeconds(), TimeUnit.SECONDS), 1 << 30)
                .send()
                .get();
        assertTrue(response.getStatus() / 100 == 2, response.toString());
        return response.getContent();
    }

    /** Memory that is used again is never that of bytes which somebody is still to fetch. */
    @Test
    void manyClientsGetTheirOwnBytes() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(6);
        try (ServiceClient another = new ServiceClient()) {
            List<Future<Void>> all = new ArrayList<>();
            for (int thread = 0; thread < 6; thread++) {
                ServiceClient ours = thread % 2 == 0 ? client : another;
                Random random = new Random(thread);
                all.add(threads.submit((Callable<Void>) () -> {
                    try (ServiceChannel channel = ours.open(ServiceId.of(name), PATIENCE)) {
                        for (int round = 0; round < 40; round++) {
                            int bytes = SIZES[random.nextInt(SIZES.length)];
                            String path = PATHS[random.nextInt(PATHS.length)] + "f" + bytes;
                            assertArrayEquals(content(bytes, 0), fetch(channel, path, bytes), path);
                        }
                    }
                    return null;
                }));
            }
            for (Future<Void> each : all) {
                each.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aFileThatChangesIsFetchedAnew() throws Exception {
        try (ServiceChannel channel = open()) {
            assertArrayEquals(content(300_000, 0), fetch(channel, "/cached/f300000", 300_000));
            Path file = folder.resolve("f300000");
            Files.write(file, content(300_000, 1));
            Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000_000_000L));
            assertArrayEquals(content(300_000, 1), fetch(channel, "/read/f300000", 300_000));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            byte[] came = fetch(channel, "/cached/f300000", 300_000);
            while (!Arrays.equals(content(300_000, 1), came)) {
                assertArrayEquals(content(300_000, 0), came);
                assertTrue(System.nanoTime() < deadline, "the cache keeps the old file");
                Thread.sleep(50);
                came = fetch(channel, "/cached/f300000", 300_000);
            }
        }
    }

    @Test
    void aServerThatIsStartedAgainServes() throws Exception {
        try (ServiceChannel channel = open()) {
            assertArrayEquals(content(5000, 0), fetch(channel, "/read/f5000", 5000));
        }
        server.stop();
        server.start();
        try (ServiceChannel channel = open()) {
            assertArrayEquals(content(5000, 0), fetch(channel, "/read/f5000", 5000));
        }
    }

    @Test
    void aChannelSaysWhatIsWrong() throws Exception {
        try (ServiceChannel channel = client.open(ServiceId.of(name), Duration.ofMillis(50))) {
            assertThrows(SocketTimeoutException.class, channel::next);
            assertEquals(0, channel.read(ByteBuffer.allocate(0)));
        }
        try (ServiceChannel channel = open()) {
            channel.write(ByteBuffer.wrap("nonsense\r\n\r\n".getBytes(StandardCharsets.US_ASCII)));
            StringBuilder answer = new StringBuilder();
            for (ByteBuffer next = channel.next(); next != null; next = channel.next()) {
                answer.append(StandardCharsets.US_ASCII.decode(next));
            }
            assertTrue(answer.toString().startsWith("HTTP/1.1 400"), answer.toString());
        }
        ServiceChannel closed = open();
        closed.close();
        assertThrows(IOException.class, closed::next);
        assertThrows(IOException.class, () -> closed.write(ByteBuffer.allocate(1)));
    }
}
