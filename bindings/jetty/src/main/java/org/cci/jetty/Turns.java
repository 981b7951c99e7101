package org.cci.jetty;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.concurrent.Executor;

/**
 * Who takes what comes, and who does what is to be done about it. One of a few threads leads: it receives, and does at once what
 * that asks for, since handing it to another thread would often take longer than the work. If the work takes long, one of the
 * others leads from then on. While that happens again and again, work is handed to an executor.
 */
final class Turns implements Executor {
    /** What the leading thread does. */
    interface Receiver {
        /** Takes one message, if one comes in time. */
        boolean receive(Duration timeout) throws InterruptedException;

        /** Sends what is to be sent now. */
        void flush();
    }

    /** Work that has been waiting for something after so long makes another thread lead; so does any that takes longer still. */
    private static final long WAITING_NS = 2_000_000;

    private static final long LONG_NS = 20_000_000;
    /** How often the others look. */
    private static final long LOOK_MS = 1;
    /** While no work was done for so long, they sleep. */
    private static final long QUIET_NS = 200_000_000;
    /** For how long work is handed to the executor after some that took long. */
    private static final long HAND_OVER_NS = 1_000_000_000;
    /** Work that is done before what it sends leaves. */
    private static final int TASKS_MAX = 8;

    private final Executor others;
    private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
    private Thread leader;
    /** Since when the leader is at work that may take long; 0: it is not. */
    private long busyNs;

    private long workedNs = System.nanoTime();
    private long handOverNs = System.nanoTime() - HAND_OVER_NS;
    private boolean isAsleep;

    /**
     * Turns.
     *
     * @param others who does work that other threads ask for, or that takes long
     */
    Turns(Executor others) {
        this.others = others;
    }

    /** Does it soon: by this thread, if it leads, when it has received what comes. */
    @Override
    public void execute(Runnable task) {
        synchronized (this) {
            boolean isOurs = leader == Thread.currentThread() && System.nanoTime() - handOverNs > HAND_OVER_NS;
            if (isOurs) {
                tasks.add(task);
                return;
            }
        }
        others.execute(task);
    }

    /** Takes one turn: leads for one message, or waits until this thread should lead. */
    void turn(Receiver receiver, Duration timeout) throws InterruptedException {
        Lead lead = lead(timeout);
        if (lead == Lead.NO) {
            return;
        }
        try {
            if (lead == Lead.FROM_NOW_ON) {
                // The thread that has led may have left something.
                work(receiver);
                stopWorking();
            }
            if (leads()) {
                receiver.receive(timeout);
                work(receiver);
            }
        } finally {
            stopWorking();
        }
    }

    private enum Lead {
        NO,
        YES,
        FROM_NOW_ON
    }

    /** Waits until this thread leads, or for some time. */
    private synchronized Lead lead(Duration timeout) throws InterruptedException {
        Thread us = Thread.currentThread();
        if (leader == us) {
            return Lead.YES;
        }
        if (leader != null) {
            long now = System.nanoTime();
            boolean isLong = now - busyNs >= LONG_NS
                    || (now - busyNs >= WAITING_NS && leader.getState() != Thread.State.RUNNABLE);
            if (busyNs == 0 || !isLong) {
                isAsleep = now - workedNs > QUIET_NS;
                wait(isAsleep ? timeout.toMillis() : LOOK_MS);
                return Lead.NO;
            }
            // What the leader is at takes long. It finds out when it has done.
            handOverNs = now;
            tasks.forEach(others::execute);
            tasks.clear();
        }
        leader = us;
        busyNs = 0;
        return Lead.FROM_NOW_ON;
    }

    private synchronized boolean leads() {
        return leader == Thread.currentThread();
    }

    private synchronized void stopWorking() {
        if (leader == Thread.currentThread()) {
            busyNs = 0;
        }
    }

    /** Does what is to be done, as long as this thread leads. */
    private void work(Receiver receiver) {
        for (int done = 1; ; done++) {
            Runnable task;
            synchronized (this) {
                if (leader != Thread.currentThread()) {
                    return;
                }
                task = tasks.poll();
                busyNs = System.nanoTime();
                if (task != null) {
                    workedNs = busyNs;
                }
                if (isAsleep && task != null) {
                    isAsleep = false;
                    notifyAll();
                }
            }
            if (task == null || done % TASKS_MAX == 0) {
                receiver.flush();
            }
            if (task == null) {
                return;
            }
            try {
                task.run();
            } catch (RuntimeException | Error e) {
                others.execute(() -> {
                    throw e;
                });
            }
        }
    }
}
