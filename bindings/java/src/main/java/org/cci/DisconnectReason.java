package org.cci;

/** Why a connection ended that this program has not disconnected. */
public enum DisconnectReason {
    /** The peer's program has disconnected, or closed its endpoint. */
    CLOSED,
    /** The peer's process or endpoint is gone without closing the connection. */
    DIED,
    /** The peer was silent, or took nothing, for too long. */
    TIMED_OUT,
    /** This endpoint has ended it: the peer broke the protocol, or there was no memory to go on. */
    REFUSED;

    private static final DisconnectReason[] ALL = values();

    static DisconnectReason of(int code) {
        return code >= 0 && code < ALL.length ? ALL[code] : REFUSED;
    }
}
