package org.cci.jetty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.cci.Service;
import org.cci.ServiceBuffer;
import org.cci.ServiceContent;
import org.cci.ServiceId;
import org.cci.ServiceMessage;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What clients keep that ask for files and never fetch them, or vanish. */
class LendingTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    /** Nothing ends since it has lasted so long. */
    private static final Duration LEASE = Duration.ofHours(1);

    private static final int FILE_BYTES = 100_000;
    private static final int ASKED = 20;

    private final String name = "lending-" + ProcessHandle.current().pid();
    /** What is to be done about requests: by the thread of the test. */
    private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();

    /** A client that asks by some services for more than it gets at once: {@code Asker SERVICE SERVICES}. */
    public static final class Asker {
        private Asker() {}

        /**
         * Asks, and sleeps.
         *
         * @param arguments the name of the service, and how many of its own ask
         * @throws Exception if it fails
         */
        public static void main(String[] arguments) throws Exception {
            List<Service> clients = new ArrayList<>();
            for (int client = 0; client < Integer.parseInt(arguments[1]); client++) {
                clients.add(Service.registerAny());
                for (int time = 0; time < ASKED; time++) {
                    clients.getLast().offerWindow(FILE_BYTES);
                    clients.getLast().callAsync(ServiceId.of(arguments[0]), read(), Duration.ofHours(1));
                }
            }
            Thread.sleep(Duration.ofHours(1));
        }
    }

    /** A request for the file. */
    private static ServiceContent read() {
        ByteBuffer length = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(0, FILE_BYTES);
        return ServiceContent.of(text("read"), text("file"), ByteBuffer.allocate(Long.BYTES), length);
    }

    private static ByteBuffer text(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    private FileRequests requests(Path folder, int lentMax) throws Exception {
        Files.write(folder.resolve("file"), new byte[FILE_BYTES]);
        return new FileRequests(folder, tasks::add, lentMax);
    }

    /** Takes requests, without doing anything about them. */
    private static void receive(Service server, FileRequests requests) throws InterruptedException {
        try (ServiceMessage message = server.receiveRequest(Duration.ofMillis(10))) {
            if (message != null) {
                requests.take(message);
            }
        }
    }

    private void work() {
        for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
            task.run();
        }
    }

    /** Serves until something is so. */
    private void serve(Service server, FileRequests requests, BooleanSupplier end) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!end.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> requests.lent() + " are lent, " + requests.waiting() + " wait");
            receive(server, requests);
            work();
        }
    }

    /** Has all requests of a program's services arrive, and stops it before there is an answer to any. */
    private static void hang(Program program, Service server, FileRequests requests, int services) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (requests.waiting() < services * ASKED) {
            assertTrue(System.nanoTime() < deadline && program.process.isAlive(), "requests come in time");
            receive(server, requests);
        }
        Process stop = new ProcessBuilder("kill", "-STOP", Long.toString(program.process.pid())).start();
        assertEquals(0, stop.waitFor());
    }

    @Test
    void aClientThatNeverFetchesKeepsLittleAndNothingWhenItHasVanished(@TempDir Path folder) throws Exception {
        try (Service server = Service.register(name);
                Service other = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(FILE_BYTES)) {
            FileRequests requests = requests(folder, FileRequests.LENT_MAX);
            server.setLease(LEASE, Duration.ofMillis(50));
            try (Program hung = new Program(Asker.class, name, "1")) {
                hang(hung, server, requests, 1);
                work();
                // What comes back is counted by who receives: nobody, so far.
                assertEquals(FileRequests.LENT_TO_ONE_MAX, requests.lent());
                assertEquals(ASKED - FileRequests.LENT_TO_ONE_MAX, requests.waiting());
                // Others are served meanwhile.
                ServiceContent content = read().withReturnBuffers(buffer.item());
                CompletableFuture<ServiceMessage> call = other.callAsync(server.id(), content, PATIENCE);
                serve(server, requests, call::isDone);
                try (ServiceMessage answer = call.get(0, TimeUnit.SECONDS)) {
                    assertEquals(FILE_BYTES, answer.longItem(0).length());
                }
            }
            serve(server, requests, () -> requests.lent() == 0 && requests.waiting() == 0);
        }
    }

    @Test
    void allClientsTogetherKeepNoMoreThanTheServerLends(@TempDir Path folder) throws Exception {
        int lentMax = FileRequests.LENT_TO_ONE_MAX + 2;
        try (Service server = Service.register(name);
                Service other = Service.registerAny();
                ServiceBuffer buffer = ServiceBuffer.allocate(FILE_BYTES)) {
            FileRequests requests = requests(folder, lentMax);
            server.setLease(LEASE, Duration.ofMillis(50));
            CompletableFuture<ServiceMessage> call;
            try (Program hung = new Program(Asker.class, name, "2")) {
                hang(hung, server, requests, 2);
                work();
                assertEquals(lentMax, requests.lent());
                call = other.callAsync(server.id(), read().withReturnBuffers(buffer.item()), PATIENCE);
            }
            // Its turn comes when what was lent to the others is back.
            serve(server, requests, call::isDone);
            call.get(0, TimeUnit.SECONDS).close();
            serve(server, requests, () -> requests.lent() == 0 && requests.waiting() == 0);
        }
    }

    @Test
    void whatAClientDoesNotWantIsBackAtOnce(@TempDir Path folder) throws Exception {
        try (Service server = Service.register(name);
                Service client = Service.registerAny()) {
            FileRequests requests = requests(folder, 1);
            server.setLease(LEASE, LEASE);
            List<CompletableFuture<ServiceMessage>> calls = new ArrayList<>();
            for (int time = 0; time < ASKED; time++) {
                // There is no window for the answer.
                calls.add(client.callAsync(server.id(), read(), PATIENCE));
            }
            serve(server, requests, () -> calls.stream().allMatch(CompletableFuture::isDone) && requests.lent() == 0);
            calls.forEach(call -> assertThrows(Exception.class, () -> call.get(0, TimeUnit.SECONDS)));
        }
    }
}
