package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What is closed, by whom and when; threads of both kinds; and what is left behind, which is nothing. */
class LifeTest {
    private static final EndpointOptions THREAD = EndpointOptions.DEFAULTS.progressThread(true);

    @Test
    void whatIsClosedIsRefused() {
        Pair pair = Pair.connected("shm");
        assertTrue(pair.toServer.trySend(ByteBuffer.allocate(64)));
        Message[] kept = new Message[1];
        Pair.until("a message", () -> kept[0] != null, () -> {
            pair.server.poll(1, (connection, message) -> kept[0] = message.keep());
            pair.client.poll();
        });
        MemorySegment view = kept[0].segment();
        Memory memory = pair.server.allocate(100);
        Region region = memory.register(Access.READ);
        MemorySegment bytes = memory.segment();
        Connection pending = pair.client.startConnecting(
                pair.server.uri(), Attribute.UNRELIABLE, Pair.NOTHING, Pair.PATIENCE);
        Event.Requested[] requested = new Event.Requested[1];
        Pair.until("a request", () -> requested[0] != null, () -> {
            if (pair.server.poll() instanceof Event.Requested found) {
                requested[0] = found;
            }
            pair.client.poll();
        });
        pair.server.close();
        pair.server.close();
        assertThrows(IllegalStateException.class, pair.server::poll);
        assertThrows(IllegalStateException.class, () -> pair.server.poll(1, (connection, message) -> {}));
        assertThrows(IllegalStateException.class, () -> pair.server.await(Duration.ofSeconds(1)));
        assertThrows(IllegalStateException.class, pair.server::counters);
        assertThrows(IllegalStateException.class, () -> pair.server.allocate(8));
        assertThrows(IllegalStateException.class, () -> pair.toClient.trySend(ByteBuffer.allocate(1)));
        assertThrows(IllegalStateException.class, () -> pair.toClient.sendAsync(ByteBuffer.allocate(1)));
        assertThrows(IllegalStateException.class, pair.toClient::explain);
        assertThrows(IllegalStateException.class, () -> kept[0].getByte(0));
        assertThrows(IllegalStateException.class, () -> view.get(JAVA_BYTE, 0));
        assertThrows(IllegalStateException.class, () -> bytes.get(JAVA_BYTE, 0));
        assertThrows(IllegalStateException.class, memory::register);
        assertThrows(IllegalStateException.class, () -> requested[0].request().accept());
        assertEquals("endpoint " + pair.server.uri(), pair.server.toString());
        region.close();
        memory.close();
        kept[0].close();
        requested[0].request().close();
        pair.toClient.close();
        pending.close();
        pair.context.close();
        pair.context.close();
        assertThrows(IllegalStateException.class, pair.context::devices);
        assertThrows(IllegalStateException.class, pair.client::poll);
        assertThrows(IllegalStateException.class, () -> pair.client.device().open(EndpointOptions.DEFAULTS));
    }

