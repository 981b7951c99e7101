package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.eclipse.jetty.util.resource.ResourceFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Wrong requests for files, files that shrink, and clients that are killed: each over a service as over TCP, and nothing is left. */
class BadInputTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final String SECRET = "nobody may see this";
    private static final int BIG_BYTES = 300 << 20;
    private static final String[] PATHS = {"/cached/", "/read/"};

    @TempDir
    Path parent;

    private final String name = "bad-input-" + ProcessHandle.current().pid();
    private final Server server = new Server();
    private final ServerConnector tcp = new ServerConnector(server);
    private final ServiceConnector connector = new ServiceConnector(server, name);
    private Path folder;
    private ServiceClient client;

    private ContextHandler handler(String path, long cachedBytes) {
        ServiceResourceHandler files = new ServiceResourceHandler();
        files.setCachedBytesMax(cachedBytes, 10 << 20);
        files.setBaseResource(ResourceFactory.of(server).newResource(folder));
        return new ContextHandler(files, path);
    }

    @BeforeEach
    void start() throws Exception {
        folder = Files.createDirectory(parent.resolve("served"));
        Files.writeString(parent.resolve("secret"), SECRET);
        Files.writeString(folder.resolve("ten"), "0123456789");
        server.setHandler(new ContextHandlerCollection(handler("/cached", 1 << 30), handler("/read", 0)));
        tcp.setHost("localhost");
        server.addConnector(tcp);
        connector.setIdleTimeout(2000);
        server.addConnector(connector);
        server.start();
        client = new ServiceClient();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.stop();
    }

    private ServiceChannel open() throws IOException {
        return client.open(ServiceId.of(name), PATIENCE);
    }

    /** All that comes for a request until the server closes, over a service. */
    private String overService(String request) throws IOException {
        var answer = new ByteArrayOutputStream();
        try (ServiceChannel channel = open()) {
            channel.write(ByteBuffer.wrap(request.getBytes(StandardCharsets.ISO_8859_1)));
            for (ByteBuffer next = channel.next(); next != null; next = channel.next()) {
                byte[] bytes = new byte[next.remaining()];
                next.get(bytes);
                answer.write(bytes);
            }
        }
        return answer.toString(StandardCharsets.ISO_8859_1);
    }

    private String overTcp(String request) throws IOException {
        try (Socket socket = new Socket("localhost", tcp.getLocalPort())) {
            socket.setSoTimeout((int) PATIENCE.toMillis());
            socket.getOutputStream().write(request.getBytes(StandardCharsets.ISO_8859_1));
            InputStream in = socket.getInputStream();
            return new String(in.readAllBytes(), StandardCharsets.ISO_8859_1);
        }
    }

    /** Without what differs from one answer to the next one. */
    private static String lasting(String answer) {
        return answer.replaceAll("(?m)^Date: .*\r\n", "");
    }

    private static String request(String path, String headers) {
        return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n";
    }

    /** The answer over a service, which is that over TCP, and begins so. */
    private String check(String request, String begins) throws IOException {
        String answer = overService(request);
        String first = request.lines().findFirst().orElse("") + ": " + answer.lines().findFirst().orElse("nothing");
        assertTrue(answer.startsWith(begins), first);
        assertEquals(lasting(overTcp(request)), lasting(answer), first);
        assertFalse(answer.contains(SECRET), first);
        return answer;
    }

    @Test
    void rangesThatCanNotBeSatisfied() throws Exception {
        for (String path : PATHS) {
            for (String range : List.of("10-", "10-20", "5000000000-", "9223372036854775807-")) {
                String answer = check(request(path + "ten", "Range: bytes=" + range + "\r\n"), "HTTP/1.1 416 ");
                assertTrue(answer.contains("\r\nContent-Range: bytes */10\r\n"), answer);
            }
            String last = check(request(path + "ten", "Range: bytes=8-100\r\n"), "HTTP/1.1 206 ");
            assertTrue(last.contains("\r\nContent-Range: bytes 8-9/10\r\n") && last.endsWith("\r\n\r\n89"), last);
            for (String range : List.of("bytes=5-2", "bytes=x-y", "bytes=-", "lines=1-2", "bytes=99999999999999999999-", "")) {
                check(request(path + "ten", "Range: " + range + "\r\n"), "HTTP/1.1 ");
            }
        }
    }

    @Test
    void headersThatAreWrong() throws Exception {
        check(request("/read/ten", "Expect: a-miracle\r\n"), "HTTP/1.1 417 ");
        check(request("/read/ten", "X-Long: " + "x".repeat(100_000) + "\r\n"), "HTTP/1.1 431 ");
        check(request("/read/ten", "no colon\r\n"), "HTTP/1.1 400 ");
        check(request("/read/ten", "Content-Length: -1\r\n"), "HTTP/1.1 400 ");
        check(request("/read/ten", "Content-Length: 1\r\nContent-Length: 2\r\n"), "HTTP/1.1 400 ");
        check(request("/read/ten", "Transfer-Encoding: nonsense\r\n"), "HTTP/1.1 ");
        check("GET /read/ten HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 ");
        check("GET /read/ten HTTP/9.9\r\nHost: x\r\n\r\n", "HTTP/1.1 505 ");
        check("BREW /read/ten HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 ");
    }

    @Test
    void pathsThatLeadOut() throws Exception {
        for (String path : PATHS) {
            for (String escape : List.of(
                    "../secret", "%2e%2e/secret", "..%2fsecret", "%2e%2e%2fsecret", ".%2e/secret", "..%5csecret",
                    "%252e%252e/secret", "..;/secret", "./../secret", "ten/../../secret", "ten/%2e%2e/%2e%2e/secret",
                    "%c0%ae%c0%ae/secret", "..%00/secret", "ten%00", "%zz", "../../served/../secret")) {
                String answer = check(request(path + escape, ""), "HTTP/1.1 4");
                assertTrue(answer.startsWith("HTTP/1.1 40"), answer);
            }
        }
    }

    /** A server that closes behind its answer has not delivered it yet, where it is longer than is sent at once. */
    @Test
    void longAnswersComeWholeFromServersThatClose() throws Exception {
        write(8 << 20);
        byte[] content = Files.readAllBytes(folder.resolve("big"));
        for (int round = 0; round < 60; round++) {
            for (String path : PATHS) {
                byte[] answer = overService(request(path + "big", "")).getBytes(StandardCharsets.ISO_8859_1);
                int body = answer.length - content.length;
                assertTrue(body > 0, "round " + round + ": " + answer.length + " bytes");
                assertEquals(-1, Arrays.mismatch(answer, body, answer.length, content, 0, content.length));
            }
        }
    }

    /** How much of the library's memory this program has, which clients fetch from. */
    @SuppressWarnings("unchecked")
    private static int buffers() throws ReflectiveOperationException {
        Field open = ServiceBuffer.class.getDeclaredField("OPEN");
        open.setAccessible(true);
        return ((Map<Long, ServiceBuffer>) open.get(null)).size();
    }

    /** What this process has open of the served folder. */
    private List<Path> openFiles() throws IOException {
        List<Path> open = new ArrayList<>();
        try (var all = Files.list(Path.of("/proc/self/fd"))) {
            for (Path descriptor : all.toList()) {
                try {
                    Path file = Files.readSymbolicLink(descriptor);
                    if (file.startsWith(folder.toRealPath())) {
                        open.add(file);
                    }
                } catch (IOException closedMeanwhile) {
                    // It is not open.
                }
            }
        }
        return open;
    }

    private static long descriptors() throws IOException {
        try (var all = Files.list(Path.of("/proc/self/fd"))) {
            return all.count();
        }
    }

    private void write(int bytes) throws IOException {
        byte[] content = new byte[bytes];
        new Random(bytes).nextBytes(content);
        Files.write(folder.resolve("big"), content);
    }

    private void serves() throws IOException {
        assertTrue(overService(request("/read/ten", "")).endsWith("0123456789"));
        assertTrue(overTcp(request("/read/ten", "")).endsWith("0123456789"));
    }

    /** Waits until no connection and no file is open any more. */
    private void quiet() throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!connector.getConnectedEndPoints().isEmpty() || !openFiles().isEmpty()) {
            assertTrue(System.nanoTime() < deadline, connector.getConnectedEndPoints() + ", " + openFiles());
            Thread.sleep(50);
        }
    }

    /** Waits until there are no more buffers than there were: those that are kept for use are freed after a while. */
    private void noMoreThan(long buffers, long descriptors) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (buffers() > buffers + 2 || descriptors() > descriptors + 2) {
            assertTrue(
                    System.nanoTime() < deadline,
                    buffers() + " buffers of " + buffers + ", " + descriptors() + " descriptors of " + descriptors);
            serves();
            Thread.sleep(200);
        }
    }

    /** The answer ends before the length that it began with, as it must, and the next client gets what there is. */
    @Test
    void aFileThatShrinksWhileItIsServed() throws Exception {
        long buffers = -1;
        long descriptors = -1;
        for (int round = 0; round < 3; round++) {
            write(64 << 20);
            long came = 0;
            try (ServiceChannel channel = open()) {
                channel.write(ByteBuffer.wrap(request("/read/big", "").getBytes(StandardCharsets.US_ASCII)));
                for (ByteBuffer next = channel.next(); next != null; next = channel.next()) {
                    if (came == 0) {
                        try (var file = new RandomAccessFile(folder.resolve("big").toFile(), "rw")) {
                            file.setLength(5 << 20);
                        }
                    }
                    came += next.remaining();
                    next.position(next.limit());
                }
            } catch (IOException ended) {
                // It is what a client may see instead of the end.
            }
            assertTrue(came < 64 << 20, came + " bytes of what has 5 MiB");
            String now = overService(request("/read/big", ""));
            assertTrue(now.contains("\r\nContent-Length: " + (5 << 20) + "\r\n"), now.substring(0, 200));
            quiet();
            serves();
            quiet();
            if (round == 0) {
                buffers = buffers();
                descriptors = descriptors();
            }
        }
        noMoreThan(buffers, descriptors);
    }

    /** A process that fetches a long file is killed: others are served meanwhile, and soon nothing is left of it. */
    @Test
    void aClientThatIsKilledInMidFile() throws Exception {
        write(BIG_BYTES);
        long buffers = -1;
        long descriptors = -1;
        for (int round = 0; round < 3; round++) {
            try (Program get = new Program(Get.class, name, "/read/big", parent.resolve("copy").toString())) {
                // Its progress bar, as far as a few percent.
                var bar = new StringBuilder();
                InputStream says = get.process.getInputStream();
                while (!bar.toString().matches("(?s).* [1-9]% .*")) {
                    int next = says.read();
                    assertTrue(next >= 0, "it has ended: " + bar);
                    bar.append((char) next);
                }
                assertFalse(connector.getConnectedEndPoints().isEmpty(), "it is being served");
                serves();
            }
            serves();
            quiet();
            assertTrue(Files.size(parent.resolve("copy")) < BIG_BYTES, "it was killed in mid-file");
            Files.delete(parent.resolve("copy"));
            if (round == 0) {
                buffers = buffers();
                descriptors = descriptors();
            }
        }
        // What killed ones have not taken is given up, here after less than 30 s.
        connector.streams().giveUpAfter(Duration.ofSeconds(2));
        noMoreThan(buffers, descriptors);
        connector.streams().giveUpAfter(PATIENCE);
        // And whole, for who stays.
        try (Program get = new Program(Get.class, name, "/read/big", parent.resolve("copy").toString())) {
            assertTrue(get.rest().contains("100%"));
        }
        assertArrayEquals(Files.readAllBytes(folder.resolve("big")), Files.readAllBytes(parent.resolve("copy")));
    }
}
