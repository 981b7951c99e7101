package bench;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.agrona.IoUtil;

/**
 * Aeron between two Java processes, one on each core: <code>half-trip|rate LEN COUNT [ipc|udp]</code>; one line of JSON.
 *
 * <p>Each process has one busy thread. The media driver is embedded and invoked by that thread (INVOKER), for there are no
 * more cores: with a thread of its own (SHARED, DEDICATED) it would take turns with the program on the same core. Over
 * IPC one driver serves both processes; over UDP each has its own, and messages cross the loopback interface.
 */
public final class Main
{
    /**
     * What the just-in-time compiler needs to see before anything is timed: with a tenth of it, half a round trip takes two
     * to four times as long.
     */
    private static final int WARM_UPS = 4;
    private static final long WARM_UP_TRIPS = 250_000;
    private static final long WARM_UP_TRIPS_UDP = 100_000;
    private static final long WARM_UP_MESSAGES = 5_000_000;
    /** Fewer than these are mostly the beginning of a run, which is half as fast. */
    private static final long MESSAGES_MIN = 20_000_000;
    private static final long MESSAGES_MIN_UDP = 4_000_000;

    private Main()
    {
    }

    /** What is asked for; the second process is told besides where everything is. */
    record Arguments(boolean halfTrip, int len, long count, boolean udp, String folder, int there, int back)
    {
        static Arguments parse(final String[] args) throws Exception
        {
            final boolean valid = args.length >= 3 && args.length <= 7 && List.of("half-trip", "rate").contains(args[0]) &&
                (args.length < 4 || List.of("ipc", "udp").contains(args[3]));
            if (!valid)
            {
                throw new IllegalArgumentException("arguments: half-trip|rate LEN COUNT [ipc|udp]");
            }
            final boolean second = args.length == 7;
            final int[] ports = second ?
                new int[]{ Integer.parseInt(args[5]), Integer.parseInt(args[6]) } : freePorts();
            return new Arguments(
                args[0].equals("half-trip"),
                Integer.parseInt(args[1]),
                Long.parseLong(args[2]),
                args.length > 3 && args[3].equals("udp"),
                second ? args[4] : "/dev/shm/cci-bench-aeron-" + ProcessHandle.current().pid(),
                ports[0],
                ports[1]);
        }

        List<String> forSecond()
        {
            return List.of(
                halfTrip ? "half-trip" : "rate", "" + len, "" + count, udp ? "udp" : "ipc", folder, "" + there, "" + back);
        }

        /** The parts of a run, the last of which is timed. */
        long[] parts()
        {
            final long[] parts = new long[WARM_UPS + 1];
            final long trips = udp ? WARM_UP_TRIPS_UDP : WARM_UP_TRIPS;
            Arrays.fill(parts, Math.max(count / 10 / WARM_UPS, halfTrip ? trips : WARM_UP_MESSAGES));
            final long messagesMin = udp ? MESSAGES_MIN_UDP : MESSAGES_MIN;
            parts[WARM_UPS] = halfTrip ? count : Math.max(count, messagesMin);
            return parts;
        }
    }

    public static void main(final String[] args) throws Exception
    {
        final Arguments arguments = Arguments.parse(args);
        if (args.length == 7)
        {
            try (Side side = new Side(arguments, false))
            {
                pin(1);
                second(side, arguments);
            }
            return;
        }
        Process other = null;
        try
        {
            other = startOther(arguments);
            final double value;
            try (Side side = new Side(arguments, true))
            {
                pin(0);
                value = first(side, arguments);
                other.destroyForcibly();
            }
            System.out.printf("{\"value\": %.1f, \"unit\": \"%s\"}%n", value, arguments.halfTrip() ? "ns" : "1/s");
        }
        finally
        {
            if (other != null)
            {
                other.destroyForcibly().waitFor(5, TimeUnit.SECONDS);
            }
            IoUtil.delete(new File(arguments.folder()), true);
        }
    }

    private static double first(final Side side, final Arguments arguments) throws Exception
    {
        side.waitForOther();
        double value = 0;
        for (final long part : arguments.parts())
        {
            // The compiler's threads get a core to themselves before each part.
            Thread.sleep(100);
            side.startPart();
            final long begunNs = System.nanoTime();
            if (arguments.halfTrip())
            {
                side.ping(part);
            }
            else
            {
                side.stream(part);
            }
            final double tookNs = System.nanoTime() - begunNs;
            value = arguments.halfTrip() ? tookNs / part / 2 : part * 1e9 / tookNs;
        }
        return value;
    }

    private static void second(final Side side, final Arguments arguments) throws Exception
    {
        side.waitForOther();
        for (final long part : arguments.parts())
        {
            side.awaitPart();
            if (arguments.halfTrip())
            {
                side.pong(part);
            }
            else
            {
                side.swallow(part);
            }
        }
        // The last message may have to be sent again: until the first process ends this one.
        side.linger();
    }

    private static Process startOther(final Arguments arguments) throws Exception
    {
        final List<String> command = new ArrayList<>();
        command.add(System.getProperty("java.home") + "/bin/java");
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-jar", System.getProperty("java.class.path")));
        command.addAll(arguments.forSecond());
        return new ProcessBuilder(command)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    }

    /** Binds the calling thread to a core. Other threads (Java's, the driver's resolver) may run on either. */
    private static void pin(final int core) throws Exception
    {
        final String thread = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
        final Process taskset = new ProcessBuilder("taskset", "-p", "-c", "" + core, thread)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
        if (taskset.waitFor() != 0)
        {
            throw new IllegalStateException("taskset failed");
        }
    }

    private static int[] freePorts() throws Exception
    {
        final InetAddress loopback = InetAddress.getLoopbackAddress();
        try (DatagramSocket one = new DatagramSocket(0, loopback); DatagramSocket two = new DatagramSocket(0, loopback))
        {
            return new int[]{ one.getLocalPort(), two.getLocalPort() };
        }
    }
}
