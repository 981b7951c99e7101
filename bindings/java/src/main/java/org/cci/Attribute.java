package org.cci;

/** What a connection promises. */
public enum Attribute {
    /** Each message arrives once, in order; completions come in order. */
    RELIABLE_ORDERED,
    /** Each message arrives once, in any order. */
    RELIABLE_UNORDERED,
    /** A message may be lost. */
    UNRELIABLE,
    /** Unreliable, to every member of a multicast group: sends and receives nothing. UDP only. */
    MULTICAST_SEND,
    /** Unreliable, from every sender to a multicast group: receives and sends nothing. UDP only. */
    MULTICAST_RECEIVE;

    private static final Attribute[] ALL = values();

    static Attribute of(int code) {
        return ALL[code];
    }
}
