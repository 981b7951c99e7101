package org.cci.bench;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.BufferedReader;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.internal.NativeLibrary;

/**
 * How many instructions a message from Java takes, and whose they are: one thread of another JVM sends 8 bytes over shared memory and
 * receives them, with a poll at each side, and this one executes it step by step ({@code ptrace}), after it was compiled. It takes
 * x86-64, and no counters of the processor.
 *
 * <p>A step takes microseconds, so that the library does with each message what it does by the clock. Without that its part is what
 * {@code cargo xtask counts c-silent-shm} counts of a C program that makes the same calls.
 */
public final class Instructions {
    private static final int BYTES = 8;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    /** What is sent before: the JVM compiles it meanwhile. */
    private static final int WARM_UP_MESSAGES = 3_000_000;

    private static final int BATCH_MESSAGES = 1000;
    /** Where the thread's place in its program is among what the kernel keeps of it. */
    private static final long PLACE = 16 * 8;

    private static final long PTRACE_PEEKDATA = 2;
    private static final long PTRACE_PEEKUSER = 3;
    private static final long PTRACE_SINGLESTEP = 9;
    private static final long PTRACE_ATTACH = 16;
    private static final long PTRACE_DETACH = 17;
    /** To {@code waitpid}: threads, too. */
    private static final int WAIT_ALL = 0x4000_0000;
    /** What a thread has stopped with. */
    private static final int SIGTRAP = 5;

    private static final int SIGSTOP = 19;

