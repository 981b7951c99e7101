package org.cci;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.cci.examples.BoardClient;
import org.cci.examples.BoardServer;
import org.cci.examples.EchoClient;
import org.cci.examples.EchoServer;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Programs in JVMs of their own: the examples, and a peer that is killed. */
class ProcessesTest {
    /** A program that needs the library, and nothing else. */
    static final class Opens {
        private Opens() {}

        public static void main(String[] arguments) {
            Context.open().close();
            System.out.println("opened");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void theEchoExamplesWork(String device) throws Exception {
        try (Program server = Program.start(EchoServer.class, device);
                Program client = Program.start(EchoClient.class, server.line(), "one", "two words", "")) {
            assertEquals("one\ntwo words\n", client.rest());
            assertEquals(0, client.process.exitValue());
            server.process.getOutputStream().close();
            assertEquals("", server.rest());
            assertEquals(0, server.process.exitValue());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "tcp-lo"})
    void theRemoteMemoryExamplesWork(String device) throws Exception {
        try (Program server = Program.start(BoardServer.class, device);
                Program client = Program.start(BoardClient.class, server.line(), "first", "second")) {
            assertEquals("first\nsecond", client.rest());
            server.process.getOutputStream().close();
            assertEquals("0 of 1: first\n1 of 2: second", server.rest().lines().sorted().reduce("", (a, b) -> a.isEmpty() ? b : a + "\n" + b)
                    .replace("0 of 2", "0 of 1"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void aPeerThatIsKilledInTheMiddleIsTold(String device) throws Exception {
        EndpointOptions impatient = EndpointOptions.DEFAULTS.sendTimeout(Duration.ofSeconds(5));
        try (Program server = Program.start(EchoServer.class, device);
                Context context = Context.open();
                Endpoint client = context.device(device).open(impatient)) {
            Connection connection =
                    client.connect(server.line(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
            int started = 0;
            int ended = 0;
            int failed = 0;
            int echoed = 0;
            Event.Disconnected disconnected = null;
            long deadline = System.nanoTime() + Pair.PATIENCE.toNanos();
            ByteBuffer message = ByteBuffer.allocateDirect(500);
            while (disconnected == null || ended < started) {
                assertTrue(System.nanoTime() < deadline, "each send ends, and the end of the connection is reported");
                try {
                    if (connection.isOpen() && started - ended < 100 && connection.trySend(message.clear(), started)) {
                        started++;
                    }
                } catch (PeerException e) {
                    // The library knows before the event is taken.
                    assertEquals(Status.DISCONNECTED, e.status());
                }
                Event event = client.poll();
                if (event instanceof Event.Sent sent) {
                    assertEquals(connection, sent.connection());
                    ended++;
                    failed += sent.status() == Status.SUCCESS ? 0 : 1;
                } else if (event instanceof Event.Received received) {
                    received.message().close();
                    echoed++;
                } else if (event instanceof Event.Disconnected last) {
                    disconnected = last;
                } else {
                    assertNull(event);
                }
                if (echoed == 200) {
                    server.process.destroyForcibly();
                }
            }
            assertEquals(connection, disconnected.connection());
            assertTrue(disconnected.reason() != DisconnectReason.REFUSED, disconnected.toString());
            assertTrue(echoed >= 200 && started >= 200, "echoed " + echoed + ", failed " + failed);
            assertThrows(PeerException.class, () -> connection.trySend(message));
            assertEquals(0, client.connectionCount());
        }
    }

    @Test
    void aMissingOrWrongLibraryIsNamed() throws Exception {
        Path home = Path.of(System.getProperty("java.home"));
        String access = "--enable-native-access=ALL-UNNAMED";
        try (Program program = Program.start(home, List.of(access, "-Dcci.library=/no/such/libcci.so"), Opens.class)) {
            String text = program.rest();
            assertTrue(text.contains("no native CCI library at /no/such/libcci.so"), text);
        }
        Path text = Files.createTempFile("cci", ".so");
        try (Program program = Program.start(home, List.of(access, "-Dcci.library=" + text), Opens.class)) {
            String says = program.rest();
            assertTrue(says.contains("the system does not load " + text), says);
        } finally {
            Files.delete(text);
        }
        try (Program program = Program.start(home, List.of(access, "-Dos.arch=pdp11"), Opens.class)) {
            String says = program.rest();
            assertTrue(says.contains("no native CCI library for linux-pdp11 in the jar"), says);
        }
        try (Program program = Program.start(home, List.of("--illegal-native-access=deny"), Opens.class)) {
            String says = program.rest();
            Assumptions.assumeFalse(says.contains("Unrecognized option"), "this Java has no such option");
            assertTrue(says.contains("start it with --enable-native-access=ALL-UNNAMED"), says);
        }
    }

    @Test
    void anOldJavaIsToldWhichOneIsNeeded() throws Exception {
        Path old = Path.of("/usr/lib/jvm/java-17-openjdk-amd64");
        Assumptions.assumeTrue(Files.isExecutable(old.resolve("bin/java")), "there is no Java 17 at " + old);
        try (Program program = Program.start(old, List.of(), Opens.class)) {
            String says = program.rest();
            assertTrue(says.contains("CCI needs Java 22 or newer") && says.contains("this is Java 17"), says);
        }
    }

    @Test
    void anEndpointOfTheDefaultDeviceReachesAll() throws Exception {
        try (Context context = Context.open();
                Endpoint any = context.openEndpoint(EndpointOptions.DEFAULTS)) {
            for (String device : List.of("shm", "udp-lo", "tcp-lo")) {
                try (Endpoint server =
                        context.device(device).open(EndpointOptions.DEFAULTS.progressThread(true))) {
                    var opening = any.connectAsync(
                            server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
                    Event[] requested = new Event[1];
                    Pair.until("a request", () -> requested[0] != null, () -> {
                        any.poll();
                        requested[0] = server.poll();
                    });
                    assertInstanceOf(Event.Requested.class, requested[0]).request().accept();
                    Pair.until("a connection", opening::isDone, any::poll);
                    assertTrue(opening.get().isOpen());
                }
            }
        }
    }
}
