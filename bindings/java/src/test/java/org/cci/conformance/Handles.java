package org.cci.conformance;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.cci.Connection;
import org.cci.ConnectionRequest;
import org.cci.Message;
import org.cci.Region;
import org.cci.RegionHandle;

/** What the suite has of the objects here: their numbers. One for the process, so that no number is given twice. */
final class Handles {
    private final AtomicLong last = new AtomicLong();
    final Map<Long, Connection> connections = new ConcurrentHashMap<>();
    final Map<Long, ConnectionRequest> requests = new ConcurrentHashMap<>();
    final Map<Long, Message> messages = new ConcurrentHashMap<>();
    final Map<Long, Lent> memories = new ConcurrentHashMap<>();
    /** All that there ever were, for who names one of another endpoint's. */
    final Map<RegionHandle, Region> regions = new ConcurrentHashMap<>();

    /** Of these, those that the suite has closed. */
    final Set<Region> closed = ConcurrentHashMap.newKeySet();

    long next() {
        return last.incrementAndGet();
    }

    /** What a connection has attached. */
    record Known(long number, long context) {}

    /** Gives a number to a connection that opens. */
    void add(Connection connection, long context) {
        long number = next();
        connection.attach(new Known(number, context));
        connections.put(number, connection);
    }

    static Known of(Connection connection) {
        return (Known) connection.attachment();
    }
}
