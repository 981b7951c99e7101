package org.cci.examples;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;

/** Tells a server when its standard input ends: it is to end then, too. */
final class Input {
    private Input() {}

    /** Becomes true when the input has ended. */
    static AtomicBoolean ended() {
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (IOException e) {
                // It has ended, too.
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        return ended;
    }
}
