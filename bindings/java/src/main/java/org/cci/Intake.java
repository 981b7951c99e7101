package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What endpoints and messengers share: the lock, how events come in, how threads wait for them, and the end.
 *
 * <p>The lock is held around each call into the library that names the endpoint, but not while one waits there: that a handle
 * stays until its last call has returned is what the library asks of a program. One thread at a time waits in the library, and
 * queues what it gets before another may ask: so events keep their order.
 *
 * @param <E> the type of events
 */
abstract class Intake<E> implements AutoCloseable {
    private static final int CODE_AGAIN = 11;
    private static final int CODE_NO_BUFFERS = 105;

    /** The longest that one wait in the library takes, after which its thread looks around. */
    private static final long SLICE_NS = 20_000_000;
    /** How long a virtual thread parks at most between looks. */
    private static final long PARK_NS_MAX = 1_000_000;

    private static final int SPINS = 64;

    /** What the library needs of memory beside a message. */
    private static final int FIELDS_BYTES = 256;

    final Context context;
    final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    /** Ends with the endpoint: the scope of scratch memory, and of all that is read of its buffers. */
    final Arena arena = Arena.ofShared();
    /** All memory, while the endpoint is open. */
    final MemorySegment memory = Raw.MEMORY.reinterpret(arena, null);

    final MemorySegment fields = arena.allocate(FIELDS_BYTES, 64);
    /** Where C puts what it gives out. */
    final long out = fields.address();
    /** The same for the thread that waits, which does so without the lock. */
    private final long waitOut = out + 8;
    private final long waitTime = out + 16;
    /** A timeout of a call. */
    private final long callTime = out + 32;
    /** Two region handles. */
    final long handles = out + 64;

    final OperationTable operations = new OperationTable();
    private final ArrayDeque<E> backlog = new ArrayDeque<>();
    /** Futures to be completed when the lock is free. */
    private final ArrayDeque<Operation> ended = new ArrayDeque<>();

    /** The endpoint or messenger in C; 0 when it is closed. */
    long handle;
    /** Somebody waits in the library. */
    private boolean waiting;
    private boolean closing;
    /** Threads that wait for the lock to close this. Nobody else takes it meanwhile: many that use it would keep it from them. */
    private final AtomicInteger closers = new AtomicInteger();
    /** The library has said that every receive buffer is out with the program. */
    private boolean starved;
    private Thread progress;

    Intake(Context context) {
        this.context = context;
    }

    /** The call that takes the next event. */
    abstract int rawGet(long eventOut);

    /** The call that waits for it. */
    abstract int rawWait(long timeout, long eventOut);

    /** The event for the program, or null if it was for an operation here. It is under the lock. */
    abstract E translate(long event);

    /**
     * Ends what the program sees of the library's memory. It is under the lock.
     *
     * @throws IllegalStateException if some of it is in use by a call into native code; then nothing else ends
     */
    abstract void closeViews();

    /** Ends the endpoint in C, and gives back what the program has of it. It is under the lock. */
    abstract void rawClose();

    /** What people call it. */
    abstract String kind();

    // ---------------------------------------------------------------------------------------------------- the lock

    /** Begins a call. */
    final void enter() {
        boolean isClosed = closers.get() > 0 && !lock.isHeldByCurrentThread();
        if (!isClosed) {
            lock.lock();
            isClosed = handle == 0 || closing;
            if (isClosed) {
                lock.unlock();
            }
        }
        if (isClosed) {
            throw new IllegalStateException("the " + kind() + " is closed");
        }
    }

    /** Ends a call, and completes the futures of what has ended in it. */
    final void exit() {
        if (ended.isEmpty() || lock.getHoldCount() > 1) {
            lock.unlock();
            return;
        }
        Operation[] all = ended.toArray(Operation[]::new);
        ended.clear();
        lock.unlock();
        for (Operation operation : all) {
            if (operation.failure != null) {
                operation.future.completeExceptionally(operation.failure);
            } else if (!operation.future.complete(operation.result) && operation.result instanceof Payload reply) {
                // The future was cancelled: nobody will close what it would have given.
                reply.close();
            }
        }
    }

    /** An operation has ended. */
    final void end(Operation operation, Object result, RuntimeException failure) {
        operation.result = result;
        operation.failure = failure;
        operation.done = true;
        if (operation.future != null) {
            ended.add(operation);
        } else {
            changed.signalAll();
        }
    }

    // ------------------------------------------------------------------------------------------------------- events

    /** An event that came before and still waits for the program. */
    final E queued() {
        return backlog.poll();
    }

    /** The next event in C that is not for an operation here; null if there is none, or somebody else waits for it. */
    final E fresh() {
        while (!waiting && handle != 0 && !closing) {
            int code = rawGet(out);
            if (code != 0) {
                nothing(code);
                return null;
            }
            E event = translate(Raw.getLong(out));
            if (event != null) {
                return event;
            }
        }
        return null;
    }

