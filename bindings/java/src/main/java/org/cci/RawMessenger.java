package org.cci;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.cci.internal.NativeLibrary;

/** The functions of cci_messenger.h, as {@link Raw} has those of cci.h. Memory of the program's is kept during a call. */
final class RawMessenger {
    static final int SENT = 1;
    static final int MESSAGE = 2;
    static final int OFFER = 3;
    static final int RECEIVED = 4;
    static final int REQUEST = 5;
    static final int REQUEST_CANCELLED = 6;
    static final int REPLY = 7;
    static final int CONNECT = 8;
    static final int CONNECT_REQUEST = 9;
    static final int ACCEPT = 10;
    static final int KEEPALIVE_TIMEDOUT = 11;
    static final int DISCONNECTED = 12;
    static final int DEVICE_FAILED = 13;

    private static final MethodHandle OPEN = NativeLibrary.function(
            "cci_messenger_open", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle CLOSE = NativeLibrary.function("cci_messenger_close", JAVA_INT, JAVA_LONG);
    private static final MethodHandle URI = NativeLibrary.function("cci_messenger_uri", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle GET_EVENT =
            NativeLibrary.function("cci_messenger_get_event", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle WAIT_EVENT =
            NativeLibrary.function("cci_messenger_wait_event", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RETURN_EVENT =
            NativeLibrary.function("cci_messenger_return_event", JAVA_INT, JAVA_LONG);
    private static final MethodHandle CONNECT_TO = NativeLibrary.function(
            "cci_messenger_connect", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle ACCEPT_ONE =
            NativeLibrary.function("cci_messenger_accept", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle DISCONNECT =
            NativeLibrary.function("cci_messenger_disconnect", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle SEND = NativeLibrary.function(
            "cci_messenger_send", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle RECEIVE =
            NativeLibrary.function("cci_messenger_receive", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RECEIVE_INTO = NativeLibrary.function(
            "cci_messenger_receive_into", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle REFUSE =
            NativeLibrary.function("cci_messenger_refuse", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT);
    private static final MethodHandle CALL = NativeLibrary.function(
            "cci_messenger_call", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle CANCEL_CALL =
            NativeLibrary.function("cci_messenger_cancel_call", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle ANSWER =
            NativeLibrary.function("cci_messenger_reply", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle ANSWER_ERROR = NativeLibrary.function(
            "cci_messenger_reply_error", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle EXPLAIN =
            NativeLibrary.function("cci_messenger_explain", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle GET_COUNTERS =
            NativeLibrary.function("cci_messenger_get_counters", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);

    private RawMessenger() {}

    static int open(long device, long service, long options, long limits, long messenger) {
        try {
            return (int) OPEN.invokeExact(device, service, options, limits, messenger, 0L);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int close(long messenger) {
        try {
            return (int) CLOSE.invokeExact(messenger);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int uri(long messenger, long uri) {
        try {
            return (int) URI.invokeExact(messenger, uri);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int getEvent(long messenger, long event) {
        try {
            return (int) GET_EVENT.invokeExact(messenger, event);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int waitEvent(long messenger, long timeout, long event) {
        try {
            return (int) WAIT_EVENT.invokeExact(messenger, timeout, event);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int returnEvent(long event) {
        try {
            return (int) RETURN_EVENT.invokeExact(event);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int connect(long messenger, long uri, MemorySegment data, int attribute, long context, long timeout) {
        try {
            return (int) CONNECT_TO.invokeExact(
                    messenger, uri, data, (int) data.byteSize(), attribute, context, timeout);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int accept(long messenger, long request, long context) {
        try {
            return (int) ACCEPT_ONE.invokeExact(messenger, request, context);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int disconnect(long messenger, long connection) {
        try {
            return (int) DISCONNECT.invokeExact(messenger, connection);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int send(long messenger, long connection, MemorySegment data, long context, int flags) {
        try {
            return (int) SEND.invokeExact(messenger, connection, data, data.byteSize(), context, flags, 0L);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int receive(long messenger, long offer) {
        try {
            return (int) RECEIVE.invokeExact(messenger, offer);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int receiveInto(long messenger, long offer, long memory, long bytes, long context) {
        try {
            return (int) RECEIVE_INTO.invokeExact(messenger, offer, memory, bytes, context);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int refuse(long messenger, long offer, int code) {
        try {
            return (int) REFUSE.invokeExact(messenger, offer, code);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int call(long messenger, long connection, MemorySegment data, long timeout, long context, long call) {
        try {
            return (int) CALL.invokeExact(messenger, connection, data, data.byteSize(), timeout, context, call);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int cancelCall(long messenger, long call) {
        try {
            return (int) CANCEL_CALL.invokeExact(messenger, call);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int reply(long messenger, long request, MemorySegment data) {
        try {
            return (int) ANSWER.invokeExact(messenger, request, data, data.byteSize());
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int replyError(long messenger, long request, int code, MemorySegment data) {
        try {
            return (int) ANSWER_ERROR.invokeExact(messenger, request, code, data, data.byteSize());
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int explain(long messenger, long connection, long text) {
        try {
            return (int) EXPLAIN.invokeExact(messenger, connection, text);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int getCounters(long messenger, long connection, long json) {
        try {
            return (int) GET_COUNTERS.invokeExact(messenger, connection, json);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }
}
