package org.cci.bench;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.BufferedReader;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.internal.NativeLibrary;

/**
 * What a message from Java costs beside one from C: half round trips of 8 bytes over shared memory between two processes, each on
 * a core of its own and polling. The two take turns, in rounds; the program in C is that of the benchmark
 * ({@code bench/c/messages.c}), against the same library.
 */
public final class HalfTrip {
    private static final int BYTES = 8;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    /** Trips of one measurement, of which a turn has several. Before it, a tenth as many in C, and more in Java, which compiles. */
    private static final int BATCHES = 9;

    private static final int WARM_UP_BATCHES = 30;
    /** A policy of the scheduler, and a priority in it. */
    private static final int SCHED_FIFO = 1;

    private static final int PRIORITY = 10;

    /**
     * A round, or the medians of all.
     *
     * @param java nanoseconds for half a round trip from Java
     * @param c from C
     * @param allocatedBytes what a batch of the round trips allocated in Java at the least
     */
    record Line(double java, double c, long allocatedBytes) {
        double ratio() {
            return java / c;
        }
    }

    private HalfTrip() {}

    /**
     * Runs it.
     *
     * @param arguments {@code library=PATH} of libcci_capi.so, {@code workspace=PATH} of the sources, {@code rounds=N}, {@code trips=N}
     *     for the length of a turn, {@code cores=N,N}, and {@code realtime=true}, by which nothing else runs on the cores meanwhile: for a
     *     machine that others use, and for those who may do this
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        switch (arguments.length > 0 ? arguments[0] : "") {
            case "ask" -> ask(Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]), Boolean.parseBoolean(arguments[3]));
            case "answer" -> answer(
                    arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]), Boolean.parseBoolean(arguments[4]));
            default -> run(arguments);
        }
    }

    // ------------------------------------------------------------------------------------------------------- rounds

    static List<Line> run(String... arguments) throws Exception {
        Path library = Path.of("../../target/release/libcci_capi.so");
        Path workspace = Path.of("../..");
        int rounds = 9;
        int trips = 20_000;
        String[] cores = {"0", "1"};
        boolean isRealtime = false;
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            switch (parts[0]) {
                case "library" -> library = Path.of(parts[1]);
                case "workspace" -> workspace = Path.of(parts[1]);
                case "rounds" -> rounds = Integer.parseInt(parts[1]);
                case "trips" -> trips = Integer.parseInt(parts[1]);
                case "cores" -> cores = parts[1].split(",");
                case "realtime" -> isRealtime = Boolean.parseBoolean(parts[1]);
                default -> throw new IllegalArgumentException(
                        "usage: HalfTrip [library=PATH] [workspace=PATH] [rounds=N] [trips=N] [cores=N,N] [realtime=true]");
            }
        }
        Path folder = Files.createTempDirectory("half-trip");
        try {
            Path program = compile(folder, library.toRealPath(), workspace);
            List<Line> lines = new ArrayList<>();
            System.out.println("half a round trip of " + BYTES + " B over shared memory, ns");
            System.out.println("round      Java         C    ratio   bytes allocated");
            for (int round = 1; round <= rounds; round++) {
                boolean isJavaFirst = round % 2 == 1;
                double[] java = isJavaFirst ? java(library, cores, trips, isRealtime) : null;
                double c = c(program, cores, trips, isRealtime);
                if (java == null) {
                    java = java(library, cores, trips, isRealtime);
                }
                Line line = new Line(java[0], c, (long) java[1]);
                lines.add(line);
                print(Integer.toString(round), line, line.ratio());
            }
            Line medians = new Line(
                    median(lines.stream().mapToDouble(Line::java).toArray()),
                    median(lines.stream().mapToDouble(Line::c).toArray()),
                    lines.stream().mapToLong(Line::allocatedBytes).max().orElseThrow());
            print("median", medians, median(lines.stream().mapToDouble(Line::ratio).toArray()));
            return lines;
        } finally {
            try (var files = Files.list(folder)) {
                for (Path file : files.toList()) {
                    Files.delete(file);
                }
            }
            Files.delete(folder);
        }
    }

    private static void print(String what, Line line, double ratio) {
        System.out.println(String.format(
                Locale.ROOT, "%-6s %8.1f  %8.1f  %7.2f  %16d", what, line.java, line.c, ratio, line.allocatedBytes));
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }

    /** Compiles the program in C against the library that Java uses. */
    private static Path compile(Path folder, Path library, Path workspace) throws IOException, InterruptedException {
        for (String name : List.of("libcci.so", "libcci.so.2")) {
            Files.createSymbolicLink(folder.resolve(name), library);
        }
        Path program = folder.resolve("messages");
        run(List.of(
                "cc", "-std=c11", "-O2", "-I", workspace.resolve("crates/capi/include").toString(),
                workspace.resolve("bench/c/messages.c").toString(), "-L", folder.toString(), "-Wl,-rpath," + folder, "-lcci",
                "-o", program.toString()));
        return program;
    }

