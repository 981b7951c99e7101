package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Transfers between memory that is not contiguous: what they move, and what is refused and then changes nothing. */
class SegmentListsTest {
    private static final int BYTES = 200_000;

    private static Status end(Pair pair, CompletableFuture<Void> operation) {
        pair.until("a transfer", operation::isDone);
        try {
            operation.join();
            return Status.SUCCESS;
        } catch (CompletionException e) {
            return ((CciException) e.getCause()).status();
        }
    }

    private static void assertPut(byte[] from, int fromOffset, MemorySegment to, long toOffset, int bytes) {
        assertEquals(-1, MemorySegment.ofArray(from).asSlice(fromOffset, bytes).mismatch(to.asSlice(toOffset, bytes)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void listsMayBeDividedDifferently(String device) {
        try (Pair pair = Pair.connected(device);
                Arena arena = Arena.ofShared()) {
            // At each side memory of the library's and of the program's.
            Region lent = pair.server.allocate(BYTES).register(Access.READ, Access.WRITE);
            Region own = pair.server.register(arena.allocate(BYTES), arena, Access.READ, Access.WRITE);
            Region first = pair.client.allocate(BYTES).register();
            Region second = pair.client.register(arena.allocate(BYTES), arena);
            byte[] contents = Pair.pattern(3, BYTES);
            MemorySegment.copy(contents, 0, first.segment(), JAVA_BYTE, 0, BYTES);
            MemorySegment.copy(contents, 0, second.segment(), JAVA_BYTE, 0, BYTES);
            RemoteMemory remote = pair.toServer.remoteMemory();
            Transfer write = Transfer.of(
                    List.of(
                            new LocalSegment(first, 1, 100_000),
                            new LocalSegment(second, 0, 0),
                            new LocalSegment(second, 7, 50_000)),
                    List.of(
                            new RemoteSegment(own.handle(), 3, 20_000),
                            new RemoteSegment(lent.handle(), 5, 130_000)));
            byte[] text = {4, 2};
            assertTrue(remote.tryWrite(write.fenced().notifying(text), 9));
            pair.until("the notification", () -> !pair.atServer.isEmpty());
            assertArrayEquals(text, pair.atServer.get(0));
            assertPut(contents, 1, own.segment(), 3, 20_000);
            assertPut(contents, 20_001, lent.segment(), 5, 80_000);
            assertPut(contents, 7, lent.segment(), 80_005, 50_000);
            for (long offset : new long[] {2, 20_003}) {
                assertEquals(0, own.segment().get(JAVA_BYTE, offset), "beside what was written");
            }
            for (long offset : new long[] {4, 130_005}) {
                assertEquals(0, lent.segment().get(JAVA_BYTE, offset), "beside what was written");
            }
            pair.until("the end", () -> !pair.sentByClient.isEmpty());
            assertEquals(List.of(new Event.Sent(pair.toServer, 9, Status.SUCCESS)), pair.sentByClient);

            // Back, into other pieces.
            second.segment().fill((byte) 0);
            Transfer read = Transfer.of(
                    List.of(new LocalSegment(second, 11, 30_000), new LocalSegment(second, 40_000, 120_000)),
                    List.of(
                            new RemoteSegment(own.handle(), 3, 20_000),
                            new RemoteSegment(lent.handle(), 5, 130_000)));
            assertEquals(Status.SUCCESS, end(pair, remote.readAsync(read)));
            assertPut(contents, 1, second.segment(), 11, 30_000);
            assertPut(contents, 30_001, second.segment(), 40_000, 70_000);
            assertPut(contents, 7, second.segment(), 110_000, 50_000);
            assertEquals(0, second.segment().get(JAVA_BYTE, 30_011), "between the pieces");
        }
    }

    @Test
    void theBlockingFormsTakeLists() throws Exception {
        try (Pair pair = new Pair("shm", EndpointOptions.DEFAULTS.progressThread(true))) {
            pair.connect(Attribute.RELIABLE_ORDERED);
            Region target = pair.server.allocate(4096).register(Access.READ, Access.WRITE);
            Region local = pair.client.allocate(4096).register();
            local.segment().fill((byte) 6);
            List<LocalSegment> mine = List.of(new LocalSegment(local, 0, 1), new LocalSegment(local, 9, 9));
            pair.toServer.remoteMemory()
                    .write(Transfer.of(mine, List.of(new RemoteSegment(target.handle(), 100, 10))), Pair.PATIENCE);
            assertEquals(6, target.segment().get(JAVA_BYTE, 109));
            target.segment().fill((byte) 7);
            pair.toServer.remoteMemory()
                    .read(Transfer.of(mine, List.of(new RemoteSegment(target.handle(), 100, 10))), Pair.PATIENCE);
            assertEquals(7, local.segment().get(JAVA_BYTE, 17));
            assertEquals(6, local.segment().get(JAVA_BYTE, 18));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void wrongListsStartNothing(String device) {
        try (Pair pair = Pair.connected(device)) {
            Region target = pair.server.allocate(BYTES).register(Access.READ, Access.WRITE);
            Region local = pair.client.allocate(BYTES).register();
            local.segment().fill((byte) 1);
            Memory freed = pair.client.allocate(4096);
            Region closed = freed.register();
            closed.close();
            freed.close();
            Arena shorter = Arena.ofShared();
            Region ended = pair.client.register(shorter.allocate(1 << 20, 4096), shorter);
            shorter.close();
            RemoteMemory remote = pair.toServer.remoteMemory();
            LocalSegment good = new LocalSegment(local, 0, 10);
            RemoteSegment there = new RemoteSegment(target.handle(), 0, 20);
            for (LocalSegment wrong : List.of(
                    new LocalSegment(local, 100, 9),
                    new LocalSegment(local, 100, 11),
                    new LocalSegment(local, 100, 0),
                    new LocalSegment(local, 100, -1),
                    new LocalSegment(local, -1, 10),
                    new LocalSegment(local, BYTES - 9, 10),
                    new LocalSegment(target, 0, 10))) {
                Transfer transfer = Transfer.of(List.of(good, wrong), List.of(there));
                assertThrows(IllegalArgumentException.class, () -> remote.tryWrite(transfer, 1), wrong.toString());
                assertThrows(IllegalArgumentException.class, () -> remote.tryRead(transfer), wrong.toString());
                assertThrows(IllegalArgumentException.class, () -> remote.writeAsync(transfer), wrong.toString());
            }
            Transfer nothing = Transfer.of(
                    List.of(new LocalSegment(local, 0, 0)), List.of(new RemoteSegment(target.handle(), 0, 0)));
            assertThrows(IllegalArgumentException.class, () -> remote.tryWrite(nothing, 1), "no bytes");
            for (Region gone : List.of(closed, ended)) {
                Transfer transfer = Transfer.of(List.of(good, new LocalSegment(gone, 0, 10)), List.of(there));
                assertThrows(IllegalStateException.class, () -> remote.tryWrite(transfer, 1), gone.toString());
                assertThrows(IllegalStateException.class, () -> remote.readAsync(transfer), gone.toString());
            }
            assertThrows(IllegalArgumentException.class, () -> Transfer.of(List.of(), List.of(there)));
            assertThrows(IllegalArgumentException.class, () -> Transfer.of(List.of(good), List.of()));
            List<RemoteSegment> tooMany = Collections.nCopies(Transfer.SEGMENTS_MAX + 1, there);
            assertThrows(IllegalArgumentException.class, () -> Transfer.of(List.of(good), tooMany));
            assertThrows(NullPointerException.class, () -> new LocalSegment(null, 0, 1));
            assertThrows(NullPointerException.class, () -> new RemoteSegment(null, 0, 1));

            // Nothing has happened: what comes next is the first event, and the first change.
            assertTrue(remote.tryWrite(Transfer.of(List.of(good, good), List.of(there)), 5));
            pair.until("the end", () -> !pair.sentByClient.isEmpty());
            assertEquals(List.of(new Event.Sent(pair.toServer, 5, Status.SUCCESS)), pair.sentByClient);
            assertEquals(1, target.segment().get(JAVA_BYTE, 19));
            assertEquals(0, target.segment().get(JAVA_BYTE, 20));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void peersRefuseAndArenasEnd(String device) {
        try (Pair pair = Pair.connected(device)) {
            Region target = pair.server.allocate(BYTES).register(Access.WRITE);
            Region local = pair.client.allocate(BYTES).register();
            RemoteMemory remote = pair.toServer.remoteMemory();
            RemoteSegment good = new RemoteSegment(target.handle(), 0, 10);
            List<LocalSegment> mine = List.of(new LocalSegment(local, 0, 20));
            for (RemoteSegment wrong : List.of(
                    new RemoteSegment(target.handle(), BYTES - 9, 10),
                    new RemoteSegment(RegionHandle.ofBytes(new byte[RegionHandle.BYTES]), 0, 10))) {
                assertEquals(
                        Status.RMA_HANDLE, end(pair, remote.writeAsync(Transfer.of(mine, List.of(good, wrong)))));
            }
            assertEquals(
                    Status.RMA_HANDLE, end(pair, remote.readAsync(Transfer.of(mine, List.of(good, good)))), "no right");
            // One is in progress when the memory of one of its segments goes.
            Region second = pair.server.allocate(1 << 20).register(Access.READ);
            Arena arena = Arena.ofShared();
            Region from = pair.client.register(arena.allocate(1 << 20, 4096), arena);
            Transfer transfer = Transfer.of(
                    List.of(new LocalSegment(local, 0, 1000), new LocalSegment(from, 0, (1 << 20) - 1000)),
                    List.of(new RemoteSegment(second.handle(), 0, 1 << 20)));
            var inProgress = remote.readAsync(transfer);
            arena.close();
            pair.until("the one in progress", inProgress::isDone);
            assertThrows(IllegalStateException.class, () -> remote.readAsync(transfer));
        }
    }

    @Test
    void aClosedEndpointTakesNoLists() {
        Pair pair = Pair.connected("shm");
        Region target = pair.server.allocate(64).register(Access.WRITE);
        Region local = pair.client.allocate(64).register();
        RemoteMemory remote = pair.toServer.remoteMemory();
        Transfer transfer = Transfer.of(
                List.of(new LocalSegment(local, 0, 8)),
                List.of(new RemoteSegment(target.handle(), 0, 4), new RemoteSegment(target.handle(), 8, 4)));
        pair.close();
        assertThrows(IllegalStateException.class, () -> remote.tryWrite(transfer, 1));
        assertThrows(IllegalStateException.class, () -> remote.writeAsync(transfer));
    }

    /** Lists are taken as they are when the transfer is made, and the longest one works. */
    @Test
    void theLongestListWorks() {
        try (Pair pair = Pair.connected("shm")) {
            Region target = pair.server.allocate(BYTES).register(Access.WRITE);
            Region local = pair.client.allocate(BYTES).register();
            MemorySegment.copy(Pair.pattern(5, BYTES), 0, local.segment(), JAVA_BYTE, 0, BYTES);
            List<LocalSegment> mine = new ArrayList<>();
            List<RemoteSegment> theirs = new ArrayList<>();
            for (int i = 0; i < Transfer.SEGMENTS_MAX; i++) {
                mine.add(new LocalSegment(local, 32L * i, 9));
                theirs.add(new RemoteSegment(target.handle(), 16L * i, 9));
            }
            Transfer transfer = Transfer.of(mine, theirs);
            mine.clear();
            theirs.clear();
            assertEquals(Status.SUCCESS, end(pair, pair.toServer.remoteMemory().writeAsync(transfer)));
            for (int i = 0; i < Transfer.SEGMENTS_MAX; i++) {
                assertEquals(
                        -1, local.segment().asSlice(32L * i, 9).mismatch(target.segment().asSlice(16L * i, 9)), "piece " + i);
                assertEquals(0, target.segment().get(JAVA_BYTE, 16L * i + 9));
            }
        }
    }
}