    /** Whether this thread may ask the library for events. */
    final boolean mayAsk() {
        return !waiting;
    }

    /** Notes why there is no event. */
    final void nothing(int code) {
        starved = code == CODE_NO_BUFFERS;
        if (code != CODE_AGAIN && code != CODE_NO_BUFFERS) {
            throw Failure.of(code, "taking an event");
        }
    }

    /**
     * The next event, if there is one; never blocks.
     *
     * @return the event, or null
     * @throws IllegalStateException if this is closed
     */
    public final E poll() {
        enter();
        try {
            E event = backlog.poll();
            return event != null ? event : fresh();
        } finally {
            exit();
        }
    }

    /**
     * Waits for the next event. A platform thread sleeps in the library; a virtual thread gives its carrier up, and looks
     * every millisecond at least, or is woken by the progress thread if there is one.
     *
     * @param timeout how long to wait
     * @return the event, or null if none came in time
     * @throws InterruptedException if the thread is interrupted
     * @throws IllegalStateException if this is closed, also while waiting
     */
    public final E await(Duration timeout) throws InterruptedException {
        long deadline = deadline(timeout);
        enter();
        try {
            for (long turn = 0; ; turn++) {
                E event = backlog.poll();
                if (event == null) {
                    event = fresh();
                }
                if (event != null || System.nanoTime() - deadline >= 0) {
                    return event;
                }
                pause(turn, deadline);
            }
        } finally {
            exit();
        }
    }

    /**
     * Whether the program has all receive buffers, so that nothing can be received until it closes messages.
     *
     * @return true if the library said so when it was last asked for an event
     * @throws IllegalStateException if this is closed
     */
    public final boolean isStarved() {
        enter();
        try {
            return starved;
        } finally {
            exit();
        }
    }

    /** When a wait ends. */
    static long deadline(Duration timeout) {
        long now = System.nanoTime();
        long ns = timeout.compareTo(Duration.ofDays(365)) > 0 ? Duration.ofDays(365).toNanos() : timeout.toNanos();
        return now + Math.max(0, ns);
    }

    /** Makes progress until an operation has ended. What comes for the program is kept for it. */
    final Object awaitEnd(Operation operation, long deadline) throws InterruptedException {
        for (long turn = 0; !operation.done; turn++) {
            if (!progressed() && !operation.done) {
                if (System.nanoTime() - deadline >= 0) {
                    throw new PeerException(
                            Status.TIMED_OUT, operation.what + ": it has not ended in time, and is still under way");
                }
                pause(turn, deadline);
            }
        }
        return operation.outcome();
    }

    /** Makes progress until there may be room for an operation that found none. */
    final void awaitRoom(String what, long turn, long deadline) throws InterruptedException {
        if (!progressed()) {
            if (System.nanoTime() - deadline >= 0) {
                throw new PeerException(Status.NO_BUFFERS, what + ": no room in time; nothing was started");
            }
            pause(turn, deadline);
        }
    }

    private boolean progressed() {
        E event = fresh();
        if (event == null) {
            return false;
        }
        backlog.add(event);
        changed.signalAll();
        return true;
    }

