package org.cci.jetty.bench;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Two network namespaces, joined by a pair of virtual Ethernet interfaces, in which processes can be started. It takes root and
 * iproute2. Each namespace is held by a shell that ends with this process, however it ends; the kernel then takes all of it away.
 */
final class Wire implements AutoCloseable {
    /** The address of the server's end. */
    static final String FAR = "10.99.0.2";

    private static final String NEAR = "10.99.0.1";
    /** Both interfaces: each is alone in its namespace. */
    static final String INTERFACE = "wire0";

    private static final int PATIENCE_S = 30;
    private static final int LOOKS = 1000;

    private final Process near;
    private final Process far;

    /** Makes the namespaces and the pair. */
    Wire() throws IOException {
        near = hold();
        try {
            far = hold();
        } catch (IOException e) {
            near.destroyForcibly();
            throw e;
        }
        try {
            bringUp();
        } catch (IOException e) {
            close();
            throw e;
        }
    }

    /** Whether this process may make namespaces, and has what it takes. */
    static boolean isPossible() {
        try {
            finish(List.of("unshare", "--net", "ip", "link", "set", "lo", "up"));
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /** A shell in a namespace of its own. */
    private static Process hold() throws IOException {
        Process shell = new ProcessBuilder("unshare", "--net", "sh", "-c", "echo; read end")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        if (shell.getInputStream().read() < 0) {
            throw new IOException("no network namespace can be made, which takes root and unshare of util-linux");
        }
        return shell;
    }

    private void bringUp() throws IOException {
        // Different numbers at the ends: where they are the same the kernel takes the pair for hardware.
        finish(inside(near, List.of("ip", "link", "add", "name", INTERFACE, "index", "11", "type", "veth", "peer", "name",
                INTERFACE, "index", "12", "netns", String.valueOf(far.pid()))));
        for (Process end : List.of(near, far)) {
            finish(inside(end, List.of("ip", "link", "set", "lo", "up")));
            finish(inside(end, List.of("ip", "addr", "add", (end == near ? NEAR : FAR) + "/24", "dev", INTERFACE)));
            finish(inside(end, List.of("ip", "link", "set", INTERFACE, "up")));
        }
        for (int look = 0; !finish(inside(near, List.of("ip", "link", "show", INTERFACE))).contains("LOWER_UP"); look++) {
            if (look == LOOKS) {
                throw new IOException("the new pair of interfaces gets no carrier");
            }
        }
    }

    private static List<String> inside(Process end, List<String> command) {
        List<String> all = new ArrayList<>(List.of("nsenter", "--net=/proc/" + end.pid() + "/ns/net"));
        all.addAll(command);
        return all;
    }

    /** Runs a command to its end. Returns what it has written. */
    private static String finish(List<String> command) throws IOException {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        try (InputStream output = process.getInputStream()) {
            String written = new String(output.readAllBytes(), StandardCharsets.UTF_8);
            if (!process.waitFor(PATIENCE_S, TimeUnit.SECONDS) || process.exitValue() != 0) {
                throw new IOException(String.join(" ", command) + ": " + written.strip());
            }
            return written;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException(e);
        }
    }

    /** A command that runs at the client's end. */
    List<String> near(List<String> command) {
        return inside(near, command);
    }

    /** A command that runs at the server's end. */
    List<String> far(List<String> command) {
        return inside(far, command);
    }

    @Override
    public void close() {
        near.destroyForcibly();
        far.destroyForcibly();
    }
}
