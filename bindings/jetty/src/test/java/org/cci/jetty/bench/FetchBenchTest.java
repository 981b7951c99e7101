package org.cci.jetty.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The benchmark runs, and both transports bring the same bytes. How fast they are is not looked at. */
class FetchBenchTest {
    @Test
    void everyFileComesWhole() throws Exception {
        List<FetchBench.Line> lines = FetchBench.run("rounds=1", "ms=1", "sizes=1024,3000000");
        assertEquals(List.of("1024", "3000000", "1024", "3000000", "64 x 4096", "64 x 4096"),
                lines.stream().map(FetchBench.Line::what).toList());
        for (FetchBench.Line line : lines) {
            assertTrue(line.toTcp() > 0, line.toString());
        }
    }
}
