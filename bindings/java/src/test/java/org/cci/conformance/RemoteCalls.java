package org.cci.conformance;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.io.DataInputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.cci.Access;
import org.cci.Atomic;
import org.cci.Connection;
import org.cci.Endpoint;
import org.cci.LocalSegment;
import org.cci.Region;
import org.cci.RegionHandle;
import org.cci.RemoteMemory;
import org.cci.RemoteSegment;
import org.cci.Transfer;

/** The calls about memory: of this endpoint's, and of its peers'. */
final class RemoteCalls {
    private static final Duration PATIENCE = Duration.ofSeconds(40);

    private final Endpoint endpoint;
    private final Handles handles;
    /** This endpoint's regions, open or closed: handles of those that are for it alone are not unique beyond it. */
    private final Map<RegionHandle, Region> regions = new HashMap<>();

    RemoteCalls(Endpoint endpoint, Handles handles) {
        this.endpoint = endpoint;
        this.handles = handles;
    }

    Line.Frame call(int code, DataInputStream in) throws IOException, InterruptedException {
        return switch (code) {
            case 30 -> allocate(in);
            case 31 -> {
                handles.memories.remove(in.readLong()).letGo();
                yield Port.done();
            }
            case 32 -> read(in);
            case 33 -> write(in);
            case 34 -> ownAtomic(in);
            case 35 -> register(in);
            case 36 -> deregister(in);
            case 37 -> transfer(in);
            case 38 -> atomic(in);
            default -> throw new AssertionError("call " + code);
        };
    }

    private Line.Frame allocate(DataInputStream in) throws IOException {
        boolean isLibrarys = in.readBoolean();
        long bytes = in.readLong();
        long number = handles.next();
        handles.memories.put(number, isLibrarys ? Lent.ofLibrary(endpoint, bytes) : Lent.ofProgram(endpoint, bytes));
        Line.Frame frame = Port.done();
        frame.writeLong(number);
        return frame;
    }

    private Line.Frame read(DataInputStream in) throws IOException {
        MemorySegment segment = handles.memories.get(in.readLong()).segment;
        long offset = in.readLong();
        return Port.done().bytes(segment.asSlice(offset, in.readLong()).toArray(JAVA_BYTE));
    }

    private Line.Frame write(DataInputStream in) throws IOException {
        MemorySegment segment = handles.memories.get(in.readLong()).segment;
        long offset = in.readLong();
        byte[] bytes = Line.bytes(in);
        MemorySegment.copy(bytes, 0, segment, JAVA_BYTE, offset, bytes.length);
        return Port.done();
    }

    private Line.Frame ownAtomic(DataInputStream in) throws IOException {
        Lent lent = handles.memories.get(in.readLong());
        long offset = in.readLong();
        long before = lent.change(offset, in.readByte(), in.readByte(), in.readLong(), in.readLong());
        Line.Frame frame = Port.done();
        frame.writeLong(before);
        return frame;
    }

    private Line.Frame register(DataInputStream in) throws IOException {
        Lent lent = handles.memories.get(in.readLong());
        long offset = in.readLong();
        long length = in.readLong();
        int rights = in.readByte();
        List<Access> access = new ArrayList<>();
        for (Access one : Access.values()) {
            if ((rights & 1 << one.ordinal()) != 0) {
                access.add(one);
            }
        }
        long only = in.readLong();
        Connection connection = only == 0 ? null : handles.connections.get(only);
        Region region = lent.register(offset, length, connection, access.toArray(Access[]::new));
        regions.put(region.handle(), region);
        handles.regions.put(region.handle(), region);
        return Port.done().bytes(region.handle().toBytes());
    }

    private Line.Frame deregister(DataInputStream in) throws IOException {
        Region region = region(handle(in));
        if (region == null || !handles.closed.add(region)) {
            // Java has no words for what is no region, and closing one again does nothing.
            return Port.wrong("no region");
        }
        region.close();
        return Port.done();
    }

    private Region region(RegionHandle handle) {
        Region own = regions.get(handle);
        return own != null ? own : handles.regions.get(handle);
    }

    private static RegionHandle handle(DataInputStream in) throws IOException {
        byte[] bytes = new byte[RegionHandle.BYTES];
        in.readFully(bytes);
        return RegionHandle.ofBytes(bytes);
    }

