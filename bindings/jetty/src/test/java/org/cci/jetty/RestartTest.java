package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.cci.ServiceId;
import org.eclipse.jetty.client.HttpClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Servers in processes that are killed. */
class RestartTest {
    private final String name = "restart-" + ProcessHandle.current().pid();

    @Test
    void aFileComesThoughItsServerIsKilled(@TempDir Path folder) throws Exception {
        byte[] content = new byte[200 << 20];
        new Random(5).nextBytes(content);
        Files.write(folder.resolve("big"), content);
        Path copy = folder.resolve("copy");
        HttpClient client = new HttpClient();
        client.start();
        Program[] server = {new Program(Serve.class, name, folder.toString())};
        try (ServiceTransport transport = new ServiceTransport();
                FileChannel to = FileChannel.open(copy, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            assertTrue(server[0].line().startsWith("serving "));
            int[] kills = {0};
            Download download = new Download(client, transport.to(ServiceId.of(name)), "http://" + name + "/big");
            long bytes = download.fetch(to, come -> {
                if (come > (kills[0] + 1) * (40L << 20) && kills[0] < 3) {
                    kills[0]++;
                    server[0].close();
                    try {
                        server[0] = new Program(Serve.class, name, folder.toString());
                    } catch (java.io.IOException e) {
                        throw new java.io.UncheckedIOException(e);
                    }
                }
            }, 60, TimeUnit.SECONDS);
            assertEquals(content.length, bytes);
            assertEquals(3, kills[0]);
            assertTrue(download.tries() >= 3, "tries: " + download.tries());
        } finally {
            server[0].close();
            client.stop();
        }
        assertArrayEquals(content, Files.readAllBytes(copy));
    }

    @Test
    void theCommandsTellWhatIsWrong(@TempDir Path folder) throws Exception {
        Files.write(folder.resolve("small"), new byte[] {1, 2, 3});
        try (Program server = new Program(Serve.class, name + "c", folder.toString())) {
            assertTrue(server.line().startsWith("serving "));
            try (Program get = new Program(Get.class, name + "c", "/small", folder.resolve("copy").toString())) {
                String says = get.rest();
                assertTrue(says.contains("/small: 3 bytes") && says.contains("100%"), says);
            }
            assertArrayEquals(new byte[] {1, 2, 3}, Files.readAllBytes(folder.resolve("copy")));
            try (Program get = new Program(Get.class, name + "c", "/missing", folder.resolve("no").toString())) {
                String says = get.rest();
                assertTrue(says.contains("404"), says);
                assertEquals(1, get.process.exitValue());
            }
            try (Program second = new Program(Serve.class, name + "c", folder.toString())) {
                String says = second.rest();
                assertTrue(says.contains(name + "c"), says);
                assertEquals(1, second.process.exitValue());
            }
            try (Program wrong = new Program(Get.class, name)) {
                assertTrue(wrong.rest().startsWith("usage: "));
            }
        }
    }
}
