package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Messages of any length, and calls. */
class MessengerTest {
    private static final EndpointOptions THREAD = EndpointOptions.DEFAULTS.progressThread(true);
    private static final MessengerLimits SHORT = new MessengerLimits(64 << 10, 0, 0, 0);

    /** Two messengers with progress threads, and a connection between them. */
    private static final class Sides implements AutoCloseable {
        final Context context = Context.open();
        final Messenger server;
        final Messenger client;
        final MessengerConnection toServer;
        final MessengerConnection toClient;

        Sides(String device) throws Exception {
            server = context.device(device).openMessenger(THREAD, SHORT);
            client = context.device(device).openMessenger(THREAD, SHORT);
            var opening =
                    client.connectAsync(server.uri(), Attribute.RELIABLE_ORDERED, new byte[] {4}, Pair.PATIENCE);
            var requested = next(MessengerEvent.Requested.class);
            assertArrayEquals(new byte[] {4}, requested.request().payload());
            toClient = requested.request().acceptAsync().get(60, TimeUnit.SECONDS);
            toServer = opening.get(60, TimeUnit.SECONDS);
        }

        /** The server's next event. */
        <T extends MessengerEvent> T next(Class<T> type) throws Exception {
            return assertInstanceOf(type, server.await(Pair.PATIENCE));
        }

        @Override
        public void close() {
            context.close();
        }
    }

