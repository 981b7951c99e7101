package org.cci;

/** How an operation ended. */
public enum Status {
    /** As it should. */
    SUCCESS(0),
    /** For a reason that has no better value; the text of the exception or event says which. */
    ERROR(1),
    /** The connection is closed: by this side, by the peer, or because the peer died. */
    DISCONNECTED(2),
    /** The receiver had no buffer until the send timed out. The message was not delivered. */
    RECEIVER_NOT_READY(3),
    /** The device failed. */
    DEVICE_DEAD(4),
    /** The peer refused the region handle, the range or the right. What it refused was not touched. */
    RMA_HANDLE(5),
    /** The peer could not do the operation: an atomic on an address that is not aligned to its width. */
    RMA_OPERATION(6),
    /** Not offered by this library, or not by this device. */
    NOT_IMPLEMENTED(7),
    /** No device, host or proved name was found. */
    NOT_FOUND(8),
    /** A wrong argument. */
    INVALID(22),
    /** The peer was silent for too long, or did not take the send in time. Whether it arrived is not known. */
    TIMED_OUT(110),
    /** Out of memory, or at the endpoint's memory cap. */
    NO_MEMORY(12),
    /** The device is down or gone. */
    NO_DEVICE(19),
    /** The network is down. */
    NETWORK_DOWN(100),
    /** The object is in use. */
    BUSY(16),
    /** The value is out of its range. */
    OUT_OF_RANGE(34),
    /** Nothing is there now. */
    TRY_AGAIN(11),
    /** No buffer is free now. */
    NO_BUFFERS(105),
    /** The message is longer than the connection, or the receiver, takes. */
    TOO_LONG(90),
    /** There is no message. */
    NO_MESSAGE(42),
    /** The service is taken, or the address is not of this machine. */
    ADDRESS_NOT_AVAILABLE(99),
    /** The request was rejected, or nobody listens there. */
    CONNECTION_REFUSED(111),
    /** It was taken back: by this side or, of an offer, by the sender. */
    CANCELLED(125),
    /** The receiver's program refused the message. */
    REFUSED(1000),
    /** The server's program answered with an error. */
    REPLY_ERROR(1001),
    /** The server's program dropped the request without answering it. */
    DROPPED(1002),
    /** The server has answered, and the answer could not be delivered. */
    REPLY_LOST(1003);

    private static final Status[] ALL = values();

    final int code;

    Status(int code) {
        this.code = code;
    }

    /** The status of a number of the C interface; {@link #ERROR} for one that is none. */
    static Status of(int code) {
        if (code == 0) {
            return SUCCESS;
        }
        for (Status status : ALL) {
            if (status.code == code) {
                return status;
            }
        }
        return ERROR;
    }
}
