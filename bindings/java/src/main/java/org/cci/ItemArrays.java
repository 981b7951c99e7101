package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.ByteBuffer;
import java.util.List;

/** Items as ripc.h wants them: an array of addresses, and one of lengths. */
final class ItemArrays {
    /** The longest item, bytes. */
    private static final long LENGTH_MAX = 0xffff_ffffL;

    private ItemArrays() {}

    /** Where two arrays of the same length are: addresses, and lengths of 32 bits. */
    record Of(long addresses, long lengths, short count) {
        static final Of NONE = new Of(0, 0, (short) 0);
    }

    static void checkShort(List<ByteBuffer> items) {
        long bytes = bytes(items);
        if (items.size() > RawServices.ITEMS_MAX || bytes > RawServices.BYTES_MAX) {
            throw new IllegalArgumentException(items.size() + " short items of " + bytes + " bytes together are more than "
                    + RawServices.ITEMS_MAX + " items of " + RawServices.BYTES_MAX + " bytes: send long items");
        }
    }

    static void checkParts(String what, List<ServiceItem> items) {
        if (items.size() > RawServices.LONG_ITEMS_MAX) {
            throw new IllegalArgumentException(
                    items.size() + " " + what + "s are more than " + RawServices.LONG_ITEMS_MAX);
        }
        for (ServiceItem item : items) {
            if (item.length() == 0) {
                throw new IllegalArgumentException("a " + what + " is empty");
            }
            if (item.length() > LENGTH_MAX) {
                throw new IllegalArgumentException(
                        "a " + what + " has up to " + LENGTH_MAX + " bytes, and not " + item.length());
            }
        }
    }

    /** Refuses files where partners write. */
    static void checkWritable(String what, ServiceItem item) {
        if (item.segment().isReadOnly()) {
            throw new IllegalArgumentException("a " + what + " can't be in a file");
        }
    }

    private static long bytes(List<ByteBuffer> items) {
        long bytes = 0;
        for (ByteBuffer item : items) {
            bytes += item.remaining();
        }
        return bytes;
    }

    /** Copies the items behind each other. */
    static Of ofShort(SegmentAllocator memory, List<ByteBuffer> items) {
        if (items.isEmpty()) {
            return Of.NONE;
        }
        MemorySegment payload = memory.allocate(Math.max(bytes(items), 1));
        MemorySegment addresses = memory.allocate(JAVA_LONG, items.size());
        MemorySegment lengths = memory.allocate(JAVA_INT, items.size());
        long at = 0;
        for (int index = 0; index < items.size(); index++) {
            MemorySegment item = MemorySegment.ofBuffer(items.get(index));
            MemorySegment.copy(item, 0, payload, at, item.byteSize());
            addresses.setAtIndex(JAVA_LONG, index, payload.address() + at);
            lengths.setAtIndex(JAVA_INT, index, (int) item.byteSize());
            at += item.byteSize();
        }
        return new Of(addresses.address(), lengths.address(), (short) items.size());
    }

    /** Parts of buffers, which stay where they are. */
    static Of ofParts(SegmentAllocator memory, List<ServiceItem> items) {
        if (items.isEmpty()) {
            return Of.NONE;
        }
        MemorySegment addresses = memory.allocate(JAVA_LONG, items.size());
        MemorySegment lengths = memory.allocate(JAVA_INT, items.size());
        for (int index = 0; index < items.size(); index++) {
            ServiceItem item = items.get(index);
            addresses.setAtIndex(JAVA_LONG, index, item.buffer().address() + item.offset());
            lengths.setAtIndex(JAVA_INT, index, (int) item.length());
        }
        return new Of(addresses.address(), lengths.address(), (short) items.size());
    }

    /** Keeps the buffers open during a call. */
    static void enter(List<ServiceItem> items) {
        int entered = 0;
        try {
            for (ServiceItem item : items) {
                item.buffer().enter();
                entered++;
            }
        } catch (IllegalStateException e) {
            exit(items.subList(0, entered));
            throw e;
        }
    }

    static void exit(List<ServiceItem> items) {
        for (ServiceItem item : items) {
            item.buffer().exit();
        }
    }
}
