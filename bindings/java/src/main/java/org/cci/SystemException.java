package org.cci;

/** This machine could not do it: no memory, no device, a service that is taken, a configuration that can't be read. */
public final class SystemException extends CciException {
    private static final long serialVersionUID = 1;

    SystemException(Status status, String message) {
        super(status, message);
    }
}