    private static final MethodHandle PTRACE =
            NativeLibrary.systemFunction("ptrace", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle WAITPID =
            NativeLibrary.systemFunction("waitpid", JAVA_INT, JAVA_INT, ValueLayout.ADDRESS, JAVA_INT);

    /**
     * Instructions of one message, sent and received.
     *
     * @param library those of the CCI library, and of the C library for it
     * @param java those of compiled Java
     * @param other those of the JVM
     */
    record Counts(double library, double java, double other) {}

    private Instructions() {}

    /**
     * Runs it.
     *
     * @param arguments {@code messages=N}, {@code warm=N}: so many are counted, and sent before
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0 && arguments[0].equals("send")) {
            send(Integer.parseInt(arguments[1]));
        } else {
            run(arguments);
        }
    }

    static Counts run(String... arguments) throws Exception {
        int messages = 1000;
        int warmUp = WARM_UP_MESSAGES;
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            switch (parts[0]) {
                case "messages" -> messages = Integer.parseInt(parts[1]);
                case "warm" -> warmUp = Integer.parseInt(parts[1]);
                default -> throw new IllegalArgumentException("usage: Instructions [messages=N] [warm=N]");
            }
        }
        Process sending = start(Integer.toString(warmUp));
        try (BufferedReader output = sending.inputReader()) {
            String line = output.readLine();
            if (line == null) {
                throw new IOException("the program that sends has failed");
            }
            String[] parts = line.split(" ");
            Counts counts = count(Integer.parseInt(parts[0]), Long.parseLong(parts[1]), mapped(sending.pid()), messages);
            System.out.println(String.format(
                    Locale.ROOT,
                    "instructions to send %d B over shared memory and receive them: compiled Java %.1f, JVM %.1f;"
                            + " the library, with what it does by the clock, %.1f",
                    BYTES, counts.java, counts.other, counts.library));
            return counts;
        } finally {
            sending.destroyForcibly().onExit().join();
        }
    }

    private static Process start(String warmUp) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-XX:+UseSerialGC"));
        if (System.getProperty(NativeLibrary.PROPERTY) != null) {
            command.add("-D" + NativeLibrary.PROPERTY + "=" + System.getProperty(NativeLibrary.PROPERTY));
        }
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), Instructions.class.getName(), "send", warmUp));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    // -------------------------------------------------------------------------------------------------- the counting

    private enum Whose {
        LIBRARY,
        JAVA,
        OTHER
    }

    /** A part of a process's memory. */
    private record Mapped(long from, long to, Whose whose) {
        boolean has(long place) {
            return place >= from && place < to;
        }
    }

    /** Where which code of a process is. */
    private static List<Mapped> mapped(long pid) throws IOException {
        List<Mapped> all = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("/proc", Long.toString(pid), "maps"))) {
            String[] parts = line.split(" +", 6);
            if (parts[1].contains("x")) {
                String[] range = parts[0].split("-");
                String file = parts.length < 6 ? "" : parts[5].substring(parts[5].lastIndexOf('/') + 1);
                boolean isLibrary = file.contains("libcci") || file.startsWith("libc.so") || file.equals("[vdso]");
                all.add(new Mapped(
                        Long.parseUnsignedLong(range[0], 16),
                        Long.parseUnsignedLong(range[1], 16),
                        isLibrary ? Whose.LIBRARY : file.isEmpty() ? Whose.JAVA : Whose.OTHER));
            }
        }
        return all;
    }

    /** Executes a thread step by step, which counts what it has sent at an address. */
    private static Counts count(int thread, long counter, List<Mapped> mapped, int messages) throws Exception {
        long[] counts = new long[Whose.values().length];
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment status = arena.allocate(JAVA_INT);
            ptrace(PTRACE_ATTACH, thread, 0, 0);
            int signal = await(thread, status);
            if (signal != SIGSTOP) {
                throw new IllegalStateException("the thread stopped with signal " + signal);
            }
            try {
                // From where one message is counted to where another one is.
                long began = ptrace(PTRACE_PEEKDATA, thread, counter, 0);
                Mapped now = mapped.get(0);
                for (long done = 0; done < 1 + messages; ) {
                    ptrace(PTRACE_SINGLESTEP, thread, 0, signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
                    signal = await(thread, status);
                    long place = ptrace(PTRACE_PEEKUSER, thread, PLACE, 0);
                    if (!now.has(place)) {
                        now = mapped.stream().filter(part -> part.has(place)).findFirst().orElseThrow();
                    }
                    boolean isCounting = done > 0;
                    // The counter changes in Java.
                    if (now.whose == Whose.JAVA) {
                        done = ptrace(PTRACE_PEEKDATA, thread, counter, 0) - began;
                    }
                    if (isCounting) {
                        counts[now.whose.ordinal()]++;
                    }
                }
            } finally {
                ptrace(PTRACE_DETACH, thread, 0, 0);
            }
        }
        return new Counts(
                (double) counts[Whose.LIBRARY.ordinal()] / messages,
                (double) counts[Whose.JAVA.ordinal()] / messages,
                (double) counts[Whose.OTHER.ordinal()] / messages);
    }

    private static long ptrace(long request, int thread, long address, long data) {
        try {
            return (long) PTRACE.invokeExact(request, (long) thread, address, data);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /** Waits until a thread stops. Returns the signal that it has stopped with. */
    private static int await(int thread, MemorySegment status) {
        int code;
        try {
            code = (int) WAITPID.invokeExact(thread, status, WAIT_ALL);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
        int what = status.get(JAVA_INT, 0);
        if (code != thread || (what & 0xff) != 0x7f) {
            throw new IllegalStateException("the thread can't be followed, which takes ptrace");
        }
        return what >> 8 & 0xff;
    }

    // --------------------------------------------------------------------------------------------------- the sending

    /** Sends from one endpoint to another one, and receives there, until the process is killed. */
    private static void send(int warmUp) throws Exception {
        try (Context context = Context.open();
                Endpoint client = context.device("shm").open(EndpointOptions.DEFAULTS);
                Endpoint server = context.device("shm").open(EndpointOptions.DEFAULTS)) {
            Connection connection = client.startConnecting(server.uri(), Attribute.RELIABLE_ORDERED, new byte[0], PATIENCE);
            boolean[] isOpen = new boolean[2];
            while (!isOpen[0] || !isOpen[1]) {
                isOpen[0] |= client.poll() instanceof Event.Connected;
                Event event = server.poll();
                isOpen[1] |= event instanceof Event.Accepted;
                if (event instanceof Event.Requested requested) {
                    requested.request().accept();
                }
            }
            MemorySegment sent = Arena.global().allocate(JAVA_LONG);
            int thread = (int) NativeLibrary.systemFunction("gettid", JAVA_INT).invokeExact();
            for (int batch = 0; ; batch++) {
                if (batch == warmUp / BATCH_MESSAGES) {
                    System.out.println(thread + " " + sent.address());
                }
                exchange(client, server, connection, sent);
            }
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static void exchange(Endpoint client, Endpoint server, Connection connection, MemorySegment sent) {
        Arrivals arrivals = new Arrivals();
        ByteBuffer message = ByteBuffer.allocateDirect(BYTES);
        for (int at = 0; at < BATCH_MESSAGES; at++) {
            message.clear();
            while (!connection.trySend(message)) {
                client.poll(1, arrivals);
            }
            client.poll(1, arrivals);
            while (!arrivals.came) {
                server.poll(1, arrivals);
            }
            arrivals.came = false;
            sent.set(JAVA_LONG, 0, sent.get(JAVA_LONG, 0) + 1);
        }
    }
}
