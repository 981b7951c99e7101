package bench;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import java.util.concurrent.TimeUnit;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.CloseHelper;
import org.agrona.concurrent.AgentInvoker;
import org.agrona.concurrent.UnsafeBuffer;

/** One of the two processes: its driver, its client, a publication to the other and a subscription from it. */
final class Side implements AutoCloseable
{
    private static final int THERE_STREAM = 1001;
    private static final int BACK_STREAM = 1002;
    private static final int FRAGMENTS_MAX = 256;
    /** Messages or trips between two calls of the driver while nothing makes it necessary: limits move, clients stay alive. */
    private static final int BETWEEN_INVOCATIONS = Integer.getInteger("bench.between", 1024);
    private static final int POLLS_BETWEEN_CLOCK_READS = 1 << 16;
    private static final long SILENCE_LIMIT_NS = TimeUnit.SECONDS.toNanos(60);

    private final boolean udp;
    private final MediaDriver driver;
    private final AgentInvoker driverInvoker;
    private final Aeron aeron;
    private final AgentInvoker clientInvoker;
    private final ExclusivePublication publication;
    private final Subscription subscription;
    private final FragmentHandler handler;
    private final UnsafeBuffer message;
    private Image image;
    private long received = 0;

    Side(final Main.Arguments arguments, final boolean first)
    {
        udp = arguments.udp();
        final boolean ownDriver = first || udp;
        final String folder = arguments.folder() + (udp && !first ? "/second" : "/first");
        driver = ownDriver ? MediaDriver.launchEmbedded(driverContext(folder)) : null;
        driverInvoker = ownDriver ? driver.sharedAgentInvoker() : null;
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(folder).useConductorAgentInvoker(true)
            .driverTimeoutMs(TimeUnit.NANOSECONDS.toMillis(SILENCE_LIMIT_NS));
        if (ownDriver)
        {
            context.driverAgentInvoker(driverInvoker);
        }
        aeron = Aeron.connect(context);
        clientInvoker = aeron.conductorAgentInvoker();
        final String there = channel(arguments.there());
        final String back = channel(arguments.back());
        subscription = aeron.addSubscription(first ? back : there, first ? BACK_STREAM : THERE_STREAM);
        publication = aeron.addExclusivePublication(first ? there : back, first ? THERE_STREAM : BACK_STREAM);
        message = new UnsafeBuffer(BufferUtil.allocateDirectAligned(Math.max(8, arguments.len()), BitUtil.CACHE_LINE_LENGTH));
        message.wrap(message, 0, arguments.len());
        final FragmentHandler count = (buffer, offset, length, header) -> received++;
        handler = arguments.len() > publication.maxPayloadLength() ? new FragmentAssembler(count) : count;
    }

