package org.cci.conformance;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/** Frames to and from the suite: the length in four bytes, then so many bytes. */
final class Line implements Closeable {
    private final SocketChannel channel;
    private final ByteBuffer prefix = ByteBuffer.allocate(4);
    private ByteBuffer arrived = ByteBuffer.allocate(64 << 10);

    Line(SocketChannel channel) {
        this.channel = channel;
    }

    /** The next frame; null at the end. */
    DataInputStream read() throws IOException {
        try {
            fill(prefix.clear());
        } catch (EOFException e) {
            return null;
        }
        int length = prefix.getInt(0);
        if (arrived.capacity() < length) {
            arrived = ByteBuffer.allocate(length);
        }
        fill(arrived.clear().limit(length));
        return new DataInputStream(new ByteArrayInputStream(arrived.array(), 0, length));
    }

    private void fill(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            if (channel.read(buffer) < 0) {
                throw new EOFException();
            }
        }
    }

    void write(Frame frame) throws IOException {
        ByteBuffer bytes = frame.finished();
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }

    /** A frame that is being written. */
    static final class Frame extends DataOutputStream {
        Frame() {
            super(new ByteArrayOutputStream(256));
            number(0);
        }

        private void number(int number) {
            try {
                writeInt(number);
            } catch (IOException e) {
                throw new AssertionError("an array takes everything", e);
            }
        }

        private ByteBuffer finished() {
            ByteBuffer bytes = ByteBuffer.wrap(((ByteArrayOutputStream) out).toByteArray());
            return bytes.putInt(0, bytes.capacity() - 4);
        }

        /** Bytes behind their length. */
        Frame bytes(byte[] bytes) throws IOException {
            writeInt(bytes.length);
            write(bytes);
            return this;
        }

        Frame text(String text) throws IOException {
            return bytes(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        }
    }

    /** Bytes behind their length. */
    static byte[] bytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    static String text(DataInputStream in) throws IOException {
        return new String(bytes(in), java.nio.charset.StandardCharsets.UTF_8);
    }
}
