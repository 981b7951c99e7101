package org.cci.jetty;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import org.cci.ServiceBuffer;
import org.eclipse.jetty.io.RetainableByteBuffer;

/**
 * Memory of the library's that Jetty writes from, and that is sent from where it is. Nobody writes to it until it is released by
 * all who have retained it, whatever else Jetty says of a write that is done.
 */
final class Lendable {
    /** All of them, by address. */
    private static final ConcurrentSkipListMap<Long, Lendable> ALL = new ConcurrentSkipListMap<>();

    private final ServiceBuffer buffer;
    private final long address;
    private final RetainableByteBuffer.Mutable retainable;
    /** False as soon as one partner may still fetch it. */
    private volatile boolean isReusable = true;

    /**
     * Memory for one use.
     *
     * @param buffer where it is
     * @param part how much of it is shown, bytes
     * @param released called when nobody retains it any more, with true if the memory may be written to again
     */
    Lendable(ServiceBuffer buffer, long part, Part.Owner released) {
        this.buffer = buffer;
        ByteBuffer bytes = buffer.segment().asSlice(0, part).asByteBuffer();
        address = buffer.segment().address();
        retainable = RetainableByteBuffer.wrap(bytes, () -> {
            ALL.remove(address, this);
            released.release(isReusable);
        });
        ALL.put(address, this);
    }

    /** What Jetty uses it by, retained once. */
    RetainableByteBuffer.Mutable retainable() {
        return retainable;
    }

    /** The memory that these bytes are in; null if they are elsewhere. */
    static Lendable of(ByteBuffer bytes) {
        if (!bytes.isDirect() || ALL.isEmpty()) {
            return null;
        }
        long at = MemorySegment.ofBuffer(bytes).address();
        Map.Entry<Long, Lendable> below = ALL.floorEntry(at);
        if (below == null) {
            return null;
        }
        Lendable found = below.getValue();
        return at + bytes.remaining() <= found.address + found.buffer.segment().byteSize() ? found : null;
    }

    /** Some of the first of these bytes, which are in this memory, as a part that retains it. */
    Part part(ByteBuffer bytes, int count) {
        long offset = MemorySegment.ofBuffer(bytes).address() - address;
        Part part = new Part(buffer.item(offset, count), this::giveBack);
        retainable.retain();
        return part;
    }

    private void giveBack(boolean isFetched) {
        if (!isFetched) {
            isReusable = false;
        }
        retainable.release();
    }
}
