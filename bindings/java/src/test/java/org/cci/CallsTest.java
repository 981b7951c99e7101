package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.cci.examples.KeyValueClient;
import org.cci.examples.KeyValueServer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Calls of services: in this process, in others that are killed, and of those in Rust. */
class CallsTest {
    private final String name = "calls-" + ProcessHandle.current().pid();

    private static ByteBuffer text(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    private static String text(ServiceMessage message, int index) {
        return StandardCharsets.UTF_8.decode(message.item(index)).toString();
    }

    /** The next request, in a message that has no memory of the library's. */
    private static ServiceMessage asked(Service service, String what) throws InterruptedException {
        ServiceMessage message = service.receiveRequest(Pair.PATIENCE);
        assertNotNull(message, "a request came in time");
        assertNotNull(message.request());
        assertEquals(what, text(message, 0));
        return message;
    }

    private static CallException failure(CompletableFuture<?> call) {
        ExecutionException failure = assertThrows(ExecutionException.class, () -> call.get(60, TimeUnit.SECONDS));
        return assertInstanceOf(CallException.class, failure.getCause());
    }

    private static CompletableFuture<ServiceMessage> begin(Service from, Service to, String what) {
        return from.callAsync(to.id(), ServiceContent.of(text(what)), Pair.PATIENCE);
    }

    @Test
    void answersComeInAnyOrderAndOnce() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny()) {
            var one = begin(client, server, "one");
            var two = begin(client, server, "two");
            var three = begin(client, server, "three");
            ServiceMessage first = asked(server, "one");
            assertEquals(client.id(), first.from());
            ServiceRequest later = first.request();
            first.close();
            asked(server, "two").request().answer(text("answer"), text("two"));
            ServiceRequest refused = asked(server, "three").request();
            refused.refuse("I will not");
            try (ServiceMessage answer = two.get(60, TimeUnit.SECONDS)) {
                assertEquals(2, answer.itemCount());
                assertEquals("two", text(answer, 1));
                assertNull(answer.request());
            }
            CallException end = failure(three);
            assertEquals(CallException.End.REFUSED, end.end());
            assertEquals(Status.REFUSED, end.status());
            assertArrayEquals("I will not".getBytes(StandardCharsets.UTF_8), end.details());
            assertTrue(end.getMessage().contains("I will not"), end.getMessage());
            assertFalse(one.isDone());
            later.answer();
            try (ServiceMessage answer = one.get(60, TimeUnit.SECONDS)) {
                assertEquals(0, answer.itemCount());
            }
            assertThrows(PeerException.class, later::answer);
            assertThrows(PeerException.class, () -> refused.refuse("again"));
            // Messages come by the same way, and want no answer.
            client.send(server.id(), text("a message"));
            try (ServiceMessage message = server.receiveRequest(Pair.PATIENCE)) {
                assertNull(message.request());
            }
            assertNull(server.receiveRequest(Duration.ZERO));
        }
    }

    @Test
    void callsWithoutAnAnswerTellHowTheyEnded() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny()) {
            Duration soon = Duration.ofMillis(50);
            var silent = client.callAsync(server.id(), ServiceContent.of(text("silence")), Duration.ofSeconds(2));
            ServiceRequest request = asked(server, "silence").request();
            assertEquals(CallException.End.TIMED_OUT, failure(silent).end());
            assertNotNull(request);
            CallException nobody = assertThrows(
                    CallException.class, () -> client.call(ServiceId.of("nobody-" + name), soon, text("x")));
            assertEquals(CallException.End.NOT_REACHED, nobody.end());
            assertEquals(Status.NOT_FOUND, nobody.status());
            // Who receives messages only takes no calls.
            CompletableFuture<ServiceMessage> deaf = begin(client, server, "x");
            while (!deaf.isDone()) {
                assertNull(server.receive(Duration.ofMillis(10)));
            }
            assertEquals(CallException.End.REFUSED, failure(deaf).end());
        }
    }

    @Test
    void whatIsWrongIsToldAndBeginsNothing() throws Exception {
        Service client = Service.registerAny();
        try (Service server = Service.register(name);
                Service group = Service.joinGroup(50_000 + (int) (ProcessHandle.current().pid() % 10_000));
                ServiceBuffer buffer = ServiceBuffer.allocate(10)) {
            ServiceId to = server.id();
            assertThrows(IllegalArgumentException.class, () -> client.call(to, Duration.ZERO, text("x")));
            assertThrows(IllegalArgumentException.class, () -> ServiceContent.of(ByteBuffer.allocate(2001)));
            assertThrows(IllegalArgumentException.class, () -> ServiceContent.EMPTY.withLongItems(buffer.item(0, 0)));
            ServiceItem[] many = new ServiceItem[33];
            java.util.Arrays.fill(many, buffer.item());
            assertThrows(IllegalArgumentException.class, () -> ServiceContent.EMPTY.withReturnBuffers(many));
            assertThrows(IllegalStateException.class, () -> group.call(to, Pair.PATIENCE, text("x")));
            ServiceContent closed = ServiceContent.EMPTY.withLongItems(buffer.item());
            buffer.close();
            assertThrows(IllegalStateException.class, () -> client.call(to, closed, Pair.PATIENCE));
            List<CompletableFuture<ServiceMessage>> calls = new ArrayList<>();
            SystemException full = assertThrows(SystemException.class, () -> {
                for (int at = 0; at < 300; at++) {
                    calls.add(begin(client, server, "one of many"));
                }
            });
            assertEquals(Status.NO_BUFFERS, full.status());
            assertEquals(256, calls.size());
            client.close();
            for (CompletableFuture<ServiceMessage> call : calls) {
                assertThrows(ExecutionException.class, () -> call.get(60, TimeUnit.SECONDS));
            }
            assertThrows(IllegalStateException.class, () -> client.call(to, Pair.PATIENCE, text("x")));
        }
    }

    @Test
    void longItemsComeWithoutACopy() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny();
                ServiceBuffer mine = ServiceBuffer.allocate(1 << 20);
                ServiceBuffer theirs = ServiceBuffer.allocate(1 << 20)) {
            mine.segment().fill((byte) 7);
            server.offerWindow(theirs.item());
            ServiceBuffer into = ServiceBuffer.allocate(2 << 20);
            ServiceContent content = ServiceContent.of(text("store"))
                    .withLongItems(mine.item())
                    .withReturnBuffers(into.item(4096, 1 << 20));
            var call = client.callAsync(server.id(), content, Pair.PATIENCE);
            try (ServiceMessage message = asked(server, "store")) {
                assertSame(theirs, message.longItem(0).buffer());
                assertEquals(7, theirs.segment().get(JAVA_BYTE, (1 << 20) - 1));
                theirs.segment().fill((byte) 9);
                message.request().answer(ServiceContent.of(text("back")).withLongItems(theirs.item()));
            }
            try (ServiceMessage answer = call.get(60, TimeUnit.SECONDS)) {
                assertSame(into, answer.longItem(0).buffer());
                assertEquals(4096, answer.longItem(0).offset());
                assertEquals(9, into.segment().get(JAVA_BYTE, 4096 + (1 << 20) - 1));
            }
            into.close();
            // Without a place for them, the items of an answer are not fetched.
            var lost = begin(client, server, "give");
            asked(server, "give").request().answer(ServiceContent.EMPTY.withLongItems(mine.item()));
            assertEquals(CallException.End.NOT_FETCHED, failure(lost).end());
            var missed = client.callAsync(
                    server.id(), ServiceContent.of(text("store")).withLongItems(mine.item()), Pair.PATIENCE);
            try (ServiceMessage message = asked(server, "store")) {
                assertFalse(message.isComplete());
                message.request().answer();
            }
            missed.get(60, TimeUnit.SECONDS).close();
        }
    }

    @Test
    void aCallThatNobodyWaitsForGivesItsPlaceBack() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny()) {
            for (int round = 0; round < 300; round++) {
                var call = begin(client, server, "cancelled");
                call.cancel(true);
                asked(server, "cancelled").request().answer();
                if (round % 50 == 49) {
                    // The answers are taken by now, or else calls would soon be too many.
                    try (ServiceMessage answer = answered(client, server)) {
                        assertEquals(0, answer.itemCount());
                    }
                }
            }
            Thread waiting = Thread.ofPlatform().start(() -> assertThrows(
                    InterruptedException.class, () -> client.call(server.id(), Pair.PATIENCE, text("interrupted"))));
            ServiceRequest interrupted = asked(server, "interrupted").request();
            waiting.interrupt();
            assertTrue(waiting.join(Pair.PATIENCE));
            interrupted.answer();
            answered(client, server).close();
        }
    }

    private static ServiceMessage answered(Service client, Service server) throws Exception {
        var call = begin(client, server, "answered");
        asked(server, "answered").request().answer();
        return call.get(60, TimeUnit.SECONDS);
    }

    @Test
    void manyThreadsCall() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny()) {
            CompletableFuture<?>[] clients = new CompletableFuture<?>[4];
            for (int at = 0; at < clients.length; at++) {
                String from = "client " + at;
                boolean isVirtual = at % 2 == 0;
                CompletableFuture<Void> done = new CompletableFuture<>();
                clients[at] = done;
                Runnable calls = () -> {
                    try {
                        for (int round = 0; round < 100; round++) {
                            String what = from + " " + round;
                            try (ServiceMessage answer = client.call(server.id(), Pair.PATIENCE, text(what))) {
                                assertEquals(what, text(answer, 0));
                            }
                        }
                        done.complete(null);
                    } catch (Throwable e) {
                        done.completeExceptionally(e);
                    }
                };
                if (isVirtual) {
                    Thread.startVirtualThread(calls);
                } else {
                    Thread.ofPlatform().start(calls);
                }
            }
            CompletableFuture<Void> all = CompletableFuture.allOf(clients);
            while (!all.isDone()) {
                try (ServiceMessage message = server.receiveRequest(Duration.ofMillis(10))) {
                    if (message != null) {
                        message.request().answer(message.item(0));
                    }
                }
            }
            all.get();
        }
    }

    /** A service that says that it has a request, and answers those that are no {@code silence}. */
    static final class Life {
        public static void main(String[] arguments) throws Exception {
            try (Service service = Service.register(arguments[0])) {
                System.out.println("ready");
                while (true) {
                    try (ServiceMessage message = service.receiveRequest(Pair.PATIENCE)) {
                        System.out.println(text(message, 0));
                        if (arguments[1].equals("answers")) {
                            message.request().answer(message.item(0));
                        }
                    }
                }
            }
        }
    }

    @Test
    void aCallGoesToTheNextLifeOfAServiceUnlessItIsForOneOnly() throws Exception {
        ServiceId to = ServiceId.of(name);
        try (Service client = Service.registerAny()) {
            CompletableFuture<Throwable> once = new CompletableFuture<>();
            CompletableFuture<ServiceMessage> again;
            try (Program first = Program.start(Life.class, name, "is silent")) {
                assertEquals("ready", first.line());
                again = client.callAsync(to, ServiceContent.of(text("again")), Pair.PATIENCE);
                assertEquals("again", first.line());
                Thread.startVirtualThread(() -> once.complete(assertThrows(
                        CallException.class, () -> client.callOnce(to, ServiceContent.of(text("once")), Pair.PATIENCE))));
                assertEquals("once", first.line());
            }
            assertEquals(CallException.End.LOST, ((CallException) once.get(60, TimeUnit.SECONDS)).end());
            try (Program second = Program.start(Life.class, name, "answers")) {
                assertEquals("ready", second.line());
                assertEquals("again", second.line());
                try (ServiceMessage answer = again.get(60, TimeUnit.SECONDS)) {
                    assertEquals("again", text(answer, 0));
                }
            }
        }
    }

    @Test
    void clientsOfAKeyValueServiceGoOnThoughItIsKilledAndStartedElsewhere(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("table");
        int keys = 1000;
        Program server = Program.start(KeyValueServer.class, name, file.toString());
        assertEquals("serving 0 keys", server.line());
        try (Program client = Program.start(KeyValueClient.class, name, "" + keys)) {
            for (int life = 0; life < 3; life++) {
                String line = client.line();
                assertTrue(line.startsWith("put "), line);
                server.close();
                server = Program.start(KeyValueServer.class, name, file.toString());
                String says = server.line();
                assertTrue(says.matches("serving [0-9]+ keys"), says);
                assertTrue(Integer.parseInt(says.split(" ")[1]) >= Integer.parseInt(line.substring(4)), says);
            }
            String rest = client.rest();
            assertTrue(rest.endsWith("all " + keys + " are there"), rest);
            assertEquals(0, client.process.exitValue());
        } finally {
            server.close();
        }
    }

    /** {@code cci files} is in Rust. */
    @Test
    void aServiceInRustIsCalled(@TempDir Path folder) throws Exception {
        Path command = Path.of(System.getProperty("cci.command"));
        assumeTrue(Files.isExecutable(command), "cargo xtask test java builds the command cci");
        byte[] content = Pair.pattern(3, 100_000);
        Files.write(folder.resolve("file"), content);
        Process server = new ProcessBuilder(command.toString(), "files", folder.toString(), "--name", name)
                .redirectErrorStream(true)
                .start();
        try (Service client = Service.registerAny();
                ServiceBuffer into = ServiceBuffer.allocate(200_000)) {
            ServiceId to = ServiceId.of(name);
            try (ServiceMessage about = client.call(to, Pair.PATIENCE, text("about"), text("file"))) {
                assertEquals(content.length, about.item(0).order(ByteOrder.LITTLE_ENDIAN).getLong());
            }
            ByteBuffer offset = ByteBuffer.allocate(8);
            ByteBuffer length = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, 1 << 20);
            ServiceContent read = ServiceContent.of(text("read"), text("file"), offset, length)
                    .withReturnBuffers(into.item());
            try (ServiceMessage part = client.call(to, read, Pair.PATIENCE)) {
                assertArrayEquals(content, part.longItem(0).segment().toArray(JAVA_BYTE));
            }
            CallException refused = assertThrows(
                    CallException.class, () -> client.call(to, Pair.PATIENCE, text("about"), text("missing")));
            assertEquals(CallException.End.REFUSED, refused.end());
            assertTrue(refused.getMessage().contains("missing"), refused.getMessage());
        } finally {
            server.destroyForcibly().onExit().join();
        }
    }
}
