package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * A message that came to a {@link Service}. Its short items are the program's. Its long items are in windows or return buffers
 * of the program's, which stay open, or in windows of the library's, which are freed when the message is closed.
 */
public final class ServiceMessage implements AutoCloseable {
    private final ServiceId from;
    private final List<byte[]> items;
    /** With null for one that could not be fetched. */
    private final ServiceItem[] longItems;
    /** The buffers that the message brought with it. */
    private final List<ServiceBuffer> ours;

    private final ServiceRequest request;

    private ServiceMessage(
            ServiceId from, List<byte[]> items, ServiceItem[] longItems, List<ServiceBuffer> ours, ServiceRequest request) {
        this.request = request;
        this.from = from;
        this.items = items;
        this.longItems = longItems;
        this.ours = ours;
    }

    /** Whether the library has written a message, perhaps without some of its long items. */
    static boolean isIn(MemorySegment fields) {
        return fields.get(JAVA_SHORT, RawServices.Received.SHORT_COUNT) != 0
                || fields.get(JAVA_SHORT, RawServices.Received.LONG_COUNT) != 0;
    }

    /** Takes what the library has written, and frees its arrays; with the request that it is, or null. */
    static ServiceMessage take(MemorySegment fields, ServiceRequest request) {
        int from = Short.toUnsignedInt(fields.get(JAVA_SHORT, RawServices.Received.FROM));
        int shortCount = Short.toUnsignedInt(fields.get(JAVA_SHORT, RawServices.Received.SHORT_COUNT));
        int longCount = Short.toUnsignedInt(fields.get(JAVA_SHORT, RawServices.Received.LONG_COUNT));
        long shortPlaces = fields.get(JAVA_LONG, RawServices.Received.SHORT);
        long shortLengths = fields.get(JAVA_LONG, RawServices.Received.SHORT_LENGTHS);
        long longPlaces = fields.get(JAVA_LONG, RawServices.Received.LONG);
        long longLengths = fields.get(JAVA_LONG, RawServices.Received.LONG_LENGTHS);
        List<byte[]> items = new ArrayList<>(shortCount);
        for (int index = 0; index < shortCount; index++) {
            byte[] item = new byte[Raw.getInt(shortLengths + 4L * index)];
            MemorySegment.copy(
                    Raw.MEMORY, Raw.getLong(shortPlaces + 8L * index), MemorySegment.ofArray(item), 0, item.length);
            items.add(item);
        }
        if (shortCount > 0) {
            RawServices.free(Raw.getLong(shortPlaces));
        }
        ServiceItem[] longItems = new ServiceItem[longCount];
        List<ServiceBuffer> ours = new ArrayList<>();
        for (int index = 0; index < longCount; index++) {
            long place = Raw.getLong(longPlaces + 8L * index);
            if (place != 0) {
                longItems[index] = ServiceBuffer.received(
                        place, Integer.toUnsignedLong(Raw.getInt(longLengths + 4L * index)), ours);
            }
        }
        Raw.free(shortPlaces);
        Raw.free(shortLengths);
        Raw.free(longPlaces);
        Raw.free(longLengths);
        return new ServiceMessage(from == RawServices.NO_SERVICE ? null : new ServiceId(from), items, longItems, ours, request);
    }

    /**
     * Who has sent it. Answers go there.
     *
     * @return the service, or null if this process has no number left for it
     */
    public ServiceId from() {
        return from;
    }

    /**
     * The request that it is, to be answered.
     *
     * @return the request, or null if its sender does not wait for an answer
     */
    public ServiceRequest request() {
        return request;
    }

    /**
     * How many short items it has.
     *
     * @return 0 to 9
     */
    public int itemCount() {
        return items.size();
    }

    /**
     * A short item.
     *
     * @param index which one
     * @return its bytes, which are the program's
     * @throws IndexOutOfBoundsException if there is no such item
     */
    public ByteBuffer item(int index) {
        return ByteBuffer.wrap(items.get(index));
    }

    /**
     * How many long items it has, with those that could not be fetched.
     *
     * @return 0 to 32
     */
    public int longItemCount() {
        return longItems.length;
    }

    /**
     * A long item.
     *
     * @param index which one
     * @return where it is; null if it was not fetched, since there was no window that is long enough, or the sender has gone
     * @throws IndexOutOfBoundsException if there is no such item
     */
    public ServiceItem longItem(int index) {
        return longItems[index];
    }

    /**
     * Whether all long items were fetched.
     *
     * @return true if each is there
     */
    public boolean isComplete() {
        for (ServiceItem item : longItems) {
            if (item == null) {
                return false;
            }
        }
        return true;
    }

    /**
     * Frees the memory of the library's that its long items are in. Closing again does nothing.
     *
     * @throws IllegalStateException if native code uses such an item at this moment
     */
    @Override
    public void close() {
        ours.forEach(ServiceBuffer::close);
    }

    @Override
    public String toString() {
        return "message of " + items.size() + " short and " + longItems.length + " long items";
    }
}