    private static Status failure(CompletableFuture<?> future) {
        CompletionException failure = assertThrows(
                CompletionException.class, () -> future.orTimeout(60, TimeUnit.SECONDS).join());
        return assertInstanceOf(CciException.class, failure.getCause()).status();
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void messagesOfAnyLengthArrive(String device) throws Exception {
        try (Sides sides = new Sides(device)) {
            for (int length : new int[] {0, 1, 5000, 64 << 10, 3 << 20}) {
                byte[] sent = Pair.pattern(length, length);
                ByteBuffer buffer = length % 2 == 0 ? ByteBuffer.wrap(sent) : ByteBuffer.allocateDirect(length).put(sent).flip();
                CompletableFuture<Void> sending = sides.toServer.sendAsync(buffer);
                if (length > 64 << 10) {
                    var offered = sides.next(MessengerEvent.Offered.class);
                    assertEquals(length, offered.offer().length());
                    offered.offer().receive();
                }
                var received = sides.next(MessengerEvent.Received.class);
                assertEquals(sides.toClient, received.connection());
                try (Payload message = received.message()) {
                    assertArrayEquals(sent, message.toByteArray());
                    assertEquals(length, message.buffer().remaining());
                    assertThrows(IndexOutOfBoundsException.class, () -> message.getByte(length));
                }
                assertThrows(IllegalStateException.class, () -> received.message().toByteArray());
                sending.get(60, TimeUnit.SECONDS);
            }
            sides.toServer.send(ByteBuffer.allocate(9), Pair.PATIENCE);
            assertEquals(9, sides.next(MessengerEvent.Received.class).message().length());
            assertTrue(sides.toServer.trySend(ByteBuffer.allocate(10), 77));
            assertEquals(
                    new MessengerEvent.Sent(sides.toServer, 77, Status.SUCCESS), sides.client.await(Pair.PATIENCE));
            assertTrue(sides.toServer.explain().contains("over"));
            assertTrue(sides.client.counters().contains("\"messenger\""));
        }
    }

    @Test
    void offersAreReceivedIntoMemoryOfTheProgramsOrRefused() throws Exception {
        try (Sides sides = new Sides("shm")) {
            int length = 5 << 20;
            byte[] sent = Pair.pattern(2, length);
            Arena arena = Arena.ofShared();
            MemorySegment memory = arena.allocate(length + 1, 4096);
            CompletableFuture<Void> first = sides.toServer.sendAsync(ByteBuffer.wrap(sent));
            Offer offer = sides.next(MessengerEvent.Offered.class).offer();
            assertThrows(
                    IllegalArgumentException.class, () -> offer.receiveInto(memory.asSlice(0, length - 1), arena));
            assertThrows(IllegalArgumentException.class, () -> offer.receiveInto(memory, Arena.global()));
            offer.receiveInto(memory, arena);
            assertEquals(
                    new MessengerEvent.OfferEnded(sides.toClient, offer, Status.SUCCESS),
                    sides.next(MessengerEvent.OfferEnded.class));
            assertEquals(-1, memory.asSlice(0, length).mismatch(MemorySegment.ofArray(sent)));
            first.get(60, TimeUnit.SECONDS);
            // Refused, and one whose memory goes.
            CompletableFuture<Void> second = sides.toServer.sendAsync(ByteBuffer.wrap(sent));
            sides.next(MessengerEvent.Offered.class).offer().refuse(31);
            assertEquals(Status.REFUSED, failure(second));
            assertEquals(31, ((PeerException) second.handle((none, e) -> e).join()).code());
            CompletableFuture<Void> third = sides.toServer.sendAsync(ByteBuffer.wrap(sent));
            sides.next(MessengerEvent.Offered.class).offer().receiveInto(memory, arena);
            arena.close();
            third.handle((none, e) -> none).get(60, TimeUnit.SECONDS);
            assertThrows(IllegalStateException.class, () -> memory.get(JAVA_BYTE, 0));
            sides.toServer.send(ByteBuffer.allocate(1), Pair.PATIENCE);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void callsAreAnswered(String device) throws Exception {
        try (Sides sides = new Sides(device)) {
            List<CompletableFuture<Payload>> calls = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                calls.add(sides.toServer.callAsync(ByteBuffer.wrap(Pair.pattern(i, i * 1000)), Pair.PATIENCE));
            }
            List<Request> requests = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                requests.add(sides.next(MessengerEvent.Asked.class).request());
            }
            // In another order, from another thread, with the bytes of the request itself.
            CompletableFuture.runAsync(() -> {
                        for (int i = 19; i >= 0; i--) {
                            Request request = requests.get(i);
                            assertTrue(request.tryReply(request.payload().buffer()));
                            assertThrows(
                                    IllegalStateException.class, () -> request.tryReply(ByteBuffer.allocate(0)));
                        }
                    })
                    .get();
            for (int i = 0; i < 20; i++) {
                try (Payload reply = calls.get(i).get(60, TimeUnit.SECONDS)) {
                    assertArrayEquals(Pair.pattern(i, i * 1000), reply.toByteArray());
                }
            }
        }
    }

    @Test
    void callsFailWithTheReason() throws Exception {
        try (Sides sides = new Sides("shm")) {
            var wrong = sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE);
            sides.next(MessengerEvent.Asked.class).request().tryReplyError(404, ByteBuffer.wrap(new byte[] {1, 2}));
            assertEquals(Status.REPLY_ERROR, failure(wrong));
            PeerException error = (PeerException) wrong.handle((none, e) -> e).join();
            assertEquals(404, error.code());
            assertArrayEquals(new byte[] {1, 2}, error.details());

            var dropped = sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE);
            sides.next(MessengerEvent.Asked.class).request().close();
            assertEquals(Status.DROPPED, failure(dropped));

            var late = sides.toServer.callAsync(ByteBuffer.allocate(1), Duration.ofMillis(50));
            Request unanswered = sides.next(MessengerEvent.Asked.class).request();
            assertEquals(Status.TIMED_OUT, failure(late));
            assertEquals(
                    new MessengerEvent.AskedNoMore(sides.toClient, unanswered),
                    sides.next(MessengerEvent.AskedNoMore.class));
            assertEquals(
                    Status.DISCONNECTED,
                    assertThrows(PeerException.class, () -> unanswered.tryReply(ByteBuffer.allocate(1))).status());

            var cancelled = sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE);
            Request useless = sides.next(MessengerEvent.Asked.class).request();
            cancelled.cancel(true);
            assertEquals(useless, sides.next(MessengerEvent.AskedNoMore.class).request());
            useless.close();

