package org.cci;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * One thread closes what others use at any moment: these get exceptions of what is closed, and end. Neither a JVM that crashes nor an
 * exception of another kind is an answer.
 */
class CloseRacesTest {
    private static final int ROUNDS = 25;
    /** How often a buffer is closed that others use. */
    private static final int TRIES_MAX = 1_000_000;

    private static final Duration SHORT = Duration.ofMillis(5);
    /** How long the use goes on before the close, by rounds: 0 to so many steps. */
    private static final long STEP_NS = 50_000;

    /** A use of what another thread closes. */
    private interface Use {
        void once() throws InterruptedException;
    }

    private static void once(Use use) throws InterruptedException {
        try {
            use.once();
        } catch (PeerException e) {
            // The other side ends, too, or nobody answers.
        } catch (SystemException e) {
            if (e.status() != Status.NO_BUFFERS) {
                throw e;
            }
        }
    }

    /** Uses something by several threads until it is closed, as often as there are rounds. */
    private static void race(boolean virtual, int round, AutoCloseable closed, List<Use> uses) throws Exception {
        ThreadFactory factory = virtual ? Thread.ofVirtual().factory() : Thread.ofPlatform().factory();
        Queue<Throwable> wrong = new ConcurrentLinkedQueue<>();
        CountDownLatch begun = new CountDownLatch(uses.size());
        CountDownLatch ended = new CountDownLatch(uses.size());
        AtomicBoolean isClosed = new AtomicBoolean();
        for (Use use : uses) {
            factory.newThread(() -> {
                begun.countDown();
                try {
                    begun.await();
                    // Once more behind the close, at least.
                    for (boolean last = false; !last; ) {
                        last = isClosed.get();
                        once(use);
                        // Virtual threads that only yield would keep those that others wake from their turns.
                        LockSupport.parkNanos(1);
                    }
                } catch (IllegalStateException e) {
                    // It is closed.
                } catch (Throwable e) {
                    wrong.add(e);
                } finally {
                    ended.countDown();
                }
            }).start();
        }
        assertTrue(begun.await(60, TimeUnit.SECONDS));
        long until = System.nanoTime() + round * STEP_NS;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
        try {
            for (int tries = 0; ; tries++) {
                try {
                    closed.close();
                    break;
                } catch (IllegalStateException inUse) {
                    // A buffer says so, while a call names it or reads it.
                    assertTrue(tries < TRIES_MAX, inUse.toString());
                }
            }
        } finally {
            // Threads that went on would keep those of later tests from their turns.
            isClosed.set(true);
        }
        assertTrue(ended.await(60, TimeUnit.SECONDS), "every thread ends");
        wrong.forEach(Throwable::printStackTrace);
        assertEquals(List.of(), List.copyOf(wrong));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aService(boolean virtual) throws Exception {
        String name = "races-" + ProcessHandle.current().pid();
        for (int round = 0; round < ROUNDS; round++) {
            try (Service other = Service.register(name);
                    ServiceBuffer buffer = ServiceBuffer.allocate(100_000)) {
                Service closed = Service.registerAny();
                ServiceId to = ServiceId.of(name);
                race(virtual, round, closed, List.of(
                        () -> closed.send(to, ByteBuffer.allocate(100)),
                        () -> closed.sendLong(to, buffer.item(0, 50_000)),
                        () -> closed.offerWindow(10_000),
                        () -> closed.receive(SHORT),
                        () -> closed.receiveAsync(SHORT).cancel(false),
                        () -> closed.callAsync(to, ServiceContent.of(ByteBuffer.allocate(9)), SHORT).cancel(false),
                        () -> closed.call(to, SHORT, ByteBuffer.allocate(9)),
                        () -> {
                            try (ServiceMessage message = other.receive(Duration.ZERO)) {
                                closed.shortItemBytesMax(to);
                                closed.transport(to);
                            }
                        }));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aServiceBuffer(boolean virtual) throws Exception {
        String name = "buffer-races-" + ProcessHandle.current().pid();
        try (Service one = Service.registerAny();
                Service two = Service.register(name)) {
            two.offerWindow(100_000);
            ServiceId to = ServiceId.of(name);
            for (int round = 0; round < ROUNDS; round++) {
                ServiceBuffer closed = ServiceBuffer.allocate(100_000);
                race(virtual, round, closed, List.of(
                        () -> one.sendLong(to, closed.item(0, 1000)),
                        () -> one.callAsync(
                                        to, ServiceContent.of(ByteBuffer.allocate(8)).withLongItems(closed.item()), SHORT)
                                .cancel(false),
                        () -> closed.segment().set(ValueLayout.JAVA_LONG, 8, 7),
                        () -> closed.segment().fill((byte) 3),
                        () -> closed.segment().asByteBuffer().get(99_999)));
                for (ServiceMessage left = two.receive(Duration.ZERO); left != null; left = two.receive(Duration.ZERO)) {
                    left.close();
                }
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aMessenger(boolean virtual) throws Exception {
        try (Context context = Context.open()) {
            for (int round = 0; round < ROUNDS; round++) {
                EndpointOptions options = EndpointOptions.DEFAULTS.progressThread(true);
                Messenger closed = context.device("shm").openMessenger(options, MessengerLimits.DEFAULTS);
                try (Messenger server = context.device("shm").openMessenger(options, MessengerLimits.DEFAULTS)) {
                    var connecting = closed.connectAsync(server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE);
                    if (server.await(Pair.PATIENCE) instanceof MessengerEvent.Requested requested) {
                        requested.request().accept();
                    }
                    MessengerConnection connection = connecting.get(60, TimeUnit.SECONDS);
                    ByteBuffer bytes = ByteBuffer.allocateDirect(200_000);
                    List<Use> uses = new ArrayList<>(List.of(
                            () -> connection.trySend(ByteBuffer.allocate(100), 1),
                            () -> connection.sendAsync(bytes.duplicate()),
                            () -> connection.callAsync(ByteBuffer.allocate(9), SHORT).cancel(false),
                            () -> connection.call(ByteBuffer.allocate(9), SHORT),
                            () -> connection.send(bytes.duplicate(), SHORT),
                            connection::explain,
                            closed::poll,
                            () -> closed.await(SHORT),
                            closed::counters));
                    uses.add(() -> {
                        if (server.poll() instanceof MessengerEvent.Asked asked) {
                            asked.request().tryReply(ByteBuffer.allocate(50));
                        }
                        closed.counters();
                    });
                    race(virtual, round, closed, uses);
                }
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anEndpointWithItsMemory(boolean virtual) throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            try (Pair pair = Pair.connected("shm", EndpointOptions.DEFAULTS.progressThread(true), Attribute.RELIABLE_ORDERED)) {
                Region target = pair.server.allocate(100_000).register(Access.READ, Access.WRITE, Access.ATOMIC);
                Memory memory = pair.client.allocate(100_000);
                Region local = memory.register();
                RemoteMemory remote = pair.toServer.remoteMemory();
                Transfer transfer = Transfer.of(local, 0, target.handle(), 0, 100_000);
                race(virtual, round, pair.client, List.of(
                        () -> remote.tryWrite(transfer),
                        () -> remote.readAsync(transfer),
                        () -> remote.atomicAsync(Atomic.fetchAdd(1), target.handle(), 0),
                        () -> pair.client.poll(16, (connection, message) -> {}),
                        () -> memory.segment().set(ValueLayout.JAVA_LONG, 0, 1),
                        () -> pair.client.allocate(5000).register(Access.READ).close(),
                        () -> pair.toServer.send(ByteBuffer.allocate(8), SHORT),
                        pair.toServer::sendTimeout));
            }
        }
    }
}
