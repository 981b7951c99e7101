package org.cci.jetty.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
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

    /** The goals: so many times as fast as TCP, or so many as memcpy, whichever is less. */
    private static final double TIMES_TCP = 3;

    private static final double TIMES_MEMCPY = 0.8;

    private final int rounds;
    private final long turnNs;
    private final Path folder;
    private final int port;
    private final List<Line> lines = new ArrayList<>();
    private final ServiceClient client = new ServiceClient();
    private final ServiceId service;

    private FetchBench(int rounds, long turnNs, Path folder, int port, ServiceId service) {
        this.rounds = rounds;
        this.turnNs = turnNs;
        this.folder = folder;
        this.port = port;
        this.service = service;
    }

    /**
     * What was found.
     *
     * @param what was fetched: the length of the file, bytes, with a number before it if it is not 1
     * @param isCached whether Jetty's cache served it
     * @param toTcp how many times as fast RIPC was as TCP: the median of the rounds
     * @param toMemcpy how many times as fast RIPC was as memcpy
     */
    record Line(String what, boolean isCached, double toTcp, double toMemcpy) {}

    /** Does something once. */
    private interface Turn {
        void run() throws IOException;
    }

    /**
     * Runs it.
     *
     * @param arguments {@code rounds=N}, {@code ms=N} for the length of a turn, {@code sizes=BYTES,BYTES...}
     * @throws Exception if it fails
     */
    public static void main(String[] arguments) throws Exception {
        run(arguments);
    }

    static List<Line> run(String... arguments) throws Exception {
        int rounds = 9;
        int turnMs = 150;
        int[] sizes = {KIB, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB};
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            switch (parts[0]) {
                case "rounds" -> rounds = Integer.parseInt(parts[1]);
                case "ms" -> turnMs = Integer.parseInt(parts[1]);
                case "sizes" -> sizes =
                        Arrays.stream(parts[1].split(",")).mapToInt(Integer::parseInt).toArray();
                default -> throw new IllegalArgumentException("usage: FetchBench [rounds=N] [ms=N] [sizes=BYTES,BYTES...]");
            }
        }
        String name = "fetch-bench-" + ProcessHandle.current().pid();
        Path folder = Files.createTempDirectory("fetch-bench");
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-XX:MaxDirectMemorySize=2g"));
        if (System.getProperty("bench.server") != null) {
            command.addAll(List.of(System.getProperty("bench.server").split(" ")));
        }
        if (System.getProperty("cci.library") != null) {
            command.add("-Dcci.library=" + System.getProperty("cci.library"));
        }
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), FetchServer.class.getName()));
        command.addAll(List.of(name, folder.toString()));
        Process server = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        try (BufferedReader output = server.inputReader()) {
            int port = Integer.parseInt(output.readLine());
            FetchBench bench =
                    new FetchBench(rounds, turnMs * 1_000_000L, folder, port, ServiceId.of(name));
            bench.run(sizes);
            bench.client.close();
            return bench.lines;
        } finally {
            server.destroyForcibly().onExit().join();
            delete(folder);
        }
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private void run(int[] sizes) throws IOException {
        System.out.printf(
                "Jetty over RIPC against Jetty over TCP, one host, %d rounds: times as fast (least and most of the rounds)%n",
                rounds);
        System.out.printf("%10s %-7s %24s %12s %8s%n", "bytes", "cache", "x TCP", "x memcpy", "goal");
        warmUp();
        for (boolean isCached : new boolean[] {true, false}) {
            for (int bytes : sizes) {
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

    /** Lets both JVMs compile what they run, for up to forty turns. */
    private void warmUp() throws IOException {
        long sum = file(AT_ONCE_BYTES);
        long sumOfMany = file(MIB);
        long began = System.nanoTime();
        try (Fetcher tcp = Fetcher.tcp(port, TCP_BUFFER_BYTES);
                Fetcher ripc = Fetcher.ripc(client, service)) {
            do {
                for (boolean isCached : new boolean[] {true, false}) {
                    check(ripc, lent(isCached) + AT_ONCE_BYTES, AT_ONCE_BYTES, sum);
                    check(ripc, lent(isCached) + MIB, MIB, sumOfMany);
                    for (String path : paths(isCached)) {
                        check(tcp, path + AT_ONCE_BYTES, AT_ONCE_BYTES, sum);
                        check(tcp, path + MIB, MIB, sumOfMany);
                    }
                }
            } while (System.nanoTime() - began < 40 * turnNs);
        }
    }

    private void oneByOne(int bytes, boolean isCached) throws IOException {
        long sum = file(bytes);
        try (Fetcher tcp = Fetcher.tcp(port, TCP_BUFFER_BYTES);
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
            print(String.valueOf(bytes), isCached, bytes < MIB ? 1 : TIMES_TCP, bytes >= MIB, rates(turns));
        }
    }

    private void atOnce(boolean isCached) throws IOException {
        long sum = file(AT_ONCE_BYTES);
        List<Fetcher> tcp = new ArrayList<>();
        List<Fetcher> ripc = new ArrayList<>();
        try {
            for (int at = 0; at < AT_ONCE; at++) {
                tcp.add(Fetcher.tcp(port, 2 * AT_ONCE_BYTES));
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
            print(AT_ONCE + " x " + AT_ONCE_BYTES, isCached, TIMES_TCP, false, rates(turns));
        } finally {
            for (Fetcher fetcher : tcp) {
                fetcher.close();
            }
            for (Fetcher fetcher : ripc) {
                fetcher.close();
            }
        }
    }

    /** How often each is done in a second, by round. Two rounds before are for warming up. */
    private double[][] rates(List<Turn> turns) throws IOException {
        double[][] rates = new double[rounds][turns.size()];
        for (int round = -2; round < rounds; round++) {
            for (int which = 0; which < turns.size(); which++) {
                Turn turn = turns.get(which);
                long began = System.nanoTime();
                long count = 0;
                long took;
                do {
                    turn.run();
                    count++;
                    took = System.nanoTime() - began;
                } while (took < (round < 0 ? 2 * turnNs : turnNs));
                rates[Math.max(round, 0)][which] = count * 1e9 / took;
            }
        }
        return rates;
    }

    /** Prints a line: {@code rates} are those of memcpy, RIPC, and TCP by one or two handlers. */
    private void print(String what, boolean isCached, double goal, boolean hasMemcpy, double[][] rates) {
        double[] toTcp = new double[rounds];
        double[] toMemcpy = new double[rounds];
        for (int round = 0; round < rounds; round++) {
            double[] rate = rates[round];
            double tcp = Arrays.stream(rate, 2, rate.length).max().orElseThrow();
            toTcp[round] = rate[1] / tcp;
            toMemcpy[round] = rate[1] / rate[0];
        }
        Arrays.sort(toTcp);
        Arrays.sort(toMemcpy);
        double tcp = toTcp[rounds / 2];
        double memcpy = toMemcpy[rounds / 2];
        lines.add(new Line(what, isCached, tcp, memcpy));
        boolean isMet = tcp >= goal || (hasMemcpy && memcpy >= TIMES_MEMCPY);
        System.out.printf(
                "%10s %-7s %10.2f (%5.2f to %5.2f) %12s %8s%n",
                what,
                isCached ? "yes" : "no",
                tcp,
                toTcp[0],
                toTcp[rounds - 1],
                hasMemcpy ? String.format("%.2f", memcpy) : "-",
                isMet ? "met" : "not met");
    }
}
