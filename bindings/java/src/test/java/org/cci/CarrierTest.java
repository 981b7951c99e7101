package org.cci;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;

/** Virtual threads that wait for what never comes, in a JVM whose virtual threads have one carrier. */
class CarrierTest {
    /** Others that run while one waits, so that it has long begun to. */
    private static final int NAPS = 100;

    /** Ends each wait by another virtual thread, which runs only if the one that waits has given the carrier up. */
    static final class Waits {
        private Waits() {}

        private interface Wait {
            Object once() throws InterruptedException;
        }

        private static void check(String what, AutoCloseable ended, Wait wait) throws InterruptedException {
            CountDownLatch begun = new CountDownLatch(1);
            String[] end = {"returned"};
            Thread waits = Thread.startVirtualThread(() -> {
                begun.countDown();
                try {
                    wait.once();
                } catch (InterruptedException | RuntimeException e) {
                    end[0] = e.getClass().getSimpleName();
                }
            });
            Thread other = Thread.startVirtualThread(() -> {
                try {
                    begun.await();
                    for (int nap = 0; nap < NAPS; nap++) {
                        Thread.sleep(1);
                    }
                    ended.close();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            waits.join();
            other.join();
            System.out.println(what + ": " + end[0]);
        }

        private static void endpoints() throws InterruptedException {
            try (Context context = Context.open();
                    Endpoint silent = context.device("udp-lo").open(EndpointOptions.DEFAULTS)) {
                Endpoint receives = context.device("shm").open(EndpointOptions.DEFAULTS);
                check("await", receives, () -> receives.await(Pair.PATIENCE));
                Endpoint connects = context.device("udp-lo").open(EndpointOptions.DEFAULTS);
                check("connect", connects, () ->
                        connects.connect(silent.uri(), Attribute.RELIABLE_ORDERED, Pair.NOTHING, Pair.PATIENCE));
                Pair full = Pair.connected("shm", EndpointOptions.DEFAULTS, Attribute.RELIABLE_ORDERED);
                check("send", full.client, () -> {
                    while (true) {
                        full.toServer.send(ByteBuffer.allocate(1000), Pair.PATIENCE);
                    }
                });
                full.close();
                Messenger messenger = context.openMessenger(EndpointOptions.DEFAULTS, MessengerLimits.DEFAULTS);
                check("await of a messenger", messenger, () -> messenger.await(Pair.PATIENCE));
            }
        }

        private static void services() throws InterruptedException {
            ServiceId nobody = ServiceId.of("carrier-nobody-" + ProcessHandle.current().pid());
            Service receives = Service.registerAny();
            check("receive", receives, () -> receives.receive(Pair.PATIENCE));
            Service serves = Service.registerAny();
            check("receiveRequest", serves, () -> serves.receiveRequest(Pair.PATIENCE));
            Service calls = Service.registerAny();
            check("call", calls, () -> calls.call(nobody, Pair.PATIENCE, ByteBuffer.allocate(1)));
            Service sends = Service.registerAny();
            sends.setResolveTimeout(Pair.PATIENCE);
            check("send to nobody", sends, () -> {
                sends.send(nobody, ByteBuffer.allocate(1));
                return null;
            });
            Service sendsLong = Service.registerAny();
            sendsLong.setResolveTimeout(Pair.PATIENCE);
            try (ServiceBuffer buffer = ServiceBuffer.allocate(1 << 20)) {
                check("sendLong to nobody", sendsLong, () -> {
                    sendsLong.sendLong(nobody, buffer.item());
                    return null;
                });
            }
        }

        public static void main(String[] arguments) throws InterruptedException {
            endpoints();
            services();
        }
    }

    @Test
    void whoWaitsGivesItsCarrierUp() throws Exception {
        List<String> options = List.of(
                "--enable-native-access=ALL-UNNAMED",
                "-Djdk.virtualThreadScheduler.parallelism=1",
                "-Djdk.virtualThreadScheduler.maxPoolSize=1");
        try (Program program = Program.start(Path.of(System.getProperty("java.home")), options, Waits.class)) {
            for (String what : List.of(
                    "await", "connect", "send", "await of a messenger", "receive", "receiveRequest", "call", "send to nobody",
                    "sendLong to nobody")) {
                assertEquals(what + ": IllegalStateException", program.line());
            }
        }
    }
}
