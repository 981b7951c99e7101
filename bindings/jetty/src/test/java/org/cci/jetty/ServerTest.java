package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceId;
import org.eclipse.jetty.client.BytesRequestContent;
import org.eclipse.jetty.client.CompletableResponseListener;
import org.eclipse.jetty.client.ContentResponse;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.Request;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.HttpMethod;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Unmodified servlets over a service and TCP, in one server. */
class ServerTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String name = "jetty-" + ProcessHandle.current().pid();
    private final Server server = new Server();
    private final ServerConnector tcp = new ServerConnector(server);
    private final ServiceConnector connector = new ServiceConnector(server, name);
    private final HttpClient client = new HttpClient();
    private ServiceTransport transport;

    /** Answers with what it was sent, or with so many bytes as asked. */
    static final class Echo extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.setHeader("X-From", request.getRemoteAddr());
            request.getInputStream().transferTo(response.getOutputStream());
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            int bytes = Integer.parseInt(request.getParameter("bytes"));
            response.setHeader("X-Length", "" + request.getHeader("X-Long").length());
            if (request.getParameter("length") != null) {
                response.setContentLength(bytes);
            }
            OutputStream output = response.getOutputStream();
            byte[] part = new byte[10_007];
            for (int at = 0; at < bytes; at += part.length) {
                for (int of = 0; of < part.length; of++) {
                    part[of] = (byte) (at + of);
                }
                output.write(part, 0, Math.min(part.length, bytes - at));
            }
        }
    }

    @BeforeEach
    void start() throws Exception {
        ServletContextHandler servlets = new ServletContextHandler("/");
        servlets.addServlet(new ServletHolder(new Echo()), "/echo");
        server.setHandler(servlets);
        tcp.setHost("localhost");
        server.addConnector(tcp);
        server.addConnector(connector);
        server.start();
        client.setMaxConnectionsPerDestination(64);
        client.start();
        transport = new ServiceTransport();
    }

    @AfterEach
    void stop() throws Exception {
        transport.close();
        client.stop();
        server.stop();
    }

    private Request request(String path) {
        return client.newRequest("http://" + name + path)
                .transport(transport.to(ServiceId.of(name)))
                .headers(headers -> headers.put("X-Long", "x"))
                .timeout(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    /** The answer, however long it is. */
    private static CompletableFuture<ContentResponse> send(Request request) {
        return new CompletableResponseListener(request, 1 << 30).send();
    }

    private static void check(byte[] content, int bytes) {
        assertEquals(bytes, content.length);
        for (int at = 0; at < bytes; at++) {
            if (content[at] != (byte) at) {
                assertEquals((byte) at, content[at], "byte " + at);
            }
        }
    }

    @Test
    void servletsAnswerAsOverTcp() throws Exception {
        for (int bytes : new int[] {0, 1, 1000, 1900, 5000, 70_000, 5_000_000}) {
            for (String length : new String[] {"", "&length"}) {
                String path = "/echo?bytes=" + bytes + length;
                ContentResponse response = send(request(path)).get();
                assertEquals(200, response.getStatus());
                check(response.getContent(), bytes);
                try (var plain = java.net.http.HttpClient.newHttpClient()) {
                    var uri = URI.create("http://localhost:" + tcp.getLocalPort() + path);
                    var asked = java.net.http.HttpRequest.newBuilder(uri).header("X-Long", "x").build();
                    var answered = plain.send(asked, BodyHandlers.ofByteArray());
                    assertArrayEquals(answered.body(), response.getContent());
                }
            }
        }
        assertEquals(404, request("/nothing").send().getStatus());
        ContentResponse head = request("/echo?bytes=100&length").method(HttpMethod.HEAD).send();
        assertEquals("100", head.getHeaders().get("Content-Length"));
        assertEquals(0, head.getContent().length);
        String cookie = "y".repeat(6000);
        ContentResponse large = request("/echo?bytes=3").headers(headers -> headers.put("X-Long", cookie)).send();
        assertEquals("6000", large.getHeaders().get("X-Length"));
    }

    @Test
    void bodiesAreSentAndComeBack() throws Exception {
        byte[] body = new byte[3_000_000];
        new Random(9).nextBytes(body);
        for (int bytes : new int[] {0, 10, 20_000, body.length}) {
            byte[] part = java.util.Arrays.copyOf(body, bytes);
            Request request = request("/echo").method(HttpMethod.POST).body(new BytesRequestContent(part));
            ContentResponse response = send(request).get();
            assertArrayEquals(part, response.getContent());
            assertTrue(response.getHeaders().get("X-From").startsWith("service:"), response.getHeaders().toString());
        }
    }

    @Test
    void manyRequestsAtOnceAreAnswered() throws Exception {
        for (int round = 0; round < 3; round++) {
            List<CompletableFuture<ContentResponse>> answers = new ArrayList<>();
            for (int at = 0; at < 64; at++) {
                answers.add(send(request("/echo?bytes=" + at * 4096)));
            }
            for (int at = 0; at < 64; at++) {
                check(answers.get(at).get().getContent(), at * 4096);
            }
        }
        assertTrue(connector.getConnectedEndPoints().size() <= 64);
    }

    /** A client of its own making, which says what it likes. */
    @Test
    void whoTalksNonsenseHarmsNobodyElse() throws Exception {
        try (Service stranger = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(100_000)) {
            ServiceId to = ServiceId.of(name);
            Random random = new Random(3);
            for (int round = 0; round < 300; round++) {
                byte[] bytes = new byte[random.nextInt(40)];
                random.nextBytes(bytes);
                stranger.send(to, ByteBuffer.wrap(bytes));
                Frame.Kind kind = Frame.Kind.values()[random.nextInt(Frame.Kind.values().length)];
                Frame frame = new Frame(
                        kind, random.nextBoolean(), random.nextBoolean(), round % 3, random.nextInt(1 << 20), random.nextInt(4));
                stranger.send(to, together(frame, bytes));
                stranger.send(to, frame.toBytes(), ByteBuffer.wrap(bytes));
                if (round % 10 == 0) {
                    stranger.sendLong(to, buffer.item(0, 1 + random.nextInt(100_000)), buffer.item());
                }
            }
            check(send(request("/echo?bytes=50000")).get().getContent(), 50_000);
            // Streams without end are refused.
            for (int stream = 10; stream < 400; stream++) {
                stranger.send(to, new Frame(Frame.Kind.OPEN, true, 1000, stream).toBytes());
                if (stream % 20 == 0) {
                    check(send(request("/echo?bytes=5000")).get().getContent(), 5000);
                }
            }
            assertTrue(connector.getConnectedEndPoints().size() <= 256 + 64);
        }
    }

    /** Many connections of a client that says that it has room without end, asks for much, and takes nothing. */
    @Test
    void whoTakesNothingGetsLittleMemory() throws Exception {
        connector.setIdleTimeout(10_000);
        try (Service stranger = Service.registerAny()) {
            ServiceId to = ServiceId.of(name);
            long before = residentKib();
            for (int stream = 1; stream <= 50; stream++) {
                byte[] request = ("GET /echo?bytes=50000000 HTTP/1.1\r\nHost: x\r\nX-Long: x\r\n\r\n")
                        .getBytes(StandardCharsets.US_ASCII);
                stranger.send(to, new Frame(Frame.Kind.OPEN, true, Integer.MAX_VALUE, stream).toBytes());
                Frame data = new Frame(Frame.Kind.DATA, true, false, 0, request.length, stream);
                stranger.send(to, together(data, request));
                check(send(request("/echo?bytes=5000")).get().getContent(), 5000);
            }
            for (int round = 0; round < 20; round++) {
                check(send(request("/echo?bytes=500000")).get().getContent(), 500_000);
                Thread.sleep(50);
            }
            long grown = residentKib() - before;
            assertTrue(grown < 400 << 10, "50 answers of 50 MB wait in " + grown + " KiB");
        }
    }

    private static ByteBuffer together(Frame frame, byte[] bytes) {
        ByteBuffer both = ByteBuffer.allocate(Frame.BYTES + bytes.length);
        frame.putInto(both);
        return both.put(bytes).flip();
    }

    private static long residentKib() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IOException("no VmRSS in /proc/self/status");
    }

    @Test
    void aClientThatVanishesInMidFileLeavesNothing() throws Exception {
        connector.setIdleTimeout(2000);
        try (ServiceTransport vanishing = new ServiceTransport()) {
            HttpClient another = new HttpClient();
            another.start();
            CompletableFuture<Void> came = new CompletableFuture<>();
            another.newRequest("http://" + name + "/echo?bytes=500000000")
                    .transport(vanishing.to(ServiceId.of(name)))
                    .headers(headers -> headers.put("X-Long", "x"))
                    .onResponseContent((response, content) -> {
                        came.complete(null);
                        response.abort(new IOException("on purpose"));
                    })
                    .send(result -> {});
            came.get(60, TimeUnit.SECONDS);
            another.stop();
        }
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!connector.getConnectedEndPoints().isEmpty()) {
            assertTrue(System.nanoTime() < deadline, connector.getConnectedEndPoints().toString());
            Thread.sleep(50);
        }
        check(send(request("/echo?bytes=50000")).get().getContent(), 50_000);
    }

    @Test
    void whatIsWrongIsTold() throws Exception {
        Server second = new Server();
        second.addConnector(new ServiceConnector(second, name));
        Exception taken = assertThrows(Exception.class, second::start);
        assertTrue(taken.toString().contains(name), taken.toString());
        second.stop();
        Service impatient = Service.registerAny();
        impatient.setResolveTimeout(Duration.ofMillis(500));
        ExecutionException unknown;
        try (ServiceTransport impatiently = new ServiceTransport(impatient)) {
            unknown = assertThrows(ExecutionException.class, () -> client.newRequest("http://no-such-service/")
                    .transport(impatiently.to(ServiceId.of("no-such-service-" + name)))
                    .send());
        }
        assertNotNull(unknown.getCause().getMessage());
        assertFalse(unknown.getCause().getMessage().isEmpty());
        String text = new String(request("/echo?bytes=x").send().getContent(), StandardCharsets.UTF_8);
        assertTrue(text.contains("500"), text);
    }
}
