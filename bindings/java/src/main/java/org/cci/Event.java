package org.cci;

/** What happened on an endpoint. */
public sealed interface Event {
    /**
     * A message came. The message is the program's until it closes it.
     *
     * @param connection the connection that it came on
     * @param message the message, to be closed
     */
    record Received(Connection connection, Message message) implements Event {}

    /**
     * A send, or an operation on remote memory, has ended: exactly once for each that was started with a context.
     *
     * @param connection the connection that it was started on
     * @param context as given to it
     * @param status how it ended
     */
    record Sent(Connection connection, long context, Status status) implements Event {}

    /**
     * An attempt to connect has succeeded: the connection is open.
     *
     * @param connection as {@link Endpoint#startConnecting} gave it
     */
    record Connected(Connection connection) implements Event {}

    /**
     * An attempt to connect has failed.
     *
     * @param connection as {@link Endpoint#startConnecting} gave it, closed
     * @param status what it is
     * @param reason the same in words
     */
    record ConnectFailed(Connection connection, Status status, String reason) implements Event {}

    /**
     * Somebody wants to connect.
     *
     * @param request to be accepted or rejected
     */
    record Requested(ConnectionRequest request) implements Event {}

    /**
     * An accepted connection is open.
     *
     * @param connection as {@link ConnectionRequest#accept()} gave it
     */
    record Accepted(Connection connection) implements Event {}

    /**
     * An accepted connection could not be opened.
     *
     * @param connection as {@link ConnectionRequest#accept()} gave it, closed
     * @param status what it is
     * @param reason the same in words
     */
    record AcceptFailed(Connection connection, Status status, String reason) implements Event {}

    /**
     * A peer was silent for longer than the keepalive time. It comes once; keepalive is off then, and the connection stays.
     *
     * @param connection the connection
     */
    record Silent(Connection connection) implements Event {}

    /**
     * A connection has ended that this program has not closed. It comes once, behind the last message and the last completion.
     * Nothing need be done.
     *
     * @param connection the connection, closed
     * @param reason why
     */
    record Disconnected(Connection connection, DisconnectReason reason) implements Event {}

    /** The device failed: everything on the endpoint ends with errors. Close it. */
    record DeviceFailed() implements Event {}
}
