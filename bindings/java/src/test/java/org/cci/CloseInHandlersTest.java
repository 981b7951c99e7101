package org.cci;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * An endpoint is closed while a handler of its events runs, and the handler waits until that has ended. The lock is not held then, so
 * that nobody waits for ever; what the handler still has of the endpoint is closed, and the call that polls ends.
 */
class CloseInHandlersTest {
    /** Who closes. */
    private enum Closer {
        THE_HANDLER,
        A_THREAD,
        A_VIRTUAL_THREAD
    }

    private enum Kind {
        MESSAGE,
        SENT,
        EVENT
    }

    private static void closeAndWait(Closer closer, Endpoint endpoint) {
        if (closer == Closer.THE_HANDLER) {
            endpoint.close();
            return;
        }
        Thread.Builder builder = closer == Closer.A_THREAD ? Thread.ofPlatform() : Thread.ofVirtual();
        Thread thread = builder.start(endpoint::close);
        try {
            assertTrue(thread.join(Pair.PATIENCE), "the close ends while the handler runs");
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Runs what it is given once, at the first call of one kind. */
    private static final class Once implements EventHandler {
        private final Kind kind;
        private final Consumer<Message> then;
        int calls;

        Once(Kind kind, Consumer<Message> then) {
            this.kind = kind;
            this.then = then;
        }

        private void called(Kind with, Message message) {
            if (with == kind) {
                calls++;
                then.accept(message);
            }
        }

        @Override
        public void onMessage(Connection connection, Message message) {
            called(Kind.MESSAGE, message);
        }

        @Override
        public void onSent(Connection connection, long context, Status status) {
            called(Kind.SENT, null);
        }

        @Override
        public void onEvent(Event event) {
            called(Kind.EVENT, null);
        }
    }

    /** Both sides have something of each kind to be polled. */
    private static void fill(Pair pair) {
        Connection more = pair.server.startConnecting(pair.client.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, null);
        assertFalse(more.isOpen());
        for (int number = 0; number < 4; number++) {
            assertTrue(pair.toServer.trySend(ByteBuffer.wrap(Pair.pattern(number, 100)), number));
            assertTrue(pair.toClient.trySend(ByteBuffer.wrap(Pair.pattern(number, 100)), number));
        }
    }

    /** Polls by a handler until it was called, or the endpoint is closed. */
    private static void pollUntilClosed(Pair pair, int max, Once handler) {
        Pair.until("a call of the handler", () -> handler.calls > 0, () -> {
            while (pair.server.poll() instanceof Event.Received received) {
                received.message().close();
            }
            try {
                pair.client.poll(max, handler);
            } catch (IllegalStateException e) {
                assertEquals(1, handler.calls, "it is not closed before");
            }
        });
    }

    @ParameterizedTest
    @EnumSource
    void whateverTheHandlerIsCalledFor(Closer closer) {
        for (Kind kind : Kind.values()) {
            for (int max : new int[] {1, 16}) {
                for (boolean progressThread : new boolean[] {false, true}) {
                    EndpointOptions options = EndpointOptions.DEFAULTS.progressThread(progressThread);
                    try (Pair pair = new Pair("shm", options)) {
                        pair.connect(Attribute.RELIABLE_ORDERED);
                        fill(pair);
                        var handler = new Once(kind, message -> closeAndWait(closer, pair.client));
                        pollUntilClosed(pair, max, handler);
                        assertEquals(1, handler.calls, "nothing comes behind the close");
                        assertThrows(IllegalStateException.class, () -> pair.client.poll(max, handler));
                        assertThrows(IllegalStateException.class, pair.client::poll);
                        assertThrows(
                                IllegalStateException.class, () -> pair.toServer.trySend(ByteBuffer.allocate(1), 9));
                    }
                }
            }
        }
    }

    /** The lent message is closed with the endpoint, apart from a view that the handler's thread has of it. */
    @ParameterizedTest
    @EnumSource
    void theMessageThatTheHandlerHas(Closer closer) {
        for (boolean isShown : new boolean[] {false, true}) {
            try (Pair pair = Pair.connected("shm")) {
                fill(pair);
                List<Message> seen = new ArrayList<>();
                var handler = new Once(Kind.MESSAGE, message -> {
                    MemorySegment view = isShown ? message.segment() : null;
                    closeAndWait(closer, pair.client);
                    if (isShown && closer != Closer.THE_HANDLER) {
                        assertArrayEquals(Pair.pattern(0, 100), view.toArray(ValueLayout.JAVA_BYTE));
                    } else if (isShown) {
                        assertThrows(IllegalStateException.class, () -> view.get(ValueLayout.JAVA_BYTE, 0));
                    }
                    assertThrows(IllegalStateException.class, () -> message.getByte(0));
                    assertThrows(IllegalStateException.class, message::segment);
                    assertThrows(IllegalStateException.class, message::keep);
                    assertThrows(IllegalStateException.class, () -> pair.toServer.trySend(message));
                    message.close();
                    seen.add(message);
                });
                pollUntilClosed(pair, 16, handler);
                assertEquals(1, seen.size());
                assertThrows(IllegalStateException.class, () -> seen.get(0).toByteArray());
            }
        }
    }

    /** What an earlier call has kept of the endpoint does not keep its close from ending. */
    @ParameterizedTest
    @EnumSource
    void aFutureThatWaitsAndAMessageThatWasKept(Closer closer) throws Exception {
        try (Pair pair = Pair.connected("shm")) {
            fill(pair);
            var waiting = pair.client.connectAsync(pair.server.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, null);
            List<Message> kept = new ArrayList<>();
            var first = new Once(Kind.MESSAGE, message -> kept.add(message.keep()));
            Pair.until("a message", () -> !kept.isEmpty(), () -> pair.client.poll(1, first));
            var handler = new Once(Kind.MESSAGE, message -> {
                closeAndWait(closer, pair.client);
                assertTrue(waiting.isCompletedExceptionally());
            });
            pollUntilClosed(pair, 16, handler);
            assertThrows(IllegalStateException.class, () -> kept.get(0).toByteArray());
            kept.get(0).close();
            assertThrows(Exception.class, () -> waiting.get(60, TimeUnit.SECONDS));
        }
    }
}
