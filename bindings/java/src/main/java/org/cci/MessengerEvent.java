package org.cci;

/** What happened on a messenger. */
public sealed interface MessengerEvent {
    /**
     * A message came, whole. It is the program's until it closes it.
     *
     * @param connection the connection that it came on
     * @param message the message, to be closed
     */
    record Received(MessengerConnection connection, Payload message) implements MessengerEvent {}

    /**
     * A peer wants to send a message that is longer than {@link MessengerLimits#wholeBytesMax}. On a reliable ordered
     * connection, what comes behind it waits until it has ended.
     *
     * @param connection the connection
     * @param offer to be received or refused
     */
    record Offered(MessengerConnection connection, Offer offer) implements MessengerEvent {}

    /**
     * An offered message has ended: exactly once for each that the program has not refused, except those that end in
     * {@link Received}.
     *
     * @param connection the connection
     * @param offer the offer
     * @param status {@link Status#SUCCESS}: all of it is in the program's memory
     */
    record OfferEnded(MessengerConnection connection, Offer offer, Status status) implements MessengerEvent {}

    /**
     * A client asks; answer once.
     *
     * @param connection the connection
     * @param request the request, to be answered or closed
     */
    record Asked(MessengerConnection connection, Request request) implements MessengerEvent {}

    /**
     * A client does not wait any more for the answer to a request that was not answered, which is still to be closed.
     *
     * @param connection the connection
     * @param request the request
     */
    record AskedNoMore(MessengerConnection connection, Request request) implements MessengerEvent {}

    /**
     * A send has ended: exactly once for each that was started with a context.
     *
     * @param connection the connection
     * @param context as given to it
     * @param status how it ended
     */
    record Sent(MessengerConnection connection, long context, Status status) implements MessengerEvent {}

    /**
     * Somebody wants to connect.
     *
     * @param request to be accepted or rejected
     */
    record Requested(MessengerConnectionRequest request) implements MessengerEvent {}

    /**
     * An accepted connection is open.
     *
     * @param connection the connection
     */
    record Accepted(MessengerConnection connection) implements MessengerEvent {}

    /**
     * An accepted connection could not be opened.
     *
     * @param status what it is
     * @param reason the same in words
     */
    record AcceptFailed(Status status, String reason) implements MessengerEvent {}

    /**
     * A peer was silent for longer than the keepalive time. The connection stays.
     *
     * @param connection the connection
     */
    record Silent(MessengerConnection connection) implements MessengerEvent {}

    /**
     * A connection has ended that this program has not closed, behind the ends of everything that was under way on it.
     *
     * @param connection the connection, closed
     * @param reason why
     */
    record Disconnected(MessengerConnection connection, DisconnectReason reason) implements MessengerEvent {}

    /** The device failed: everything ends with errors. Close the messenger. */
    record DeviceFailed() implements MessengerEvent {}
}
