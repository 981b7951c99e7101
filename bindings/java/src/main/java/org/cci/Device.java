package org.cci;

import java.util.ArrayList;
import java.util.List;

/**
 * A way to reach others: shared memory, a network interface, or several of these in one ({@code any}).
 */
public final class Device {
    private final Context context;
    final long address;
    private final String name;
    private final String transport;
    private final boolean up;
    private final String info;
    private final List<String> configuration;
    private final int maxSendBytes;
    private final long bitsPerSecond;

    Device(Context context, long address) {
        this.context = context;
        this.address = address;
        name = Raw.text(Raw.getLong(address));
        transport = Raw.text(Raw.getLong(address + 8));
        up = Raw.getInt(address + 16) != 0;
        info = Raw.text(Raw.getLong(address + 24));
        List<String> lines = new ArrayList<>();
        long list = Raw.getLong(address + 32);
        for (long line; list != 0 && (line = Raw.getLong(list)) != 0; list += 8) {
            lines.add(Raw.text(line));
        }
        configuration = List.copyOf(lines);
        maxSendBytes = Raw.getInt(address + 40);
        bitsPerSecond = Raw.getLong(address + 48);
    }

    /**
     * Opens an endpoint on this device.
     *
     * @param options how; {@link EndpointOptions#DEFAULTS} are meant to be right
     * @return the endpoint
     * @throws IllegalArgumentException for an option out of range, a service that can't be understood, or security that can't
     *     be had
     * @throws IllegalStateException if the context is closed
     * @throws SystemException if the device is down, the service is taken, or there is no memory
     */
    public Endpoint open(EndpointOptions options) {
        return new Endpoint(context, this, options);
    }

    /**
     * Opens a messenger on this device.
     *
     * @param options how its endpoint is opened
     * @param limits what it takes
     * @return the messenger
     * @throws IllegalArgumentException as {@link #open}, and for limits that do not fit each other
     * @throws IllegalStateException if the context is closed
     * @throws SystemException as {@link #open}
     */
    public Messenger openMessenger(EndpointOptions options, MessengerLimits limits) {
        return new Messenger(context, this, options, limits);
    }

    /**
     * Its name.
     *
     * @return the section of the configuration, or a name such as {@code shm} or {@code udp-eth0}
     */
    public String name() {
        return name;
    }

    /**
     * What drives it.
     *
     * @return {@code shm}, {@code udp}, {@code tcp}, {@code eth} or {@code any}
     */
    public String transport() {
        return transport;
    }

    /**
     * Whether it can be used now.
     *
     * @return true if it can
     */
    public boolean isUp() {
        return up;
    }

    /**
     * A line for people.
     *
     * @return the line
     */
    public String info() {
        return info;
    }

    /**
     * Its configuration.
     *
     * @return lines of the form {@code key=value}
     */
    public List<String> configuration() {
        return configuration;
    }

    /**
     * The longest message in bytes. A connection takes the smaller of its two sides'.
     *
     * @return 8192 at most
     */
    public int maxSendBytes() {
        return maxSendBytes;
    }

    /**
     * How fast it is, in bits per second.
     *
     * @return 0 if that is not known
     */
    public long bitsPerSecond() {
        return bitsPerSecond;
    }

    @Override
    public String toString() {
        return name + " (" + info + ")";
    }
}
