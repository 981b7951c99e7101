package org.cci;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Who peers are, what they may do, and those that take nothing. */
class PeersTest {
    @TempDir
    private Path folder;

    private Credentials keys(String file, String... lines) throws Exception {
        var mine = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));
        Path path = Files.createFile(folder.resolve(file), mine);
        Files.write(path, List.of(lines));
        return Credentials.ofKeys(path);
    }

    private static String key() {
        byte[] key = new byte[32];
        new SecureRandom().nextBytes(key);
        return HexFormat.of().formatHex(key);
    }

    @ParameterizedTest
    @ValueSource(strings = {"udp-lo", "tcp-lo"})
    void keysSayWhoAPeerIs(String device) throws Exception {
        String first = "node1 = " + key();
        String second = "node2 = " + key();
        EndpointOptions of = EndpointOptions.DEFAULTS;
        Credentials known = keys("server", first, second).allowingConnections("node1").allowingRemoteMemory("*", "node2");
        try (Context context = Context.open();
                Endpoint server = context.device(device).open(of.credentials(known).progressThread(true));
                Endpoint friend = context.device(device).open(of.credentials(keys("one", first)));
                Endpoint other = context.device(device).open(of.credentials(keys("two", second)));
                Endpoint stranger = context.device(device).open(of)) {
            var opening = friend.connectAsync(
                    server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            Event[] requested = new Event[1];
            Pair.until("a request", () -> requested[0] != null, () -> {
                friend.poll();
                requested[0] = server.poll();
            });
            var accepting = assertInstanceOf(Event.Requested.class, requested[0]).request().acceptAsync();
            Pair.until("a connection", () -> opening.isDone() && accepting.isDone(), friend::poll);
            assertEquals("node1", accepting.get().peerNames());
            assertTrue(opening.get().trySend(ByteBuffer.wrap(new byte[] {1})));
            Event[] received = new Event[1];
            Pair.until("a message", () -> received[0] != null, () -> {
                friend.poll();
                received[0] = server.poll();
            });
            assertInstanceOf(Event.Received.class, received[0]).message().close();
            // It may read, and not write.
            Region region = server.allocate(64).register(Access.READ, Access.WRITE);
            Region local = friend.allocate(64).register();
            Transfer transfer = Transfer.of(local, 0, region.handle(), 0, 8);
            var reading = opening.get().remoteMemory().readAsync(transfer);
            var writing = opening.get().remoteMemory().writeAsync(transfer);
            Pair.until("both", () -> reading.isDone() && writing.isDone(), friend::poll);
            reading.get();
            assertTrue(writing.isCompletedExceptionally());
            for (Endpoint refused : new Endpoint[] {other, stranger}) {
                assertThrows(
                        PeerException.class,
                        () -> refused.connect(
                                server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Duration.ofMillis(500)));
            }
        }
    }

    @Test
    void credentialsThatCanNotBeHadAreRefused() throws Exception {
        Credentials wrong = keys("wrong", "no key at all");
        try (Context context = Context.open()) {
            for (Credentials bad : new Credentials[] {
                wrong,
                Credentials.ofKeys(folder.resolve("nowhere")),
                Credentials.ofCertificate(folder.resolve("a"), folder.resolve("b"), folder.resolve("c"))
            }) {
                EndpointOptions options = EndpointOptions.DEFAULTS.credentials(bad);
                var failure =
                        assertThrows(RuntimeException.class, () -> context.device("udp-lo").open(options));
                assertTrue(failure instanceof IllegalArgumentException || failure instanceof SystemException);
                assertTrue(failure.getMessage().length() > "opening an endpoint: ".length(), failure.getMessage());
            }
            EndpointOptions options = EndpointOptions.DEFAULTS.credentials(keys("good", "me = " + key()));
            assertThrows(IllegalArgumentException.class, () -> context.device("shm").open(options));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "tcp-lo"})
    void aReceiverThatTakesNothingIsTold(String device) {
        EndpointOptions few =
                EndpointOptions.DEFAULTS.receiveBuffers(16).sendTimeout(Duration.ofMillis(300)).progressThread(true);
        try (Context context = Context.open();
                Endpoint server = context.device(device).open(few);
                Endpoint client = context.device(device).open(few.progressThread(false))) {
            var opening =
                    client.connectAsync(server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            Event[] requested = new Event[1];
            Pair.until("a request", () -> requested[0] != null, () -> {
                client.poll();
                requested[0] = server.poll();
            });
            ((Event.Requested) requested[0]).request().accept();
            Pair.until("a connection", opening::isDone, client::poll);
            Connection toServer = opening.join();
            // The progress thread takes them off the network, and the program takes none.
            for (int i = 0; i < 100; i++) {
                assertTrue(toServer.trySend(ByteBuffer.allocate(8), i));
            }
            int[] ends = new int[2];
            Pair.until("all ends", () -> ends[0] + ends[1] == 100, () -> {
                if (client.poll() instanceof Event.Sent sent) {
                    assertEquals(ends[0] + ends[1], sent.context(), "in order");
                    boolean delivered = sent.status() == Status.SUCCESS;
                    assertTrue(delivered || sent.status() == Status.RECEIVER_NOT_READY, sent.toString());
                    ends[delivered ? 0 : 1]++;
                }
            });
            assertTrue(ends[0] >= 16 && ends[1] > 0, ends[0] + " delivered, " + ends[1] + " not");
        }
    }

    @Test
    void multicastReachesTheMembersOfAGroup() {
        try (Pair pair = new Pair("udp-lo")) {
            String group = "udp://239.77.1.9:" + (20_000 + ProcessHandle.current().pid() % 20_000);
            Connection member =
                    pair.server.startConnecting(group, Attribute.MULTICAST_RECEIVE, Pair.NOTHING, Pair.PATIENCE);
            Connection speaker =
                    pair.client.startConnecting(group, Attribute.MULTICAST_SEND, Pair.NOTHING, Pair.PATIENCE);
            pair.until("both", () -> member.isOpen() && speaker.isOpen());
            pair.until("a message", () -> {
                speaker.trySend(ByteBuffer.wrap(new byte[] {6}));
                return !pair.atServer.isEmpty();
            });
            assertArrayEquals(new byte[] {6}, pair.atServer.get(0));
        }
        try (Pair pair = new Pair("tcp-lo")) {
            assertThrows(
                    RuntimeException.class,
                    () -> pair.client.startConnecting(
                            "udp://239.77.1.9:5000", Attribute.MULTICAST_SEND, Pair.NOTHING, Pair.PATIENCE));
        }
    }
}
