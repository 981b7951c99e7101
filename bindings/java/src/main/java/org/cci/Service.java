package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.locks.LockSupport;

/**
 * A service of this process, which others find by its id, wherever it is (libRIPC). It sends messages to other services and
 * receives theirs; partners need not trust each other.
 *
 * <p>A message has up to 9 short items, of up to 2000 bytes together, which travel in it, or up to 32 long ones, which stay in
 * {@link ServiceBuffer buffers} until the receiver has fetched them into windows that it gave, or which are put into return
 * buffers that it offered.
 *
 * <p>The directory that the environment variable {@code CCI_DIRECTORY} names says where services are; without it, that of this
 * host. A service that is killed and started anew, or that has moved, is found again without a call by anybody.
 *
 * <p>A send returns when this process has done its part: it does not learn whether the message has come. While both processes
 * and the path between them live, it does, once, and in order.
 */
public final class Service implements AutoCloseable {
    /** The longest that one wait in the library takes, after which its thread looks around. */
    private static final int SLICE_MS = 20;
    /** How long a virtual thread parks at most between looks. */
    private static final long PARK_NS_MAX = 1_000_000;

    private static final int SPINS = 64;
    /** What a wait ends with where the system has handled a signal meanwhile. */
    private static final String SIGNAL = "a signal was handled";

    private final ServiceId id;
    private volatile boolean closed;

    private Service(ServiceId id) {
        this.id = id;
    }

    /**
     * Registers a service under a name that nobody has.
     *
     * @param name 1 to 63 letters, digits, {@code -}, {@code _} and {@code .}, first a letter or a digit
     * @return the service
     * @throws SystemException if it is no such name, somebody else has it, or the directory can't be used
     */
    public static Service register(String name) {
        try (Arena temporary = Arena.ofConfined()) {
            return registered(RawServices.registerNamed(temporary.allocateFrom(name).address()), "the service " + name);
        }
    }

    /**
     * Registers a service under a number that nobody has.
     *
     * @param number 0 to 65534
     * @return the service
     * @throws IllegalArgumentException if it is no such number
     * @throws SystemException if somebody else has it, or the directory can't be used
     */
    public static Service register(int number) {
        ServiceId id = new ServiceId(number);
        return registered(RawServices.register(id.number()) ? number : RawServices.NO_SERVICE, "the service " + number);
    }

    /**
     * Registers a service under some number that nobody has.
     *
     * @return the service
     * @throws SystemException if the directory can't be used
     */
    public static Service registerAny() {
        return registered(RawServices.registerRandom(), "a service");
    }

    /**
     * Joins a group, of which any number of processes are members. What a member sends from it, to it, comes to the others.
     *
     * @param number the group's, 0 to 65534
     * @return the membership; it has no long items
     * @throws IllegalArgumentException if it is no such number
     * @throws SystemException if a service has this number, or the directory can't be used
     */
    public static Service joinGroup(int number) {
        ServiceId id = new ServiceId(number);
        return registered(RawServices.join(id.number()) ? number : RawServices.NO_SERVICE, "the group " + number);
    }

    private static Service registered(int number, String what) {
        if (number == RawServices.NO_SERVICE) {
            throw new SystemException(Status.ADDRESS_NOT_AVAILABLE, what + ": " + Raw.lastError());
        }
        return new Service(new ServiceId(number));
    }

    /**
     * What others name it by.
     *
     * @return its id
     */
    public ServiceId id() {
        return id;
    }

    // ------------------------------------------------------------------------------------------------------ sending

    /**
     * Sends short items as one message, whole or not at all. It does not wait for the receiver; only a service that is not
     * connected is looked for, for up to 10 s.
     *
     * @param to whom to send to
     * @param items up to 9 buffers, whose remaining bytes are sent, and which stay as they are
     * @throws IllegalArgumentException if there are more items, or more than 2000 bytes
     * @throws IllegalStateException if this service is closed
     * @throws PeerException if the other service was not found, or takes less than it is sent
     */
    public void send(ServiceId to, ByteBuffer... items) {
        send(to, List.of(), items);
    }

