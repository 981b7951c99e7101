package org.cci.jetty.bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A core for each side. Where the scheduler chooses, both sides may run on the same one, or on either in turn, and what is measured is
 * that. It takes taskset of util-linux.
 */
final class Cores {
    private static final String ALLOWED = "Cpus_allowed_list:";
    private static final int PATIENCE_S = 30;

    private final int server;
    private final int client;

    private Cores(int server, int client) {
        this.server = server;
        this.client = client;
    }

    /** The first two cores that this process may use, for the server and the client. */
    static Cores ofThis() throws IOException {
        try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
            String list = lines.filter(line -> line.startsWith(ALLOWED)).findFirst().orElse(ALLOWED);
            List<Integer> cores = parse(list.substring(ALLOWED.length()).strip());
            if (cores.size() < 2) {
                throw new IOException("server and client need a core each, and this process may use " + cores.size());
            }
            return new Cores(cores.get(0), cores.get(1));
        } catch (UncheckedIOException e) {
            throw e.getCause();
        }
    }

    /** The numbers in a list such as {@code 0-3,8}. */
    static List<Integer> parse(String list) {
        List<Integer> numbers = new ArrayList<>();
        for (String range : list.split(",")) {
            String[] ends = range.split("-", 2);
            if (!ends[0].isEmpty()) {
                int first = Integer.parseInt(ends[0]);
                int last = ends.length == 2 ? Integer.parseInt(ends[1]) : first;
                IntStream.rangeClosed(first, last).forEach(numbers::add);
            }
        }
        return numbers;
    }

    /** A command that runs on the server's core. */
    List<String> onServers(List<String> command) {
        return on(server, command);
    }

    /** A command that runs on the client's core. */
    List<String> onClients(List<String> command) {
        return on(client, command);
    }

    private static List<String> on(int core, List<String> command) {
        List<String> all = new ArrayList<>(List.of("taskset", "--cpu-list", String.valueOf(core)));
        all.addAll(command);
        return all;
    }

    /** Has all threads of this process run on the client's core from now on. */
    void takeClients() throws IOException {
        String own = String.valueOf(ProcessHandle.current().pid());
        List<String> command = List.of("taskset", "--all-tasks", "--cpu-list", "--pid", String.valueOf(client), own);
        Process taskset = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        try {
            if (!taskset.waitFor(PATIENCE_S, TimeUnit.SECONDS) || taskset.exitValue() != 0) {
                throw new IOException("the client can't be given a core of its own by taskset");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException(e);
        } finally {
            taskset.destroyForcibly();
        }
    }
}