            var orphan = sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE);
            Request last = sides.next(MessengerEvent.Asked.class).request();
            sides.toClient.close();
            assertEquals(Status.DISCONNECTED, failure(orphan));
            assertInstanceOf(MessengerEvent.Disconnected.class, sides.client.await(Pair.PATIENCE));
            assertThrows(PeerException.class, () -> sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE));
            assertThrows(IllegalStateException.class, () -> sides.toClient.sendAsync(ByteBuffer.allocate(1)));
            last.close();
        }
    }

    @Test
    void aBlockingCallWaits() throws Exception {
        try (Sides sides = new Sides("shm")) {
            Thread server = Thread.ofVirtual().start(() -> {
                try {
                    Request request = sides.next(MessengerEvent.Asked.class).request();
                    assertTrue(request.tryReply(ByteBuffer.wrap(new byte[] {8})));
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            try (Payload reply = sides.toServer.call(ByteBuffer.allocate(3), Pair.PATIENCE)) {
                assertEquals(8, reply.getByte(0));
            }
            server.join();
        }
    }

    @Test
    void whatIsClosedIsRefused() throws Exception {
        Sides sides = new Sides("shm");
        var call = sides.toServer.callAsync(ByteBuffer.allocate(5), Pair.PATIENCE);
        Request request = sides.next(MessengerEvent.Asked.class).request();
        MemorySegment view = request.payload().segment();
        sides.client.close();
        assertEquals(Status.DISCONNECTED, failure(call));
        sides.server.close();
        assertThrows(IllegalStateException.class, () -> view.get(JAVA_BYTE, 0));
        assertThrows(IllegalStateException.class, () -> request.tryReply(ByteBuffer.allocate(1)));
        assertThrows(IllegalStateException.class, () -> request.payload().getByte(0));
        assertThrows(IllegalStateException.class, sides.server::poll);
        assertThrows(IllegalStateException.class, () -> sides.toServer.trySend(ByteBuffer.allocate(1), 1));
        request.close();
        sides.toServer.close();
        sides.close();
        assertThrows(IllegalArgumentException.class, () -> new MessengerLimits(-1, 0, 0, 0));
    }

    /** What completes a future runs on the progress thread, which has to notice that nothing is left to serve. */
    @Test
    void aMessengerMayBeClosedByWhatAFutureCompletes() throws Exception {
        ConcurrentLinkedQueue<String> uncaught = new ConcurrentLinkedQueue<>();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> uncaught.add(thread.getName() + ": " + failure));
        try {
            for (int round = 0; round < 3; round++) {
                try (Sides sides = new Sides("shm")) {
                    CompletableFuture<Void> mayGoOn = new CompletableFuture<>();
                    var first = sides.toServer.callAsync(ByteBuffer.allocate(1), Pair.PATIENCE);
                    var second = sides.toServer.callAsync(ByteBuffer.allocate(2), Pair.PATIENCE);
                    var waited = first.thenRun(mayGoOn::join);
                    var closedBy = second.thenApply(reply -> {
                        sides.client.close();
                        return Thread.currentThread();
                    });
                    Request one = sides.next(MessengerEvent.Asked.class).request();
                    Request two = sides.next(MessengerEvent.Asked.class).request();
                    assertTrue(one.tryReply(ByteBuffer.allocate(1)));
                    // The thread has the first reply; the second one, and a message for the program, wait for it. They are in shared
                    // memory already: their sends end when the thread takes them, or at the send timeout.
                    assertTrue(two.tryReply(ByteBuffer.allocate(1)));
                    assertTrue(sides.toClient.trySend(ByteBuffer.allocate(1), 0));
                    mayGoOn.complete(null);
                    waited.get(60, TimeUnit.SECONDS);
                    Thread progress = closedBy.get(60, TimeUnit.SECONDS);
                    assertTrue(progress.join(Pair.PATIENCE));
                }
            }
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertEquals(List.of(), List.copyOf(uncaught));
    }
}
