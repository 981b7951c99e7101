package org.cci.conformance;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.lang.foreign.MemorySegment;
import org.cci.Attribute;
import org.cci.Connection;
import org.cci.ConnectionRequest;
import org.cci.Context;
import org.cci.Endpoint;
import org.cci.EndpointOptions;
import org.cci.Event;
import org.cci.EventHandler;
import org.cci.Message;
import org.cci.PeerException;
import org.cci.Status;
import org.cci.SystemException;

/** An endpoint of a case: makes the calls that come over its line, in one thread. */
final class Port {
    private static final Duration PATIENCE = Duration.ofSeconds(40);

    /** The kinds of replies. */
    private static final int DONE = 0;

    private static final int REFUSED = 1;
    private static final int BROKEN = 2;
    private static final int CALLED_WITH_MESSAGE = 3;
    private static final int CALLED_WITH_EVENT = 4;
    private static final int HANDLER_HAS_THROWN = 5;

    /** Why a call was refused. */
    private static final int TOO_LONG = 0;

    private static final int WOULD_BLOCK = 1;
    private static final int CLOSED = 2;
    private static final int BAD_ARGUMENT = 3;
    private static final int OTHER = 4;

    private final Context context;
    private final Handles handles;
    private final Line line;
    private Endpoint endpoint;
    private RemoteCalls remote;

    Port(Context context, Handles handles, Line line) {
        this.context = context;
        this.handles = handles;
        this.line = line;
    }

    void serve() throws IOException {
        // If the line ends without the call that closes the endpoint, the suite was killed: this process will be, too.
        for (DataInputStream in = line.read(); in != null; in = line.read()) {
            line.write(reply(in));
        }
    }

    static Line.Frame done() throws IOException {
        var frame = new Line.Frame();
        frame.writeByte(DONE);
        return frame;
    }

    private static Line.Frame refused(int why, String text) throws IOException {
        var frame = new Line.Frame();
        frame.writeByte(REFUSED);
        frame.writeByte(why);
        return frame.text(text);
    }

    /** What there is no room for. */
    static Line.Frame noRoom() throws IOException {
        return refused(WOULD_BLOCK, "no room");
    }

    /** What is no longer than it may be, and wrong. */
    static Line.Frame wrong(String text) throws IOException {
        return refused(BAD_ARGUMENT, text);
    }

