package org.cci;

/** The peer, or the path to it, ended or refused something: it is gone, silent, has no room, or does not allow it. */
public sealed class PeerException extends CciException permits CallException {
    private static final long serialVersionUID = 1;

    /** The server's own number, with {@link Status#REPLY_ERROR} and {@link Status#REFUSED}. */
    private final int code;

    /** What the server's program says more. */
    private final byte[] details;

    PeerException(Status status, String message) {
        this(status, message, 0, new byte[0]);
    }

    PeerException(Status status, String message, int code, byte[] details) {
        super(status, message);
        this.code = code;
        this.details = details;
    }

    /**
     * The number that the peer's program gave with {@link Status#REPLY_ERROR} or {@link Status#REFUSED}.
     *
     * @return the number, which means what both programs have agreed on; 0 with any other status
     */
    public int code() {
        return code;
    }

    /**
     * The bytes that the peer's program gave with {@link Status#REPLY_ERROR}, or as the reason why a service refuses a call.
     *
     * @return a copy; empty where it gave none
     */
    public byte[] details() {
        return details.clone();
    }
}