    /**
     * Sends short items, and offers memory that the receiver may put long items of later messages into, each once.
     *
     * @param to whom to send to
     * @param returnBuffers up to 32 parts of buffers, which are this service's partner's until they come back with a message
     * @param items as for {@link #send(ServiceId, ByteBuffer...)}
     * @throws IllegalArgumentException if there are more items or return buffers, or more than 2000 bytes
     * @throws IllegalStateException if this service, or a buffer, is closed
     * @throws PeerException if the other service was not found, or takes less than it is sent
     */
    public void send(ServiceId to, List<ServiceItem> returnBuffers, ByteBuffer... items) {
        long bytes = 0;
        for (ByteBuffer item : items) {
            bytes += item.remaining();
        }
        if (items.length > RawServices.ITEMS_MAX || bytes > RawServices.BYTES_MAX) {
            throw new IllegalArgumentException(items.length + " short items of " + bytes + " bytes together are more than "
                    + RawServices.ITEMS_MAX + " items of " + RawServices.BYTES_MAX + " bytes: send long items");
        }
        try (Arena temporary = Arena.ofConfined()) {
            send(false, to, shortItems(temporary, items, bytes), returnBuffers, temporary);
        }
    }

    /**
     * Sends long items as one message. Those for which the receiver has offered return buffers are put there before this
     * returns; the receiver fetches the others. Leave them as they are until it has said that it has them; their buffers may be
     * closed at once.
     *
     * @param to whom to send to
     * @param items 1 to 32 parts of buffers, none of them empty
     * @throws IllegalArgumentException if there are none or more, or one is empty
     * @throws IllegalStateException if this service, or a buffer, is closed, or it is a group
     * @throws PeerException if the other service was not found, or takes less than it is sent
     */
    public void sendLong(ServiceId to, ServiceItem... items) {
        if (items.length == 0 || items.length > RawServices.LONG_ITEMS_MAX) {
            throw new IllegalArgumentException(
                    items.length + " long items are not 1 to " + RawServices.LONG_ITEMS_MAX);
        }
        for (ServiceItem item : items) {
            if (item.length() == 0) {
                throw new IllegalArgumentException("a long item is empty");
            }
        }
        List<ServiceItem> all = List.of(items);
        enter(all);
        try (Arena temporary = Arena.ofConfined()) {
            send(true, to, places(temporary, all), List.of(), temporary);
        } finally {
            exit(all);
        }
    }

    private void send(boolean isLong, ServiceId to, RawServices.Items items, List<ServiceItem> returns, SegmentAllocator memory) {
        if (returns.size() > RawServices.LONG_ITEMS_MAX) {
            throw new IllegalArgumentException(
                    returns.size() + " return buffers are more than " + RawServices.LONG_ITEMS_MAX);
        }
        checkOpen();
        enter(returns);
        try {
            if (!RawServices.send(isLong, id.number(), to.number(), items, places(memory, returns))) {
                String reason = Raw.lastError();
                checkOpen();
                throw new PeerException(Status.ERROR, "sending to the service " + to.number() + ": " + reason);
            }
        } finally {
            exit(returns);
        }
    }

    /** Copies the items behind each other. */
    private static RawServices.Items shortItems(SegmentAllocator memory, ByteBuffer[] items, long bytes) {
        if (items.length == 0) {
            return RawServices.Items.NONE;
        }
        MemorySegment payload = memory.allocate(Math.max(bytes, 1));
        MemorySegment addresses = memory.allocate(JAVA_LONG, items.length);
        MemorySegment lengths = memory.allocate(JAVA_INT, items.length);
        long at = 0;
        for (int index = 0; index < items.length; index++) {
            MemorySegment item = MemorySegment.ofBuffer(items[index]);
            MemorySegment.copy(item, 0, payload, at, item.byteSize());
            addresses.setAtIndex(JAVA_LONG, index, payload.address() + at);
            lengths.setAtIndex(JAVA_INT, index, (int) item.byteSize());
            at += item.byteSize();
        }
        return new RawServices.Items(addresses.address(), lengths.address(), (short) items.length);
    }

    private static RawServices.Items places(SegmentAllocator memory, List<ServiceItem> items) {
        if (items.isEmpty()) {
            return RawServices.Items.NONE;
        }
        MemorySegment addresses = memory.allocate(JAVA_LONG, items.size());
        MemorySegment lengths = memory.allocate(JAVA_INT, items.size());
        for (int index = 0; index < items.size(); index++) {
            ServiceItem item = items.get(index);
            addresses.setAtIndex(JAVA_LONG, index, item.buffer().address() + item.offset());
            lengths.setAtIndex(JAVA_INT, index, (int) item.length());
        }
        return new RawServices.Items(addresses.address(), lengths.address(), (short) items.size());
    }

