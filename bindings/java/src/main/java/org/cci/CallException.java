package org.cci;

/** A call of a {@link Service} that has ended without an answer. */
public final class CallException extends PeerException {
    private static final long serialVersionUID = 1;

    /** How calls end without an answer. */
    public enum End {
        /** The service does not do it, and says why: {@link PeerException#details}. */
        REFUSED(Status.REFUSED, "the service refuses"),
        /** The deadline came. The service has the request, and may have carried it out. */
        TIMED_OUT(Status.TIMED_OUT, "no answer came in time; the service has the request, and may have carried it out"),
        /** The deadline came, and no service has got the request. */
        NOT_REACHED(Status.NOT_FOUND, "no service got the request in time: is one of this name running?"),
        /** The service has died and may have carried it out, and it was not to be repeated. */
        LOST(Status.DISCONNECTED, "the service has died, and may have carried it out"),
        /** The answer came, and its long items could not be fetched: offer windows or return buffers that are long enough. */
        NOT_FETCHED(Status.ERROR, "the answer's long items could not be fetched");

        private final Status status;
        private final String text;

        End(Status status, String text) {
            this.status = status;
            this.text = text;
        }
    }

    /** How it has ended. */
    private final End end;

    CallException(End end, String what, byte[] details) {
        super(end.status, what + ": " + end.text + (details.length == 0 ? "" : ": " + new String(details, java.nio.charset.StandardCharsets.UTF_8)), 0, details);
        this.end = end;
    }

    /**
     * How the call has ended.
     *
     * @return the way
     */
    public End end() {
        return end;
    }
}
