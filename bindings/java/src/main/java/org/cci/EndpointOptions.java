package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Objects;

/** How an endpoint, or a messenger, is opened. Values never change; each method gives changed ones. */
public final class EndpointOptions {
    /** What is meant to be right: an address that the library chooses, and its own numbers and limits. */
    public static final EndpointOptions DEFAULTS = new EndpointOptions();

    private static final int SIZE_BYTES = 48;

    String service;
    boolean progressThread;
    private int receiveBuffers;
    private int sendBuffers;
    private int sendTimeoutUs;
    private int keepaliveUs;
    private int operations;
    private long memoryCapBytes;
    private Credentials credentials;

    private EndpointOptions() {}

    private EndpointOptions(EndpointOptions from) {
        service = from.service;
        progressThread = from.progressThread;
        receiveBuffers = from.receiveBuffers;
        sendBuffers = from.sendBuffers;
        sendTimeoutUs = from.sendTimeoutUs;
        keepaliveUs = from.keepaliveUs;
        operations = from.operations;
        memoryCapBytes = from.memoryCapBytes;
        credentials = from.credentials;
    }

    /**
     * Chooses where others find the endpoint. A number from 1 to 65535 works on every device; shared memory also takes a name
     * or an absolute path.
     *
     * @param service the service
     * @return changed options
     */
    public EndpointOptions service(String service) {
        var changed = new EndpointOptions(this);
        changed.service = Objects.requireNonNull(service, "service");
        return changed;
    }

    /**
     * Chooses the number of receive buffers, which all peers share. Each message that the program keeps occupies one.
     *
     * @param count how many
     * @return changed options
     */
    public EndpointOptions receiveBuffers(int count) {
        var changed = new EndpointOptions(this);
        changed.receiveBuffers = positive(count, "receiveBuffers");
        return changed;
    }

    /**
     * Chooses how many sends may be in progress at once.
     *
     * @param count how many; 16384 unless chosen
     * @return changed options
     */
    public EndpointOptions sendBuffers(int count) {
        var changed = new EndpointOptions(this);
        changed.sendBuffers = positive(count, "sendBuffers");
        return changed;
    }

    /**
     * Chooses how many operations on remote memory may be in progress at once.
     *
     * @param count how many; 16384 unless chosen
     * @return changed options
     */
    public EndpointOptions operations(int count) {
        var changed = new EndpointOptions(this);
        changed.operations = positive(count, "operations");
        return changed;
    }

    /**
     * Chooses how long a reliable send may take.
     *
     * @param timeout from 1 µs to 71 minutes
     * @return changed options
     */
    public EndpointOptions sendTimeout(Duration timeout) {
        var changed = new EndpointOptions(this);
        changed.sendTimeoutUs = microseconds(timeout, 1);
        return changed;
    }

    /**
     * Asks for {@link Event.Silent} when a peer is silent for so long.
     *
     * @param timeout up to 71 minutes; zero: off
     * @return changed options
     */
    public EndpointOptions keepalive(Duration timeout) {
        var changed = new EndpointOptions(this);
        changed.keepaliveUs = microseconds(timeout, 0);
        return changed;
    }

    /**
     * Caps every byte that the endpoint holds for buffers, queues, connections and mappings of peers' memory.
     *
     * @param bytes the cap
     * @return changed options
     */
    public EndpointOptions memoryCap(long bytes) {
        if (bytes <= 0) {
            throw new IllegalArgumentException("memoryCap must be positive, not " + bytes);
        }
        var changed = new EndpointOptions(this);
        changed.memoryCapBytes = bytes;
        return changed;
    }

    /**
     * Asks for a progress thread: a daemon thread that serves peers and completes futures while the program calls nothing.
     * Functions that depend on a future run in that thread, unless they are given an executor: they must be short. Events
     * wait until the program takes them.
     *
     * @param wanted true to have one
     * @return changed options
     */
    public EndpointOptions progressThread(boolean wanted) {
        var changed = new EndpointOptions(this);
        changed.progressThread = wanted;
        return changed;
    }

    /**
     * Turns encryption on, and says who may be a peer.
     *
     * @param credentials the credentials
     * @return changed options
     */
    public EndpointOptions credentials(Credentials credentials) {
        var changed = new EndpointOptions(this);
        changed.credentials = Objects.requireNonNull(credentials, "credentials");
        return changed;
    }

    /** The struct cci_endpoint_options_t. */
    long write(Arena arena) {
        MemorySegment struct = arena.allocate(SIZE_BYTES, 8);
        int[] numbers = {SIZE_BYTES, receiveBuffers, sendBuffers, sendTimeoutUs, keepaliveUs, operations};
        for (int i = 0; i < numbers.length; i++) {
            struct.set(ValueLayout.JAVA_INT, 4L * i, numbers[i]);
        }
        struct.set(ValueLayout.JAVA_LONG, 24, memoryCapBytes);
        struct.set(ValueLayout.JAVA_LONG, 40, credentials == null ? 0 : credentials.write(arena));
        return struct.address();
    }

    private static int positive(int count, String name) {
        if (count <= 0) {
            throw new IllegalArgumentException(name + " must be positive, not " + count);
        }
        return count;
    }

    /** As the C interface has times, which is unsigned. */
    static int microseconds(Duration time, long min) {
        long us = Math.addExact(Math.multiplyExact(time.getSeconds(), 1_000_000L), time.getNano() / 1000);
        if (us < min || us > 0xffff_ffffL) {
            throw new IllegalArgumentException("a time must be from " + min + " to 4294967295 µs, not " + us);
        }
        return (int) us;
    }
}
