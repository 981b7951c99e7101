package org.cci.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.DynamicContainer.dynamicContainer;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicNode;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.opentest4j.TestAbortedException;

/**
 * The conformance suite, which is a Rust program, through the Java interface: on shared memory and UDP, and on what the system property
 * {@code cci.conformance.devices} names. The program starts an {@link Agent}, where it makes its calls, and has a line for each case.
 */
class ConformanceTest {
    private static final int DEVICE = 1;
    private static final int GROUP = 2;
    private static final int CASE = 3;
    private static final int ENDED = 4;
    private static final int WHY = 6;

    @TestFactory
    Stream<DynamicNode> cases() throws IOException, InterruptedException {
        Path suite = Path.of(System.getProperty("cci.conformance"));
        assertTrue(Files.exists(suite), suite + " is built by: cargo build -p cci-testkit --example java_conformance");
        String[] devices = System.getProperty("cci.conformance.devices").split(",");
        List<String> command = new ArrayList<>(List.of(suite.toString()));
        command.addAll(List.of(devices));
        var builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("CCI_CONFORMANCE_AGENT", String.join("\n", agent()));
        Process process = builder.start();
        process.getOutputStream().close();
        Map<String, List<DynamicTest>> tests = new LinkedHashMap<>();
        for (String device : devices) {
            tests.put(device, new ArrayList<>());
        }
        try (var lines = process.inputReader()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split("\t", -1);
                if (!fields[0].equals("case")) {
                    // Some cases print figures.
                    System.out.println(line);
                    continue;
                }
                assertEquals(WHY + 1, fields.length, line);
                tests.get(fields[DEVICE]).add(dynamicTest(fields[GROUP] + ": " + fields[CASE], () -> report(fields)));
            }
            boolean ended = process.waitFor(1, TimeUnit.MINUTES);
            List<DynamicNode> all = new ArrayList<>();
            tests.forEach((device, ofDevice) -> all.add(dynamicContainer(device, ofDevice)));
            all.add(dynamicTest("all cases end", () -> {
                assertTrue(ended, "the suite ends");
                // 1: cases have failed, and each is a test here. Something else: it could not go on.
                assertTrue(process.exitValue() <= 1, "the suite ended with " + process.exitValue());
                tests.forEach((device, ofDevice) -> assertTrue(ofDevice.size() > 100, ofDevice.size() + " on " + device));
            }));
            return all.stream();
        } finally {
            process.destroyForcibly();
        }
    }

    /** What starts the Java side. */
    private static List<String> agent() {
        return List.of(
                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-Xshare:auto",
                "-XX:+UseSerialGC",
                "-cp",
                System.getProperty("java.class.path"),
                Agent.class.getName());
    }

    private static void report(String[] fields) {
        String what = fields[CASE] + " on " + fields[DEVICE] + ": " + fields[WHY];
        switch (fields[ENDED]) {
            case "passed" -> {}
            case "skipped", "left out" -> throw new TestAbortedException(what);
            default -> fail(what);
        }
    }
}
