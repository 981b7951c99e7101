package org.cci;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Messages between two endpoints of one process. */
class MessagesTest {
    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void messagesOfEveryLengthArriveAsTheyAre(String device) {
        try (Pair pair = Pair.connected(device)) {
            int longest = pair.toServer.maxSendBytes();
            assertTrue(longest >= 1000, "takes " + longest);
            List<byte[]> sent = new ArrayList<>();
            for (int length = 0; length <= longest; length = length < 70 ? length + 1 : Math.min(longest, length * 2)) {
                sent.add(Pair.pattern(length, length));
                if (length == longest) {
                    break;
                }
            }
            for (byte[] message : sent) {
                ByteBuffer buffer = ByteBuffer.wrap(message);
                pair.until("room", () -> pair.toServer.trySend(buffer, message.length));
                assertFalse(buffer.hasRemaining());
            }
            pair.until("all", () -> pair.atServer.size() == sent.size() && pair.sentByClient.size() == sent.size());
            for (int i = 0; i < sent.size(); i++) {
                assertArrayEquals(sent.get(i), pair.atServer.get(i));
                assertEquals(new Event.Sent(pair.toServer, sent.get(i).length, Status.SUCCESS), pair.sentByClient.get(i));
            }
            assertThrows(
                    IllegalArgumentException.class, () -> pair.toServer.trySend(ByteBuffer.allocate(longest + 1), 0));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void aLongBurstArrivesInOrder(String device) {
        try (Pair pair = Pair.connected(device)) {
            int count = 20_000;
            ByteBuffer buffer = ByteBuffer.allocateDirect(16);
            for (int i = 0; i < count; i++) {
                buffer.clear().putInt(0, i);
                pair.until("room", () -> pair.toServer.trySend(buffer));
            }
            pair.until("all", () -> pair.atServer.size() == count);
            for (int i = 0; i < count; i++) {
                assertEquals(i, ByteBuffer.wrap(pair.atServer.get(i)).getInt());
            }
            assertTrue(pair.sentByClient.isEmpty(), "silent sends raise no event");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void unorderedAndUnreliableConnectionsCarryMessages(String device) {
        for (Attribute attribute : List.of(Attribute.RELIABLE_UNORDERED, Attribute.UNRELIABLE)) {
            try (Pair pair = Pair.connected(device, EndpointOptions.DEFAULTS, attribute)) {
                assertEquals(attribute, pair.toClient.attribute());
                pair.until("a message", () -> {
                    pair.toServer.trySend(ByteBuffer.wrap(new byte[] {7}));
                    return !pair.atServer.isEmpty();
                });
                assertArrayEquals(new byte[] {7}, pair.atServer.get(0));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "tcp-lo"})
    void everyKindOfBufferIsSent(String device) {
        try (Pair pair = Pair.connected(device);
                Arena arena = Arena.ofConfined()) {
            byte[] bytes = Pair.pattern(1, 300);
            MemorySegment segment = arena.allocate(400);
            MemorySegment.copy(bytes, 0, segment, ValueLayout.JAVA_BYTE, 100, 300);
            assertTrue(pair.toServer.trySend(segment.asSlice(100), 1));
            assertTrue(pair.toServer.trySend(MemorySegment.ofArray(bytes), 2));
            assertTrue(pair.toServer.trySend(ByteBuffer.wrap(bytes).asReadOnlyBuffer(), 3));
            assertTrue(pair.toServer.trySend(segment.asSlice(100).asByteBuffer(), 4));
            ByteBuffer first = ByteBuffer.wrap(bytes, 0, 120);
            ByteBuffer second = segment.asSlice(220).asByteBuffer();
            assertTrue(pair.toServer.trySend(new ByteBuffer[] {first, ByteBuffer.allocate(0), second}, 5));
            assertFalse(first.hasRemaining() || second.hasRemaining());
            pair.until("all", () -> pair.atServer.size() == 5 && pair.sentByClient.size() == 5);
            pair.atServer.forEach(message -> assertArrayEquals(bytes, message));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo"})
    void messagesAreReadInPlace(String device) {
        try (Pair pair = Pair.connected(device)) {
            ByteBuffer sent = ByteBuffer.allocate(20).order(java.nio.ByteOrder.nativeOrder());
            sent.putLong(0x1122334455667788L).putInt(99).put((byte) -3).rewind();
            assertTrue(pair.toServer.trySend(sent));
            Message[] kept = new Message[1];
            EventHandler keeper = (connection, message) -> {
                assertEquals(pair.toClient, connection);
                kept[0] = message.keep();
                assertThrows(IllegalStateException.class, () -> message.getByte(0), "the lent one is closed");
            };
            Pair.until("a message", () -> kept[0] != null, () -> {
                pair.server.poll(8, keeper);
                pair.client.poll();
            });
            try (Message message = kept[0]) {
                assertEquals(20, message.length());
                assertEquals(0x1122334455667788L, message.getLong(0));
                assertEquals(99, message.getInt(8));
                assertEquals(-3, message.getByte(12));
                assertThrows(IndexOutOfBoundsException.class, () -> message.getLong(13));
                assertThrows(IndexOutOfBoundsException.class, () -> message.getByte(-1));
                ByteBuffer view = message.buffer();
                assertTrue(view.isDirect() && view.isReadOnly());
                assertEquals(99, view.order(java.nio.ByteOrder.nativeOrder()).getInt(8));
                assertThrows(ReadOnlyBufferException.class, () -> view.put(0, (byte) 1));
                assertEquals(-3, message.segment().get(ValueLayout.JAVA_BYTE, 12));
                byte[] part = new byte[4];
                message.copyTo(8, part, 0, 4);
                assertEquals(99, ByteBuffer.wrap(part).order(java.nio.ByteOrder.nativeOrder()).getInt());
                message.close();
                assertThrows(IllegalStateException.class, () -> view.get(0));
                assertThrows(IllegalStateException.class, () -> message.getByte(0));
                assertThrows(IllegalStateException.class, message::segment);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void nothingIsReceivedWhileAllBuffersAreKept(String device) {
        EndpointOptions few = EndpointOptions.DEFAULTS.receiveBuffers(16);
        try (Pair pair = Pair.connected(device, few, Attribute.RELIABLE_ORDERED)) {
            List<Message> kept = new ArrayList<>();
            for (int i = 0; i < 40; i++) {
                assertTrue(pair.toServer.trySend(ByteBuffer.allocate(8).putInt(0, i)));
            }
            Pair.until("no buffers", pair.server::isStarved, () -> {
                pair.client.poll();
                if (pair.server.poll() instanceof Event.Received received) {
                    kept.add(received.message());
                }
            });
            assertTrue(kept.size() >= 16, "kept " + kept.size());
            int had = kept.size();
            kept.forEach(Message::close);
            pair.until("the rest", () -> pair.atServer.size() + had == 40);
        }
    }
}
