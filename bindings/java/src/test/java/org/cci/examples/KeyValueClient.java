package org.cci.examples;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.cci.Service;
import org.cci.ServiceContent;
import org.cci.ServiceId;
import org.cci.ServiceMessage;

/**
 * A client of {@link KeyValueServer}. {@code KeyValueClient NAME KEYS} puts so many keys, several at a time, prints a line every 100,
 * and then gets each. It does not care whether the service dies meanwhile, as long as it comes back.
 */
public final class KeyValueClient {
    /** Puts that are under way at a time. */
    private static final int AT_ONCE = 8;
    /** How long the service may be away. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private KeyValueClient() {}

    private static ByteBuffer text(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    /**
     * Runs it.
     *
     * @param arguments the service's name, and how many keys
     * @throws Exception if a call fails, or a value is not what was put
     */
    public static void main(String[] arguments) throws Exception {
        ServiceId table = ServiceId.of(arguments[0]);
        int keys = Integer.parseInt(arguments[1]);
        try (Service client = Service.registerAny()) {
            for (int key = 0; key < keys; key += AT_ONCE) {
                CompletableFuture<?>[] puts = new CompletableFuture<?>[Math.min(AT_ONCE, keys - key)];
                for (int at = 0; at < puts.length; at++) {
                    ServiceContent put = ServiceContent.of(text("put"), text("key " + (key + at)), text("value " + (key + at)));
                    puts[at] = client.callAsync(table, put, PATIENCE).thenAccept(ServiceMessage::close);
                }
                CompletableFuture.allOf(puts).get();
                if (key % 100 < AT_ONCE) {
                    System.out.println("put " + (key + puts.length));
                }
            }
            for (int key = 0; key < keys; key++) {
                try (ServiceMessage value = client.call(table, PATIENCE, text("get"), text("key " + key))) {
                    if (!value.item(0).equals(text("value " + key))) {
                        throw new IllegalStateException("another value of the key " + key);
                    }
                }
            }
            System.out.println("all " + keys + " are there");
        }
    }
}
