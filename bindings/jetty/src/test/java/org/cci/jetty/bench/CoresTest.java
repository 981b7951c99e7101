package org.cci.jetty.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class CoresTest {
    @Test
    void listsOfCoresAreRead() {
        assertEquals(List.of(), Cores.parse(""));
        assertEquals(List.of(7), Cores.parse("7"));
        assertEquals(List.of(0, 1, 2, 3, 8, 10, 11), Cores.parse("0-3,8,10-11"));
    }

    @Test
    void sidesHaveACoreEach() throws Exception {
        List<String> look = List.of("grep", "Cpus_allowed_list", "/proc/self/status");
        assumeTrue(Runtime.getRuntime().availableProcessors() > 1, "this process may use one core only");
        Cores cores = Cores.ofThis();
        List<Integer> server = allowed(cores.onServers(look));
        List<Integer> client = allowed(cores.onClients(look));
        assertEquals(1, server.size());
        assertEquals(1, client.size());
        assertNotEquals(server, client);
    }

    private static List<Integer> allowed(List<String> command) throws Exception {
        Process process = new ProcessBuilder(command).start();
        try (var output = process.inputReader()) {
            return Cores.parse(output.readLine().split(":")[1].strip());
        } finally {
            process.destroyForcibly().waitFor();
        }
    }
}
