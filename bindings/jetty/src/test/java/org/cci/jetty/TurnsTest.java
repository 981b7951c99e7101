package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Who receives and who works, with messages that are tasks. */
class TurnsTest {
    private static final long PATIENCE_S = 60;

    private final ExecutorService others = Executors.newCachedThreadPool();
    private final Turns turns = new Turns(others);
    private final BlockingQueue<Runnable> messages = new LinkedBlockingQueue<>();
    private final AtomicInteger receiving = new AtomicInteger();
    private final AtomicInteger together = new AtomicInteger();
    private final CountDownLatch flushed = new CountDownLatch(1);
    private volatile Thread receiver;
    private volatile boolean ends;

    private final Turns.Receiver from = new Turns.Receiver() {
        @Override
        public boolean receive(Duration timeout) throws InterruptedException {
            together.accumulateAndGet(receiving.incrementAndGet(), Math::max);
            receiver = Thread.currentThread();
            Runnable next = messages.poll(timeout.toMillis(), TimeUnit.MILLISECONDS);
            if (next != null) {
                turns.execute(next);
            }
            receiving.decrementAndGet();
            return next != null;
        }

        @Override
        public void flush() {
            flushed.countDown();
        }
    };

    @BeforeEach
    void start() {
        for (int thread = 0; thread < 2; thread++) {
            others.execute(() -> {
                try {
                    while (!ends) {
                        turns.turn(from, Duration.ofMillis(20));
                    }
                } catch (InterruptedException e) {
                    // The test ends.
                }
            });
        }
    }

    @AfterEach
    void stop() throws InterruptedException {
        ends = true;
        others.shutdown();
        assertTrue(others.awaitTermination(PATIENCE_S, TimeUnit.SECONDS));
        assertEquals(1, together.get(), "threads that received at once");
    }

    @Test
    void shortWorkIsDoneByTheThreadThatReceives() throws Exception {
        BlockingQueue<Thread> workers = new LinkedBlockingQueue<>();
        messages.add(() -> workers.add(Thread.currentThread()));
        Thread worker = workers.poll(PATIENCE_S, TimeUnit.SECONDS);
        assertSame(receiver, worker);
        assertTrue(flushed.await(PATIENCE_S, TimeUnit.SECONDS));
    }

    @Test
    void workThatWaitsKeepsNobodyFromReceiving() throws Exception {
        CountDownLatch release = new CountDownLatch(1);
        BlockingQueue<Thread> workers = new LinkedBlockingQueue<>();
        messages.add(() -> {
            workers.add(Thread.currentThread());
            try {
                assertTrue(release.await(PATIENCE_S, TimeUnit.SECONDS));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        Thread waits = workers.poll(PATIENCE_S, TimeUnit.SECONDS);
        for (int message = 0; message < 10; message++) {
            messages.add(() -> workers.add(Thread.currentThread()));
        }
        for (int message = 0; message < 10; message++) {
            assertNotSame(waits, workers.poll(PATIENCE_S, TimeUnit.SECONDS));
        }
        release.countDown();
    }

    @Test
    void workThatFailsEndsNothing() throws Exception {
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        BlockingQueue<Throwable> reported = new LinkedBlockingQueue<>();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> reported.add(failure));
        messages.add(() -> {
            throw new IllegalStateException("on purpose");
        });
        CountDownLatch next = new CountDownLatch(1);
        messages.add(next::countDown);
        assertTrue(next.await(PATIENCE_S, TimeUnit.SECONDS));
        assertEquals("on purpose", reported.poll(PATIENCE_S, TimeUnit.SECONDS).getMessage());
        Thread.setDefaultUncaughtExceptionHandler(before);
    }
}
