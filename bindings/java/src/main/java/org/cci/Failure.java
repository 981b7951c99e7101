package org.cci;

/** Turns what the C interface answers into exceptions, by whose fault it is. */
final class Failure {
    private Failure() {}

    /** Throws unless a call succeeded. It must come right behind the call, in the same thread. */
    static void check(int code, String what) {
        if (code != 0) {
            throw of(code, what);
        }
    }

    /** The exception for a call that was just refused in this thread. */
    static RuntimeException of(int code, String what) {
        Status status = Status.of(code);
        return switch (status) {
            // These leave the text of an earlier failure.
            case DISCONNECTED, NO_BUFFERS, TRY_AGAIN -> of(status, what + ": " + describe(status));
            default -> of(status, what + ": " + Raw.lastError());
        };
    }

    /** The exception for an operation that has ended with this status. */
    static RuntimeException ended(Status status, String what) {
        return of(status, what + ": " + describe(status));
    }

    static RuntimeException of(Status status, String text) {
        return switch (status) {
            case INVALID, OUT_OF_RANGE, TOO_LONG -> new IllegalArgumentException(text);
            case BUSY -> new IllegalStateException(text);
            case NOT_IMPLEMENTED -> new UnsupportedOperationException(text);
            case DISCONNECTED, RECEIVER_NOT_READY, RMA_HANDLE, RMA_OPERATION, TIMED_OUT, CONNECTION_REFUSED, CANCELLED,
                    REFUSED, REPLY_ERROR, DROPPED, REPLY_LOST -> new PeerException(status, text);
            default -> new SystemException(status, text);
        };
    }

    static String describe(Status status) {
        return switch (status) {
            case DISCONNECTED -> "the connection is closed";
            case RECEIVER_NOT_READY -> "the peer's program had no receive buffer in time; nothing was delivered";
            case RMA_HANDLE -> "the region handle, the range or the right was refused, or the local region was closed";
            case RMA_OPERATION -> "the word is not aligned to its width";
            case TIMED_OUT -> "the peer was silent for too long; whether it arrived is not known";
            case DEVICE_DEAD -> "the device failed";
            case NO_BUFFERS -> "no buffer is free now: take and close events, then try again";
            case TRY_AGAIN -> "nothing is there now";
            case CONNECTION_REFUSED -> "the request was rejected, or nobody listens there";
            case CANCELLED -> "it was cancelled";
            case REFUSED -> "the receiver's program refused the message";
            case REPLY_ERROR -> "the server's program answered with an error";
            case DROPPED -> "the server's program did not answer the request";
            case REPLY_LOST -> "the server has answered, and the answer could not be delivered";
            case TOO_LONG -> "the receiver does not take a message that is so long";
            case NO_MEMORY -> "no memory is left, or the cap on it is reached";
            default -> status.toString();
        };
    }
}