    private Line.Frame transfer(DataInputStream in) throws IOException, InterruptedException {
        boolean isWrite = in.readBoolean();
        boolean isWaitedFor = in.readBoolean();
        boolean silent = in.readBoolean();
        boolean fenced = in.readBoolean();
        Connection to = handles.connections.get(in.readLong());
        long context = in.readLong();
        List<RemoteSegment> localHandles = segments(in);
        List<RemoteSegment> remote = segments(in);
        byte[] message = in.readBoolean() ? Line.bytes(in) : null;
        List<LocalSegment> local = new ArrayList<>();
        for (RemoteSegment segment : localHandles) {
            Region region = region(segment.handle());
            if (region == null) {
                return Port.wrong("Java has no words for a local region that never was");
            }
            local.add(new LocalSegment(region, segment.offset(), segment.bytes()));
        }
        try {
            Transfer transfer = transfer(local, remote);
            transfer = fenced ? transfer.fenced() : transfer;
            Transfer all = message == null ? transfer : transfer.notifying(message);
            RemoteMemory memory = to.remoteMemory();
            if (isWaitedFor) {
                return Port.ended(() -> {
                    if (isWrite) {
                        memory.write(all, PATIENCE);
                    } else {
                        memory.read(all, PATIENCE);
                    }
                });
            }
            boolean taken;
            if (silent) {
                taken = isWrite ? memory.tryWrite(all) : memory.tryRead(all);
            } else {
                taken = isWrite ? memory.tryWrite(all, context) : memory.tryRead(all, context);
            }
            return taken ? Port.done() : Port.noRoom();
        } catch (RuntimeException e) {
            throw Port.Misuse.of(e, to, message == null ? 0 : message.length);
        }
    }

    private static List<RemoteSegment> segments(DataInputStream in) throws IOException {
        int count = in.readInt();
        List<RemoteSegment> segments = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            segments.add(new RemoteSegment(handle(in), in.readLong(), in.readLong()));
        }
        return segments;
    }

    /** In the form without lists, if there is one of that. */
    private static Transfer transfer(List<LocalSegment> local, List<RemoteSegment> remote) {
        if (local.size() == 1 && remote.size() == 1 && local.get(0).bytes() == remote.get(0).bytes()) {
            LocalSegment from = local.get(0);
            RemoteSegment to = remote.get(0);
            return Transfer.of(from.region(), from.offset(), to.handle(), to.offset(), from.bytes());
        }
        return Transfer.of(local, remote);
    }

    private Line.Frame atomic(DataInputStream in) throws IOException, InterruptedException {
        boolean isWaitedFor = in.readBoolean();
        boolean silent = in.readBoolean();
        boolean fenced = in.readBoolean();
        Connection to = handles.connections.get(in.readLong());
        long context = in.readLong();
        Atomic change = change(in.readByte(), in.readByte(), in.readLong(), in.readLong());
        Atomic atomic = fenced ? change.fenced() : change;
        RegionHandle target = handle(in);
        long offset = in.readLong();
        boolean hasResult = in.readBoolean();
        RegionHandle resultHandle = handle(in);
        long resultOffset = in.readLong();
        Region result = hasResult ? region(resultHandle) : null;
        if (hasResult && result == null) {
            return Port.wrong("Java has no words for a local region that never was");
        }
        try {
            RemoteMemory memory = to.remoteMemory();
            if (isWaitedFor) {
                return Port.ended(() -> {
                    long before = memory.atomic(atomic, target, offset, PATIENCE);
                    if (result != null) {
                        result.segment().set(JAVA_LONG_UNALIGNED, resultOffset, before);
                    }
                });
            }
            boolean taken;
            if (silent) {
                taken = memory.tryAtomic(atomic, target, offset, result, resultOffset);
            } else {
                taken = memory.tryAtomic(atomic, target, offset, result, resultOffset, context);
            }
            return taken ? Port.done() : Port.noRoom();
        } catch (RuntimeException e) {
            throw Port.Misuse.of(e, to, 0);
        }
    }

    private static Atomic change(int kind, int width, long operand, long compare) {
        Atomic atomic = switch (kind) {
            case 0 -> Atomic.fetchAdd(operand);
            case 1 -> Atomic.swap(operand);
            case 2 -> Atomic.compareSwap(compare, operand);
            case 3 -> Atomic.add(operand);
            case 4 -> Atomic.and(operand);
            case 5 -> Atomic.or(operand);
            default -> Atomic.xor(operand);
        };
        return width == Integer.BYTES ? atomic.of4Bytes() : atomic;
    }
}