    /** The median of some batches in C, each by processes of its own. */
    private static double c(Path program, String[] cores, int trips, boolean isRealtime)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(isRealtime ? List.of("chrt", "-f", Integer.toString(PRIORITY)) : List.of());
        command.addAll(List.of(
                program.toString(), "shm", "half-trip", Integer.toString(BYTES), Integer.toString(trips), cores[0], cores[1]));
        double[] batches = new double[BATCHES];
        for (int batch = 0; batch < BATCHES; batch++) {
            String line = run(command);
            batches[batch] = Double.parseDouble(line.replaceAll("[^0-9.]", ""));
        }
        return median(batches);
    }

    /** The median of some batches in Java, and what the one that allocated least did allocate. */
    private static double[] java(Path library, String[] cores, int trips, boolean isRealtime) throws IOException {
        Process answering = null;
        String count = Integer.toString(trips);
        Process asking = start(library, "ask", cores[0], count, Boolean.toString(isRealtime));
        try (BufferedReader output = asking.inputReader()) {
            String uri = output.readLine();
            answering = start(library, "answer", uri, cores[1], count, Boolean.toString(isRealtime));
            String line = output.readLine();
            if (line == null) {
                throw new IOException("the program in Java has failed");
            }
            return Arrays.stream(line.split(" ")).mapToDouble(Double::parseDouble).toArray();
        } finally {
            asking.destroyForcibly().onExit().join();
            if (answering != null) {
                answering.destroyForcibly().onExit().join();
            }
        }
    }

    private static Process start(Path library, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-XX:+UseSerialGC", "-Dcci.library=" + library));
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), HalfTrip.class.getName()));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** The last line that a command prints. */
    private static String run(List<String> command) throws IOException, InterruptedException {
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader output = process.inputReader()) {
            String last = output.lines().reduce("", (before, line) -> line);
            if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS) || process.exitValue() != 0) {
                throw new IOException(String.join(" ", command) + " has failed");
            }
            return last;
        } finally {
            process.destroyForcibly();
        }
    }

    // ---------------------------------------------------------------------------------------------------- the sides

    /** A side of the exchange. */
    private static final class Side extends Arrivals {
        private final Endpoint endpoint;
        private final Connection connection;
        private final ByteBuffer message = ByteBuffer.allocateDirect(BYTES);

        Side(Endpoint endpoint, Connection connection) {
            this.endpoint = endpoint;
            this.connection = connection;
        }

        void send() {
            message.clear();
            while (!connection.trySend(message)) {
                endpoint.poll(1, this);
            }
        }

        void receive() {
            while (!came) {
                endpoint.poll(1, this);
            }
            came = false;
        }
    }

    private static Endpoint open(Context context, int core) {
        pin(core);
        return context.device("shm").open(EndpointOptions.DEFAULTS);
    }

    private static void ask(int core, int trips, boolean isRealtime) throws InterruptedException {
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        try (Context context = Context.open();
                Endpoint endpoint = open(context, core)) {
            System.out.println(endpoint.uri());
            if (!(endpoint.await(PATIENCE) instanceof Event.Requested requested)) {
                throw new IllegalStateException("nobody connects");
            }
            requested.request().accept();
            if (!(endpoint.await(PATIENCE) instanceof Event.Accepted accepted)) {
                throw new IllegalStateException("the connection does not open");
            }
            Side side = new Side(endpoint, accepted.connection());
            double[] halves = new double[BATCHES];
            long least = Long.MAX_VALUE;
            for (int batch = -WARM_UP_BATCHES; batch < BATCHES; batch++) {
                if (batch == 0 && isRealtime) {
                    runAlone();
                }
                long allocated = threads.getCurrentThreadAllocatedBytes();
                long took = ask(side, trips);
                allocated = threads.getCurrentThreadAllocatedBytes() - allocated;
                if (batch >= 0) {
                    halves[batch] = took / 2.0 / trips;
                    least = Math.min(least, allocated);
                }
            }
            System.out.println(median(halves) + " " + least);
        }
    }

    private static long ask(Side side, int trips) {
        long began = System.nanoTime();
        for (int trip = 0; trip < trips; trip++) {
            side.send();
            side.receive();
        }
        return System.nanoTime() - began;
    }

    private static void answer(String uri, int core, int trips, boolean isRealtime) throws InterruptedException {
        try (Context context = Context.open();
                Endpoint endpoint = open(context, core)) {
            Side side = new Side(endpoint, endpoint.connect(uri, Attribute.RELIABLE_ORDERED, new byte[0], PATIENCE));
            for (int batch = -WARM_UP_BATCHES; batch < BATCHES; batch++) {
                if (batch == 0 && isRealtime) {
                    runAlone();
                }
                answer(side, trips);
            }
            Thread.sleep(PATIENCE);
        }
    }

    private static void answer(Side side, int trips) {
        for (int trip = 0; trip < trips; trip++) {
            side.receive();
            side.send();
        }
    }

    /** Keeps this thread, and no other one of the JVM's, on a core. */
    private static void pin(int core) {
        MemorySegment cores = Arena.ofAuto().allocate(128, Long.BYTES);
        cores.set(JAVA_BYTE, core / 8, (byte) (1 << core % 8));
        set("sched_setaffinity", JAVA_LONG, cores.byteSize(), cores, "no thread may run on core " + core);
    }

    /** From here on this thread alone runs on its core, but for a twentieth of the time, which the system keeps for others. */
    private static void runAlone() {
        MemorySegment priority = Arena.ofAuto().allocate(JAVA_INT);
        priority.set(JAVA_INT, 0, PRIORITY);
        set("sched_setscheduler", JAVA_INT, SCHED_FIFO, priority, "realtime is for root, or those who have CAP_SYS_NICE");
    }

    /** Sets something of this thread. */
    private static void set(String function, ValueLayout second, Object value, MemorySegment third, String failure) {
        try {
            int code = (int) NativeLibrary.systemFunction(function, JAVA_INT, JAVA_INT, second, ADDRESS)
                    .invokeWithArguments(0, value, third);
            if (code != 0) {
                throw new IllegalArgumentException(failure);
            }
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }
}
