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
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Streams by themselves, without Jetty: both sides in this thread. */
class StreamsTest {
    private static final int BYTES = 200_000;
    private static final Duration LOOK = Duration.ofMillis(1);

    private final ArrayDeque<ServiceStream> accepted = new ArrayDeque<>();
    private final StreamMultiplexer server =
            new StreamMultiplexer(Service.registerAny(), 1 << 20, 10, Runnable::run, accepted::add);
    private final StreamMultiplexer client =
            new StreamMultiplexer(Service.registerAny(), 1 << 20, 10, Runnable::run, null);

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
        ByteBuffer data = ByteBuffer.allocate(bytes);
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
