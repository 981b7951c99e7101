package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.time.Duration;
import java.time.temporal.ChronoUnit;

/** Calls of C about one connection, apart from those that send. */
final class ConnectionCalls {
    private ConnectionCalls() {}

    static void setOption(Connection connection, int name, int value) {
        Endpoint endpoint = connection.endpoint;
        endpoint.enter();
        try {
            long target = connection.target();
            Raw.MEMORY.set(JAVA_INT, endpoint.out, value);
            Failure.check(Raw.setOpt(target, name, endpoint.out), "setting an option");
        } finally {
            endpoint.exit();
        }
    }

    /** An option that is a time. */
    static Duration time(Connection connection, int name) {
        Endpoint endpoint = connection.endpoint;
        endpoint.enter();
        try {
            Failure.check(Raw.getOpt(connection.target(), name, endpoint.out), "reading an option");
            return Duration.of(Integer.toUnsignedLong(Raw.getInt(endpoint.out)), ChronoUnit.MICROS);
        } finally {
            endpoint.exit();
        }
    }

    static String peerNames(Connection connection) {
        Endpoint endpoint = connection.endpoint;
        endpoint.enter();
        try {
            Failure.check(Raw.peerNames(connection.target(), endpoint.out), "asking who the peer is");
            return Raw.takeText(Raw.getLong(endpoint.out));
        } finally {
            endpoint.exit();
        }
    }

    static String explain(Connection connection) {
        Endpoint endpoint = connection.endpoint;
        endpoint.enter();
        try {
            Failure.check(Raw.explain(connection.target(), endpoint.out), "explaining a connection");
            return Raw.takeText(Raw.getLong(endpoint.out));
        } finally {
            endpoint.exit();
        }
    }

    static String counters(Connection connection) {
        Endpoint endpoint = connection.endpoint;
        endpoint.enter();
        try {
            Failure.check(
                    Raw.getCounters(endpoint.handle, connection.target(), endpoint.out), "reading counters");
            return Raw.takeText(Raw.getLong(endpoint.out));
        } finally {
            endpoint.exit();
        }
    }
}