    /** Keeps the buffers open during a call. */
    private static void enter(List<ServiceItem> items) {
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

    private static void exit(List<ServiceItem> items) {
        for (ServiceItem item : items) {
            item.buffer().exit();
        }
    }

    // ---------------------------------------------------------------------------------------------------- receiving

    /**
     * Gives a window of the library's memory, which one long item of one message is fetched into. It comes with the message,
     * and is freed with it.
     *
     * @param bytes the longest item that it takes
     * @throws IllegalArgumentException if it is not 1 to 4294967295
     * @throws IllegalStateException if this service is closed
     * @throws SystemException if there is no memory
     */
    public void offerWindow(long bytes) {
        ServiceBuffer.checkLength(bytes);
        offerWindow(0, bytes);
    }

    /**
     * Gives a window of the program's, which one long item of one message is fetched into. Then it is the program's again.
     *
     * @param window a part of a buffer, to be left alone until it comes with a message
     * @throws IllegalArgumentException if it is empty
     * @throws IllegalStateException if this service, or the buffer, is closed
     * @throws SystemException if there is no memory
     */
    public void offerWindow(ServiceItem window) {
        if (window.length() == 0) {
            throw new IllegalArgumentException("a window is empty");
        }
        window.buffer().enter();
        try {
            offerWindow(window.buffer().address() + window.offset(), window.length());
        } finally {
            window.buffer().exit();
        }
    }

    private void offerWindow(long base, long bytes) {
        checkOpen();
        if (!RawServices.window(base, bytes, id.number())) {
            String reason = Raw.lastError();
            checkOpen();
            throw new SystemException(Status.NO_MEMORY, "a window of " + bytes + " bytes: " + reason);
        }
    }

    /**
     * Receives the next message, and waits for it. A platform thread sleeps in the library; a virtual thread gives its carrier
     * up, and looks every millisecond at least.
     *
     * @param timeout how long to wait; zero: it never waits
     * @return the message, to be closed, or null if none came in time
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalStateException if this service is closed, also while waiting
     * @throws SystemException if there is no memory for a message
     */
    public ServiceMessage receive(Duration timeout) throws InterruptedException {
        long deadline = Intake.deadline(timeout);
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment fields = temporary.allocate(RawServices.Received.BYTES, Long.BYTES);
            for (long turn = 0; ; turn++) {
                checkOpen();
                if (Thread.interrupted()) {
                    throw new InterruptedException();
                }
                long leftNs = deadline - System.nanoTime();
                boolean sleeps = leftNs > 0 && !Thread.currentThread().isVirtual();
                int sliceMs = sleeps ? (int) Math.min(SLICE_MS, leftNs / 1_000_000 + 1) : 0;
                int code = RawServices.receiveWithin(sliceMs, id.number(), fields.address());
                boolean came = code == RawServices.RECEIVED || ServiceMessage.isIn(fields);
                if (came) {
                    return ServiceMessage.take(fields);
                }
                if (code != RawServices.TIMED_OUT) {
                    String reason = Raw.lastError();
                    checkOpen();
                    if (code == RawServices.NOT_OURS || !reason.contains(SIGNAL)) {
                        throw new SystemException(Status.ERROR, "receiving for the service " + id.number() + ": " + reason);
                    }
                }
                if (leftNs <= 0) {
                    return null;
                }
                if (!sleeps) {
                    pauseVirtual(turn, leftNs);
                }
            }
        }
    }

    /**
     * Receives the next message.
     *
     * @param timeout how long to wait
     * @return a future of the message, to be closed, or of null if none came in time
     */
    public CompletableFuture<ServiceMessage> receiveAsync(Duration timeout) {
        CompletableFuture<ServiceMessage> received = new CompletableFuture<>();
        Thread.startVirtualThread(() -> {
            try {
                ServiceMessage message = receive(timeout);
                if (!received.complete(message) && message != null) {
                    // The future was cancelled: nobody will close what it would have given.
                    message.close();
                }
            } catch (InterruptedException e) {
                received.completeExceptionally(new CompletionException(e));
            } catch (RuntimeException e) {
                received.completeExceptionally(e);
            }
        });
        return received;
    }

    private static void pauseVirtual(long turn, long leftNs) {
        if (turn < SPINS) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(Math.min(leftNs, PARK_NS_MAX));
        }
    }

    // ------------------------------------------------------------------------------------------------------ the end

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the service " + id.number() + " is closed");
        }
    }

    /** Takes the service back. Who waits to receive from it gets an exception. Closing again does nothing. */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        RawServices.unregister(id.number());
    }

    @Override
    public String toString() {
        return "service " + id.number();
    }
}
