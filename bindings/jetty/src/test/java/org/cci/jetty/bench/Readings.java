package org.cci.jetty.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import org.eclipse.jetty.util.Jetty;

/** What {@link FetchBench} has measured, as the file that {@code cargo xtask bench fetch} draws tables and plots of. */
final class Readings {
    /** Where memcpy's rate, that of RIPC, and the first of TCP are among those of a round. */
    static final int MEMCPY = 0;

    static final int RIPC = 1;
    static final int TCP = 2;

    private final String site;
    private final int turnMs;
    private final List<Line> lines = new ArrayList<>();

    /**
     * Nothing yet.
     *
     * @param site where the two sides are
     * @param turnMs how long each turn took at least, milliseconds
     */
    Readings(String site, int turnMs) {
        this.site = site;
        this.turnMs = turnMs;
    }

    /**
     * What was measured of one kind of fetch.
     *
     * @param bytes the length of the file
     * @param atOnce how many fetches are under way at once
     * @param isCached whether Jetty's cache served it
     * @param rates by round: how often in a second memcpy, RIPC, and TCP by one or two handlers did {@code atOnce} of them
     */
    record Line(int bytes, int atOnce, boolean isCached, double[][] rates) {
        /** How many times as fast RIPC was as TCP in each round, ascending. TCP has the better of its handlers. */
        double[] toTcp() {
            return ratios(rate -> Arrays.stream(rate, TCP, rate.length).max().orElseThrow());
        }

        /** How many times as fast RIPC was as memcpy in each round, ascending. */
        double[] toMemcpy() {
            return ratios(rate -> rate[MEMCPY]);
        }

        private double[] ratios(ToDoubleFunction<double[]> of) {
            return Arrays.stream(rates).mapToDouble(rate -> rate[RIPC] / of.applyAsDouble(rate)).sorted().toArray();
        }

        /** What was fetched, in words. */
        String what() {
            return atOnce == 1 ? String.valueOf(bytes) : atOnce + " x " + bytes;
        }

        private String json() {
            String rounds = Arrays.stream(rates)
                    .map(round -> Arrays.stream(round)
                            .mapToObj(rate -> String.format(Locale.ROOT, "%.1f", rate))
                            .collect(Collectors.joining(",", "[", "]")))
                    .collect(Collectors.joining(",", "[", "]"));
            return "{\"bytes\":" + bytes + ",\"at_once\":" + atOnce + ",\"is_cached\":" + isCached + ",\"rates\":" + rounds + "}";
        }
    }

    void add(Line line) {
        lines.add(line);
    }

    List<Line> lines() {
        return lines;
    }

    /** Writes all of it. */
    void write(Path file) throws IOException {
        String head = String.format(
                Locale.ROOT,
                "{\"site\":\"%s\",\"date\":\"%s\",\"java\":\"%s\",\"jetty\":\"%s\",\"cores\":%d,\"turn_ms\":%d,%n\"lines\":[%n",
                site,
                Instant.now().truncatedTo(ChronoUnit.SECONDS),
                Runtime.version().feature(),
                Jetty.VERSION,
                Runtime.getRuntime().availableProcessors(),
                turnMs);
        String rows = lines.stream().map(Line::json).collect(Collectors.joining(",\n"));
        Files.writeString(file, head + rows + "\n]}\n");
    }
}
