package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import org.cci.internal.NativeLibrary;

/**
 * The functions of cci.h, one for one. Pointers are numbers: whoever calls sees to it that what they name is there during the
 * call.
 */
final class Raw {
    static final int ABI_VERSION = 2;
    static final int FLAG_SILENT = 1 << 3;
    static final int FLAG_READ = 1 << 4;
    static final int FLAG_WRITE = 1 << 5;
    static final int FLAG_FENCE = 1 << 6;

    static final int OPT_ENDPT_SEND_TIMEOUT = 0;
    static final int OPT_ENDPT_KEEPALIVE_TIMEOUT = 3;
    static final int OPT_ENDPT_URI = 4;
    static final int OPT_CONN_SEND_TIMEOUT = 6;
    static final int OPT_CONN_KEEPALIVE_TIMEOUT = 7;
    static final int OPT_ENDPT_MEMORY_CAP = 1000;
    static final int OPT_ENDPT_MEMORY_USED = 1001;
    static final int OPT_ENDPT_DISCONNECT_EVENTS = 1002;

    static final int EVENT_SEND = 1;
    static final int EVENT_RECV = 2;
    static final int EVENT_CONNECT = 3;
    static final int EVENT_CONNECT_REQUEST = 4;
    static final int EVENT_ACCEPT = 5;
    static final int EVENT_KEEPALIVE_TIMEDOUT = 6;
    static final int EVENT_DEVICE_FAILED = 7;
    static final int EVENT_DISCONNECTED = 1000;

    /** All memory of the process. Only for addresses that the library gave, while what is there is ours. */
    static final MemorySegment MEMORY = NativeLibrary.memory();

