package org.cci;

/**
 * Something failed that is not the program's fault: {@link PeerException} is the peer's or the path's, {@link SystemException}
 * this machine's.
 */
public abstract sealed class CciException extends RuntimeException permits PeerException, SystemException {
    private static final long serialVersionUID = 1;

    /** What it is. */
    private final Status status;

    /**
     * An exception.
     *
     * @param status what it is
     * @param message what failed, where, and what to do
     */
    CciException(Status status, String message) {
        super(message);
        this.status = status;
    }

    /**
     * What it is, for programs.
     *
     * @return never {@link Status#SUCCESS}
     */
    public Status status() {
        return status;
    }
}
