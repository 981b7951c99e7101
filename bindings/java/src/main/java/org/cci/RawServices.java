package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.MemoryLayout;
import java.lang.invoke.MethodHandle;
import org.cci.internal.NativeLibrary;

/** The functions of ripc.h, as {@link Raw} has those of cci.h. Numbers of services have 16 bits without a sign. */
final class RawServices {
    /** No number of a service. */
    static final int NO_SERVICE = 0xffff;
    /** Short items of one message, and their bytes. */
    static final int ITEMS_MAX = 9;
    static final int BYTES_MAX = 2000;
    /** Long items of one message, and return buffers. */
    static final int LONG_ITEMS_MAX = 32;
    /** A name, with the 0 at its end. */
    static final int NAME_BYTES = 64;
    /** Space for the name of what carries messages, and a 0. */
    static final int TRANSPORT_BYTES = 8;

    /** What {@link #receiveWithin} returns. */
    static final int RECEIVED = 0;

    static final int TIMED_OUT = 2;
    static final int NOT_OURS = 255;

    private static final MemoryLayout[] MESSAGE = {
        JAVA_SHORT, JAVA_SHORT, JAVA_LONG, JAVA_LONG, JAVA_SHORT, JAVA_LONG, JAVA_LONG, JAVA_SHORT
    };
    private static final MethodHandle REGISTER =
            NativeLibrary.function("ripc_register_service_id", JAVA_BYTE, JAVA_INT);
    private static final MethodHandle REGISTER_RANDOM =
            NativeLibrary.function("ripc_register_random_service_id", JAVA_SHORT);
    private static final MethodHandle REGISTER_NAMED =
            NativeLibrary.function("ripc_register_named", JAVA_SHORT, JAVA_LONG);
    private static final MethodHandle JOIN =
            NativeLibrary.function("ripc_register_multicast_service_id", JAVA_BYTE, JAVA_INT);
    private static final MethodHandle UNREGISTER = NativeLibrary.function("ripc_unregister", JAVA_BYTE, JAVA_SHORT);
    private static final MethodHandle SET_LEASE =
            NativeLibrary.function("ripc_service_set_lease", JAVA_BYTE, JAVA_SHORT, JAVA_INT, JAVA_INT);
    private static final MethodHandle SET_RESOLVE_TIMEOUT =
            NativeLibrary.function("ripc_service_set_resolve_timeout", JAVA_BYTE, JAVA_SHORT, JAVA_INT);
    private static final MethodHandle SHORT_ITEM_SIZE_MAX =
            NativeLibrary.function("ripc_short_item_size_max", JAVA_INT, JAVA_SHORT, JAVA_SHORT);
    private static final MethodHandle TRANSPORT =
            NativeLibrary.function("ripc_transport", JAVA_BYTE, JAVA_SHORT, JAVA_SHORT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle NUMBER_OF = NativeLibrary.function("ripc_number_of", JAVA_SHORT, JAVA_LONG);
    private static final MethodHandle NAME_OF =
            NativeLibrary.function("ripc_name_of", JAVA_BYTE, JAVA_SHORT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle ALLOC = NativeLibrary.function("ripc_buf_alloc", JAVA_LONG, JAVA_LONG);
    private static final MethodHandle FILE_MAP =
            NativeLibrary.function("ripc_file_map", JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle FREE = NativeLibrary.function("ripc_buf_free", null, JAVA_LONG);
    private static final MethodHandle WINDOW = NativeLibrary.function(
            "ripc_reg_recv_window_for_service", JAVA_BYTE, JAVA_LONG, JAVA_LONG, JAVA_SHORT);
    private static final MethodHandle SEND_SHORT = NativeLibrary.function("ripc_send_short", JAVA_BYTE, MESSAGE);
    private static final MethodHandle SEND_LONG = NativeLibrary.function("ripc_send_long", JAVA_BYTE, MESSAGE);
    private static final MethodHandle RECEIVE_WITHIN = NativeLibrary.function(
            "ripc_receive_within", JAVA_BYTE, JAVA_INT, JAVA_SHORT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG,
            JAVA_LONG, JAVA_LONG);

    private RawServices() {}

    /** True if the service is registered. */
    static boolean register(int number) {
        try {
            return (byte) REGISTER.invokeExact(number) != 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int registerRandom() {
        try {
            return Short.toUnsignedInt((short) REGISTER_RANDOM.invokeExact());
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int registerNamed(long name) {
        try {
            return Short.toUnsignedInt((short) REGISTER_NAMED.invokeExact(name));
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if the group is joined. */
    static boolean join(int number) {
        try {
            return (byte) JOIN.invokeExact(number) != 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static void unregister(int number) {
        try {
            byte ignored = (byte) UNREGISTER.invokeExact((short) number);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if it is set. */
    static boolean setLease(int number, int leaseMs, int disconnectedMs) {
        try {
            return (byte) SET_LEASE.invokeExact((short) number, leaseMs, disconnectedMs) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if it is set. */
    static boolean setResolveTimeout(int number, int timeoutMs) {
        try {
            return (byte) SET_RESOLVE_TIMEOUT.invokeExact((short) number, timeoutMs) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** How long the only item of a short message may be, or 0. */
    static int shortItemSizeMax(int from, int to) {
        try {
            return (int) SHORT_ITEM_SIZE_MAX.invokeExact((short) from, (short) to);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if the name of what carries messages is written. */
    static boolean transport(int from, int to, long name) {
        try {
            return (byte) TRANSPORT.invokeExact((short) from, (short) to, name, (long) TRANSPORT_BYTES) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static int numberOf(long name) {
        try {
            return Short.toUnsignedInt((short) NUMBER_OF.invokeExact(name));
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if the name is written. */
    static boolean nameOf(int number, long name) {
        try {
            return (byte) NAME_OF.invokeExact((short) number, name, (long) NAME_BYTES) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** The address of a buffer, or 0. */
    static long alloc(long bytes) {
        try {
            return (long) ALLOC.invokeExact(bytes);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** The address of a file's bytes, or 0. The length is written to {@code size}. */
    static long fileMap(long path, long size) {
        try {
            return (long) FILE_MAP.invokeExact(path, size);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    static void free(long address) {
        try {
            FREE.invokeExact(address);
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** True if the window is given. */
    static boolean window(long base, long bytes, int service) {
        try {
            return (byte) WINDOW.invokeExact(base, bytes, (short) service) == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Sends short or long items: arrays of addresses and of lengths. True if the message is sent. */
    static boolean send(boolean isLong, int from, int to, ItemArrays.Of items, ItemArrays.Of returns) {
        short source = (short) from;
        short destination = (short) to;
        try {
            return (isLong
                            ? (byte) SEND_LONG.invokeExact(
                                    source, destination, items.addresses(), items.lengths(), items.count(),
                                    returns.addresses(), returns.lengths(), returns.count())
                            : (byte) SEND_SHORT.invokeExact(
                                    source, destination, items.addresses(), items.lengths(), items.count(),
                                    returns.addresses(), returns.lengths(), returns.count()))
                    == 0;
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Receives a message, whose fields are written from {@code fields} on: see {@link Received}. */
    static int receiveWithin(int timeoutMs, int service, long fields) {
        try {
            return Byte.toUnsignedInt((byte) RECEIVE_WITHIN.invokeExact(
                    timeoutMs, (short) service, fields + Received.FROM, fields + Received.SHORT, fields + Received.SHORT_LENGTHS,
                    fields + Received.SHORT_COUNT, fields + Received.LONG, fields + Received.LONG_LENGTHS,
                    fields + Received.LONG_COUNT));
        } catch (Throwable e) {
            throw Raw.broken(e);
        }
    }

    /** Where the fields of a received message are: those of a {@code struct ripc_message}. */
    static final class Received {
        static final long SHORT = 0;
        static final long SHORT_LENGTHS = 8;
        static final long LONG = 16;
        static final long LONG_LENGTHS = 24;
        static final long SHORT_COUNT = 32;
        static final long LONG_COUNT = 34;
        static final long FROM = 36;
        static final long BYTES = 40;

        private Received() {}
    }
}
