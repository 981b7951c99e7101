package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;

/** Calls of C about the library as a whole. */
final class ContextCalls {
    private ContextCalls() {}

    static void init() {
        try (Arena arena = Arena.ofConfined()) {
            var caps = arena.allocate(JAVA_INT);
            Failure.check(Raw.init(Raw.ABI_VERSION, 0, caps.address()), "opening a context");
        }
    }

    static void finish() {
        Failure.check(Raw.finish(), "closing a context");
    }

    static List<Device> devices(Context context) {
        try (Arena arena = Arena.ofConfined()) {
            var list = arena.allocate(JAVA_LONG);
            Failure.check(Raw.getDevices(list.address()), "listing devices");
            List<Device> found = new ArrayList<>();
            long at = list.get(JAVA_LONG, 0);
            for (long device; (device = Raw.getLong(at)) != 0; at += Long.BYTES) {
                found.add(new Device(context, device));
            }
            return List.copyOf(found);
        }
    }

    static String resolve(String uri) {
        try (Arena arena = Arena.ofConfined()) {
            var out = arena.allocate(JAVA_LONG);
            Failure.check(Raw.resolve(arena.allocateFrom(uri).address(), out.address()), "resolving " + uri);
            return Raw.takeText(out.get(JAVA_LONG, 0));
        }
    }
}
