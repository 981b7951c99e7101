package org.cci;

/** What {@link Endpoint#poll(int, EventHandler)} calls with each event. It may use everything, the endpoint included. */
public interface EventHandler {
    /**
     * A message came.
     *
     * @param connection the connection that it came on
     * @param message lent for this call; {@link Message#keep()} makes it the program's
     */
    void onMessage(Connection connection, Message message);

    /**
     * A send, or an operation on remote memory, has ended.
     *
     * @param connection the connection that it was started on
     * @param context as given to it
     * @param status how it ended
     */
    default void onSent(Connection connection, long context, Status status) {}

    /**
     * Something else happened. Unless it is overridden, it closes what needs an answer: requests are rejected.
     *
     * @param event neither {@link Event.Received} nor {@link Event.Sent}
     */
    default void onEvent(Event event) {
        if (event instanceof Event.Requested requested) {
            requested.request().close();
        }
    }
}
