package org.cci.jetty.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.cci.ServiceId;
import org.cci.jetty.ServiceClient;

/**
 * Jetty over TCP against Jetty over RIPC: one server in a process of its own, which serves the same files over both, and clients in
 * this one. Files are fetched one after another over one connection, and short ones 64 at once over 64.
 *
 * <p>In each round all contestants have their turns, one soon after the other. What is printed are medians of the rounds' ratios,
 * of rates: above 1, RIPC is faster. TCP has the better of Jetty's two handlers without its cache: one that reads the file, and one that maps it. The
 * property {@code bench.server} has options for the server's JVM.
 */
public final class FetchBench {
    private static final int KIB = 1 << 10;
    private static final int MIB = 1 << 20;
    private static final int AT_ONCE = 64;
    private static final int AT_ONCE_BYTES = 4 * KIB;
    /** What the client reads TCP into. */
    private static final int TCP_BUFFER_BYTES = 256 * KIB;

    /** The goals on one host: so many times as fast as TCP, or so many as memcpy, whichever is less. */
    private static final double TIMES_TCP = 3;

    private static final double TIMES_MEMCPY = 0.8;

    /** A row is warmed up when in so many rounds nobody was so many times as fast as before, or after so many rounds. */
    private static final int STEADY_ROUNDS = 10;

    private static final double FASTER = 1.05;
    private static final int WARM_UP_ROUNDS_MAX = 60;

    private static final String USAGE = "usage: FetchBench [rounds=N] [ms=N] [sizes=BYTES,BYTES...] [wire=true] [pin=true] [out=FILE]";
    /** How processes at the ends of a virtual wire reach each other. */
    private static final String WIRE_DEVICE = "[wire]\ntransport = udp\ninterface = " + Wire.INTERFACE + "\n";

    private final Options options;
    private final InetSocketAddress address;
    private final ServiceId service;
    private final Path folder;
    private final ServiceClient client = new ServiceClient();
    private final Readings readings;

    private FetchBench(Options options, String host, int port, String service, Path folder) {
        this.options = options;
        address = new InetSocketAddress(host, port);
        this.service = ServiceId.of(service);
        this.folder = folder;
        readings = new Readings(options.isWire ? "wire" : "host", options.turnMs);
    }

    /** Does something once. */
    private interface Turn {
        void run() throws IOException;
    }

    /** What is asked for. */
    private static final class Options {
        int rounds = 9;
        int turnMs = 150;
        int[] sizes = {KIB, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB};
        boolean isWire;
        /** Whether server and client have a core each. */
        boolean isPinned;

        Path out;
        /** Where the server is, which somebody else has started: address, port, service and folder. */
        String[] server;

        Options(String... arguments) {
            for (String argument : arguments) {
                String[] parts = argument.split("=", 2);
                String value = parts.length == 2 ? parts[1] : "";
                switch (parts[0]) {
                    case "rounds" -> rounds = Integer.parseInt(value);
                    case "ms" -> turnMs = Integer.parseInt(value);
                    case "sizes" -> sizes =
                            Arrays.stream(value.split(",")).mapToInt(Integer::parseInt).toArray();
                    case "wire" -> isWire = Boolean.parseBoolean(value);
                    case "pin" -> isPinned = Boolean.parseBoolean(value);
                    case "out" -> out = value.isEmpty() ? null : Path.of(value).toAbsolutePath();
                    case "server" -> server = value.split(",", 4);
                    default -> throw new IllegalArgumentException(USAGE);
                }
            }
        }

        /** How long a turn is, nanoseconds. */
        long turnNs() {
            return turnMs * 1_000_000L;
        }
    }

    /**
     * Runs it.
     *
     * @param arguments {@code rounds=N}, {@code ms=N} for the length of a turn, {@code sizes=BYTES,BYTES...}; {@code wire=true}: the
     *     two sides are at the ends of a pair of virtual Ethernet interfaces, and RIPC goes over UDP, which takes root;
     *     {@code pin=true}: server and client have a core each; {@code out=FILE}: all rates are written there
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        run(arguments);
    }

    /** Runs it. Returns what was measured by this process: nothing across a wire, where the client is another one. */
    static List<Readings.Line> run(String... arguments) throws Exception {
        Options options = new Options(arguments);
        if (options.server != null) {
            String[] server = options.server;
            return measure(options, server[0], Integer.parseInt(server[1]), server[2], Path.of(server[3]));
        }
        Cores cores = options.isPinned ? Cores.ofThis() : null;
        if (cores != null) {
            cores.takeClients();
        }
        String service = "fetch-bench-" + ProcessHandle.current().pid();
        Path own = Files.createTempDirectory("fetch-bench");
        try {
            Path folder = Files.createDirectory(own.resolve("files"));
            if (options.isWire) {
                acrossAWire(arguments, cores, service, own, folder);
                return List.of();
            }
            List<String> serving = java(FetchServer.class, service, folder.toString(), "localhost");
            Process server = started(cores == null ? serving : cores.onServers(serving), own, false);
            try (BufferedReader output = server.inputReader()) {
                return measure(options, "localhost", Integer.parseInt(port(output)), service, folder);
            } finally {
                server.destroyForcibly().onExit().join();
            }
        } finally {
            delete(own);
        }
    }

