package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.cci.examples.FileClient;
import org.cci.examples.FileServer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Services: in this process, and in others that are killed. */
class ServicesTest {
    private static ByteBuffer text(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    private static String text(ServiceMessage message, int index) {
        return StandardCharsets.UTF_8.decode(message.item(index)).toString();
    }

    private static ServiceMessage next(Service service) throws InterruptedException {
        ServiceMessage message = service.receive(Pair.PATIENCE);
        assertNotNull(message, "a message came in time");
        return message;
    }

    /** A name that no other run of the tests uses. */
    private static String name(String what) {
        return what + "-" + ProcessHandle.current().pid();
    }

    @Test
    void shortItemsComeWholeAndInOrder() throws Exception {
        try (Service one = Service.registerAny();
                Service two = Service.register(name("two"))) {
            assertEquals(name("two"), two.id().name());
            assertEquals(two.id(), ServiceId.of(name("two")));
            assertNull(one.transport(two.id()));
            for (int round = 0; round < 100; round++) {
                one.send(two.id(), text("round"), text(""), text("" + round));
            }
            assertEquals("shm", one.transport(two.id()));
            // A heap buffer, a native one, and a part of one.
            one.send(two.id(), ByteBuffer.allocateDirect(2000).position(1999), ByteBuffer.wrap(new byte[10], 3, 4).slice());
            one.send(two.id());
            for (int round = 0; round < 100; round++) {
                try (ServiceMessage message = next(two)) {
                    assertEquals(one.id(), message.from());
                    assertEquals(3, message.itemCount());
                    assertEquals("round", text(message, 0));
                    assertEquals("", text(message, 1));
                    assertEquals("" + round, text(message, 2));
                    assertEquals(0, message.longItemCount());
                    assertTrue(message.isComplete());
                    two.send(message.from(), message.item(2));
                }
            }
            try (ServiceMessage last = next(two)) {
                assertEquals(1, last.item(0).remaining());
                assertEquals(4, last.item(1).remaining());
                assertThrows(IndexOutOfBoundsException.class, () -> last.item(2));
            }
            try (ServiceMessage empty = next(two)) {
                assertEquals(0, empty.itemCount());
            }
            assertNull(two.receive(Duration.ZERO));
            for (int round = 0; round < 100; round++) {
                try (ServiceMessage message = next(one)) {
                    assertEquals("" + round, text(message, 0));
                }
            }
        }
    }

    @Test
    void longItemsComeIntoWindows() throws Exception {
        try (Service one = Service.registerAny();
                Service two = Service.registerAny();
                ServiceBuffer window = ServiceBuffer.allocate(100_000)) {
            two.offerWindow(window.item(1000, 50_000));
            two.offerWindow(70_000);
            ServiceBuffer source = ServiceBuffer.allocate(120_000);
            for (int at = 0; at < 120_000; at++) {
                source.segment().set(JAVA_BYTE, at, (byte) (at * 7));
            }
            one.sendLong(two.id(), source.item(0, 50_000), source.item(50_000, 70_000));
            // The library keeps the memory until it was fetched.
            source.close();
            ServiceItem second;
            try (ServiceMessage message = next(two)) {
                assertTrue(message.isComplete());
                assertEquals(2, message.longItemCount());
                ServiceItem first = message.longItem(0);
                assertSame(window, first.buffer());
                assertEquals(1000, first.offset());
                assertEquals(50_000, first.length());
                second = message.longItem(1);
                assertEquals(70_000, second.length());
                for (int at = 0; at < 50_000; at += 99) {
                    assertEquals((byte) (at * 7), first.segment().get(JAVA_BYTE, at));
                    assertEquals((byte) ((at + 50_000) * 7), second.bytes().get(at));
                }
            }
            assertThrows(IllegalStateException.class, () -> second.segment().get(JAVA_BYTE, 0));
            assertEquals((byte) (7 * 7), window.segment().get(JAVA_BYTE, 1007));
        }
    }

    @Test
    void filesAreFetchedFromWhereTheyAre(@TempDir Path folder) throws Exception {
        byte[] bytes = new byte[300_000];
        new Random(5).nextBytes(bytes);
        Path path = Files.write(folder.resolve("file"), bytes);
        try (Service one = Service.registerAny();
                Service two = Service.registerAny();
                ServiceBuffer window = ServiceBuffer.allocate(bytes.length)) {
            ServiceBuffer file = ServiceBuffer.ofFile(path);
            assertEquals(bytes.length, file.segment().byteSize());
            assertTrue(file.segment().isReadOnly());
            assertEquals(bytes[77], file.segment().get(JAVA_BYTE, 77));
            assertThrows(IllegalArgumentException.class, () -> two.offerWindow(file.item()));
            assertThrows(IllegalArgumentException.class, () -> one.send(two.id(), List.of(file.item()), text("x")));
            assertThrows(IllegalArgumentException.class, () -> ServiceContent.EMPTY.withReturnBuffers(file.item()));
            assertThrows(IndexOutOfBoundsException.class, () -> file.item(1, bytes.length));
            two.offerWindow(window.item());
            one.sendLong(two.id(), file.item(1000, 200_000));
            try (ServiceMessage message = next(two)) {
                assertTrue(message.isComplete());
                assertEquals(-1, window.segment().asSlice(0, 200_000).mismatch(MemorySegment.ofArray(bytes).asSlice(1000, 200_000)));
            }
            // Closed at once, and the name is gone.
            two.offerWindow(window.item());
            one.sendLong(two.id(), file.item());
            file.close();
            Files.delete(path);
            try (ServiceMessage message = next(two)) {
                assertTrue(message.isComplete());
                assertEquals(-1, window.segment().mismatch(MemorySegment.ofArray(bytes)));
            }
            assertThrows(IllegalStateException.class, () -> one.sendLong(two.id(), file.item()));
        }
    }

    @Test
    void aFileThatBecomesShorterIsMissedAndNoCrash(@TempDir Path folder) throws Exception {
        Path path = Files.write(folder.resolve("file"), new byte[300_000]);
        try (Service one = Service.registerAny();
                Service two = Service.registerAny();
                ServiceBuffer window = ServiceBuffer.allocate(300_000);
                ServiceBuffer file = ServiceBuffer.ofFile(path)) {
            try (FileChannel shorter = FileChannel.open(path, StandardOpenOption.WRITE)) {
                shorter.truncate(5000);
            }
            two.offerWindow(window.item());
            one.sendLong(two.id(), file.item());
            try (ServiceMessage message = next(two)) {
                assertFalse(message.isComplete());
            }
            one.sendLong(two.id(), file.item(0, 5000));
            try (ServiceMessage message = next(two)) {
                assertTrue(message.isComplete());
            }
            assertThrows(InternalError.class, () -> file.segment().get(JAVA_BYTE, 250_000));
            byte[] to = new byte[300_000];
            assertThrows(InternalError.class, () -> MemorySegment.copy(file.segment(), JAVA_BYTE, 0, to, 0, to.length));
        }
        assertThrows(IOException.class, () -> ServiceBuffer.ofFile(folder.resolve("none")));
        assertThrows(IOException.class, () -> ServiceBuffer.ofFile(folder));
        assertThrows(IOException.class, () -> ServiceBuffer.ofFile(Path.of("/dev/zero")));
        assertThrows(IOException.class, () -> ServiceBuffer.ofFile(Files.createFile(folder.resolve("empty"))));
    }

    @Test
    void anItemWithoutAWindowIsMissed() throws Exception {
        try (Service one = Service.registerAny();
                Service two = Service.registerAny();
                ServiceBuffer source = ServiceBuffer.allocate(10_000)) {
            two.offerWindow(100);
            one.sendLong(two.id(), source.item(0, 100), source.item());
            try (ServiceMessage message = next(two)) {
                assertEquals(2, message.longItemCount());
                assertNotNull(message.longItem(0));
                assertNull(message.longItem(1));
            }
        }
    }

    @Test
    void longItemsComeIntoReturnBuffers() throws Exception {
        try (Service one = Service.registerAny();
                Service two = Service.registerAny();
                ServiceBuffer mine = ServiceBuffer.allocate(1 << 20);
                ServiceBuffer source = ServiceBuffer.allocate(4096)) {
            one.send(two.id(), List.of(mine.item(8192, 4096)), text("fill it"));
            try (ServiceMessage message = next(two)) {
                source.segment().set(JAVA_LONG, 0, 42);
                two.sendLong(message.from(), source.item());
            }
            try (ServiceMessage message = next(one)) {
                assertSame(mine, message.longItem(0).buffer());
                assertEquals(8192, message.longItem(0).offset());
                assertEquals(42, mine.segment().get(JAVA_LONG, 8192));
            }
        }
    }

    @Test
    void membersOfAGroupHearEachOther() throws Exception {
        int number = 40_000 + (int) (ProcessHandle.current().pid() % 10_000);
        try (Service member = Service.joinGroup(number)) {
            assertEquals(number, member.id().number());
            try (ServiceBuffer buffer = ServiceBuffer.allocate(10)) {
                assertThrows(PeerException.class, () -> member.sendLong(member.id(), buffer.item()));
            }
        }
    }

    @Test
    void whatIsWrongIsToldAndChangesNothing() throws Exception {
        Service one = Service.register(name("one"));
        try (Service two = Service.registerAny()) {
            assertThrows(SystemException.class, () -> Service.register(name("one")));
            assertThrows(SystemException.class, () -> Service.register("no such name!"));
            assertThrows(IllegalArgumentException.class, () -> ServiceId.of("no such name!"));
            assertThrows(IllegalArgumentException.class, () -> Service.register(65_535));
            assertThrows(IllegalArgumentException.class, () -> new ServiceId(-1));
            ByteBuffer[] ten = new ByteBuffer[10];
            java.util.Arrays.fill(ten, text("x"));
            assertThrows(IllegalArgumentException.class, () -> one.send(two.id(), ten));
            assertThrows(IllegalArgumentException.class, () -> one.send(two.id(), ByteBuffer.allocate(2001)));
            assertThrows(IllegalArgumentException.class, () -> one.sendLong(two.id()));
            assertThrows(IllegalArgumentException.class, () -> ServiceBuffer.allocate(0));
            assertThrows(IllegalArgumentException.class, () -> one.offerWindow(0));
            ServiceBuffer buffer = ServiceBuffer.allocate(10);
            assertThrows(IndexOutOfBoundsException.class, () -> buffer.item(5, 6));
            assertThrows(IllegalArgumentException.class, () -> one.sendLong(two.id(), buffer.item(0, 0)));
            ServiceItem item = buffer.item();
            buffer.close();
            buffer.close();
            assertThrows(IllegalStateException.class, () -> one.sendLong(two.id(), item));
            assertThrows(IllegalStateException.class, () -> one.send(two.id(), List.of(item), text("x")));
            assertThrows(IllegalStateException.class, () -> one.offerWindow(item));
            assertNull(two.receive(Duration.ZERO), "nothing was sent");
            one.close();
            one.close();
            assertThrows(IllegalStateException.class, () -> one.send(two.id(), text("x")));
            assertThrows(IllegalStateException.class, () -> one.receive(Duration.ZERO));
        }
        // The name is free again.
        Service.register(name("one")).close();
    }

    @Test
    void waitsEndByTimeByInterruptsAndByTheEnd() throws Exception {
        Service service = Service.registerAny();
        assertNull(service.receive(Duration.ofMillis(30)));
        for (boolean isVirtual : new boolean[] {false, true}) {
            CompletableFuture<Throwable> ended = new CompletableFuture<>();
            Runnable waits = () -> ended.complete(assertThrows(Exception.class, () -> service.receive(Pair.PATIENCE)));
            Thread thread = isVirtual ? Thread.startVirtualThread(waits) : Thread.ofPlatform().start(waits);
            thread.interrupt();
            assertTrue(ended.get(60, TimeUnit.SECONDS) instanceof InterruptedException);
        }
        CompletableFuture<ServiceMessage> cancelled = service.receiveAsync(Duration.ofMillis(50));
        assertNull(cancelled.get(60, TimeUnit.SECONDS));
        CompletableFuture<ServiceMessage> waiting = service.receiveAsync(Pair.PATIENCE);
        service.close();
        ExecutionException failure =
                assertThrows(ExecutionException.class, () -> waiting.get(60, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof IllegalStateException, failure.toString());
    }

    @Test
    void manyThreadsSendAndReceive() throws Exception {
        try (Service service = Service.registerAny()) {
            CompletableFuture<?>[] clients = new CompletableFuture<?>[4];
            for (int at = 0; at < clients.length; at++) {
                String from = "client " + at;
                clients[at] = CompletableFuture.runAsync(() -> {
                    try (Service client = Service.registerAny()) {
                        for (int round = 0; round < 200; round++) {
                            client.send(service.id(), text(from + " " + round));
                            try (ServiceMessage answer = next(client)) {
                                assertEquals(from + " " + round, text(answer, 0));
                            }
                        }
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                });
            }
            CompletableFuture<Void> all = CompletableFuture.allOf(clients);
            while (!all.isDone()) {
                try (ServiceMessage message = service.receive(Duration.ofMillis(10))) {
                    if (message != null) {
                        service.send(message.from(), message.item(0));
                    }
                }
            }
            all.get();
        }
    }

    @Test
    void aFileComesThoughItsServerIsKilled(@TempDir Path folder) throws Exception {
        byte[] content = new byte[100 << 20];
        new Random(5).nextBytes(content);
        Files.write(folder.resolve("big"), content);
        Path copy = folder.resolve("copy");
        String name = name("files");
        try (Program server = Program.start(FileServer.class, name, folder.toString())) {
            assertTrue(server.line().startsWith("serving "));
            try (Program client = Program.start(FileClient.class, name, "big", copy.toString())) {
                String line = client.line();
                assertTrue(line != null && line.endsWith(" bytes"), line);
                server.close();
                try (Program another = Program.start(FileServer.class, name, folder.toString())) {
                    assertTrue(another.line().startsWith("serving "));
                    String rest = client.rest();
                    assertTrue(rest.endsWith("fetched " + content.length + " bytes"), rest);
                    assertEquals(0, client.process.exitValue());
                }
            }
        }
        assertArrayEquals(content, Files.readAllBytes(copy));
    }

    @Test
    void aServerGivesFilesOfItsFolderOnly(@TempDir Path folder) throws Exception {
        String name = name("folder");
        Files.write(folder.resolve("empty"), new byte[0]);
        try (Program server = Program.start(FileServer.class, name, folder.toString())) {
            assertTrue(server.line().startsWith("serving "));
            for (String file : List.of("missing", "../../../../../../etc/passwd", "")) {
                try (Program client = Program.start(FileClient.class, name, file, folder.resolve("copy").toString())) {
                    String says = client.rest();
                    assertTrue(says.contains("there is no file"), says);
                }
            }
            try (Program client = Program.start(FileClient.class, name, "empty", folder.resolve("copy").toString())) {
                assertEquals("fetched 0 bytes", client.rest());
            }
            server.process.getOutputStream().close();
            assertEquals("", server.rest());
            assertEquals(0, server.process.exitValue());
        }
    }
}
