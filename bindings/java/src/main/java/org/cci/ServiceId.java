package org.cci;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Which service: what names it wherever it is. A service has a name; if that is a number from 0 to 65534, it is known by the
 * number, too. Others have a number in this process only.
 *
 * @param number its number in this process
 */
public record ServiceId(int number) {
    /**
     * The service of a number.
     *
     * @param number 0 to 65534
     * @throws IllegalArgumentException if it is another one
     */
    public ServiceId {
        if (number < 0 || number >= RawServices.NO_SERVICE) {
            throw new IllegalArgumentException("a service's number is 0 to 65534, and not " + number);
        }
    }

    /**
     * The service of a name. Whether there is one is found out when a message is sent.
     *
     * @param name 1 to 63 letters, digits, {@code -}, {@code _} and {@code .}, first a letter or a digit
     * @return its id
     * @throws IllegalArgumentException if it is no such name
     */
    public static ServiceId of(String name) {
        try (Arena temporary = Arena.ofConfined()) {
            int number = RawServices.numberOf(temporary.allocateFrom(name).address());
            if (number == RawServices.NO_SERVICE) {
                throw new IllegalArgumentException("the service " + name + ": " + Raw.lastError());
            }
            return new ServiceId(number);
        }
    }

    /**
     * Its name.
     *
     * @return the name; that of the service 80 is {@code 80}
     * @throws SystemException if the library does not know it, or can't be started
     */
    public String name() {
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment name = temporary.allocate(RawServices.NAME_BYTES);
            if (!RawServices.nameOf(number, name.address())) {
                throw new SystemException(Status.NOT_FOUND, "the service " + number + ": " + Raw.lastError());
            }
            return name.getString(0);
        }
    }
}
