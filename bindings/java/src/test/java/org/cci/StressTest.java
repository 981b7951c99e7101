package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Threads that use everything while it is closed under them. They get exceptions of the kinds that are documented; the JVM lives.
 */
class StressTest {
    private static final int ROUNDS = 12;

    private interface Use {
        void once() throws Exception;
    }

    private final ConcurrentLinkedQueue<Throwable> unexpected = new ConcurrentLinkedQueue<>();
    private final AtomicLong used = new AtomicLong();

    /** Uses something until it is closed. */
    private Thread start(List<Thread> threads, Use use) {
        Thread thread = Thread.ofPlatform().start(() -> {
            try {
                while (true) {
                    use.once();
                    used.incrementAndGet();
                }
            } catch (IllegalStateException | PeerException | WrongThreadException e) {
                // That is how it is to end.
            } catch (Throwable e) {
                unexpected.add(e);
            }
        });
        threads.add(thread);
        return thread;
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "tcp-lo"})
    void whatIsUsedIsClosed(String device) throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            Pair pair = Pair.connected(device);
            Connection toServer = pair.toServer;
            ConcurrentLinkedQueue<Message> kept = new ConcurrentLinkedQueue<>();
            Memory memory = pair.server.allocate(1 << 16);
            RegionHandle handle = memory.register(Access.READ, Access.WRITE, Access.ATOMIC).handle();
            Arena arena = Arena.ofShared();
            MemorySegment own = arena.allocate(1 << 16, 4096);
            Region local = pair.client.register(own, arena);
            List<Thread> threads = new ArrayList<>();
            ByteBuffer bytes = ByteBuffer.allocateDirect(64);
            start(threads, () -> toServer.trySend(bytes.duplicate()));
            start(threads, () -> toServer.remoteMemory()
                    .tryWrite(Transfer.of(local, 0, handle, 0, 1 << 16), 1));
            start(threads, () -> toServer.remoteMemory().atomicAsync(Atomic.fetchAdd(1), handle, 8));
            start(threads, () -> pair.client.poll(16, (connection, message) -> {}));
            start(threads, () -> pair.server.poll(16, (connection, message) -> {
                MemorySegment view = message.segment();
                assertTrue(view.byteSize() == 64 && view.get(JAVA_LONG.withByteAlignment(1), 0) == 0);
                if (kept.size() < 10) {
                    Message owned = message.keep();
                    owned.segment();
                    owned.close();
                }
            }));
            start(threads, () -> {
                if (pair.server.await(Duration.ofMillis(1)) instanceof Event.Received received) {
                    kept.add(received.message());
                }
            });
            start(threads, () -> {
                Message message = kept.poll();
                if (message != null) {
                    assertTrue(message.getLong(0) == 0);
                    message.close();
                }
                memory.segment().get(JAVA_LONG, 0);
            });
            start(threads, () -> own.set(JAVA_LONG, 0, 1));
            Thread.sleep(ThreadLocalRandom.current().nextInt(5, 30));
            switch (round % 4) {
                case 0 -> pair.server.close();
                case 1 -> pair.client.close();
                case 2 -> arena.close();
                default -> toServer.close();
            }
            Thread.sleep(1);
            pair.close();
            if (arena.scope().isAlive()) {
                arena.close();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        unexpected.forEach(Throwable::printStackTrace);
        assertTrue(unexpected.isEmpty(), unexpected.toString());
        assertTrue(used.get() > ROUNDS, "used " + used);
    }
}