    private static MediaDriver.Context driverContext(final String folder)
    {
        return new MediaDriver.Context()
            .aeronDirectoryName(folder)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.INVOKER)
            .termBufferSparseFile(false)
            .performStorageChecks(false)
            .socketRcvbufLength(2 << 20)
            .socketSndbufLength(2 << 20)
            .initialWindowLength(2 << 20)
            // On a busy machine a process may have to wait for its core.
            .clientLivenessTimeoutNs(SILENCE_LIMIT_NS)
            .imageLivenessTimeoutNs(SILENCE_LIMIT_NS)
            .publicationUnblockTimeoutNs(2 * SILENCE_LIMIT_NS)
            .warnIfDirectoryExists(false);
    }

    /** Terms that stay in the cache, and for UDP datagrams as large as loopback takes, many messages each. */
    private String channel(final int port)
    {
        return udp ?
            "aeron:udp?endpoint=127.0.0.1:" + port + System.getProperty("bench.udp", "|mtu=65504|term-length=8m") :
            "aeron:ipc" + System.getProperty("bench.ipc", "?term-length=1m|mtu=65504");
    }

    /** Lets driver and client do what is due. */
    private void invoke()
    {
        if (driverInvoker != null)
        {
            driverInvoker.invoke();
        }
        clientInvoker.invoke();
    }

    /** Without haste: the other process has a machine to start, maybe on this core. */
    void waitForOther() throws InterruptedException
    {
        final long until = System.nanoTime() + SILENCE_LIMIT_NS;
        while (!publication.isConnected() || !subscription.isConnected())
        {
            invoke();
            Thread.sleep(1);
            checkTime(until);
        }
        image = subscription.imageAtIndex(0);
    }

    /** The first process tells the second that it begins, so that neither is away when time is taken. */
    void startPart()
    {
        send();
        receive();
    }

    void awaitPart()
    {
        receive();
        send();
    }

    void ping(final long trips)
    {
        for (long trip = 0; trip < trips; trip += BETWEEN_INVOCATIONS)
        {
            pingSome(Math.min(BETWEEN_INVOCATIONS, trips - trip));
            invoke();
        }
    }

    private void pingSome(final long trips)
    {
        for (long trip = 0; trip < trips; trip++)
        {
            send();
            receive();
        }
    }

    void pong(final long trips)
    {
        for (long trip = 0; trip < trips; trip += BETWEEN_INVOCATIONS)
        {
            pongSome(Math.min(BETWEEN_INVOCATIONS, trips - trip));
            invoke();
        }
    }

    private void pongSome(final long trips)
    {
        for (long trip = 0; trip < trips; trip++)
        {
            receive();
            send();
        }
    }

    /** Messages one way, then the answer that all are there. */
    void stream(final long messages)
    {
        for (long sent = 0; sent < messages; sent += BETWEEN_INVOCATIONS)
        {
            streamSome(Math.min(BETWEEN_INVOCATIONS, messages - sent));
            invoke();
        }
        receive();
    }

    private void streamSome(final long messages)
    {
        for (long sent = 0; sent < messages; sent++)
        {
            offer();
        }
    }

    void swallow(final long messages)
    {
        final long before = received;
        while (received - before < messages)
        {
            swallowSome(before + messages);
            invoke();
        }
        received = before;
        send();
    }

    private void swallowSome(final long until)
    {
        int empty = 0;
        for (int polls = 0; polls < 64 && received < until; polls++)
        {
            if (image.poll(handler, FRAGMENTS_MAX) == 0)
            {
                idle(++empty);
            }
        }
    }

    /** Over UDP the message leaves at once. */
    private void send()
    {
        offer();
        if (udp)
        {
            driverInvoker.invoke();
        }
    }

    private void offer()
    {
        int full = 0;
        long position;
        while ((position = publication.offer(message, 0, message.capacity())) < 0)
        {
            if (position == Publication.CLOSED || position == Publication.NOT_CONNECTED)
            {
                throw new IllegalStateException("the other process is gone");
            }
            invoke();
            idle(++full);
        }
    }

    /** Takes one message. */
    private void receive()
    {
        int empty = 0;
        final long until = received + 1;
        while (received != until)
        {
            if (image.poll(handler, 1) == 0)
            {
                idle(++empty);
            }
        }
    }

    private long silentSinceNs;

    /** Nothing to do: the driver may have, over UDP. Nothing is waited for endlessly. */
    private void idle(final int turn)
    {
        if (udp)
        {
            driverInvoker.invoke();
        }
        if (turn % POLLS_BETWEEN_CLOCK_READS == 0)
        {
            invoke();
            if (turn == POLLS_BETWEEN_CLOCK_READS)
            {
                silentSinceNs = System.nanoTime();
            }
            checkTime(silentSinceNs + SILENCE_LIMIT_NS);
        }
    }

    private static void checkTime(final long untilNs)
    {
        if (System.nanoTime() - untilNs > 0)
        {
            throw new IllegalStateException("nothing comes from the other process");
        }
    }

    void linger()
    {
        final long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        while (System.nanoTime() - until < 0)
        {
            invoke();
        }
    }

    @Override
    public void close()
    {
        CloseHelper.closeAll(aeron, driver);
    }
}
