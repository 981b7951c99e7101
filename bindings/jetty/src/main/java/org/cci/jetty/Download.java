package org.cci.jetty;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.Request;
import org.eclipse.jetty.client.Response;
import org.eclipse.jetty.client.Result;
import org.eclipse.jetty.http.HttpField;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.http.HttpStatus;
import org.eclipse.jetty.io.Transport;

/**
 * Fetches a file by HTTP, and goes on where it was when the server has gone and come back. If the file has changed meanwhile, it
 * begins anew.
 */
public final class Download {
    /** Pause before another try. */
    private static final long PAUSE_MS = 100;

    private final HttpClient client;
    private final Transport transport;
    private final String uri;
    /** What names this version of the file. */
    private String version;

    private long bytes;
    private long total = -1;
    private int tries;

    /**
     * A download.
     *
     * @param client what makes the requests; it is started
     * @param transport what reaches the server
     * @param uri which file
     */
    public Download(HttpClient client, Transport transport, String uri) {
        this.client = client;
        this.transport = transport;
        this.uri = uri;
    }

    /**
     * Fetches the file.
     *
     * @param to where it goes, from the first byte on
     * @param progress is given the number of bytes that are there
     * @param patience how long the server may be away
     * @param unit of the patience
     * @return its length, bytes
     * @throws IOException if the server refuses, is away for too long, or the file can't be written
     * @throws InterruptedException if the thread is interrupted
     */
    public long fetch(FileChannel to, LongConsumer progress, long patience, TimeUnit unit)
            throws IOException, InterruptedException {
        long deadline = System.nanoTime() + unit.toNanos(patience);
        while (true) {
            long before = bytes;
            Throwable failure = fetchOn(to, progress);
            if (failure == null) {
                to.truncate(bytes);
                return bytes;
            }
            if (failure instanceof RefusedException refused) {
                throw refused;
            }
            long now = System.nanoTime();
            if (bytes > before) {
                deadline = now + unit.toNanos(patience);
            }
            if (now - deadline >= 0) {
                throw new IOException(uri + ": the server is away: " + failure, failure);
            }
            tries++;
            Thread.sleep(PAUSE_MS);
        }
    }

    /**
     * How long the file is.
     *
     * @return bytes, or -1 as long as that is not known
     */
    public long total() {
        return total;
    }

    /**
     * How often it went on after a failure.
     *
     * @return 0 if it came at once
     */
    public int tries() {
        return tries;
    }

    /** One request, from where it is on. Null: it is all there. */
    private Throwable fetchOn(FileChannel to, LongConsumer progress) throws InterruptedException {
        Request request = client.newRequest(uri)
                .transport(transport)
                .onResponseHeaders(this::begin)
                .onResponseContent((response, content) -> write(response, content, to, progress));
        if (bytes > 0 && version != null) {
            request.headers(headers -> headers
                    .put(HttpHeader.RANGE, "bytes=" + bytes + "-")
                    .put(HttpHeader.IF_RANGE, version));
        } else {
            bytes = 0;
        }
        CompletableFuture<Result> ended = new CompletableFuture<>();
        request.send(ended::complete);
        try {
            Throwable failure = ended.get().getFailure();
            if (failure != null) {
                return failure;
            }
            return bytes == total || total < 0 ? null : new IOException(bytes + " of " + total + " bytes came");
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    private void begin(Response response) {
        int status = response.getStatus();
        if (status == HttpStatus.PARTIAL_CONTENT_206) {
            return;
        }
        if (status != HttpStatus.OK_200) {
            response.abort(new RefusedException(uri + ": the server answers " + status + " " + response.getReason()));
            return;
        }
        bytes = 0;
        HttpField length = response.getHeaders().getField(HttpHeader.CONTENT_LENGTH);
        total = length == null ? -1 : length.getLongValue();
        String tag = response.getHeaders().get(HttpHeader.ETAG);
        // A weak tag is none for ranges.
        version = tag != null && !tag.startsWith("W/") ? tag : response.getHeaders().get(HttpHeader.LAST_MODIFIED);
    }

    private void write(Response response, ByteBuffer content, FileChannel to, LongConsumer progress) {
        try {
            while (content.hasRemaining()) {
                bytes += to.write(content, bytes);
            }
            progress.accept(bytes);
        } catch (IOException e) {
            response.abort(new RefusedException("the file can't be written: " + e.getMessage()));
        }
    }

    /** What no other try can change. */
    private static final class RefusedException extends IOException {
        private static final long serialVersionUID = 1;

        RefusedException(String message) {
            super(message);
        }
    }
}
