package org.cci.bench;

import org.cci.Connection;
import org.cci.Event;
import org.cci.EventHandler;
import org.cci.Message;

/** Notes that a message has come. */
class Arrivals implements EventHandler {
    /** Whether one has come. Whoever waits for the next one sets it back. */
    protected boolean came;

    @Override
    public void onMessage(Connection from, Message received) {
        came = true;
    }

    @Override
    public void onEvent(Event event) {
        throw new IllegalStateException(event + " came in mid-run");
    }
}
