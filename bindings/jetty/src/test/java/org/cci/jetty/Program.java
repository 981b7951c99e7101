package org.cci.jetty;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** A program in a JVM of its own. */
final class Program implements AutoCloseable {
    final Process process;
    private final BufferedReader output;

    Program(Class<?> main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-XX:TieredStopAtLevel=1"));
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
        command.addAll(List.of(arguments));
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        output = process.inputReader();
    }

    /** Its next line; null at the end. */
    String line() throws IOException {
        return output.readLine();
    }

    /** All that it prints until it ends. */
    String rest() throws InterruptedException {
        String all = output.lines().collect(Collectors.joining("\n"));
        process.waitFor(60, TimeUnit.SECONDS);
        return all;
    }

    /** Kills it. */
    @Override
    public void close() {
        process.destroyForcibly().onExit().join();
    }
}
