package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.function.BooleanSupplier;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Streams by themselves, without Jetty: both sides in this thread. */
class StreamsTest {
    private static final int BYTES = 200_000;
    private static final int STREAMS_MAX = 10;
    private static final Duration LOOK = Duration.ofMillis(1);
    private static final Duration RESOLVE = Duration.ofMillis(100);

    private final ArrayDeque<ServiceStream> accepted = new ArrayDeque<>();
    private final StreamMultiplexer server =
            new StreamMultiplexer(service(), 1 << 20, STREAMS_MAX, Runnable::run, accepted::add);
    private final StreamMultiplexer client = new StreamMultiplexer(service(), 1 << 20, STREAMS_MAX, Runnable::run, null);

    /** What is for a service that has gone does not wait for long: nothing comes in its place. */
    private static Service service() {
        Service service = Service.registerAny();
        service.setResolveTimeout(RESOLVE);
        return service;
    }

    @AfterEach
    void close() {
        client.close();
        server.close();
        client.closeWindows();
        server.closeWindows();
    }

    private void until(String what, BooleanSupplier done) throws InterruptedException {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!done.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what);
            client.turn(LOOK);
            server.turn(LOOK);
        }
    }

    private ServiceStream connected() throws IOException, InterruptedException {
        ServiceStream stream = client.open(server.id());
        until("a stream", () -> !accepted.isEmpty());
        return stream;
    }

    private void written(ServiceStream stream, int bytes) throws InterruptedException {
        written(stream, ByteBuffer.allocate(bytes));
    }

    private void written(ServiceStream stream, ByteBuffer data) throws InterruptedException {
        until("room", () -> {
            try {
                return stream.write(data);
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        });
    }

    @Test
    void whatIsNotReadGoesBackWhenTheReaderLeaves() throws Exception {
        for (boolean isEnded : new boolean[] {false, true}) {
            ServiceStream ours = connected();
            ServiceStream theirs = accepted.poll();
            written(theirs, BYTES);
            if (isEnded) {
                theirs.writeEnd();
            }
            until("bytes", ours::isReadable);
            // Whatever else there is to come has come.
            for (int turn = 0; turn < 20; turn++) {
                client.turn(LOOK);
            }
            assertTrue(client.windowsInUse() > 1);
            ours.writeEnd();
            ours.closeInput();
            assertTrue(client.windowsInUse() <= 1, "ended: " + isEnded);
            until("the end at the other side", () -> theirs.isReadable());
        }
    }

    @Test
    void aReaderOnThisHostIsLentNoMoreThanStaysInItsCache() throws Exception {
        int count = 2 * Partner.SAME_HOST_PART_BYTES_MAX - 1000;
        ServiceStream ours = connected();
        ServiceStream theirs = accepted.poll();
        ServiceBuffer memory = ServiceBuffer.allocate(count);
        Lendable lendable = new Lendable(memory, count, isReusable -> memory.close());
        written(theirs, lendable.retainable().getByteBuffer());
        for (int bytes : new int[] {Partner.SAME_HOST_PART_BYTES_MAX, count - Partner.SAME_HOST_PART_BYTES_MAX}) {
            until("a part", ours::isReadable);
            ServiceStream.Lent lent = ours.lend();
            assertEquals(bytes, lent.bytes().remaining());
            ours.giveBack(lent);
        }
        lendable.retainable().release();
    }

    @Test
    void whatCameBeforeTheEndCanBeReadBehindIt() throws Exception {
        ServiceStream ours = connected();
        ServiceStream theirs = accepted.poll();
        written(theirs, BYTES);
        theirs.writeEnd();
        theirs.closeInput();
        ByteBuffer all = ByteBuffer.allocate(BYTES + 1);
        until("all bytes and the end", () -> {
            try {
                return ours.read(all) < 0;
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        });
        assertEquals(BYTES, all.position());
        assertTrue(client.windowsInUse() <= 1);
    }

    private static int read(ServiceStream stream, ByteBuffer to) {
        try {
            return stream.read(to);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /** A client may keep its direction of a stream open for ever. The server does not keep the stream for it. */
    @Test
    void aStreamThatOnlyTheServerHasClosedIsResetAfterATime() throws Exception {
        ServiceStream ours = connected();
        ServiceStream theirs = accepted.poll();
        ServiceStream other = connected();
        ServiceStream stillOpen = accepted.poll();
        written(theirs, BYTES);
        theirs.writeEnd();
        theirs.closeInput();
        server.sweep();
        assertEquals(2, server.streamCount(), "it has its time");

        // Not all of the bytes are on their way when the time is over: the client gets them, and the end.
        server.lingerFor(Duration.ZERO);
        server.sweep();
        assertEquals(1, server.streamCount(), "the other one is not closed");
        assertTrue(theirs.isOver());
        ByteBuffer all = ByteBuffer.allocate(BYTES + 1);
        until("all bytes and the end", () -> read(ours, all) < 0);
        assertEquals(BYTES, all.position());
        until("the reset", () -> client.streamCount() == 1);
        assertThrows(IOException.class, () -> ours.write(ByteBuffer.allocate(1)));

        // Nothing else has ended with it.
        written(stillOpen, 10);
        until("bytes of the other one", other::isReadable);
        assertEquals(10, other.read(ByteBuffer.allocate(20)));
        written(other, 10);
        until("bytes of the other one", stillOpen::isReadable);
        // There is room for as many streams as at first.
        for (int i = 1; i < STREAMS_MAX; i++) {
            client.open(server.id());
        }
        until("as many streams as may be", () -> server.streamCount() == STREAMS_MAX);
    }

    /** What the client does with a stream that the server has closed gives it no more time. */
    @Test
    void roomAndQuestionsKeepNoClosedStream() throws Exception {
        ServiceStream ours = connected();
        ServiceStream theirs = accepted.poll();
        theirs.writeEnd();
        theirs.closeInput();
        client.ask(ours);
        client.send(ours, Frame.Kind.ROOM, 100);
        for (int turn = 0; turn < 20; turn++) {
            client.turn(LOOK);
            server.turn(LOOK);
        }
        assertEquals(1, server.streamCount());
        server.lingerFor(Duration.ZERO);
        server.sweep();
        assertEquals(0, server.streamCount());
        until("the reset", () -> client.streamCount() == 0);
        assertEquals(-1, ours.read(ByteBuffer.allocate(1)), "the end came first");
    }

    @Test
    void aPeerThatLeavesEndsEachStreamOnce() throws Exception {
        ServiceStream ours = connected();
        accepted.poll();
        int[] readable = {0};
        ours.listen(new ServiceStream.Listener() {
            @Override
            public void onReadable() {
                readable[0]++;
            }

            @Override
            public void onWritable() {}
        });
        server.close();
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!ours.isReadable()) {
            assertTrue(System.nanoTime() < deadline, "a failure");
            client.ask(ours);
            client.turn(LOOK);
        }
        assertEquals(1, readable[0]);
        assertThrows(IOException.class, () -> ours.read(ByteBuffer.allocate(1)));
        assertThrows(IOException.class, () -> ours.write(ByteBuffer.allocate(1)));
        assertFalse(ours.fail(new IOException("once more")));
    }
}
