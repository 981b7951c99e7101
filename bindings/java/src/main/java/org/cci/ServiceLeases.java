package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** Answers of a service that lend long items, and whose program is notified when these are the program's again. */
final class ServiceLeases {
    private final Service service;
    /** By the numbers of their requests. */
    private final ConcurrentHashMap<Long, CompletableFuture<Boolean>> open = new ConcurrentHashMap<>();

    ServiceLeases(Service service) {
        this.service = service;
    }

    /** Answers a request. The future is completed by who receives from the service. Null: the library does not do it. */
    CompletableFuture<Boolean> lend(long request, MemorySegment content) {
        CompletableFuture<Boolean> returned = new CompletableFuture<>();
        if (open.putIfAbsent(request, returned) != null) {
            return null;
        }
        // From here on, it may come back at any time.
        if (RawCalls.lendAnswer(request, content)) {
            return returned;
        }
        open.remove(request, returned);
        return null;
    }

    /** Completes the futures of what has come back. */
    void takeReturned() {
        if (open.isEmpty()) {
            return;
        }
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment place = temporary.allocate(2 * Long.BYTES, Long.BYTES);
            while (RawCalls.returned(service.id().number(), place.address(), place.address() + Long.BYTES)) {
                CompletableFuture<Boolean> returned = open.remove(place.get(JAVA_LONG, 0));
                if (returned != null) {
                    returned.complete(place.get(JAVA_BYTE, Long.BYTES) != 0);
                }
            }
        }
    }

    /** The service is closed: it lends no more. */
    void end() {
        for (Long request : open.keySet()) {
            CompletableFuture<Boolean> returned = open.remove(request);
            if (returned != null) {
                returned.complete(false);
            }
        }
    }
}
