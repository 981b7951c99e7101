package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.IntFunction;

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
    /** What a wait ends with where the system has handled a signal meanwhile. */
    private static final String SIGNAL = "a signal was handled";

    private final ServiceId id;
    private final boolean isGroup;
    private final ServiceCalls calls = new ServiceCalls(this);
    private final ServiceLeases leases = new ServiceLeases(this);
    /** How long a send looks for a service that is not connected; at first the library's default. */
    private volatile Duration resolveTimeout = Duration.ofSeconds(10);

    private volatile boolean closed;

    private Service(ServiceId id, boolean isGroup) {
        this.id = id;
        this.isGroup = isGroup;
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
        if (!RawServices.join(id.number())) {
            throw notRegistered("the group " + number);
        }
        return new Service(id, true);
    }

    private static Service registered(int number, String what) {
        if (number == RawServices.NO_SERVICE) {
            throw notRegistered(what);
        }
        return new Service(new ServiceId(number), false);
    }

    private static SystemException notRegistered(String what) {
        return new SystemException(Status.ADDRESS_NOT_AVAILABLE, what + ": " + Raw.lastError());
    }

    /**
     * What others name it by.
     *
     * @return its id
     */
    public ServiceId id() {
        return id;
    }

    /**
     * Says how long sends of this service look for another one that is not connected: 10 s, as at first.
     *
     * @param timeout how long. With zero they fail at once; the other service is looked for all the same, and a later send may find
     *     it connected
     * @throws IllegalArgumentException if it is negative, or more than 24 days
     * @throws IllegalStateException if this service is closed
     */
    public void setResolveTimeout(Duration timeout) {
        set(RawServices.setResolveTimeout(id.number(), milliseconds(timeout, 0)));
        resolveTimeout = timeout;
    }

    /**
     * Says for how long this service lends long items and return buffers from now on: for an hour, as at first.
     *
     * @param lease for how long at most
     * @param disconnected for how long at most the long items of an answer stay lent when the connection of their client has ended:
     *     until then it may come back and ask for the answer again
     * @throws IllegalArgumentException if one is negative, or more than 24 days, or {@code lease} is less than a millisecond
     * @throws IllegalStateException if this service is closed
     */
    public void setLease(Duration lease, Duration disconnected) {
        set(RawServices.setLease(id.number(), milliseconds(lease, 1), milliseconds(disconnected, 0)));
    }

    private void set(boolean done) {
        if (!done) {
            String reason = Raw.lastError();
            checkOpen();
            throw new SystemException(Status.ERROR, reason);
        }
    }

    private static int milliseconds(Duration time, int least) {
        boolean isOne = !time.isNegative() && time.compareTo(Duration.ofMillis(Integer.MAX_VALUE)) <= 0;
        if (!isOne || time.toMillis() < least) {
            throw new IllegalArgumentException(time + " is not between " + least + " ms and 24 days");
        }
        return (int) time.toMillis();
    }

    // ------------------------------------------------------------------------------------------------------ sending

    /**
     * Sends short items as one message, whole or not at all. It does not wait for the receiver; only a service that is not
     * connected is looked for, for up to 10 s or {@link #setResolveTimeout another time}.
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
     * How long the only short item of a message may be on the present path to another service.
     *
     * @param to the other service
     * @return 2000 bytes, or fewer where a network takes only shorter messages; 0 if the other service is not connected, and is looked for
     *     from then on, or this one is closed. A message with more items has space for 4 bytes less with each
     */
    public int shortItemBytesMax(ServiceId to) {
        return RawServices.shortItemSizeMax(id.number(), to.number());
    }

    /**
     * What carries messages to another service on the present path.
     *
     * @param to the other service
     * @return {@code shm}, {@code udp}, {@code tcp} or {@code eth}; null if the other service is not connected, or this one is closed
     */
    public String transport(ServiceId to) {
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment name = temporary.allocate(RawServices.TRANSPORT_BYTES);
            return RawServices.transport(id.number(), to.number(), name.address()) ? name.getString(0) : null;
        }
    }

    /**
     * Sends short items, and offers memory that the receiver may put long items of later messages into, each once.
     *
     * @param to whom to send to
     * @param returnBuffers up to 32 parts of buffers, which are this service's partner's until they come back with a message
     * @param items as for {@link #send(ServiceId, ByteBuffer...)}
     * @throws IllegalArgumentException if there are more items or return buffers, more than 2000 bytes, or a return buffer is in a file
     * @throws IllegalStateException if this service, or a buffer, is closed
     * @throws PeerException if the other service was not found, or takes less than it is sent
     */
    public void send(ServiceId to, List<ServiceItem> returnBuffers, ByteBuffer... items) {
        List<ByteBuffer> all = List.of(items);
        ItemArrays.checkShort(all);
        try (Arena temporary = Arena.ofConfined()) {
            send(false, to, ItemArrays.ofShort(temporary, all), returnBuffers, temporary);
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
        if (items.length == 0) {
            throw new IllegalArgumentException("a message without long items");
        }
        List<ServiceItem> all = List.of(items);
        ItemArrays.checkParts("long item", all);
        ItemArrays.enter(all);
        try (Arena temporary = Arena.ofConfined()) {
            send(true, to, ItemArrays.ofParts(temporary, all), List.of(), temporary);
        } finally {
            ItemArrays.exit(all);
        }
    }

    private void send(boolean isLong, ServiceId to, ItemArrays.Of items, List<ServiceItem> returns, SegmentAllocator memory) {
        if (returns.size() > RawServices.LONG_ITEMS_MAX) {
            throw new IllegalArgumentException(
                    returns.size() + " return buffers are more than " + RawServices.LONG_ITEMS_MAX);
        }
        returns.forEach(buffer -> ItemArrays.checkWritable("return buffer", buffer));
        checkOpen();
        if (Thread.currentThread().isVirtual() && !isGroup && shortItemBytesMax(to) == 0) {
            lookFor(to);
        }
        ItemArrays.enter(returns);
        try {
            if (!RawServices.send(isLong, id.number(), to.number(), items, ItemArrays.ofParts(memory, returns))) {
                String reason = Raw.lastError();
                checkOpen();
                throw new PeerException(Status.ERROR, "sending to the service " + to.number() + ": " + reason);
            }
        } finally {
            ItemArrays.exit(returns);
        }
    }

    /** Waits for a connection without the library, in which a virtual thread would keep its carrier. */
    private void lookFor(ServiceId to) {
        Duration timeout = resolveTimeout;
        boolean isInterrupted = false;
        try {
            for (long deadline = Intake.deadline(timeout); ; ) {
                try {
                    IntFunction<Boolean> look = sliceMs -> shortItemBytesMax(to) > 0 ? true : null;
                    if (ServiceWait.until(deadline, this::checkOpen, look) == null && !timeout.isZero()) {
                        throw new PeerException(
                                Status.ERROR, "sending to the service " + to.number() + ": it was not found within " + timeout.toMillis() + " ms");
                    }
                    return;
                } catch (InterruptedException e) {
                    // An interrupt does not end a send, whichever thread waits. The program sees it afterwards.
                    isInterrupted = true;
                }
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    // -------------------------------------------------------------------------------------------------------- calls

    /**
     * Calls another service with short items, and waits for the answer. The request goes to wherever the service is, now or until
     * the deadline: if it moves or is started anew, the request is sent again. One life of a service gets it once.
     *
     * @param to whom to call
     * @param timeout when the call ends at the latest
     * @param items up to 9 buffers of up to 2000 bytes together
     * @return the answer, to be closed
     * @throws InterruptedException if the thread is interrupted; the call goes on, and its answer is thrown away
     * @throws IllegalArgumentException if there are more items or bytes, or the timeout is not more than zero
     * @throws IllegalStateException if this service is closed, also while waiting, or is a group
     * @throws CallException if it ends without an answer; it says how
     * @throws SystemException if 256 calls of this service, or 1024 of the process, have not ended
     */
    public ServiceMessage call(ServiceId to, Duration timeout, ByteBuffer... items) throws InterruptedException {
        return call(to, ServiceContent.of(items), timeout);
    }

    /**
     * Calls another service, and waits for the answer, as {@link #call(ServiceId, Duration, ByteBuffer...)} does.
     *
     * @param to whom to call
     * @param content what is sent; long items of the answer come into its return buffers, or into windows
     * @param timeout when the call ends at the latest
     * @return the answer, to be closed
     * @throws InterruptedException if the thread is interrupted; the call goes on, and its answer is thrown away
     * @throws IllegalArgumentException if the timeout is not more than zero
     * @throws IllegalStateException if this service or a buffer is closed, this also while waiting, or it is a group
     * @throws CallException if it ends without an answer; it says how
     * @throws SystemException if 256 calls of this service, or 1024 of the process, have not ended
     */
    public ServiceMessage call(ServiceId to, ServiceContent content, Duration timeout) throws InterruptedException {
        return calls.await(to, begin(to, content, timeout, false));
    }

    /**
     * Calls another service as {@link #call(ServiceId, ServiceContent, Duration)} does, and never twice: if the service dies with
     * the request, no later life of it gets it, and the call is {@link CallException.End#LOST}.
     *
     * @param to as there
     * @param content as there
     * @param timeout as there
     * @return the answer, to be closed
     * @throws InterruptedException if the thread is interrupted; the call goes on, and its answer is thrown away
     * @throws IllegalArgumentException if the timeout is not more than zero
     * @throws IllegalStateException if this service or a buffer is closed, this also while waiting, or it is a group
     * @throws CallException if it ends without an answer; it says how
     * @throws SystemException if 256 calls of this service, or 1024 of the process, have not ended
     */
    public ServiceMessage callOnce(ServiceId to, ServiceContent content, Duration timeout) throws InterruptedException {
        return calls.await(to, begin(to, content, timeout, true));
    }

    /**
     * Begins a call of another service, and does not wait.
     *
     * @param to whom to call
     * @param content what is sent; short items are the program's again when this returns
     * @param timeout when the call ends at the latest
     * @return a future of the answer, to be closed, which may fail with a {@link CallException}; cancelling it throws the answer away
     * @throws IllegalArgumentException if the timeout is not more than zero
     * @throws IllegalStateException if this service or a buffer is closed, or it is a group
     * @throws SystemException if 256 calls of this service, or 1024 of the process, have not ended
     */
    public CompletableFuture<ServiceMessage> callAsync(ServiceId to, ServiceContent content, Duration timeout) {
        return calls.future(to, begin(to, content, timeout, false));
    }

    private long begin(ServiceId to, ServiceContent content, Duration timeout, boolean once) {
        checkOpen();
        if (isGroup) {
            throw new IllegalStateException("a group makes no calls: register a service for them");
        }
        return calls.begin(to, content, timeout, once);
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
     * @throws IllegalArgumentException if it is empty or in a file
     * @throws IllegalStateException if this service, or the buffer, is closed
     * @throws SystemException if there is no memory
     */
    public void offerWindow(ServiceItem window) {
        if (window.length() == 0) {
            throw new IllegalArgumentException("a window is empty");
        }
        ItemArrays.checkWritable("window", window);
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
        return receive(timeout, (sliceMs, fields) -> RawServices.receiveWithin(sliceMs, id.number(), fields));
    }

    /**
     * Receives the next message or request, and waits for it. A service that others call receives by this; one that receives by
     * {@link #receive} has its requests refused. Long items of a request are fetched into windows, as those of a message are.
     *
     * @param timeout how long to wait; zero: it never waits
     * @return the message, to be closed, whose {@link ServiceMessage#request} is to be answered if there is one; null if none came
     *     in time
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalStateException if this service is closed, also while waiting
     * @throws SystemException if there is no memory for a message
     */
    public ServiceMessage receiveRequest(Duration timeout) throws InterruptedException {
        return receive(timeout, (sliceMs, fields) ->
                RawCalls.receiveRequest(sliceMs, id.number(), fields + RawServices.Received.BYTES, fields));
    }

    /** Looks once in the library. */
    private interface Look {
        int within(int sliceMs, long fields);
    }

    private ServiceMessage receive(Duration timeout, Look look) throws InterruptedException {
        try (Arena temporary = Arena.ofConfined()) {
            // The number of a request is behind the fields.
            MemorySegment fields = temporary.allocate(RawServices.Received.BYTES + Long.BYTES, Long.BYTES);
            return ServiceWait.until(Intake.deadline(timeout), this::checkOpen, sliceMs -> {
                leases.takeReturned();
                int code = look.within(sliceMs, fields.address());
                long request = fields.get(JAVA_LONG, RawServices.Received.BYTES);
                if (code == RawServices.RECEIVED || request != 0 || ServiceMessage.isIn(fields)) {
                    return ServiceMessage.take(fields, request == 0 ? null : new ServiceRequest(request, leases));
                }
                if (code != RawServices.TIMED_OUT) {
                    checkReceiving(code, Raw.lastError());
                }
                return null;
            });
        }
    }

    /** Nothing came, and not since the time was over. */
    private void checkReceiving(int code, String reason) {
        checkOpen();
        if (code == RawServices.NOT_OURS || !reason.contains(SIGNAL)) {
            throw new SystemException(Status.ERROR, "receiving for the service " + id.number() + ": " + reason);
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

    // ------------------------------------------------------------------------------------------------------ the end

    void checkOpen() {
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
        leases.end();
    }

    @Override
    public String toString() {
        return "service " + id.number();
    }
}
