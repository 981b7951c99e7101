package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Remote memory: reads, writes and atomics, and what is refused. */
class RemoteMemoryTest {
    private static final int BYTES = 300_000;

    private static <T> T await(Pair pair, CompletableFuture<T> future) {
        pair.until("an operation", future::isDone);
        return future.join();
    }

    private static Status failure(Pair pair, CompletableFuture<?> future) {
        pair.until("an operation", future::isDone);
        CompletionException failure = assertThrows(CompletionException.class, future::join);
        return ((CciException) failure.getCause()).status();
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void bytesAreWrittenAndReadBack(String device) {
        try (Pair pair = Pair.connected(device);
                Arena arena = Arena.ofShared()) {
            Memory lent = pair.server.allocate(BYTES);
            MemorySegment own = arena.allocate(BYTES);
            byte[] contents = Pair.pattern(1, BYTES);
            MemorySegment localMemory = arena.allocate(2L * BYTES);
            MemorySegment.copy(contents, 0, localMemory, JAVA_BYTE, 0, BYTES);
            Region local = pair.client.register(localMemory, arena);
            RemoteMemory remote = pair.toServer.remoteMemory();
            for (MemorySegment target : List.of(lent.segment(), own)) {
                Region region = target == own
                        ? pair.server.register(own, arena, Access.READ, Access.WRITE)
                        : lent.register(Access.READ, Access.WRITE);
                for (int length : new int[] {1, 7, 4096, BYTES - 100}) {
                    target.fill((byte) 0);
                    await(pair, remote.writeAsync(Transfer.of(local, 3, region.handle(), 17, length)));
                    assertEquals(
                            -1, localMemory.asSlice(3, length).mismatch(target.asSlice(17, length)), device + length);
                    assertEquals(0, target.get(JAVA_BYTE, 16));
                    assertEquals(0, target.get(JAVA_BYTE, 17 + length));
                    localMemory.asSlice(BYTES).fill((byte) 0);
                    await(pair, remote.readAsync(Transfer.of(local, BYTES, region.handle(), 17, length)));
                    assertEquals(-1, localMemory.asSlice(3, length).mismatch(localMemory.asSlice(BYTES, length)));
                }
                region.close();
                assertEquals(
                        Status.RMA_HANDLE,
                        failure(pair, remote.readAsync(Transfer.of(local, 0, region.handle(), 0, 8))));
            }
            lent.close();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void aNotificationComesBehindTheData(String device) {
        try (Pair pair = Pair.connected(device)) {
            Memory memory = pair.server.allocate(BYTES);
            Region region = memory.register(Access.WRITE);
            Memory from = pair.client.allocate(BYTES);
            from.segment().fill((byte) 5);
            Transfer transfer = Transfer.of(from.register(), 0, region.handle(), 0, BYTES);
            byte[] text = {1, 2, 3};
            assertTrue(pair.toServer.remoteMemory().tryWrite(transfer.fenced().notifying(text), 42));
            pair.until("the notification", () -> !pair.atServer.isEmpty());
            assertArrayEquals(text, pair.atServer.get(0));
            assertEquals(5, memory.segment().get(JAVA_BYTE, BYTES - 1));
            pair.until("the end", () -> !pair.sentByClient.isEmpty());
            assertEquals(List.of(new Event.Sent(pair.toServer, 42, Status.SUCCESS)), pair.sentByClient);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void atomicsChangeWords(String device) {
        try (Pair pair = Pair.connected(device)) {
            Memory memory = pair.server.allocate(64);
            MemorySegment words = memory.segment();
            RegionHandle handle = memory.register(Access.ATOMIC).handle();
            RemoteMemory remote = pair.toServer.remoteMemory();
            words.set(JAVA_LONG, 8, 100);
            assertEquals(100, await(pair, remote.atomicAsync(Atomic.fetchAdd(-1), handle, 8)));
            assertEquals(99, await(pair, remote.atomicAsync(Atomic.swap(7), handle, 8)));
            assertEquals(7, await(pair, remote.atomicAsync(Atomic.compareSwap(8, 1), handle, 8)));
            assertEquals(7, await(pair, remote.atomicAsync(Atomic.compareSwap(7, 0b1100), handle, 8)));
            assertNull(await(pair, remote.atomicAsync(Atomic.and(0b0110), handle, 8)));
            assertNull(await(pair, remote.atomicAsync(Atomic.or(0b0001), handle, 8)));
            assertNull(await(pair, remote.atomicAsync(Atomic.xor(0b1111).fenced(), handle, 8)));
            assertNull(await(pair, remote.atomicAsync(Atomic.add(1), handle, 8)));
            assertEquals(0b1010 + 1, words.get(JAVA_LONG, 8));
            words.set(JAVA_INT, 16, -1);
            words.set(JAVA_INT, 20, 9);
            assertEquals(0xffff_ffffL, await(pair, remote.atomicAsync(Atomic.fetchAdd(2).of4Bytes(), handle, 16)));
            assertEquals(1, words.get(JAVA_INT, 16));
            assertEquals(9, words.get(JAVA_INT, 20));
            assertEquals(Status.RMA_OPERATION, failure(pair, remote.atomicAsync(Atomic.fetchAdd(1), handle, 4)));
            assertEquals(Status.RMA_HANDLE, failure(pair, remote.atomicAsync(Atomic.fetchAdd(1), handle, 64)));
            // More at once than there are places for results.
            long sum = words.get(JAVA_LONG, 8);
            for (int i = 0; i < 2000; i++) {
                var one = remote.atomicAsync(Atomic.fetchAdd(1), handle, 8);
                if (one.isCompletedExceptionally()) {
                    assertEquals(Status.NO_BUFFERS, failure(pair, one));
                    pair.turn();
                } else {
                    sum++;
                }
            }
            long expected = sum;
            pair.until("all", () -> words.get(JAVA_LONG, 8) == expected);
        }
    }

    @Test
    void theBlockingFormsWait() throws Exception {
        EndpointOptions thread = EndpointOptions.DEFAULTS.progressThread(true);
        try (Pair pair = new Pair("shm", thread)) {
            pair.connect(Attribute.RELIABLE_ORDERED);
            Memory memory = pair.server.allocate(4096);
            RegionHandle handle = memory.register(Access.READ, Access.WRITE, Access.ATOMIC).handle();
            Region local = pair.client.allocate(4096).register();
            local.segment().set(JAVA_LONG, 0, 77);
            RemoteMemory remote = pair.toServer.remoteMemory();
            remote.write(Transfer.of(local, 0, handle, 8, 8), Pair.PATIENCE);
            assertEquals(77, remote.atomic(Atomic.fetchAdd(1), handle, 8, Pair.PATIENCE));
            assertEquals(0, remote.atomic(Atomic.add(1), handle, 8, Pair.PATIENCE));
            remote.read(Transfer.of(local, 16, handle, 8, 8), Pair.PATIENCE);
            assertEquals(79, local.segment().get(JAVA_LONG, 16));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void rightsAndRangesAreKept(String device) {
        try (Pair pair = Pair.connected(device)) {
            Memory memory = pair.server.allocate(4096);
            Region readable = memory.register(Access.READ);
            Region writable = memory.register(1000, 100, Access.WRITE);
            Region local = pair.client.allocate(8192).register();
            RemoteMemory remote = pair.toServer.remoteMemory();
            for (CompletableFuture<?> refused : List.of(
                    remote.writeAsync(Transfer.of(local, 0, readable.handle(), 0, 8)),
                    remote.readAsync(Transfer.of(local, 0, writable.handle(), 0, 8)),
                    remote.writeAsync(Transfer.of(local, 0, writable.handle(), 99, 2)),
                    remote.readAsync(Transfer.of(local, 0, readable.handle(), 0, 4097)),
                    remote.atomicAsync(Atomic.add(1), readable.handle(), 0),
                    remote.readAsync(Transfer.of(local, 0, RegionHandle.ofBytes(new byte[32]), 0, 8)))) {
                assertEquals(Status.RMA_HANDLE, failure(pair, refused));
            }
            assertThrows(
                    IllegalArgumentException.class,
                    () -> remote.writeAsync(Transfer.of(local, 8000, writable.handle(), 0, 193)), "not in the local region");
            assertThrows(
                    IllegalArgumentException.class,
                    () -> remote.writeAsync(Transfer.of(local, 0, writable.handle(), 0, 0)));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> remote.writeAsync(Transfer.of(local, -1, writable.handle(), 0, 8)));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> remote.writeAsync(Transfer.of(readable, 0, writable.handle(), 0, 8)), "of the other endpoint");
            local.close();
            assertThrows(
                    IllegalStateException.class,
                    () -> remote.writeAsync(Transfer.of(local, 0, writable.handle(), 0, 8)));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "udp-lo", "tcp-lo"})
    void anArenaThatEndsEarlyEndsItsRegions(String device) {
        try (Pair pair = Pair.connected(device)) {
            Region local = pair.client.allocate(1 << 20).register();
            RemoteMemory remote = pair.toServer.remoteMemory();
            for (boolean shared : new boolean[] {true, false}) {
                Arena arena = shared ? Arena.ofShared() : Arena.ofConfined();
                // Large enough to be mapped for itself, so that it is unmapped when it is freed.
                MemorySegment segment = arena.allocate(1 << 20, 4096);
                Region region = pair.server.register(segment, arena, Access.READ, Access.WRITE);
                Transfer transfer = Transfer.of(local, 0, region.handle(), 0, 1 << 20);
                await(pair, remote.writeAsync(transfer));
                // One is under way when the memory goes, and one comes later.
                var underWay = remote.writeAsync(transfer);
                arena.close();
                assertThrows(IllegalStateException.class, () -> segment.get(JAVA_BYTE, 0));
                pair.until("the one under way", underWay::isDone);
                assertEquals(Status.RMA_HANDLE, failure(pair, remote.readAsync(transfer)));
                region.close();
            }
            // The same at the side that starts the operations.
            Region target = pair.server.allocate(1 << 20).register(Access.READ, Access.WRITE);
            Arena arena = Arena.ofShared();
            Region from = pair.client.register(arena.allocate(1 << 20, 4096), arena);
            var underWay = remote.readAsync(Transfer.of(from, 0, target.handle(), 0, 1 << 20));
            arena.close();
            pair.until("the one under way", underWay::isDone);
            assertThrows(
                    IllegalStateException.class,
                    () -> remote.readAsync(Transfer.of(from, 0, target.handle(), 0, 8)));
        }
    }

    @Test
    void whatCanNotBeRegisteredIsRefused() throws Exception {
        try (Pair pair = new Pair("shm");
                Arena arena = Arena.ofShared()) {
            Endpoint endpoint = pair.server;
            MemorySegment segment = arena.allocate(100);
            assertThrows(
                    IllegalArgumentException.class,
                    () -> endpoint.register(MemorySegment.ofArray(new byte[8]), Arena.global()), "of the heap");
            assertThrows(IllegalArgumentException.class, () -> endpoint.register(segment.asSlice(0, 0), arena));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> endpoint.register(segment.asReadOnly(), arena, Access.WRITE));
            assertThrows(
                    IllegalArgumentException.class, () -> endpoint.register(segment, Arena.global(), Access.READ));
            Arena ended = Arena.ofShared();
            MemorySegment gone = ended.allocate(100);
            ended.close();
            assertThrows(IllegalStateException.class, () -> endpoint.register(gone, ended, Access.READ));
            Memory memory = endpoint.allocate(100);
            Region region = memory.register();
            assertThrows(IllegalStateException.class, memory::close, "it is registered");
            region.close();
            memory.close();
            memory.close();
            assertThrows(IllegalStateException.class, () -> memory.segment().get(JAVA_BYTE, 0));
            assertThrows(IllegalStateException.class, memory::register);
            assertThrows(IllegalArgumentException.class, () -> endpoint.allocate(0));
            assertThrows(IllegalArgumentException.class, () -> RegionHandle.ofBytes(new byte[31]));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"shm", "tcp-lo"})
    void aMappedFileIsReadByPeers(String device) throws Exception {
        Path file = Files.createTempFile("cci", ".data");
        Files.write(file, Pair.pattern(9, BYTES));
        try (Pair pair = Pair.connected(device);
                Arena arena = Arena.ofShared();
                FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            MemorySegment mapped = channel.map(FileChannel.MapMode.READ_ONLY, 0, BYTES, arena);
            Region region = pair.server.register(mapped, arena, Access.READ);
            Memory to = pair.client.allocate(BYTES);
            await(pair, pair.toServer.remoteMemory()
                    .readAsync(Transfer.of(to.register(), 0, region.handle(), 0, BYTES)));
            assertEquals(-1, mapped.mismatch(to.segment().asSlice(0, BYTES)));
        } finally {
            Files.delete(file);
        }
    }

    /** To the library no bytes are no message: nothing would come behind the data. */
    @Test
    void aNotificationIsNotEmpty() {
        try (Pair pair = Pair.connected("shm")) {
            Region local = pair.client.allocate(64).register();
            Region target = pair.server.allocate(64).register(Access.WRITE);
            Transfer transfer = Transfer.of(local, 0, target.handle(), 0, 8);
            assertThrows(IllegalArgumentException.class, () -> transfer.notifying(Pair.NOTHING));
            assertTrue(pair.toServer.remoteMemory().tryWrite(transfer.notifying(new byte[1])));
            pair.until("the notification", () -> !pair.atServer.isEmpty());
        }
    }

    @Test
    void aRegionIsForOneConnectionAlone() {
        try (Pair pair = Pair.connected("shm")) {
            Connection first = pair.toServer;
            Memory memory = pair.server.allocate(64);
            Region region = memory.registerFor(pair.toClient, Access.READ);
            pair.connect(Attribute.RELIABLE_ORDERED);
            Region local = pair.client.allocate(64).register();
            Transfer transfer = Transfer.of(local, 0, region.handle(), 0, 8);
            await(pair, first.remoteMemory().readAsync(transfer));
            assertEquals(Status.RMA_HANDLE, failure(pair, pair.toServer.remoteMemory().readAsync(transfer)));
            ByteBuffer bytes = ByteBuffer.allocate(40);
            region.handle().put(bytes);
            assertEquals(region.handle(), RegionHandle.get(bytes.flip()));
        }
    }
}