    @Test
    void aViewOfAnotherThreadOutlivesTheEndpoint() throws Exception {
        Pair pair = Pair.connected("shm");
        assertTrue(pair.toServer.trySend(ByteBuffer.wrap(new byte[] {9})));
        Message[] kept = new Message[1];
        Pair.until("a message", () -> kept[0] != null, () -> {
            pair.server.poll(1, (connection, message) -> kept[0] = message.keep());
            pair.client.poll();
        });
        MemorySegment view = kept[0].segment();
        CompletableFuture.runAsync(() -> {
                    assertThrows(WrongThreadException.class, kept[0]::segment);
                    assertThrows(WrongThreadException.class, kept[0]::close);
                    assertThrows(WrongThreadException.class, () -> view.get(JAVA_BYTE, 0));
                    assertEquals(9, kept[0].getByte(0), "without a view any thread reads");
                    pair.close();
                })
                .get();
        assertThrows(IllegalStateException.class, () -> kept[0].getByte(0));
        assertEquals(9, view.get(JAVA_BYTE, 0), "the library keeps it for this thread");
        kept[0].close();
        assertThrows(IllegalStateException.class, () -> view.get(JAVA_BYTE, 0));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void closingEndsWaits(boolean virtual) throws Exception {
        try (Context context = Context.open()) {
            Endpoint endpoint = context.device("shm").open(EndpointOptions.DEFAULTS);
            List<Thread> threads = new ArrayList<>();
            AtomicInteger refused = new AtomicInteger();
            for (int i = 0; i < 4; i++) {
                Runnable waits = () -> assertThrows(IllegalStateException.class, () -> {
                    try {
                        endpoint.await(Pair.PATIENCE);
                    } finally {
                        refused.incrementAndGet();
                    }
                });
                threads.add(virtual ? Thread.startVirtualThread(waits) : Thread.ofPlatform().start(waits));
            }
            assertNull(endpoint.await(Duration.ofMillis(50)));
            endpoint.close();
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(4, refused.get());
        }
    }

    @Test
    void aWaitIsInterrupted() throws Exception {
        try (Context context = Context.open();
                Endpoint endpoint = context.device("shm").open(EndpointOptions.DEFAULTS)) {
            for (boolean virtual : new boolean[] {true, false}) {
                AtomicReference<Object> outcome = new AtomicReference<>();
                Runnable waits = () -> {
                    try {
                        outcome.set(endpoint.await(Pair.PATIENCE));
                    } catch (Exception e) {
                        outcome.set(e);
                    }
                };
                Thread thread = virtual ? Thread.ofVirtual().start(waits) : Thread.ofPlatform().start(waits);
                thread.interrupt();
                thread.join();
                assertInstanceOf(InterruptedException.class, outcome.get());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void manyThreadsUseOneConnection(boolean progressThread) throws Exception {
        int threads = 50;
        int each = 40;
        EndpointOptions options = EndpointOptions.DEFAULTS.progressThread(progressThread);
        try (Context context = Context.open();
                Endpoint server = context.device("shm").open(THREAD);
                Endpoint client = context.device("shm").open(options)) {
            // Virtual threads, of which each waits for the end of its sends: they don't keep one another from it.
            var opening = CompletableFuture.supplyAsync(() -> {
                try {
                    return client.connect(server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            assertInstanceOf(Event.Requested.class, server.await(Pair.PATIENCE)).request().accept();
            Connection connection = opening.get();
            assertInstanceOf(Event.Accepted.class, server.await(Pair.PATIENCE));
            try (var executor = Executors.newVirtualThreadPerTaskExecutor()) {
                List<CompletableFuture<?>> all = new ArrayList<>();
                for (int i = 0; i < threads; i++) {
                    all.add(CompletableFuture.runAsync(
                            () -> {
                                try {
                                    for (int j = 0; j < each; j++) {
                                        connection.send(ByteBuffer.allocate(32), Pair.PATIENCE);
                                    }
                                } catch (InterruptedException e) {
                                    throw new IllegalStateException(e);
                                }
                            },
                            executor));
                }
                for (int i = 0; i < threads * each; i++) {
                    assertInstanceOf(Event.Received.class, server.await(Pair.PATIENCE)).message().close();
                }
                CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get();
            }
            assertNull(server.poll());
        }
    }

    @Test
    void aCallbackOfAFutureMayCloseTheEndpoint() throws Exception {
        try (Context context = Context.open()) {
            Endpoint client = context.device("shm").open(THREAD);
            CompletableFuture<?> closed = client.connectAsync(
                            "shm://nobody-at-all", Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE)
                    .handle((connection, failure) -> {
                        client.close();
                        return null;
                    });
            closed.get();
            assertThrows(IllegalStateException.class, client::poll);
        }
    }

    @Test
    void futuresEndWithTheirEndpoint() {
        Pair pair = Pair.connected("shm");
        Region target = pair.server.allocate(4096).register(Access.READ);
        Region local = pair.client.allocate(4096).register();
        var opening = pair.client.connectAsync(
                pair.server.uri(), Attribute.UNRELIABLE, Pair.NOTHING, Pair.PATIENCE);
        List<CompletableFuture<?>> all = new ArrayList<>(List.of(opening));
        for (int i = 0; i < 50; i++) {
            all.add(pair.toServer.sendAsync(ByteBuffer.allocate(100)));
            all.add(pair.toServer.remoteMemory().readAsync(Transfer.of(local, 0, target.handle(), 0, 100)));
        }
        pair.client.close();
        all.forEach(future -> assertTrue(future.isDone()));
        assertTrue(opening.isCompletedExceptionally());
        pair.close();
    }

    @Test
    void anExceptionOfAHandlerLosesNothing() {
        try (Pair pair = Pair.connected("shm")) {
            assertTrue(pair.toServer.trySend(ByteBuffer.wrap(new byte[] {1})));
            assertTrue(pair.toServer.trySend(ByteBuffer.wrap(new byte[] {2})));
            List<Byte> seen = new ArrayList<>();
            EventHandler failing = (connection, message) -> {
                seen.add(message.getByte(0));
                if (seen.size() == 1) {
                    // What a handler does may itself take events.
                    pair.server.poll(0, (inner, none) -> {});
                    throw new UnsupportedOperationException("on purpose");
                }
            };
            AtomicInteger thrown = new AtomicInteger();
            Pair.until("both", () -> seen.size() == 2, () -> {
                try {
                    pair.server.poll(10, failing);
                } catch (UnsupportedOperationException e) {
                    thrown.incrementAndGet();
                }
                pair.client.poll();
            });
            assertEquals(List.of((byte) 1, (byte) 2), seen);
            assertEquals(1, thrown.get());
        }
    }

    @Test
    void tenThousandCyclesLeaveNothing() throws Exception {
        try (Pair pair = Pair.connected("shm")) {
            EventHandler none = (connection, message) -> message.keep().close();
            long held = 0;
            long descriptors = 0;
            for (int i = 0; i < 10_000; i++) {
                Memory memory = pair.server.allocate(4096);
                memory.register(Access.READ).close();
                memory.close();
                assertTrue(pair.toServer.trySend(ByteBuffer.allocate(100), 1));
                int[] seen = new int[1];
                Pair.until(
                        "a message",
                        () -> seen[0] == 1 && !pair.sentByClient.isEmpty(),
                        () -> {
                            seen[0] += pair.server.poll(1, none);
                            pair.turn();
                            seen[0] += pair.atServer.size();
                            pair.atServer.clear();
                        });
                pair.sentByClient.clear();
                if (i % 10 == 0) {
                    Connection first = pair.toServer;
                    pair.connect(Attribute.RELIABLE_ORDERED);
                    first.close();
                    pair.until("the end", () -> !pair.otherAtServer.isEmpty());
                    assertInstanceOf(Event.Disconnected.class, pair.otherAtServer.remove());
                }
                if (i == 1000) {
                    held = pair.server.memoryUsedBytes() + pair.client.memoryUsedBytes();
                    descriptors = descriptors();
                }
            }
            assertEquals(1, pair.client.connectionCount());
            assertEquals(1, pair.server.connectionCount());
            assertEquals(held, pair.server.memoryUsedBytes() + pair.client.memoryUsedBytes());
            assertTrue(descriptors() <= descriptors + 2, "descriptors: " + descriptors + ", then " + descriptors());
        }
    }

    @Test
    void endpointsLeaveNothing() throws Exception {
        long before = 0;
        for (int i = 0; i < 60; i++) {
            Pair.connected(i % 2 == 0 ? "shm" : "tcp-lo").close();
            if (i == 10) {
                before = descriptors();
            }
        }
        assertTrue(descriptors() <= before + 2, "descriptors: " + before + ", then " + descriptors());
        try (var files = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
            assertFalse(
                    // What else has such a name is somebody's own.
                    files.anyMatch(file -> file.getFileName().toString().matches("libcci-\\d+\\.so")),
                    "the library's copy is deleted as soon as it is loaded");
        }
    }

    private static long descriptors() throws Exception {
        try (var all = Files.list(Path.of("/proc/self/fd"))) {
            return all.count();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void messagesAllocateNothing(String device) {
        var bean = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        int warmUp = 20_000;
        int count = 100_000;
        int batch = 10_000;
        try (Pair pair = Pair.connected(device)) {
            int[] echoed = new int[1];
            EventHandler echo = (connection, message) -> assertTrue(connection.trySend(message));
            EventHandler counts = (connection, message) -> echoed[0] += message.getInt(0);
            ByteBuffer buffer = ByteBuffer.allocateDirect(8).order(java.nio.ByteOrder.nativeOrder());
            buffer.putInt(0, 1);
            long before = 0;
            long atBatch = 0;
            long least = Long.MAX_VALUE;
            for (int i = 0; i <= warmUp + count; i++) {
                if (i >= warmUp && i % batch == 0) {
                    long now = bean.getCurrentThreadAllocatedBytes();
                    if (i == warmUp) {
                        before = now;
                    } else {
                        least = Math.min(least, now - atBatch);
                    }
                    atBatch = bean.getCurrentThreadAllocatedBytes();
                }
                buffer.clear();
                assertTrue(pair.toServer.trySend(buffer));
                while (echoed[0] <= i) {
                    pair.server.poll(16, echo);
                    pair.client.poll(16, counts);
                }
            }
            long allocated = bean.getCurrentThreadAllocatedBytes() - before;
            System.out.println(device + ": " + allocated + " bytes allocated for " + count + " messages there and back");
            // What the compiler leaves behind when it replaces code is once, not for each message.
            assertTrue(allocated < count / 10, allocated + " bytes allocated");
            assertEquals(0, least, "bytes that " + batch + " messages have allocated at the least");
        }
    }
}