    /** Waits a while for something to happen, without the lock. */
    private void pause(long turn, long deadline) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        // While futures were completed without the lock, a program may have closed this.
        checkNotClosed();
        long left = Math.min(SLICE_NS, deadline - System.nanoTime());
        if (left > 0) {
            pauseFor(left, turn);
        }
        checkNotClosed();
    }

    private void checkNotClosed() {
        if (handle == 0 || closing) {
            throw new IllegalStateException("the " + kind() + " was closed");
        }
    }

    private void pauseFor(long left, long turn) throws InterruptedException {
        if (waiting) {
            awaitChange(left);
        } else if (Thread.currentThread().isVirtual()) {
            unlocked(() -> {
                if (turn < SPINS) {
                    Thread.yield();
                } else {
                    LockSupport.parkNanos(Math.min(left, PARK_NS_MAX));
                }
            });
        } else {
            sleepInLibrary(left);
            if (starved) {
                // The library does not sleep then, and only the program can end it.
                awaitChange(Math.min(left, PARK_NS_MAX));
            }
        }
    }

    private void awaitChange(long ns) throws InterruptedException {
        unlockFutures();
        changed.awaitNanos(ns);
    }

    /** The lock is to be let go: who waits for a future must not wait for this thread. */
    private void unlockFutures() {
        if (!ended.isEmpty()) {
            unlocked(() -> {});
        }
    }

    private void unlocked(Runnable meanwhile) {
        exit();
        try {
            meanwhile.run();
        } finally {
            lock.lock();
        }
    }

    /** Waits in the library, and keeps what comes. Where futures were to be completed first, it only does that. */
    private void sleepInLibrary(long ns) {
        if (!ended.isEmpty()) {
            unlockFutures();
            return;
        }
        writeTime(waitTime, Math.max(ns, 1000));
        waiting = true;
        lock.unlock();
        int code;
        try {
            code = rawWait(waitTime, waitOut);
        } finally {
            lock.lock();
            waiting = false;
            changed.signalAll();
        }
        if (code != 0) {
            nothing(code);
            return;
        }
        starved = false;
        E event = translate(Raw.getLong(waitOut));
        if (event != null) {
            backlog.add(event);
        }
    }

    /** A struct timeval. */
    private static void writeTime(long at, long ns) {
        Raw.MEMORY.set(JAVA_LONG, at, ns / 1_000_000_000);
        Raw.MEMORY.set(JAVA_LONG, at + 8, ns % 1_000_000_000 / 1000);
    }

    /** A timeout for a call; 0, for ever, for null. */
    final long timeout(Duration timeout) {
        if (timeout == null) {
            return 0;
        }
        if (timeout.isNegative()) {
            throw new IllegalArgumentException("the timeout is negative: " + timeout);
        }
        long ns = timeout.compareTo(Duration.ofDays(365)) > 0 ? Duration.ofDays(365).toNanos() : timeout.toNanos();
        writeTime(callTime, ns);
        return callTime;
    }

    // --------------------------------------------------------------------------------------------------- operations

    /** Starts an operation with a context, under the lock. False: there is no room. */
    interface Start {
        boolean with(long context);
    }

    /** Starts an operation as soon as there is room, and waits for its end. */
    final Object waitFor(Operation operation, Duration timeout, Start start) throws InterruptedException {
        long deadline = deadline(timeout);
        enter();
        try {
            for (long turn = 0; !startNumbered(operation, start); turn++) {
                awaitRoom(operation.what, turn, deadline);
            }
            return awaitEnd(operation, deadline);
        } finally {
            exit();
        }
    }

    /** Starts an operation now. */
    final <T> CompletableFuture<T> startForFuture(Operation operation, Start start) {
        enter();
        try {
            if (!startNumbered(operation, start)) {
                return CompletableFuture.failedFuture(Failure.ended(Status.NO_BUFFERS, operation.what));
            }
            return futureOf(operation);
        } finally {
            exit();
        }
    }

    final boolean startNumbered(Operation operation, Start start) {
        long number = operations.add(operation);
        boolean started = false;
        try {
            started = start.with(number);
        } finally {
            if (!started) {
                operations.remove(number);
            }
        }
        return started;
    }

    // ------------------------------------------------------------------------------------------- the progress thread

    final void startProgress(String name) {
        progress = new Thread(this::serve, name);
        progress.setDaemon(true);
        progress.start();
    }

    private void serve() {
        try {
            enter();
        } catch (IllegalStateException closedMeanwhile) {
            return;
        }
        try {
            while (true) {
                while (progressed()) {
                    unlockFutures();
                }
                sleepOrYield();
            }
        } catch (IllegalStateException closed) {
            // The end of this thread.
        } finally {
            exit();
        }
    }

    private void sleepOrYield() {
        try {
            pause(0, System.nanoTime() + SLICE_NS);
        } catch (InterruptedException ignored) {
            // Nobody has a reason to interrupt this thread; closing ends it.
        }
    }

    // ------------------------------------------------------------------------------------------------------ the end

    /**
     * Closes this, and its connections: messages that were sent before are still delivered, for a second at most. What the
     * program has of it (messages, requests, memory, regions) ends with it; operations under way fail.
     *
     * <p>Closing again does nothing.
     */
    @Override
    public final void close() {
        closers.incrementAndGet();
        lock.lock();
        closers.decrementAndGet();
        if (closing || handle == 0) {
            lock.unlock();
            return;
        }
        closing = true;
        try {
            changed.signalAll();
            while (waiting) {
                changed.awaitUninterruptibly();
            }
            for (E event = backlog.poll(); event != null; event = backlog.poll()) {
                discard(event);
            }
            closeViews();
            // Whoever reads through a view at this moment gets an exception instead: only then is the memory let go.
            arena.close();
            rawClose();
            handle = 0;
            for (Operation operation : operations.removeAll()) {
                if (!operation.raisesEvent) {
                    end(operation, null, Failure.ended(Status.DISCONNECTED, operation.what));
                }
            }
            context.leave(this);
        } finally {
            closing = false;
            changed.signalAll();
            exit();
        }
    }

    /** Gives back what an event holds that nobody will see. */
    abstract void discard(E event);

    /** Whether this was closed. */
    final boolean isOpen() {
        return handle != 0;
    }

    // --------------------------------------------------------------------------------------------------- small things

    @SuppressWarnings("unchecked")
    static <T> CompletableFuture<T> futureOf(Operation operation) {
        return (CompletableFuture<T>) (CompletableFuture<?>) operation.future;
    }

    /** The bytes that remain in a buffer, at an address of scratch memory. */
    static void copy(ByteBuffer from, ByteBuffer to, int at) {
        to.put(at, from, from.position(), from.remaining());
    }
}
