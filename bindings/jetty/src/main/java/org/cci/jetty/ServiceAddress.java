package org.cci.jetty;

import java.net.SocketAddress;
import org.cci.ServiceId;

/** The address of a service, as Jetty shows those of its connections. */
public final class ServiceAddress extends SocketAddress {
    private static final long serialVersionUID = 1;

    /** The service's number in this process. */
    private final int number;

    ServiceAddress(ServiceId id) {
        number = id.number();
    }

    /**
     * The service.
     *
     * @return its id
     */
    public ServiceId service() {
        return new ServiceId(number);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ServiceAddress address && address.number == number;
    }

    @Override
    public int hashCode() {
        return number;
    }

    @Override
    public String toString() {
        return "service:" + number;
    }
}