    /** Starts the server and the client at the two ends of a virtual wire. */
    private static void acrossAWire(String[] arguments, Cores cores, String service, Path own, Path folder)
            throws Exception {
        Files.writeString(own.resolve("cci.ini"), WIRE_DEVICE);
        Files.createDirectory(own.resolve("services"));
        try (Wire wire = new Wire()) {
            List<String> serving = java(FetchServer.class, service, folder.toString(), Wire.FAR);
            Process server = started(wire.far(cores == null ? serving : cores.onServers(serving)), own, true);
            try (BufferedReader output = server.inputReader()) {
                List<String> fetching = new ArrayList<>(List.of(arguments));
                fetching.add("server=" + String.join(",", Wire.FAR, port(output), service, folder.toString()));
                List<String> command = java(FetchBench.class, fetching.toArray(String[]::new));
                Process client = started(wire.near(cores == null ? command : cores.onClients(command)), own, true);
                try (BufferedReader lines = client.inputReader()) {
                    lines.lines().forEach(System.out::println);
                    if (client.waitFor() != 0) {
                        throw new IOException("the client has failed");
                    }
                } finally {
                    client.destroyForcibly().onExit().join();
                }
            } finally {
                server.destroyForcibly().onExit().join();
            }
        }
    }

    /** A command that runs a class of this one's class path. */
    private static List<String> java(Class<?> program, String... arguments) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-XX:MaxDirectMemorySize=2g"));
        if (program == FetchServer.class && System.getProperty("bench.server") != null) {
            command.addAll(List.of(System.getProperty("bench.server").split(" ")));
        }
        if (System.getProperty("cci.library") != null) {
            command.add("-Dcci.library=" + System.getProperty("cci.library"));
        }
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), program.getName()));
        command.addAll(List.of(arguments));
        return command;
    }

    private static Process started(List<String> command, Path own, boolean isWire) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        if (isWire) {
            builder.environment().put("CCI_CONFIG", own.resolve("cci.ini").toString());
            builder.environment().put("CCI_DIRECTORY", "host:" + own.resolve("services"));
        }
        return builder.start();
    }

    /** Reads which port the server listens at, which it says when it serves. */
    private static String port(BufferedReader output) throws IOException {
        String line = output.readLine();
        if (line == null) {
            throw new IOException("the server has ended at its start; what it has written is above");
        }
        return line;
    }

    private static List<Readings.Line> measure(Options options, String host, int port, String service, Path folder)
            throws IOException {
        FetchBench bench = new FetchBench(options, host, port, service, folder);
        try {
            bench.run();
        } finally {
            bench.client.close();
        }
        if (options.out != null) {
            bench.readings.write(options.out);
        }
        return bench.readings.lines();
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private void run() throws IOException {
        System.out.printf(
                "Jetty over RIPC against Jetty over TCP, %s, %d rounds: times as fast (least and most of the rounds)%n",
                options.isWire ? "across a virtual wire" : "one host", options.rounds);
        System.out.printf("%10s %-7s %24s %12s %8s%n", "bytes", "cache", "x TCP", "x memcpy", "goal");
        for (boolean isCached : new boolean[] {true, false}) {
            for (int bytes : options.sizes) {
                oneByOne(bytes, isCached);
            }
        }
        for (boolean isCached : new boolean[] {true, false}) {
            atOnce(isCached);
        }
    }

    /** Makes a file of so many bytes. Returns its checksum. */
    private long file(int bytes) throws IOException {
        Path path = folder.resolve("f" + bytes);
        CRC32C sum = new CRC32C();
        Random random = new Random(bytes);
        byte[] part = new byte[Math.min(bytes, MIB)];
        try (OutputStream to = Files.newOutputStream(path)) {
            for (int at = 0; at < bytes; at += part.length) {
                random.nextBytes(part);
                int count = Math.min(part.length, bytes - at);
                to.write(part, 0, count);
                sum.update(part, 0, count);
            }
        }
        return sum.getValue();
    }

    private static String[] paths(boolean isCached) {
        return isCached ? new String[] {"/cached/f"} : new String[] {"/plain/f", "/mapped/f"};
    }

    private static String lent(boolean isCached) {
        return isCached ? "/lent-cached/f" : "/lent/f";
    }

    /** Fetches once, and looks at every byte. */
    private static void check(Fetcher fetcher, String path, int bytes, long sum) throws IOException {
        for (int time = 0; time < 2; time++) {
            CRC32C came = new CRC32C();
            fetcher.write(Fetcher.request(path));
            if (fetcher.read(came) != bytes || came.getValue() != sum) {
                throw new IOException(path + ": what came is not the file");
            }
        }
    }

    private void oneByOne(int bytes, boolean isCached) throws IOException {
        long sum = file(bytes);
        try (Fetcher tcp = Fetcher.tcp(address, TCP_BUFFER_BYTES);
                Fetcher ripc = Fetcher.ripc(client, service);
                Arena arena = Arena.ofConfined()) {
            List<Turn> turns = new ArrayList<>();
            MemorySegment from = arena.allocate(bytes).fill((byte) 1);
            MemorySegment to = arena.allocate(bytes).fill((byte) 2);
            turns.add(() -> MemorySegment.copy(from, 0, to, 0, bytes));
            String own = lent(isCached) + bytes;
            ByteBuffer ownRequest = Fetcher.request(own);
            check(ripc, own, bytes, sum);
            turns.add(() -> ripc.fetch(ownRequest));
            for (String path : paths(isCached)) {
                check(tcp, path + bytes, bytes, sum);
                ByteBuffer request = Fetcher.request(path + bytes);
                turns.add(() -> tcp.fetch(request));
            }
            add(new Readings.Line(bytes, 1, isCached, rates(turns)), bytes < MIB ? 1 : TIMES_TCP);
        }
    }

    private void atOnce(boolean isCached) throws IOException {
        long sum = file(AT_ONCE_BYTES);
        List<Fetcher> tcp = new ArrayList<>();
        List<Fetcher> ripc = new ArrayList<>();
        try {
            for (int at = 0; at < AT_ONCE; at++) {
                tcp.add(Fetcher.tcp(address, 2 * AT_ONCE_BYTES));
                ripc.add(Fetcher.ripc(client, service));
            }
            List<Turn> turns = new ArrayList<>();
            turns.add(() -> {});
            for (List<Fetcher> all : List.of(ripc, tcp)) {
                for (String path : all == tcp ? paths(isCached) : new String[] {lent(isCached)}) {
                    ByteBuffer request = Fetcher.request(path + AT_ONCE_BYTES);
                    check(all.get(0), path + AT_ONCE_BYTES, AT_ONCE_BYTES, sum);
                    turns.add(() -> {
                        for (Fetcher fetcher : all) {
                            fetcher.write(request.duplicate());
                        }
                        for (Fetcher fetcher : all) {
                            fetcher.read(null);
                        }
                    });
                }
            }
            add(new Readings.Line(AT_ONCE_BYTES, AT_ONCE, isCached, rates(turns)), TIMES_TCP);
        } finally {
            for (Fetcher fetcher : tcp) {
                fetcher.close();
            }
            for (Fetcher fetcher : ripc) {
                fetcher.close();
            }
        }
    }

    /** How often each is done in a second, by round. */
    private double[][] rates(List<Turn> turns) throws IOException {
        warmUp(turns);
        double[][] rates = new double[options.rounds][turns.size()];
        for (double[] round : rates) {
            for (int which = 0; which < turns.size(); which++) {
                round[which] = rate(turns.get(which));
            }
        }
        return rates;
    }

    /** Lets both JVMs compile what they run: until no contestant becomes faster. */
    private void warmUp(List<Turn> turns) throws IOException {
        double[] best = new double[turns.size()];
        int steady = 0;
        for (int round = 0; round < WARM_UP_ROUNDS_MAX && steady < STEADY_ROUNDS; round++) {
            steady++;
            for (int which = Readings.RIPC; which < best.length; which++) {
                double rate = rate(turns.get(which));
                if (rate > FASTER * best[which]) {
                    steady = 0;
                }
                best[which] = Math.max(best[which], rate);
            }
        }
    }

    /** How often it is done in a second, for one turn. */
    private double rate(Turn turn) throws IOException {
        long began = System.nanoTime();
        long count = 0;
        long took;
        do {
            turn.run();
            count++;
            took = System.nanoTime() - began;
        } while (took < options.turnNs());
        return count * 1e9 / took;
    }

    /** Prints a line, and keeps it. The goal is that of one host; across a wire RIPC need only be as fast as TCP. */
    private void add(Readings.Line line, double goal) {
        readings.add(line);
        double[] toTcp = line.toTcp();
        double[] toMemcpy = line.toMemcpy();
        double tcp = toTcp[toTcp.length / 2];
        double memcpy = toMemcpy[toMemcpy.length / 2];
        boolean isCopied = line.atOnce() == 1 && line.bytes() >= MIB;
        boolean isMet = tcp >= (options.isWire ? 1 : goal) || (!options.isWire && isCopied && memcpy >= TIMES_MEMCPY);
        System.out.printf(
                "%10s %-7s %10.2f (%5.2f to %5.2f) %12s %8s%n",
                line.what(),
                line.isCached() ? "yes" : "no",
                tcp,
                toTcp[0],
                toTcp[toTcp.length - 1],
                isCopied ? String.format("%.2f", memcpy) : "-",
                isMet ? "met" : "not met");
    }
}
