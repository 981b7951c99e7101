package org.cci;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.cci.internal.Requirements;

/**
 * The devices of this machine. The first context of a process reads the configuration file that the environment variable
 * {@code CCI_CONFIG} names, or finds the devices itself if there is none.
 */
public final class Context implements AutoCloseable {
    // Here is nothing that an old Java does not have, or this would not come to run.
    static {
        Requirements.check();
    }

    private final Set<Intake<?>> open = new HashSet<>();
    private List<Device> devices;
    private boolean closed;

    private Context() {}

    /**
     * Opens a context.
     *
     * @return the context
     * @throws UnsupportedOperationException if this Java is older than 22
     * @throws UnsatisfiedLinkError if the native library is missing or does not fit: says what is needed
     * @throws SystemException if there is no device, or the configuration can't be read: says where
     */
    public static Context open() {
        ContextCalls.init();
        return new Context();
    }

    /**
     * The devices, by priority, the highest first.
     *
     * @return the devices
     * @throws IllegalStateException if the context is closed
     */
    public synchronized List<Device> devices() {
        checkOpen();
        if (devices == null) {
            devices = ContextCalls.devices(this);
        }
        return devices;
    }

    /**
     * The device of a name or, if none has it, the first one that is up and is driven by the transport of that name.
     *
     * @param name such as {@code shm}, {@code udp} or {@code udp-eth0}
     * @return the device
     * @throws IllegalArgumentException if there is none: says which there are
     * @throws IllegalStateException if the context is closed
     */
    public Device device(String name) {
        List<Device> all = devices();
        for (Device device : all) {
            if (device.name().equals(name)) {
                return device;
            }
        }
        for (Device device : all) {
            if (device.isUp() && device.transport().equals(name)) {
                return device;
            }
        }
        throw new IllegalArgumentException("no device " + name + ": there are "
                + String.join(", ", all.stream().map(Device::name).toList()));
    }

    /**
     * Opens an endpoint on the default device, which connects to every URI that any of the devices leads to.
     *
     * @param options how
     * @return the endpoint
     * @throws IllegalArgumentException as {@link Device#open}
     * @throws IllegalStateException if the context is closed
     * @throws SystemException as {@link Device#open}
     */
    public Endpoint openEndpoint(EndpointOptions options) {
        return new Endpoint(this, null, options);
    }

    /**
     * Opens a messenger on the default device, which connects to every URI that any of the devices leads to.
     *
     * @param options how its endpoint is opened
     * @param limits what it takes
     * @return the messenger
     * @throws IllegalArgumentException as {@link Device#openMessenger}
     * @throws IllegalStateException if the context is closed
     * @throws SystemException as {@link Device#openMessenger}
     */
    public Messenger openMessenger(EndpointOptions options, MessengerLimits limits) {
        return new Messenger(this, null, options, limits);
    }

    /**
     * Replaces the name of a host in a URI by its address, as connecting wants it. It asks the system, which may block for
     * seconds, and pins a virtual thread for so long.
     *
     * @param uri such as {@code udp://host.example:7811}
     * @return such as {@code udp://192.0.2.1:7811}
     * @throws IllegalArgumentException if the URI can't be understood
     * @throws SystemException if the system knows no such host
     */
    public static String resolve(String uri) {
        return ContextCalls.resolve(uri);
    }

    /** Closes the endpoints and messengers that are open, each for a second at most, and the context. */
    @Override
    public void close() {
        List<Intake<?>> left;
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            left = List.copyOf(open);
        }
        left.forEach(Intake::close);
        ContextCalls.finish();
    }

    /** Counts something that ends with the context. */
    synchronized void enter(Intake<?> intake) {
        checkOpen();
        open.add(intake);
    }

    synchronized void leave(Intake<?> intake) {
        open.remove(intake);
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the context is closed");
        }
    }
}
