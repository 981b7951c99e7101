package org.cci;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.ByteBuffer;
import java.util.List;

/**
 * What a {@link Service} sends with a call or an answer: short items, long ones, and buffers into which the other side may put
 * long items. Long items and return buffers are lent; leave them as they are until the other side has said that it has them.
 * Their buffers may be closed at once: the library keeps the memory until it was fetched.
 *
 * @param shortItems up to 9 buffers of up to 2000 bytes together, whose remaining bytes are sent, and which stay as they are
 * @param longItems up to 32 parts of buffers, none of them empty
 * @param returnBuffers up to 32 parts of buffers, none of them empty, each for one long item of what comes back
 */
public record ServiceContent(List<ByteBuffer> shortItems, List<ServiceItem> longItems, List<ServiceItem> returnBuffers) {
    /** Nothing at all. */
    public static final ServiceContent EMPTY = new ServiceContent(List.of(), List.of(), List.of());

    /**
     * What is sent.
     *
     * @throws IllegalArgumentException if there is too much of something, a part is empty, or a return buffer is in a file
     */
    public ServiceContent {
        shortItems = List.copyOf(shortItems);
        longItems = List.copyOf(longItems);
        returnBuffers = List.copyOf(returnBuffers);
        ItemArrays.checkShort(shortItems);
        ItemArrays.checkParts("long item", longItems);
        ItemArrays.checkParts("return buffer", returnBuffers);
        returnBuffers.forEach(buffer -> ItemArrays.checkWritable("return buffer", buffer));
    }

    /**
     * Short items.
     *
     * @param items up to 9 buffers of up to 2000 bytes together
     * @return what is sent
     * @throws IllegalArgumentException if there are more items, or more bytes
     */
    public static ServiceContent of(ByteBuffer... items) {
        return new ServiceContent(List.of(items), List.of(), List.of());
    }

    /**
     * This with other long items.
     *
     * @param items up to 32 parts of buffers, none of them empty
     * @return what is sent
     * @throws IllegalArgumentException if there are more, or one is empty
     */
    public ServiceContent withLongItems(ServiceItem... items) {
        return new ServiceContent(shortItems, List.of(items), returnBuffers);
    }

    /**
     * This with other return buffers.
     *
     * @param buffers up to 32 parts of buffers, none of them empty
     * @return what is sent
     * @throws IllegalArgumentException if there are more, or one is empty or in a file
     */
    public ServiceContent withReturnBuffers(ServiceItem... buffers) {
        return new ServiceContent(shortItems, longItems, List.of(buffers));
    }

    /** Keeps the buffers open during a call. */
    void enter() {
        ItemArrays.enter(longItems);
        try {
            ItemArrays.enter(returnBuffers);
        } catch (IllegalStateException e) {
            ItemArrays.exit(longItems);
            throw e;
        }
    }

    void exit() {
        ItemArrays.exit(longItems);
        ItemArrays.exit(returnBuffers);
    }

    /** A {@code struct ripc_content}. */
    MemorySegment write(SegmentAllocator memory) {
        MemorySegment content = memory.allocate(RawCalls.CONTENT_BYTES, Long.BYTES);
        ItemArrays.Of[] all = {
            ItemArrays.ofShort(memory, shortItems), ItemArrays.ofParts(memory, longItems), ItemArrays.ofParts(memory, returnBuffers)
        };
        for (int index = 0; index < all.length; index++) {
            RawCalls.writeArray(content, index, all[index]);
        }
        return content;
    }
}
