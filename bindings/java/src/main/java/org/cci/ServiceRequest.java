package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;

/**
 * What the caller of a {@link Service} wants an answer to: {@link ServiceMessage#request}. It is answered once, in any order, by
 * any thread, also after its message was closed. The library keeps the answer, in case the request comes again. The caller's
 * deadline ends a request that nobody answers.
 */
public final class ServiceRequest {
    private final long number;
    private final ServiceLeases leases;

    ServiceRequest(long number, ServiceLeases leases) {
        this.number = number;
        this.leases = leases;
    }

    /**
     * Answers with short items.
     *
     * @param items up to 9 buffers of up to 2000 bytes together
     * @throws IllegalArgumentException if there are more items, or more bytes; then it still has no answer
     * @throws PeerException if it has an answer, its service is closed, or its client has been gone for long
     */
    public void answer(ByteBuffer... items) {
        answer(ServiceContent.of(items));
    }

    /**
     * Answers.
     *
     * @param content what is sent
     * @throws IllegalStateException if a buffer is closed; then it still has no answer
     * @throws PeerException if it has an answer, its service is closed, or its client has been gone for long
     */
    public void answer(ServiceContent content) {
        content.enter();
        try (Arena temporary = Arena.ofConfined()) {
            check(RawCalls.answer(number, content.write(temporary)));
        } finally {
            content.exit();
        }
    }

    /**
     * Answers with long items, and reports when they are the program's again: a service that counts what it lends bounds what its
     * clients may keep.
     *
     * @param content what is sent, with one long item at least
     * @return a future of whether the client has fetched all long items. It is false if the client did not want them, has gone, or
     *     had them for {@link Service#setLease as long as the service lends}, and when the service is closed. The thread that
     *     receives from the service completes it, and does at once what depends on it
     * @throws IllegalArgumentException if there is no long item; then the request still has no answer
     * @throws IllegalStateException if a buffer is closed; then it still has no answer
     * @throws PeerException if it has an answer, its service is closed, its client has been gone for long, or 4096 answers lend
     */
    public CompletableFuture<Boolean> lend(ServiceContent content) {
        if (content.longItems().isEmpty()) {
            throw new IllegalArgumentException("an answer without long items lends nothing");
        }
        content.enter();
        try (Arena temporary = Arena.ofConfined()) {
            CompletableFuture<Boolean> returned = leases.lend(number, content.write(temporary));
            check(returned != null);
            return returned;
        } finally {
            content.exit();
        }
    }

    /**
     * Answers that the request is not carried out.
     *
     * @param reason why; the first 2000 bytes of it reach the caller
     * @throws PeerException if it has an answer, its service is closed, or its client has been gone for long
     */
    public void refuse(String reason) {
        byte[] bytes = reason.getBytes(StandardCharsets.UTF_8);
        bytes = Arrays.copyOf(bytes, Math.min(bytes.length, RawServices.BYTES_MAX));
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment text = temporary.allocate(Math.max(1, bytes.length)).asSlice(0, bytes.length);
            check(RawCalls.refuse(number, text.copyFrom(MemorySegment.ofArray(bytes))));
        }
    }

    private static void check(boolean done) {
        if (!done) {
            throw new PeerException(Status.DISCONNECTED, "answering a request: " + Raw.lastError());
        }
    }

    @Override
    public String toString() {
        return "request " + number;
    }
}
