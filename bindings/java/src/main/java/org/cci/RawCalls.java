package org.cci;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.cci.internal.NativeLibrary;

/** The functions of ripc.h for calls, as {@link RawServices} has those for messages. */
final class RawCalls {
    /** A flag of {@link #call}: no later life of the service gets the request. */
    static final int ONCE = 1;

    /** What {@link #reply} and {@link #receiveRequest} return, beside what {@link RawServices} names. */
    static final int NOT_FETCHED = 1;

    static final int REFUSED = 3;
    static final int TIMED_OUT = 4;
    static final int NOT_REACHED = 5;
    static final int LOST = 6;

    /** A {@code struct ripc_content}: three pairs of pointers, and three counts. */
    static final long CONTENT_BYTES = 56;

    private static final long CONTENT_COUNTS = 48;

    private static final MethodHandle CALL = NativeLibrary.function(
            "ripc_call", JAVA_LONG, JAVA_SHORT, JAVA_SHORT, ADDRESS, JAVA_INT, JAVA_INT);
    private static final MethodHandle REPLY =
            NativeLibrary.function("ripc_reply", JAVA_BYTE, JAVA_SHORT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle RECEIVE_REQUEST =
            NativeLibrary.function("ripc_receive_request", JAVA_BYTE, JAVA_INT, JAVA_SHORT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle ANSWER =
            NativeLibrary.function("ripc_answer", JAVA_BYTE, JAVA_LONG, ADDRESS);
    private static final MethodHandle LEND_ANSWER =
            NativeLibrary.function("ripc_lend_answer", JAVA_BYTE, JAVA_LONG, ADDRESS);
    private static final MethodHandle RETURNED =
            NativeLibrary.function("ripc_returned", JAVA_BYTE, JAVA_SHORT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle REFUSE =
            NativeLibrary.function("ripc_refuse", JAVA_BYTE, JAVA_LONG, ADDRESS, JAVA_INT);

    private RawCalls() {}

    /** Writes the pointers and the count of the first, second or third kind of items. */
    static void writeArray(MemorySegment content, int kind, ItemArrays.Of items) {
        content.set(JAVA_LONG, 16L * kind, items.addresses());
        content.set(JAVA_LONG, 16L * kind + 8, items.lengths());
        content.set(JAVA_SHORT, CONTENT_COUNTS + 2L * kind, items.count());
    }

    /** The number of the call, or 0. */
    static long call(int from, int to, MemorySegment content, int timeoutMs, int flags) {
        try {
            return (long) CALL.invokeExact((short) from, (short) to, content, timeoutMs, flags);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Takes the end of the call whose number is at {@code call}; the reply is written as {@link RawServices.Received} says. */
    static int reply(int service, long call, int timeoutMs, long fields) {
        try {
            return Byte.toUnsignedInt((byte) REPLY.invokeExact((short) service, call, timeoutMs, fields));
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Receives a message or a request, whose number, or 0, is written to {@code request}. */
    static int receiveRequest(int timeoutMs, int service, long request, long fields) {
        try {
            return Byte.toUnsignedInt((byte) RECEIVE_REQUEST.invokeExact(timeoutMs, (short) service, request, fields));
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if it is answered. */
    static boolean answer(long request, MemorySegment content) {
        try {
            return (byte) ANSWER.invokeExact(request, content) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if it is answered, and what it lends will come back. */
    static boolean lendAnswer(long request, MemorySegment content) {
        try {
            return (byte) LEND_ANSWER.invokeExact(request, content) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Takes a request whose answer lends no more, and whether it was fetched, a byte. True if there is one. */
    static boolean returned(int service, long request, long fetched) {
        try {
            return (byte) RETURNED.invokeExact((short) service, request, fetched) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if it is refused. */
    static boolean refuse(long request, MemorySegment reason) {
        try {
            return (byte) REFUSE.invokeExact(request, reason, (int) reason.byteSize()) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }
}
