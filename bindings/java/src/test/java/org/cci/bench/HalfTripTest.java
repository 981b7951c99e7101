package org.cci.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The benchmark runs, in Java and in C. How fast they are is not looked at. */
class HalfTripTest {
    @Test
    void messagesGoThereAndBack() throws Exception {
        Path library = Path.of(System.getProperty("cci.command")).resolveSibling("libcci_capi.so");
        boolean hasCompiler = Stream.of(System.getenv("PATH").split(":"))
                .anyMatch(folder -> Files.isExecutable(Path.of(folder, "cc")));
        assumeTrue(hasCompiler && Files.exists(library), "a C compiler, and the library where cargo builds it");
        String cores = Runtime.getRuntime().availableProcessors() > 1 ? "0,1" : "0,0";
        List<HalfTrip.Line> lines = HalfTrip.run("library=" + library, "rounds=2", "trips=10", "cores=" + cores);
        assertEquals(2, lines.size());
        for (HalfTrip.Line line : lines) {
            assertTrue(line.java() > 0 && line.c() > 0, line.toString());
        }
    }
}
