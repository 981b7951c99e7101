package org.cci.jetty;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.cci.ServiceBuffer;
import org.eclipse.jetty.http.content.HttpContent;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.io.EndPoint;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.IO;
import org.eclipse.jetty.util.IteratingNestedCallback;
import org.eclipse.jetty.util.TypeUtil;

/**
 * A file that clients of services fetch without a copy in Java: from where it is, or, if it is short, from memory which it was read into.
 * Others get it as before.
 */
final class FileContent extends HttpContent.Wrapper {
    /** What is read first: while the client fetches one part, the next one is read, which has twice as many bytes. */
    private static final int FIRST_PART_BYTES = 128 << 10;

    /** Files of which so many bytes are asked for are not read here: clients fetch them from where they are. */
    private static final int FETCHED_BYTES_MIN = 256 << 10;
    /** The most bytes of them that are given to Jetty at once. */
    private static final int FETCHED_PART_BYTES = 1 << 30;

    private final OpenFiles files;

    FileContent(HttpContent content, OpenFiles files) {
        super(content);
        this.files = files;
    }

    @Override
    public void writeTo(Content.Sink sink, long offset, long length, Callback callback) {
        Path path = getResource().getPath();
        Partner partner = partnerOf(sink);
        try {
            long bytes = TypeUtil.checkOffsetLengthSize(offset, length, getContentLengthValue());
            if (partner == null || path == null || bytes <= Partner.SHARED_BYTES_MAX) {
                super.writeTo(sink, offset, length, callback);
                return;
            }
            OpenFile open = bytes >= FETCHED_BYTES_MIN ? files.open(path) : null;
            if (open != null) {
                new Fetch(open, sink, offset, bytes, Callback.from(open::release, callback)).iterate();
                return;
            }
            FileChannel file = FileChannel.open(path, StandardOpenOption.READ);
            new Copy(file, sink, partner, offset, bytes, Callback.from(() -> IO.close(file), callback)).iterate();
        } catch (IOException | RuntimeException e) {
            callback.failed(e);
        }
    }

    /** Who gets it, if that is a client of a service. */
    private static Partner partnerOf(Content.Sink sink) {
        if (!(sink instanceof Response response)) {
            return null;
        }
        EndPoint endPoint = response.getRequest().getConnectionMetaData().getConnection().getEndPoint();
        return endPoint instanceof ServiceEndPoint service ? service.partner() : null;
    }

    /** Sends a file from where it is. */
    private static final class Fetch extends IteratingNestedCallback {
        private final OpenFile file;
        private final Content.Sink sink;
        private long offset;
        private long left;

        Fetch(OpenFile file, Content.Sink sink, long offset, long bytes, Callback callback) {
            super(callback);
            this.file = file;
            this.sink = sink;
            this.offset = offset;
            left = bytes;
        }

        @Override
        protected Action process() throws Exception {
            if (left == 0) {
                return Action.SUCCEEDED;
            }
            int bytes = (int) Math.min(left, FETCHED_PART_BYTES);
            ByteBuffer part = file.bytes(offset, bytes);
            offset += bytes;
            left -= bytes;
            sink.write(left == 0, part, this);
            return Action.SCHEDULED;
        }
    }

    /** Reads a file in parts, and sends those. */
    private static final class Copy extends IteratingNestedCallback {
        private final FileChannel file;
        private final Content.Sink sink;
        private final Partner partner;
        private long offset;
        private long left;
        private int partBytes = FIRST_PART_BYTES;
        private Lendable part;

        Copy(FileChannel file, Content.Sink sink, Partner partner, long offset, long bytes, Callback callback) {
            super(callback);
            this.file = file;
            this.sink = sink;
            this.partner = partner;
            this.offset = offset;
            left = bytes;
        }

        @Override
        protected Action process() throws Exception {
            release();
            if (left == 0) {
                return Action.SUCCEEDED;
            }
            int bytes = (int) Math.min(left, partBytes);
            partBytes = Math.min(2 * partBytes, StreamMultiplexer.PART_BYTES_MAX);
            ServiceBuffer buffer = partner.takeBuffer(bytes);
            part = new Lendable(buffer, bytes, isReusable -> partner.giveBack(buffer, isReusable));
            ByteBuffer to = part.retainable().getByteBuffer();
            to.clear();
            while (to.hasRemaining()) {
                if (file.read(to, offset + to.position()) < 0) {
                    throw new EOFException("the file has become shorter while it was sent");
                }
            }
            offset += bytes;
            left -= bytes;
            sink.write(left == 0, to.flip(), this);
            return Action.SCHEDULED;
        }

        private void release() {
            if (part != null) {
                part.retainable().release();
                part = null;
            }
        }

        @Override
        protected void onCompleteFailure(Throwable cause) {
            release();
            super.onCompleteFailure(cause);
        }
    }
}