    private Line.Frame reply(DataInputStream in) throws IOException {
        try {
            return call(in.readByte(), in);
        } catch (Misuse e) {
            return refused(e.why, e.toString());
        } catch (PeerException e) {
            return refused(e.status() == Status.DISCONNECTED ? CLOSED : OTHER, e.toString());
        } catch (SystemException e) {
            return refused(e.status() == Status.NO_BUFFERS ? WOULD_BLOCK : OTHER, e.toString());
        } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
            return refused(BAD_ARGUMENT, e.toString());
        } catch (IllegalStateException e) {
            return refused(CLOSED, e.toString());
        } catch (RuntimeException | Error | InterruptedException e) {
            var frame = new Line.Frame();
            frame.writeByte(BROKEN);
            e.printStackTrace();
            return frame.text(e.toString());
        }
    }

    /** A refusal that takes more than the exception to say why. */
    static final class Misuse extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final int why;

        private Misuse(int why, RuntimeException cause) {
            super(cause);
            this.why = why;
        }

        /** What was wrong with a call on a connection: the length, the connection, or something else. */
        static RuntimeException of(RuntimeException e, Connection connection, long length) {
            if (e instanceof IllegalArgumentException && length > connection.maxSendBytes()) {
                return new Misuse(TOO_LONG, e);
            }
            if (e instanceof IllegalStateException) {
                return new Misuse(connection.isOpen() ? BAD_ARGUMENT : CLOSED, e);
            }
            return e;
        }
    }

    private Line.Frame call(int code, DataInputStream in) throws IOException, InterruptedException {
        return switch (code) {
            case 1 -> open(in);
            case 2 -> connect(in);
            case 3 -> accept(in);
            case 4 -> {
                handles.requests.get(in.readLong()).reject();
                yield done();
            }
            case 5 -> {
                handles.requests.remove(in.readLong()).close();
                yield done();
            }
            case 6 -> {
                connection(in).close();
                yield done();
            }
            case 7 -> send(in);
            case 8 -> sendParts(in);
            case 9 -> sendBlocking(in);
            case 10 -> event(endpoint.poll());
            case 11 -> event(endpoint.await(micros(in)));
            case 12 -> pollByHandler(in.readInt());
            case 13 -> closeMessage(in.readLong());
            case 14 -> {
                Line.Frame frame = done();
                frame.writeInt(connection(in).maxSendBytes());
                yield frame;
            }
            case 15 -> {
                connection(in).setSendTimeout(micros(in));
                yield done();
            }
            case 16 -> {
                connection(in).setKeepalive(micros(in));
                yield done();
            }
            case 17 -> {
                Connection connection = connection(in);
                Line.Frame frame = done();
                frame.writeLong(TimeUnit.MICROSECONDS.convert(connection.sendTimeout()));
                frame.writeLong(TimeUnit.MICROSECONDS.convert(connection.keepalive()));
                yield frame;
            }
            case 18 -> done().text(connection(in).explain());
            case 19 -> done().text(endpoint.counters());
            case 20 -> {
                endpoint.close();
                yield done();
            }
            default -> remote.call(code, in);
        };
    }

    Connection connection(DataInputStream in) throws IOException {
        return handles.connections.get(in.readLong());
    }

    private static Duration micros(DataInputStream in) throws IOException {
        return Duration.of(in.readLong(), java.time.temporal.ChronoUnit.MICROS);
    }

    private Line.Frame open(DataInputStream in) throws IOException {
        String device = Line.text(in);
        EndpointOptions options = EndpointOptions.DEFAULTS
                .receiveBuffers(in.readInt())
                .sendBuffers(in.readInt())
                .sendTimeout(micros(in))
                .keepalive(micros(in));
        long cap = in.readLong();
        endpoint = context.device(device).open(cap == 0 ? options : options.memoryCap(cap));
        remote = new RemoteCalls(endpoint, handles);
        return done().text(endpoint.uri());
    }

    private Line.Frame connect(DataInputStream in) throws IOException {
        String uri = Line.text(in);
        byte[] payload = Line.bytes(in);
        Attribute attribute = Attribute.values()[in.readByte()];
        long context = in.readLong();
        long timeout = in.readLong();
        Duration limit = timeout < 0 ? null : Duration.of(timeout, java.time.temporal.ChronoUnit.MICROS);
        handles.add(endpoint.startConnecting(uri, attribute, payload, limit), context);
        return done();
    }

    private Line.Frame accept(DataInputStream in) throws IOException {
        ConnectionRequest request = handles.requests.get(in.readLong());
        handles.add(request.acceptOn(endpoint), in.readLong());
        return done();
    }

    // ------------------------------------------------------------------------------------------------------ sending

    /** In each of the forms in turn. */
    private Line.Frame send(DataInputStream in) throws IOException {
        Connection to = connection(in);
        long context = in.readLong();
        boolean silent = in.readBoolean();
        byte[] message = Line.bytes(in);
        boolean taken;
        try {
            if (context % 3 == 2) {
                MemorySegment segment = MemorySegment.ofArray(message);
                taken = silent ? to.trySend(segment) : to.trySend(segment, context);
            } else {
                ByteBuffer buffer = context % 3 == 0 ? ByteBuffer.wrap(message) : direct(message);
                taken = silent ? to.trySend(buffer) : to.trySend(buffer, context);
                check(buffer.hasRemaining() == (!taken && message.length > 0), "a buffer is used up if it was taken");
            }
        } catch (RuntimeException e) {
            throw Misuse.of(e, to, message.length);
        }
        return taken ? done() : noRoom();
    }

    private static ByteBuffer direct(byte[] message) {
        return ByteBuffer.allocateDirect(message.length + 3).position(3).put(message).position(3);
    }

    private static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    private Line.Frame sendParts(DataInputStream in) throws IOException {
        Connection to = connection(in);
        long context = in.readLong();
        var parts = new ByteBuffer[in.readInt()];
        long length = 0;
        for (int i = 0; i < parts.length; i++) {
            byte[] part = Line.bytes(in);
            parts[i] = i % 2 == 0 ? ByteBuffer.wrap(part) : direct(part);
            length += part.length;
        }
        try {
            return to.trySend(parts, context) ? done() : noRoom();
        } catch (RuntimeException e) {
            throw Misuse.of(e, to, length);
        }
    }

    private Line.Frame sendBlocking(DataInputStream in) throws IOException, InterruptedException {
        Connection to = connection(in);
        byte[] message = Line.bytes(in);
        try {
            return ended(() -> to.send(ByteBuffer.wrap(message), PATIENCE));
        } catch (RuntimeException e) {
            throw Misuse.of(e, to, message.length);
        }
    }

    /** A form that waits. */
    interface Waiting {
        void run() throws InterruptedException;
    }

    /** How it ended; what was refused because the connection is closed can't be distinguished from what has ended so. */
    static Line.Frame ended(Waiting call) throws IOException, InterruptedException {
        Status status = Status.SUCCESS;
        try {
            call.run();
        } catch (PeerException e) {
            if (e.status() == Status.DISCONNECTED) {
                throw e;
            }
            status = e.status();
        }
        return done().text(status.name());
    }

    // ------------------------------------------------------------------------------------------------------- events

    private Line.Frame event(Event event) throws IOException {
        Line.Frame frame = done();
        if (event == null) {
            frame.writeByte(endpoint.isStarved() ? 1 : 0);
            return frame;
        }
        return write(frame, event);
    }

    private Line.Frame write(Line.Frame frame, Event event) throws IOException {
        if (event instanceof Event.Received received) {
            long number = handles.next();
            handles.messages.put(number, received.message());
            check(received.message().connection() == received.connection(), "the message knows its connection");
            frame.writeByte(2);
            frame.writeLong(Handles.of(received.connection()).number());
            frame.writeLong(number);
            frame.bytes(read(received.message(), number));
        } else if (event instanceof Event.Sent sent) {
            sent(frame, sent.connection(), sent.context(), sent.status());
        } else if (event instanceof Event.Connected connected) {
            opened(frame, 4, connected.connection(), Status.SUCCESS);
        } else if (event instanceof Event.ConnectFailed failed) {
            opened(frame, 4, failed.connection(), failed.status());
        } else if (event instanceof Event.Requested requested) {
            long number = handles.next();
            handles.requests.put(number, requested.request());
            frame.writeByte(5);
            frame.writeLong(number);
            frame.writeByte(requested.request().attribute().ordinal());
            frame.bytes(requested.request().payload());
        } else if (event instanceof Event.Accepted accepted) {
            opened(frame, 6, accepted.connection(), Status.SUCCESS);
        } else if (event instanceof Event.AcceptFailed failed) {
            opened(frame, 6, failed.connection(), failed.status());
        } else if (event instanceof Event.Silent silent) {
            frame.writeByte(7);
            frame.writeLong(Handles.of(silent.connection()).number());
        } else if (event instanceof Event.Disconnected gone) {
            frame.writeByte(8);
            frame.writeLong(Handles.of(gone.connection()).number());
            frame.writeLong(Handles.of(gone.connection()).context());
            frame.text(gone.reason().name());
        } else {
            frame.writeByte(9);
        }
        return frame;
    }

    private static void sent(Line.Frame frame, Connection connection, long context, Status status) throws IOException {
        frame.writeByte(3);
        frame.writeLong(Handles.of(connection).number());
        frame.writeLong(context);
        frame.text(status.name());
    }

    private static void opened(Line.Frame frame, int kind, Connection connection, Status status) throws IOException {
        frame.writeByte(kind);
        frame.writeLong(Handles.of(connection).context());
        frame.writeLong(Handles.of(connection).number());
        frame.text(status.name());
    }

    /** A copy of a message, by each of the ways to read it in turn. */
    private static byte[] read(Message message, long number) {
        if (number % 2 == 0) {
            return message.toByteArray();
        }
        check(message.segment().address() % 8 == 0, "messages are aligned to 8 bytes");
        byte[] copy = new byte[message.length()];
        message.buffer().get(copy);
        return copy;
    }

    /** Reads it once more first: what is kept stays as it is. */
    private Line.Frame closeMessage(long number) throws IOException {
        Message message = handles.messages.remove(number);
        Line.Frame frame = done();
        byte[] now;
        try {
            now = read(message, number);
        } catch (IllegalStateException closedWithItsEndpoint) {
            now = null;
        }
        message.close();
        frame.writeBoolean(now != null);
        return now == null ? frame : frame.bytes(now);
    }

    /** Thrown by a handler if the suite's one panics. */
    private static final class Thrown extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private Line.Frame pollByHandler(int max) throws IOException {
        var handler = new Handler();
        int count;
        try {
            count = endpoint.poll(max, handler);
        } catch (Thrown e) {
            var frame = new Line.Frame();
            frame.writeByte(HANDLER_HAS_THROWN);
            return frame;
        } catch (java.io.UncheckedIOException e) {
            throw e.getCause();
        }
        Line.Frame frame = done();
        frame.writeInt(count);
        return frame;
    }

    /** Asks the suite what to do with each message, and shows it all else. */
    private final class Handler implements EventHandler {
        @Override
        public void onMessage(Connection connection, Message message) {
            try {
                long number = handles.next();
                var frame = new Line.Frame();
                frame.writeByte(CALLED_WITH_MESSAGE);
                frame.writeLong(Handles.of(connection).number());
                frame.writeLong(number);
                line.write(frame.bytes(read(message, number)));
                DataInputStream in = line.read();
                if (in == null) {
                    throw new IOException("the suite has ended");
                }
                switch (in.readByte()) {
                    case 0 -> {}
                    case 1 -> handles.messages.put(number, message.keep());
                    default -> throw new Thrown();
                }
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        @Override
        public void onSent(Connection connection, long context, Status status) {
            try {
                var frame = new Line.Frame();
                frame.writeByte(CALLED_WITH_EVENT);
                sent(frame, connection, context, status);
                line.write(frame);
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        @Override
        public void onEvent(Event event) {
            try {
                var frame = new Line.Frame();
                frame.writeByte(CALLED_WITH_EVENT);
                line.write(write(frame, event));
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }
    }
}
