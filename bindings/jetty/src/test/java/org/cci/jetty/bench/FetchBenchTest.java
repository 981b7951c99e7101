package org.cci.jetty.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The benchmark runs, and both transports bring the same bytes. How fast they are is not looked at. */
class FetchBenchTest {
    @TempDir
    Path folder;

    private static final List<String> FETCHED = List.of("1024", "3000000", "1024", "3000000", "64 x 4096", "64 x 4096");

    @Test
    void everyFileComesWhole() throws Exception {
        Path file = folder.resolve("fetch.json");
        List<Readings.Line> lines = FetchBench.run("rounds=1", "ms=1", "sizes=1024,3000000", "out=" + file);
        assertEquals(FETCHED, lines.stream().map(Readings.Line::what).toList());
        for (Readings.Line line : lines) {
            assertTrue(line.toTcp()[0] > 0 && line.toMemcpy()[0] > 0, line.toString());
        }
        checkWritten(file, "host");
    }

    @Test
    void everyFileComesWholeAcrossAWire() throws Exception {
        assumeTrue(Wire.isPossible(), "it takes root, iproute2 and util-linux");
        Path file = folder.resolve("fetch.json");
        FetchBench.run("rounds=1", "ms=1", "sizes=1024,3000000", "wire=true", "out=" + file);
        checkWritten(file, "wire");
    }

    private static void checkWritten(Path file, String site) throws IOException {
        List<String> written = Files.readAllLines(file);
        assertTrue(written.get(0).startsWith("{\"site\":\"" + site + "\""), written.get(0));
        assertEquals(FETCHED.size() + 3, written.size());
        assertTrue(written.get(2).matches(
                "\\{\"bytes\":1024,\"at_once\":1,\"is_cached\":true,\"rates\":\\[\\[[0-9.]+,[0-9.]+,[0-9.]+\\]\\]},"), written.get(2));
    }
}
