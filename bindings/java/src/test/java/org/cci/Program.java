package org.cci;

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

    private Program(Process process) {
        this.process = process;
        output = process.inputReader();
    }

    /** Starts a class with arguments. */
    static Program start(Class<?> main, String... arguments) throws IOException {
        return start(Path.of(System.getProperty("java.home")), List.of("--enable-native-access=ALL-UNNAMED"), main, arguments);
    }

    static Program start(Path javaHome, List<String> options, Class<?> main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(javaHome.resolve("bin/java").toString());
        command.addAll(options);
        command.add("-Xshare:auto");
        command.add("-XX:TieredStopAtLevel=1");
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.add(main.getName());
        command.addAll(List.of(arguments));
        return new Program(new ProcessBuilder(command).redirectErrorStream(true).start());
    }

    /** Its next line; null at the end. */
    String line() throws IOException {
        return output.readLine();
    }

    /** All that it prints until it ends. */
    String rest() throws IOException, InterruptedException {
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
