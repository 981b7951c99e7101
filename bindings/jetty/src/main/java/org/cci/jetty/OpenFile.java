package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import org.cci.ServiceBuffer;

/** A file that is open, whose bytes clients of services fetch straight from the system's page cache. It is closed when all have released it. */
final class OpenFile {
    private final ServiceBuffer buffer;
    private final BasicFileAttributes seen;
    private final Lendable lendable;
    /** When it was used last. Under the lock of who has opened it. */
    long usedNs = System.nanoTime();

    /**
     * Opens a file, which is retained once.
     *
     * @param path where it is
     * @param seen what was there just now
     * @throws IOException if it can't be read, or is empty
     */
    OpenFile(Path path, BasicFileAttributes seen) throws IOException {
        this.seen = seen;
        buffer = ServiceBuffer.ofFile(path);
        // What is shown is of no use: parts of the file are found by their addresses.
        lendable = new Lendable(buffer, 1, isReusable -> buffer.close());
    }

    /** Whether what is there now is this file, and has not changed. */
    boolean is(BasicFileAttributes now) {
        return KnownFile.isSame(seen, now);
    }

    void retain() {
        lendable.retainable().retain();
    }

    void release() {
        lendable.retainable().release();
    }

    /** Some of its bytes, where they can be fetched from as long as the file is retained. */
    ByteBuffer bytes(long offset, int count) throws EOFException {
        if (offset > buffer.segment().byteSize() - count) {
            throw new EOFException("the file has become shorter while it was sent");
        }
        return buffer.segment().asSlice(offset, count).asByteBuffer();
    }
}
