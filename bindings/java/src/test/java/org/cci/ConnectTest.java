package org.cci;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How connections begin and end. */
class ConnectTest {
    private static final EndpointOptions THREAD = EndpointOptions.DEFAULTS.progressThread(true);

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void aRequestIsRejected(String device) {
        try (Pair pair = new Pair(device)) {
            byte[] payload = Pair.pattern(3, 1000);
            Connection refused =
                    pair.client.startConnecting(pair.server.uri(), Attribute.UNRELIABLE, payload, Pair.PATIENCE);
            assertThrows(IllegalStateException.class, () -> refused.trySend(ByteBuffer.allocate(1)), "not open yet");
            pair.until("a request", () -> !pair.otherAtServer.isEmpty());
            ConnectionRequest request = ((Event.Requested) pair.otherAtServer.remove()).request();
            assertArrayEquals(payload, request.payload());
            assertEquals(Attribute.UNRELIABLE, request.attribute());
            request.reject();
            assertThrows(IllegalStateException.class, request::accept);
            pair.until("an end", () -> !pair.otherAtClient.isEmpty());
            var failed = assertInstanceOf(Event.ConnectFailed.class, pair.otherAtClient.remove());
            assertEquals(refused, failed.connection());
            assertEquals(Status.CONNECTION_REFUSED, failed.status());
            assertFalse(refused.isOpen());
            assertEquals(0, pair.client.connectionCount());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm://nobody-listens-here", "tcp://127.0.0.1:9"})
    void nobodyListens(String uri) {
        String device = uri.startsWith("shm") ? "shm" : "tcp-lo";
        try (Pair pair = new Pair(device)) {
            PeerException failure = assertThrows(
                    PeerException.class,
                    () -> pair.client.connect(uri, Attribute.RELIABLE_ORDERED, Pair.NOTHING, Duration.ofSeconds(30)));
            assertEquals(Status.CONNECTION_REFUSED, failure.status());
            assertTrue(failure.getMessage().contains(uri), failure.getMessage());
        }
    }

    @Test
    void anAttemptEndsInTime() {
        try (Pair pair = new Pair("udp-lo")) {
            // The server does not answer, as nobody makes it progress.
            PeerException failure = assertThrows(
                    PeerException.class,
                    () -> pair.client.connect(
                            pair.server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Duration.ofMillis(100)));
            assertEquals(Status.TIMED_OUT, failure.status());
        }
    }

    @Test
    void wrongArgumentsAreTheCallers() {
        try (Pair pair = new Pair("shm")) {
            for (String uri : new String[] {"", "udp://127.0.0.1:1", "nonsense"}) {
                assertThrows(
                        IllegalArgumentException.class,
                        () -> pair.client.startConnecting(uri, Attribute.UNRELIABLE, Pair.NOTHING, null));
            }
            assertThrows(
                    IllegalArgumentException.class,
                    () -> pair.client.startConnecting(
                            pair.server.uri(), Attribute.UNRELIABLE, new byte[1025], Duration.ZERO));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> pair.client.startConnecting(
                            pair.server.uri(), Attribute.UNRELIABLE, Pair.NOTHING, Duration.ofSeconds(-1)));
            assertThrows(
                    NullPointerException.class,
                    () -> pair.client.startConnecting(null, Attribute.UNRELIABLE, Pair.NOTHING, null));
            assertEquals(0, pair.client.connectionCount());
            assertThrows(IllegalArgumentException.class, () -> pair.context.device("carrier-pigeon"));
            assertThrows(
                    SystemException.class,
                    () -> pair.context.device("shm").open(EndpointOptions.DEFAULTS.service(serviceOf(pair.server.uri()))),
                    "somebody listens there");
            assertThrows(
                    IllegalArgumentException.class,
                    () -> pair.context.device("tcp-lo").open(EndpointOptions.DEFAULTS.service("no port")));
        }
    }

    private static String serviceOf(String uri) {
        return uri.substring(uri.indexOf("://") + 3);
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void futuresOpenAndSend(String device) throws Exception {
        try (Context context = Context.open();
                Endpoint server = context.device(device).open(THREAD);
                Endpoint client = context.device(device).open(THREAD)) {
            CompletableFuture<Connection> connecting =
                    client.connectAsync(server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            var requested = assertInstanceOf(Event.Requested.class, server.await(Pair.PATIENCE));
            Connection toClient = requested.request().acceptAsync().get(60, TimeUnit.SECONDS);
            Connection toServer = connecting.get(60, TimeUnit.SECONDS);
            CompletableFuture<?>[] sends = new CompletableFuture<?>[100];
            for (int i = 0; i < sends.length; i++) {
                sends[i] = toServer.sendAsync(ByteBuffer.allocate(4).putInt(0, i));
            }
            CompletableFuture.allOf(sends).get(60, TimeUnit.SECONDS);
            for (int i = 0; i < sends.length; i++) {
                var received = assertInstanceOf(Event.Received.class, server.await(Pair.PATIENCE));
                assertEquals(toClient, received.connection());
                try (Message message = received.message()) {
                    assertEquals(Integer.reverseBytes(i), message.getInt(0));
                }
            }
            toClient.send(ByteBuffer.allocate(5), Pair.PATIENCE);
            assertInstanceOf(Event.Received.class, client.await(Pair.PATIENCE));
        }
    }

    @Test
    void aFutureFailsWithTheReason() {
        try (Context context = Context.open();
                Endpoint client = context.device("shm").open(THREAD)) {
            var connecting = client.connectAsync(
                    "shm://nobody-here-either", Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            ExecutionException failure =
                    assertThrows(ExecutionException.class, () -> connecting.get(60, TimeUnit.SECONDS));
            assertEquals(
                    Status.CONNECTION_REFUSED,
                    assertInstanceOf(PeerException.class, failure.getCause()).status());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void theEndOfAConnectionIsTold(String device) {
        try (Pair pair = Pair.connected(device)) {
            assertTrue(pair.toClient.trySend(ByteBuffer.wrap(new byte[] {1})));
            pair.toClient.close();
            pair.until("the end", () -> !pair.otherAtClient.isEmpty());
            assertEquals(1, pair.atClient.size(), "what was sent before is delivered");
            assertEquals(
                    new Event.Disconnected(pair.toServer, DisconnectReason.CLOSED), pair.otherAtClient.remove());
            PeerException failure =
                    assertThrows(PeerException.class, () -> pair.toServer.trySend(ByteBuffer.allocate(1)));
            assertEquals(Status.DISCONNECTED, failure.status());
            assertThrows(IllegalStateException.class, () -> pair.toClient.trySend(ByteBuffer.allocate(1)));
            pair.toServer.close();
            pair.toClient.close();
            assertEquals(0, pair.client.connectionCount());
        }
    }

    @Test
    void aRequestIsAcceptedOnAnotherEndpoint() {
        try (Pair pair = new Pair("shm");
                Endpoint worker = pair.context.device("shm").open(EndpointOptions.DEFAULTS)) {
            Connection toWorker = pair.client.startConnecting(
                    pair.server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            pair.until("a request", () -> !pair.otherAtServer.isEmpty());
            Connection ofWorker =
                    ((Event.Requested) pair.otherAtServer.remove()).request().acceptOn(worker);
            Event[] accepted = new Event[1];
            pair.until("an open connection", () -> {
                accepted[0] = accepted[0] == null ? worker.poll() : accepted[0];
                return accepted[0] != null && !pair.otherAtClient.isEmpty();
            });
            assertEquals(new Event.Accepted(ofWorker), accepted[0]);
            assertEquals(worker, ofWorker.endpoint());
            assertTrue(toWorker.isOpen());
        }
    }

    @Test
    void optionsAreSetAndShown() {
        EndpointOptions options = EndpointOptions.DEFAULTS
                .service("java-options-test")
                .receiveBuffers(64)
                .sendBuffers(128)
                .operations(32)
                .sendTimeout(Duration.ofSeconds(3))
                .keepalive(Duration.ofSeconds(2))
                .memoryCap(64 << 20);
        try (Context context = Context.open();
                Endpoint endpoint = context.device("shm").open(options)) {
            assertTrue(endpoint.uri().contains("java-options-test"), endpoint.uri());
            assertEquals(64 << 20, endpoint.memoryCapBytes());
            assertTrue(endpoint.memoryUsedBytes() > 0);
            assertTrue(endpoint.counters().contains("messages_sent"));
            assertEquals("shm", endpoint.device().transport());
        }
        try (Pair pair = Pair.connected("udp-lo")) {
            pair.toServer.setSendTimeout(Duration.ofSeconds(4));
            pair.toServer.setKeepalive(Duration.ofMillis(50));
            assertTrue(pair.toServer.explain().contains("udp"));
            assertTrue(pair.toServer.counters().startsWith("{"));
            assertEquals(
                    Status.NOT_FOUND, assertThrows(SystemException.class, () -> pair.toServer.peerNames()).status());
            assertThrows(IllegalArgumentException.class, () -> pair.toServer.setSendTimeout(Duration.ZERO));
            assertThrows(IllegalArgumentException.class, () -> EndpointOptions.DEFAULTS.receiveBuffers(0));
            // The server is silent: nobody makes it progress.
            Event[] silent = new Event[1];
            Pair.until("silence", () -> silent[0] != null, () -> silent[0] = pair.client.poll());
            assertEquals(new Event.Silent(pair.toServer), silent[0]);
            assertTrue(pair.toServer.isOpen());
        }
        assertEquals("udp://127.0.0.1:7811", Context.resolve("udp://localhost:7811"));
        assertThrows(IllegalArgumentException.class, () -> Context.resolve("what is this"));
    }
}
