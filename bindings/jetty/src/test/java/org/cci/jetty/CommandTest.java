package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.cci.CallException;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceContent;
import org.cci.ServiceId;
import org.cci.ServiceMessage;
import org.eclipse.jetty.server.Server;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the command {@code cci get} fetches from Jetty. */
class CommandTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private final String name = "command-" + ProcessHandle.current().pid();

    private static Process get(String what, Path to) throws IOException {
        Path command = Path.of(System.getProperty("cci.command"));
        assumeTrue(Files.isExecutable(command), "cargo xtask test java builds the command cci");
        return new ProcessBuilder(command.toString(), "get", what, "-o", to.toString()).redirectErrorStream(true).start();
    }

    private static String end(Process get, int code) throws Exception {
        String says = new String(get.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(get.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS));
        assertEquals(code, get.exitValue(), says);
        return says;
    }

    @Test
    void theCommandFetchesFromJettyThoughThatIsKilled(@TempDir Path folder) throws Exception {
        byte[] content = new byte[200_000_001];
        new Random(3).nextBytes(content);
        Path served = Files.createDirectories(folder.resolve("served/deep")).getParent();
        Files.write(served.resolve("deep/big"), content);
        Files.write(served.resolve("empty"), new byte[0]);
        Files.writeString(folder.resolve("secret"), "secret");
        Files.createSymbolicLink(served.resolve("link"), folder.resolve("secret"));
        Path copy = folder.resolve("copy");
        Path unfinished = folder.resolve(".copy.part");
        Program server = new Program(Serve.class, name, served.toString());
        try {
            assertTrue(server.line().startsWith("serving "));
            Process get = get(name + "/deep/big", copy);
            try {
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (get.isAlive() && (!Files.exists(unfinished) || Files.size(unfinished) < 20_000_000)) {
                    assertTrue(System.nanoTime() < deadline, "nothing comes");
                    Thread.sleep(1);
                }
                server.close();
                assertTrue(get.isAlive(), "killed in mid-file");
                server = new Program(Serve.class, name, served.toString());
                assertTrue(server.line().startsWith("serving "));
                end(get, 0);
            } finally {
                get.destroyForcibly();
            }
            assertArrayEquals(content, Files.readAllBytes(copy));
            end(get(name + "/empty", copy), 0);
            assertEquals(0, Files.size(copy));
            for (String wrong : List.of("missing", "link", "deep", "../secret")) {
                String says = end(get(name + "/" + wrong, folder.resolve("none")), 1);
                assertTrue(says.contains("no such file here"), says);
            }
            assertFalse(Files.exists(folder.resolve("none")));
        } finally {
            server.close();
        }
    }

    private static ByteBuffer text(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    @Test
    void whatIsNoRequestForAFileIsRefused(@TempDir Path folder) throws Exception {
        Files.write(folder.resolve("file"), new byte[] {1, 2, 3});
        Server server = new Server();
        ServiceConnector connector = new ServiceConnector(server, name);
        connector.setFolder(folder);
        server.addConnector(connector);
        server.start();
        try (Service client = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(100)) {
            ServiceId to = ServiceId.of(name);
            ByteBuffer word = ByteBuffer.allocate(8);
            ByteBuffer none = ByteBuffer.allocate(0);
            List<ServiceContent> wrong = new ArrayList<>(List.of(
                    ServiceContent.EMPTY,
                    ServiceContent.of(text("about")),
                    ServiceContent.of(text("about"), text("no\0file")),
                    ServiceContent.of(text("about"), ByteBuffer.wrap(new byte[] {-1})),
                    ServiceContent.of(text("about"), text("x".repeat(1025))),
                    ServiceContent.of(text("about"), text("file"), text("more")),
                    ServiceContent.of(text("erase"), text("file")),
                    ServiceContent.of(text("read"), text("file")),
                    ServiceContent.of(text("read"), text("file"), word, none)));
            for (int times = 0; times < 4; times++) {
                wrong.add(ServiceContent.of(text("about"), text("file")).withLongItems(buffer.item()));
            }
            for (ServiceContent content : wrong) {
                CallException refused = assertThrows(CallException.class, () -> client.call(to, content, PATIENCE));
                assertEquals(CallException.End.REFUSED, refused.end(), content.toString());
            }
            ByteBuffer huge = ByteBuffer.allocate(8).putLong(0, -1);
            for (ByteBuffer[] range : new ByteBuffer[][] {{word, word}, {huge, huge}}) {
                ServiceContent nothing = ServiceContent.of(text("read"), text("file"), range[0], range[1]);
                try (ServiceMessage answer = client.call(to, nothing, PATIENCE)) {
                    assertEquals(0, answer.longItemCount());
                }
            }
            ServiceContent all = ServiceContent.of(text("read"), text("file"), word, huge).withReturnBuffers(buffer.item());
            try (ServiceMessage answer = client.call(to, all, PATIENCE)) {
                assertEquals(3, answer.longItem(0).length());
                assertEquals(2, answer.longItem(0).bytes().get(1));
            }
        } finally {
            server.stop();
        }
    }
}
