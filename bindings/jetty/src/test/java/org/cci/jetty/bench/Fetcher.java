package org.cci.jetty.bench;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.zip.CRC32C;
import org.cci.ServiceId;
import org.cci.jetty.ServiceChannel;
import org.cci.jetty.ServiceClient;

/**
 * Fetches files over one connection, by as little HTTP as is needed: requests that may be sent ahead, and answers whose length is
 * known. It does for both transports what a client must, and nothing else.
 */
abstract class Fetcher implements AutoCloseable {
    private static final byte[] LENGTH = "content-length:".getBytes(StandardCharsets.US_ASCII);
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private final byte[] head = new byte[4096];

    /** Sends all of it. */
    abstract void write(ByteBuffer bytes) throws IOException;

    /** The next bytes, where they are until the next call: what remains of the last ones, or others. Null at the end. */
    abstract ByteBuffer next() throws IOException;

    @Override
    public abstract void close() throws IOException;

    /** A request for a path. */
    static ByteBuffer request(String path) {
        return ByteBuffer.wrap(("GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
    }

    /** Asks, and reads the answer. Returns its length. */
    long fetch(ByteBuffer request) throws IOException {
        write(request.duplicate());
        return read(null);
    }

    /** Reads one answer. With a checksum, the body is added to it. */
    long read(CRC32C sum) throws IOException {
        long body = readHead();
        for (long left = body; left > 0; ) {
            ByteBuffer from = nextOrFail();
            int bytes = (int) Math.min(from.remaining(), left);
            if (sum != null) {
                sum.update(from.slice(from.position(), bytes));
            }
            from.position(from.position() + bytes);
            left -= bytes;
        }
        return body;
    }

    private ByteBuffer nextOrFail() throws IOException {
        ByteBuffer next = next();
        if (next == null) {
            throw new EOFException("the server has closed the connection");
        }
        return next;
    }

    /** Reads up to the empty line. Returns the length of the body. */
    private long readHead() throws IOException {
        int count = 0;
        while (true) {
            ByteBuffer from = nextOrFail();
            while (from.hasRemaining()) {
                byte next = from.get();
                if (count == head.length) {
                    throw new IOException("the head of an answer is longer than " + head.length + " bytes");
                }
                head[count++] = next;
                if (next == '\n' && count >= 4 && head[count - 2] == '\r' && head[count - 3] == '\n') {
                    return length(count);
                }
            }
        }
    }

    private long length(int count) throws IOException {
        if (head[9] != '2' || head[10] != '0' || head[11] != '0') {
            throw new IOException("the answer is " + new String(head, 0, count, StandardCharsets.US_ASCII));
        }
        for (int at = 1; at < count - LENGTH.length; at++) {
            if (head[at - 1] == '\n' && isLength(at)) {
                long length = 0;
                for (int digit = at + LENGTH.length; head[digit] != '\r'; digit++) {
                    if (head[digit] != ' ') {
                        length = length * 10 + head[digit] - '0';
                    }
                }
                return length;
            }
        }
        throw new IOException("the answer has no length: " + new String(head, 0, count, StandardCharsets.US_ASCII));
    }

    private boolean isLength(int at) {
        for (int of = 0; of < LENGTH.length; of++) {
            int letter = head[at + of];
            if ((letter >= 'A' && letter <= 'Z' ? letter + 'a' - 'A' : letter) != LENGTH[of]) {
                return false;
            }
        }
        return true;
    }

    /** Over TCP: a blocking socket, read into one buffer of native memory that is used again and again. */
    static Fetcher tcp(InetSocketAddress address, int bufferBytes) throws IOException {
        SocketChannel socket = SocketChannel.open(address);
        socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
        ByteBuffer buffer = ByteBuffer.allocateDirect(bufferBytes).limit(0);
        return new Fetcher() {
            @Override
            void write(ByteBuffer bytes) throws IOException {
                while (bytes.hasRemaining()) {
                    socket.write(bytes);
                }
            }

            @Override
            ByteBuffer next() throws IOException {
                if (!buffer.hasRemaining()) {
                    buffer.clear();
                    if (socket.read(buffer) < 0) {
                        return null;
                    }
                    buffer.flip();
                }
                return buffer;
            }

            @Override
            public void close() throws IOException {
                socket.close();
            }
        };
    }

    /** Over RIPC: a channel, whose bytes are read where the library has fetched them to. */
    static Fetcher ripc(ServiceClient client, ServiceId service) throws IOException {
        ServiceChannel channel = client.open(service, PATIENCE);
        return new Fetcher() {
            @Override
            void write(ByteBuffer bytes) throws IOException {
                channel.write(bytes);
            }

            @Override
            ByteBuffer next() throws IOException {
                return channel.next();
            }

            @Override
            public void close() {
                channel.close();
            }
        };
    }
}
