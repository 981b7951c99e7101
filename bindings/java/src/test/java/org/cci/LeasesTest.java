package org.cci;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** For how long a service lends, what it learns of that, and how long it looks for others. */
class LeasesTest {
    private static final Duration HOUR = Duration.ofHours(1);
    private final String name = "leases-" + ProcessHandle.current().pid();

    private static ServiceRequest request(Service service) throws InterruptedException {
        try (ServiceMessage message = service.receiveRequest(Pair.PATIENCE)) {
            assertNotNull(message, "a request came in time");
            return message.request();
        }
    }

    /** Receives, which completes the future. */
    private static boolean returned(Service service, CompletableFuture<Boolean> returned) throws Exception {
        long deadline = System.nanoTime() + Pair.PATIENCE.toNanos();
        while (!returned.isDone() && System.nanoTime() < deadline) {
            assertNull(service.receiveRequest(Duration.ofMillis(10)));
        }
        return returned.get(0, TimeUnit.SECONDS);
    }

    @Test
    void whatAnAnswerLendsComesBackOnce() throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(100_000)) {
            server.setLease(HOUR, HOUR);
            ServiceContent content = ServiceContent.EMPTY.withLongItems(buffer.item());
            client.offerWindow(100_000);
            CompletableFuture<ServiceMessage> call = client.callAsync(server.id(), ServiceContent.EMPTY, Pair.PATIENCE);
            ServiceRequest request = request(server);
            assertThrows(IllegalArgumentException.class, () -> request.lend(ServiceContent.EMPTY));
            CompletableFuture<Boolean> fetched = request.lend(content);
            assertThrows(PeerException.class, () -> request.lend(content));
            assertEquals(true, returned(server, fetched));
            try (ServiceMessage answer = call.get(60, TimeUnit.SECONDS)) {
                assertEquals(100_000, answer.longItem(0).length());
            }
            // Without a window the client does not want it.
            CompletableFuture<ServiceMessage> unwanted = client.callAsync(server.id(), ServiceContent.EMPTY, Pair.PATIENCE);
            assertEquals(false, returned(server, request(server).lend(content)));
            assertThrows(Exception.class, () -> unwanted.get(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void nothingIsLentWhenTheServiceIsClosed() throws Exception {
        try (Service client = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(10)) {
            Service server = Service.register(name);
            client.callAsync(server.id(), ServiceContent.EMPTY, Duration.ofSeconds(1));
            ServiceRequest request = request(server);
            CompletableFuture<Boolean> returned = request.lend(ServiceContent.EMPTY.withLongItems(buffer.item()));
            server.close();
            assertFalse(returned.get(0, TimeUnit.SECONDS));
            assertThrows(IllegalStateException.class, () -> server.setLease(HOUR, HOUR));
            assertThrows(IllegalStateException.class, () -> server.setResolveTimeout(HOUR));
        }
    }

    @Test
    void aSendLooksForAServiceAsLongAsItIsTold() {
        try (Service service = Service.registerAny()) {
            ServiceId nobody = ServiceId.of("nobody-" + name);
            for (Duration wrong : new Duration[] {Duration.ofMillis(-1), Duration.ofDays(25)}) {
                assertThrows(IllegalArgumentException.class, () -> service.setResolveTimeout(wrong));
                assertThrows(IllegalArgumentException.class, () -> service.setLease(wrong, HOUR));
                assertThrows(IllegalArgumentException.class, () -> service.setLease(HOUR, wrong));
            }
            assertThrows(IllegalArgumentException.class, () -> service.setLease(Duration.ZERO, HOUR));
            // With 10 s for each, as without a call, this would take longer than it may.
            assertTimeout(Pair.PATIENCE, () -> {
                for (int time = 0; time < 20; time++) {
                    service.setResolveTimeout(Duration.ofMillis(time));
                    assertThrows(PeerException.class, () -> service.send(nobody, ByteBuffer.allocate(1)));
                }
            });
        }
    }
}