    private static final MethodHandle INIT = NativeLibrary.function("cci_init", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle FINALIZE = NativeLibrary.function("cci_finalize", JAVA_INT);
    private static final MethodHandle GET_DEVICES = NativeLibrary.function("cci_get_devices", JAVA_INT, JAVA_LONG);
    private static final MethodHandle CREATE_ENDPOINT = NativeLibrary.function(
            "cci_create_endpoint_with", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle DESTROY_ENDPOINT = NativeLibrary.function("cci_destroy_endpoint", JAVA_INT, JAVA_LONG);
    private static final MethodHandle GET_EVENT = NativeLibrary.function("cci_get_event", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle WAIT_EVENT =
            NativeLibrary.function("cci_wait_event", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RETURN_EVENT = NativeLibrary.quickFunction("cci_return_event", JAVA_INT, JAVA_LONG);
    private static final MethodHandle CONNECT = NativeLibrary.function(
            "cci_connect", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle ACCEPT_ON =
            NativeLibrary.function("cci_accept_on", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle REJECT = NativeLibrary.function("cci_reject", JAVA_INT, JAVA_LONG);
    private static final MethodHandle DISCONNECT = NativeLibrary.function("cci_disconnect", JAVA_INT, JAVA_LONG);
    private static final MethodHandle SET_OPT =
            NativeLibrary.function("cci_set_opt", JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle GET_OPT =
            NativeLibrary.function("cci_get_opt", JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle SEND =
            NativeLibrary.quickFunction("cci_send", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT);
    private static final MethodHandle RMA_REGISTER = NativeLibrary.function(
            "cci_rma_register", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle RMA_REGISTER_CONN = NativeLibrary.function(
            "cci_rma_register_conn", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
    private static final MethodHandle RMA_DEREGISTER =
            NativeLibrary.function("cci_rma_deregister", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RMA_ALLOC =
            NativeLibrary.function("cci_rma_alloc", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RMA_FREE = NativeLibrary.function("cci_rma_free", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RMA_INVALIDATE =
            NativeLibrary.function("cci_rma_invalidate", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RMA = NativeLibrary.function(
            "cci_rma", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG,
            JAVA_LONG, JAVA_INT);
    private static final MethodHandle RMAV = NativeLibrary.function(
            "cci_rmav", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG,
            JAVA_INT);
    private static final MethodHandle ATOMIC = NativeLibrary.function(
            "cci_atomic", JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG,
            JAVA_LONG, JAVA_LONG, JAVA_INT);
    private static final MethodHandle LAST_ERROR = NativeLibrary.function("cci_last_error", JAVA_LONG);
    private static final MethodHandle RESOLVE = NativeLibrary.function("cci_resolve", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle PEER_NAMES =
            NativeLibrary.function("cci_peer_names", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle EXPLAIN = NativeLibrary.function("cci_explain", JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle GET_COUNTERS =
            NativeLibrary.function("cci_get_counters", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle FREE = NativeLibrary.systemFunction("free", null, JAVA_LONG);

    private Raw() {}

    /** What a downcall throws is no part of the C interface: it can't go on. */
    static AssertionError broken(Throwable thrown) {
        if (thrown instanceof RuntimeException exception) {
            throw exception;
        }
        if (thrown instanceof Error error) {
            throw error;
        }
        return new AssertionError(thrown);
    }

    static int init(int version, int flags, long caps) {
        try {
            return (int) INIT.invokeExact(version, flags, caps);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int finish() {
        try {
            return (int) FINALIZE.invokeExact();
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int getDevices(long devices) {
        try {
            return (int) GET_DEVICES.invokeExact(devices);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int createEndpoint(long device, long service, long options, long endpoint) {
        try {
            return (int) CREATE_ENDPOINT.invokeExact(device, service, options, 0, endpoint, 0L);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int destroyEndpoint(long endpoint) {
        try {
            return (int) DESTROY_ENDPOINT.invokeExact(endpoint);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int getEvent(long endpoint, long event) {
        try {
            return (int) GET_EVENT.invokeExact(endpoint, event);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int waitEvent(long endpoint, long timeout, long event) {
        try {
            return (int) WAIT_EVENT.invokeExact(endpoint, timeout, event);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int returnEvent(long event) {
        try {
            return (int) RETURN_EVENT.invokeExact(event);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int connect(long endpoint, long uri, long data, int len, int attribute, long context, long timeout) {
        try {
            return (int) CONNECT.invokeExact(endpoint, uri, data, len, attribute, context, 0, timeout);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int acceptOn(long request, long endpoint, long context) {
        try {
            return (int) ACCEPT_ON.invokeExact(request, endpoint, context);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int reject(long request) {
        try {
            return (int) REJECT.invokeExact(request);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int disconnect(long connection) {
        try {
            return (int) DISCONNECT.invokeExact(connection);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int setOpt(long handle, int name, long value) {
        try {
            return (int) SET_OPT.invokeExact(handle, name, value);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int getOpt(long handle, int name, long value) {
        try {
            return (int) GET_OPT.invokeExact(handle, name, value);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int send(long connection, long message, int len, long context, int flags) {
        try {
            return (int) SEND.invokeExact(connection, message, len, context, flags);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaRegister(long endpoint, long start, long length, int flags, long handle) {
        try {
            return (int) RMA_REGISTER.invokeExact(endpoint, start, length, flags, handle);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaRegisterConn(long connection, long start, long length, int flags, long handle) {
        try {
            return (int) RMA_REGISTER_CONN.invokeExact(connection, start, length, flags, handle);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaDeregister(long endpoint, long handle) {
        try {
            return (int) RMA_DEREGISTER.invokeExact(endpoint, handle);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaAlloc(long endpoint, long length, long start) {
        try {
            return (int) RMA_ALLOC.invokeExact(endpoint, length, start);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaFree(long endpoint, long start) {
        try {
            return (int) RMA_FREE.invokeExact(endpoint, start);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmaInvalidate(long endpoint, long start, long length) {
        try {
            return (int) RMA_INVALIDATE.invokeExact(endpoint, start, length);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rma(
            long connection, long message, int messageLen, long local, long localOffset, long remote, long remoteOffset,
            long len, long context, int flags) {
        try {
            return (int) RMA.invokeExact(
                    connection, message, messageLen, local, localOffset, remote, remoteOffset, len, context, flags);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int rmav(
            long connection, long message, int messageLen, long local, int localCount, long remote, int remoteCount,
            long context, int flags) {
        try {
            return (int) RMAV.invokeExact(
                    connection, message, messageLen, local, localCount, remote, remoteCount, context, flags);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int atomic(
            long connection, int op, int width, long operand, long compare, long target, long targetOffset, long result,
            long resultOffset, long context, int flags) {
        try {
            return (int) ATOMIC.invokeExact(
                    connection, op, width, operand, compare, target, targetOffset, result, resultOffset, context, flags);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int resolve(long uri, long resolved) {
        try {
            return (int) RESOLVE.invokeExact(uri, resolved);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int peerNames(long connection, long names) {
        try {
            return (int) PEER_NAMES.invokeExact(connection, names);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int explain(long connection, long text) {
        try {
            return (int) EXPLAIN.invokeExact(connection, text);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int getCounters(long endpoint, long connection, long json) {
        try {
            return (int) GET_COUNTERS.invokeExact(endpoint, connection, json);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    /** What this thread's last failing call says. */
    static String lastError() {
        try {
            return text((long) LAST_ERROR.invokeExact());
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    /** A C string, which stays the library's; empty for NULL. */
    static String text(long address) {
        return address == 0 ? "" : MEMORY.getString(address, StandardCharsets.UTF_8);
    }

    /** A C string that the library gave to its caller, and that is freed here. */
    static String takeText(long address) {
        try {
            return text(address);
        } finally {
            free(address);
        }
    }

    /** Frees what the library gave to its caller; nothing for NULL. */
    static void free(long address) {
        try {
            FREE.invokeExact(address);
        } catch (Throwable e) {
            throw broken(e);
        }
    }

    static int getInt(long address) {
        return MEMORY.get(JAVA_INT, address);
    }

    static long getLong(long address) {
        return MEMORY.get(JAVA_LONG, address);
    }
}
