package org.cci.jetty;

import java.nio.ByteBuffer;

/**
 * What streams say to each other: a kind, flags, a sequence number, a count and the stream's number. A message has any number of
 * frames, each followed by the bytes that travel in it.
 *
 * @param kind what it says
 * @param isFromOpener whether it comes from the side that opened the stream; both sides number the streams that they open
 * @param isLong with {@link Kind#DATA}: the bytes are in the long item in the next message, behind those of frames before;
 *     otherwise they follow the frame
 * @param sequence with {@link Kind#DATA} and {@link Kind#END}: how many of them came before on this stream, modulo 65536; else 0
 * @param count bytes or messages, as the kind says
 * @param stream the stream's number
 */
record Frame(Kind kind, boolean isFromOpener, boolean isLong, int sequence, int count, long stream) {
    /** Its length. */
    static final int BYTES = 16;

    private static final int FROM_OPENER = 1;
    private static final int LONG = 2;

    enum Kind {
        /** A stream begins; the opener has room for so many bytes. */
        OPEN,
        /** So many bytes. */
        DATA,
        /** There is room for so many bytes more. */
        ROOM,
        /** Nothing comes behind this. */
        END,
        /** The stream is over, and what has not been read is lost. A count of 1: nobody here knows it. */
        RESET,
        /** Does the stream still stand? The answer is {@link #STANDS} or {@link #RESET}. */
        ASK,
        /** It does. */
        STANDS,
        /** So many messages of the partner's were taken, of whatever streams. */
        TOOK;

        private static final Kind[] ALL = values();
    }

    /** One that is no data. */
    Frame(Kind kind, boolean isFromOpener, int count, long stream) {
        this(kind, isFromOpener, false, 0, count, stream);
    }

    /** Whether it counts among the messages that a partner is to take before more are sent. */
    boolean isCounted() {
        return kind != Kind.TOOK && kind != Kind.RESET && kind != Kind.ASK && kind != Kind.STANDS;
    }

    /** This frame, with other knowledge of whether its bytes are a long item. */
    Frame isLong(boolean isLong) {
        return isLong == this.isLong ? this : new Frame(kind, isFromOpener, isLong, sequence, count, stream);
    }

    /** Appends it. */
    void putInto(ByteBuffer bytes) {
        int flags = (isFromOpener ? FROM_OPENER : 0) | (isLong ? LONG : 0);
        bytes.put((byte) kind.ordinal())
                .put((byte) flags)
                .putShort((short) sequence)
                .putInt(count)
                .putLong(stream);
    }

    ByteBuffer toBytes() {
        ByteBuffer bytes = ByteBuffer.allocate(BYTES);
        putInto(bytes);
        return bytes.flip();
    }

    /** Takes the next one; null if there is none. Any bytes may come. */
    static Frame parse(ByteBuffer bytes) {
        if (bytes.remaining() < BYTES) {
            return null;
        }
        int kind = bytes.get();
        int flags = bytes.get();
        int sequence = Short.toUnsignedInt(bytes.getShort());
        int count = bytes.getInt();
        if (kind < 0 || kind >= Kind.ALL.length || (flags & ~(FROM_OPENER | LONG)) != 0 || count < 0) {
            return null;
        }
        return new Frame(Kind.ALL[kind], (flags & FROM_OPENER) != 0, (flags & LONG) != 0, sequence, count, bytes.getLong());
    }

    /** Whether a message with these frames counts. Leaves the buffer as it is. */
    static boolean isCounted(ByteBuffer bytes) {
        ByteBuffer rest = bytes.duplicate();
        for (Frame frame = parse(rest); frame != null; frame = parse(rest)) {
            if (frame.isCounted()) {
                return true;
            }
        }
        return false;
    }
}
