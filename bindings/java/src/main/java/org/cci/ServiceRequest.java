package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * What the caller of a {@link Service} wants an answer to: {@link ServiceMessage#request}. It is answered once, in any order, by
 * any thread, also after its message was closed. The library keeps the answer, in case the request comes again. The caller's
 * deadline ends a request that nobody answers.
 */
public final class ServiceRequest {
    private final long number;

    ServiceRequest(long number) {
        this.number = number;
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
