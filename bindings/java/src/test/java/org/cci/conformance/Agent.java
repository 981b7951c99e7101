package org.cci.conformance;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.invoke.MethodHandle;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import org.cci.Context;

/**
 * The Java side of the conformance suite: makes the calls that the suite, a Rust program, asks for. That program starts one of these
 * for all cases, and connects to it once for each endpoint. The program is {@code crates/testkit/examples/java_conformance}, which says
 * what goes over the wire.
 */
public final class Agent {
    private static final int SIGKILL = 9;

    private Agent() {}

    /** Runs until standard input ends, as it does with the process that has started this one, however that ends. */
    public static void main(String[] arguments) throws IOException {
        Thread.ofPlatform().daemon().start(Agent::endWithTheStarter);
        Context context = Context.open();
        var handles = new Handles();
        try (var server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(Path.of(arguments[0])), 64);
            System.out.println("ready");
            while (true) {
                SocketChannel line = server.accept();
                Thread.ofPlatform().start(() -> serve(context, handles, line));
            }
        }
    }

    @SuppressWarnings("restricted")
    private static void endWithTheStarter() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is ever said there.
            }
        } catch (IOException e) {
            // It is the end as well.
        }
        // To its peers this process ends as its starter, which has closed what it wanted closed: `halt` would close the rest.
        MethodHandle raise = Linker.nativeLinker()
                .downcallHandle(
                        Linker.nativeLinker().defaultLookup().find("raise").orElseThrow(),
                        FunctionDescriptor.of(JAVA_INT, JAVA_INT));
        try {
            int unused = (int) raise.invokeExact(SIGKILL);
            throw new AssertionError("killed, and alive: " + unused);
        } catch (Throwable e) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static void serve(Context context, Handles handles, SocketChannel channel) {
        try (var line = new Line(channel)) {
            new Port(context, handles, line).serve();
        } catch (IOException e) {
            // The suite has ended, or the case has.
        }
    }
}
