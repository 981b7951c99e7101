/*
 * cci_messenger.h: messages of any length, and request and reply, over CCI.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A messenger is an endpoint whose connections carry messages of any length, and calls. Its peers are messengers, too, in C or in
 * another language. It owns its endpoint: the calls of cci.h that take an endpoint, a connection or an event do not take those of a
 * messenger.
 *
 *   1. cci_init() finds the devices; cci_messenger_open() opens a messenger on one of them.
 *   2. cci_messenger_connect() and cci_messenger_accept() make connections.
 *   3. cci_messenger_send() starts to send a message. cci_messenger_call() sends a request, and cci_messenger_reply() answers one.
 *   4. cci_messenger_get_event() gives the next event, and cci_messenger_return_event() gives it back, with what it shows.
 *
 * Nothing blocks except cci_messenger_wait_event(), and cci_messenger_close() and the last cci_finalize() for a second at most for each
 * messenger. What cci.h says of return values, pointers and threads holds here. A call that fails has changed nothing and will raise
 * no event, unless its description says otherwise; cci_last_error() says what was wrong.
 *
 * NUMBERS. Connections, sends, calls and offers are numbers, never 0, which mean something to their messenger only. The number of
 * something that has ended is refused; it is not used again.
 */
#ifndef CCI_MESSENGER_H
#define CCI_MESSENGER_H

#include "cci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A messenger. */
typedef struct cci_messenger cci_messenger_t;

/* A connection of a messenger. */
typedef uint64_t cci_messenger_connection_t;

/* How an operation of a messenger ended, beside the values of cci_status_t. They are not enumerators of cci_status_t, so that compilers do
 * not warn of missing cases in older programs. */
enum {
    /* It was taken back: by this side, or, of an offer, by the sender. */
    CCI_EXT_CANCELLED = ECANCELED,
    /* The receiver's program refused the message; the event's code is its own. */
    CCI_EXT_REFUSED = 1000,
    /* The server's program answered with an error: a code, and bytes that say more. */
    CCI_EXT_REPLY_ERROR = 1001,
    /* The server's program returned the request without answering it. */
    CCI_EXT_DROPPED = 1002,
    /* The server has answered, and the answer could not be delivered. */
    CCI_EXT_REPLY_LOST = 1003
};

/* ------------------------------------------------------------------------------------------ opening and closing --- */

/* What a messenger accepts and holds at most. Set size, clear all other fields, then set those that should differ: 0 is the default. */
typedef struct cci_messenger_limits {
    /* sizeof(cci_messenger_limits_t). */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* The longest message that comes whole, bytes: 1 MiB. Longer ones are offered first (CCI_MESSENGER_OFFER). With 1, every message
     * that does not fit into one of the endpoint's is offered. No more than lent_bytes_max. */
    uint64_t whole_bytes_max;
    /* The longest message that is taken at all, bytes: 1 TiB. Longer ones are refused without asking the program. */
    uint64_t message_bytes_max;
    /* Cap on the memory that the library lends for long messages, bytes: 64 MiB. When it is reached, messages wait until the program
     * returns some. While the incoming messages of one connection hold more of it than they leave, further ones of that connection wait. */
    uint64_t lent_bytes_max;
    /* Cap on copies of long messages that are being sent, bytes: 64 MiB. When it is reached, sends give CCI_ENOBUFS. */
    uint64_t staged_bytes_max;
} cci_messenger_limits_t;

/*
 * Opens a messenger.
 *
 *   device      from cci_get_devices(); NULL: as for cci_create_endpoint()
 *   service     as for cci_create_endpoint_at(); NULL: an address that the library chooses
 *   options     as for cci_create_endpoint_with(), without a progress thread; NULL: the defaults
 *   limits      what it takes; NULL: the defaults
 *   messenger   out: the messenger
 *   fd          out: a descriptor that is readable whenever cci_messenger_get_event() may have something, for poll(), epoll or libuv.
 *               It belongs to the messenger: do not read from it or close it. It is level-triggered and needs no arming. It may be
 *               readable although nothing is there, and stops being so once cci_messenger_get_event() has returned CCI_EAGAIN.
 *               NULL: the program does not want it
 *
 * Errors: those of cci_create_endpoint_with(); CCI_EINVAL also if messenger is NULL, or the limits do not fit each other.
 */
int cci_messenger_open(cci_device_t *device, const char *service, const cci_endpoint_options_t *options,
                       const cci_messenger_limits_t *limits, cci_messenger_t **messenger, cci_os_handle_t *fd);

/*
 * Closes a messenger, and its connections. Short messages that were sent before are still delivered, for a second at most, which is the
 * longest this call takes; long ones are cut off. Events that the program still has may be read and returned, but not answered.
 *
 * Errors: CCI_EINVAL (NULL, or not an open messenger).
 */
int cci_messenger_close(cci_messenger_t *messenger);

/*
 * Gives the URI that others connect to.
 *
 *   uri   out: the caller frees it with free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_ENOMEM.
 */
int cci_messenger_uri(cci_messenger_t *messenger, char **uri);

/* -------------------------------------------------------------------------------------------------------- events --- */

/* The kinds of events, and which fields are valid beside type. Those not named are 0. */
typedef enum cci_messenger_event_type {
    /* A send has ended: exactly once for each, unless CCI_FLAG_SILENT. status; connection; context. CCI_SUCCESS: the peer's library has
     * all of the message (on an unreliable connection: it has left). CCI_EXT_REFUSED: with the code. CCI_EMSGSIZE: len is the longest
     * that the peer takes. CCI_EXT_CANCELLED. CCI_ERR_RMA_HANDLE: the peer could not read the memory. Otherwise as for cci_send(). */
    CCI_MESSENGER_SENT = 1,
    /* A message came, whole. connection; ptr, 8-byte aligned, and len; context is the connection's. */
    CCI_MESSENGER_MESSAGE = 2,
    /* A peer wants to send a message that is longer than whole_bytes_max. id; len; connection; context is the connection's. The
     * program receives it, refuses it, or leaves it for later. The event may be returned meanwhile. Until the message has ended, what
     * comes behind it on an RO connection waits. */
    CCI_MESSENGER_OFFER = 3,
    /* An offered message has ended: exactly once for each that the program has not refused, except those that end in
     * CCI_MESSENGER_MESSAGE. id; len; status; connection; context as given to cci_messenger_receive_into(). CCI_SUCCESS: all of it is in the
     * program's memory. CCI_EXT_CANCELLED: the sender has taken it back. CCI_ERR_DISCONNECTED; or as for cci_rma(). */
    CCI_MESSENGER_RECEIVED = 4,
    /* A client asks; answer once. id; ptr and len; connection; context is the connection's. */
    CCI_MESSENGER_REQUEST = 5,
    /* A client does not wait any more for the answer to a request that was not answered. id; connection; context is the
     * connection's. The request's event is still to be returned. */
    CCI_MESSENGER_REQUEST_CANCELLED = 6,
    /* A call has ended: exactly once for each. status; connection; context. CCI_SUCCESS: ptr and len are the reply.
     * CCI_EXT_REPLY_ERROR: code, ptr and len are the server program's. CCI_EXT_DROPPED; CCI_EXT_REPLY_LOST; CCI_ETIMEDOUT: no reply
     * before the deadline; CCI_EXT_CANCELLED; CCI_ENOMEM: the reply has len bytes, more than is taken; CCI_ERR_DISCONNECTED. If
     * not_sent is not 0, the server has not seen the request, and status is as for CCI_MESSENGER_SENT. Otherwise, and unless it has
     * answered, it may have done what was asked. */
    CCI_MESSENGER_REPLY = 7,
    /* An attempt to connect has ended: exactly once for each. status as in cci_event_connect; context; connection, if success. */
    CCI_MESSENGER_CONNECT = 8,
    /* Somebody wants to connect: accept or reject, then return the event. ptr and len are the payload; code is the
     * cci_conn_attribute_t. */
    CCI_MESSENGER_CONNECT_REQUEST = 9,
    /* An accepted connection is open, or failed: exactly once for each. status; context; connection, if success. */
    CCI_MESSENGER_ACCEPT = 10,
    /* A peer was silent for longer than the keepalive time. connection; context is the connection's. */
    CCI_MESSENGER_KEEPALIVE_TIMEDOUT = 11,
    /* A connection has ended that this program has not disconnected; it comes after the ends of everything that was in progress on it: exactly
     * once for each. connection; context is the connection's; code is a cci_ext_disconnect_reason_t. Nothing need be done. */
    CCI_MESSENGER_DISCONNECTED = 12,
    /* The device failed: everything ends with errors. Close the messenger. */
    CCI_MESSENGER_DEVICE_FAILED = 13
} cci_messenger_event_type_t;

/* An event. */
typedef const struct cci_messenger_event {
    cci_messenger_event_type_t type;
    /* How an operation ended: a cci_status_t, or one of CCI_EXT_... above. */
    int status;
    cci_messenger_connection_t connection;
    /* As given to the operation; or to cci_messenger_connect() or cci_messenger_accept(), where it is the connection's. */
    void *context;
    /* Bytes that may be read until the event is returned; NULL if there are none. */
    const void *ptr;
    /* A length in bytes. */
    uint64_t len;
    /* The number of an offer; or of a request, of which those of one connection that are not answered have different ones. */
    uint64_t id;
    uint32_t code;
    uint32_t not_sent;
} cci_messenger_event_t;

/*
 * Takes the next event, if there is one; never blocks. The messenger makes progress inside its calls.
 *
 *   event   out: the event; NULL if there is none, and if the call fails
 *
 * Errors: CCI_EAGAIN (no event), CCI_ENOBUFS (no event, and the program has every receive buffer: return some events; or it has more
 * events than the endpoint has buffers), CCI_EINVAL (NULL).
 */
int cci_messenger_get_event(cci_messenger_t *messenger, cci_messenger_event_t **event);

/*
 * Waits for the next event. Other threads can use the messenger meanwhile.
 *
 *   timeout   how long to wait; NULL: for ever
 *   event     out: the event; NULL if the call fails
 *
 * Errors: CCI_EAGAIN or CCI_ENOBUFS (none came in time), CCI_EINVAL (NULL, or a bad timeout), CCI_ERROR (the system refuses to wait).
 */
int cci_messenger_wait_event(cci_messenger_t *messenger, const struct timeval *timeout, cci_messenger_event_t **event);

/*
 * Returns an event, and the memory of what it shows: a short message holds a receive buffer, a long one counts against lent_bytes_max.
 * Events may be kept, and returned in any order and by any thread, even after their messenger was closed. A request that was not
 * answered is dropped, and its client is notified; a connection request that was not answered is rejected.
 *
 * Errors: CCI_EINVAL (NULL, or returned already), CCI_EBUSY (another thread is answering it).
 */
int cci_messenger_return_event(cci_messenger_event_t *event);

/* --------------------------------------------------------------------------------------------------- connections --- */

/*
 * Starts connecting to another messenger; never blocks. The attempt ends in one CCI_MESSENGER_CONNECT with this context. An endpoint that
 * is no messenger may accept, but does not understand what is sent then.
 *
 *   data_ptr, data_len   payload, shown to the peer's program with the request; 1,016 bytes at most
 *   attribute            RO, RU or UU. Long messages and calls need a reliable connection (RO or RU)
 *   timeout              how long to try; NULL: for ever
 *
 * Errors: as cci_connect(); CCI_ERR_NOT_IMPLEMENTED for multicast groups.
 */
int cci_messenger_connect(cci_messenger_t *messenger, const char *server_uri, const void *data_ptr, uint32_t data_len,
                          cci_conn_attribute_t attribute, const void *context, const struct timeval *timeout);

/*
 * Accepts a connection request, on this messenger: the one that it came to, or another one of the same kind of device. This ends in
 * one CCI_MESSENGER_ACCEPT with this context, there. The program must still return the request's event.
 *
 * Errors: as cci_accept_on().
 */
int cci_messenger_accept(cci_messenger_t *messenger, cci_messenger_event_t *conn_req, const void *context);

/*
 * Rejects a connection request that came to this messenger: the peer's attempt ends with CCI_ECONNREFUSED. The program must still
 * return the event.
 *
 * Errors: CCI_EINVAL (NULL, not a connection request, or one that was answered already).
 */
int cci_messenger_reject(cci_messenger_t *messenger, cci_messenger_event_t *conn_req);

/*
 * Closes a connection from this side; never blocks. Short messages that were sent before are still delivered, or fail. Long ones that
 * are in progress, in either direction, end with CCI_ERR_DISCONNECTED, as calls do, and messages that waited behind them are dropped:
 * wait for their ends first. There is no CCI_MESSENGER_DISCONNECTED for it.
 *
 * Errors: CCI_EINVAL (NULL, closed already, or no connection of this messenger).
 */
int cci_messenger_disconnect(cci_messenger_t *messenger, cci_messenger_connection_t connection);

/* ------------------------------------------------------------------------------------------------------ messages --- */

/*
 * Allocates memory of the library: zeroed, aligned to a page, in huge pages where the system has them. Long messages that are sent from it
 * with CCI_FLAG_NO_COPY are read by peers on the same host with a plain copy, and what such a peer has read once it can look at until
 * the connection ends. Messages can be received into it, too. Any messenger or endpoint of this process may use it. It lives until
 * cci_messenger_free(), or until the messenger is closed.
 *
 *   length   bytes, not 0; rounded up to whole pages
 *   start    out: the memory
 *
 * Errors: CCI_EINVAL (NULL, or length 0), CCI_ENOMEM, and errors of the system.
 */
int cci_messenger_alloc(cci_messenger_t *messenger, uint64_t length, void **start);

/*
 * Frees memory from cci_messenger_alloc(). Messages that are being sent from there still arrive: the program may free it as soon as it
 * has sent them.
 *
 *   messenger   the one that it came from
 *   start       as cci_messenger_alloc() gave it
 *
 * Errors: CCI_EINVAL (NULL, or not the start of memory of this messenger), CCI_EBUSY (some of it is registered with an endpoint).
 */
int cci_messenger_free(cci_messenger_t *messenger, void *start);

/*
 * Sends a message of any length; never blocks. The send ends in one CCI_MESSENGER_SENT with this context, unless CCI_FLAG_SILENT.
 *
 *   ptr, len   the message; copied before the call returns, unless CCI_FLAG_NO_COPY
 *   flags      CCI_FLAG_NO_COPY: the memory stays as it is until the send has ended, and long messages are fetched from it. CCI_FLAG_SILENT:
 *              no event; not together with CCI_FLAG_NO_COPY, since nothing would show when the memory is free
 *   send       out: the number of the send, for cci_messenger_cancel(); 0 for a short message, which can't be cancelled. NULL: not wanted
 *
 * Errors: CCI_ENOBUFS (the limit of sends, of long messages in progress, or of messages behind a long one is reached, or the memory for
 * copies is used up: get events, then try again), CCI_EMSGSIZE (longer than the connection takes: an unreliable one takes what fits
 * one message of the endpoint, and a message that is copied must fit staged_bytes_max), CCI_ERR_DISCONNECTED (the connection has ended, or is
 * none of this messenger), CCI_EINVAL (NULL, unknown flags, or memory that is not mapped), CCI_ENOMEM.
 */
int cci_messenger_send(cci_messenger_t *messenger, cci_messenger_connection_t connection, const void *ptr, uint64_t len,
                       const void *context, int flags, uint64_t *send);

/*
 * Sends a message that is gathered from iovcnt segments (1024 at most; more than 16 cost an allocation). With CCI_FLAG_NO_COPY up to 4
 * segments are fetched from where they are; more are copied. All else is as in cci_messenger_send().
 */
int cci_messenger_sendv(cci_messenger_t *messenger, cci_messenger_connection_t connection, const struct iovec *data,
                        uint32_t iovcnt, const void *context, int flags, uint64_t *send);

/*
 * Takes a long message back. Its memory is the program's again at once. The send still ends in one CCI_MESSENGER_SENT: with
 * CCI_EXT_CANCELLED, or with success if the receiver had all of it before.
 *
 * Errors: CCI_EINVAL (NULL; or it has ended, was cancelled before, or is a short message).
 */
int cci_messenger_cancel(cci_messenger_t *messenger, uint64_t send);

/* How much of a long message is at its receiver. */
typedef struct cci_messenger_progress {
    /* Bytes that have been moved. At the sender: as many as the receiver has last said, which it does every few MiB. */
    uint64_t moved_bytes;
    /* The length of the message in bytes. */
    uint64_t total_bytes;
} cci_messenger_progress_t;

/*
 * Says how much of a long message its receiver has.
 *
 * Errors: CCI_EINVAL (NULL; or the send has ended, or is of a short message).
 */
int cci_messenger_send_progress(cci_messenger_t *messenger, uint64_t send, cci_messenger_progress_t *progress);

/*
 * Accepts an offer into memory that the library lends, as soon as lent_bytes_max allows. It ends in one CCI_MESSENGER_MESSAGE, or in a
 * CCI_MESSENGER_RECEIVED that says why not.
 *
 *   offer   the id of the CCI_MESSENGER_OFFER
 *
 * Errors: CCI_EINVAL (NULL; or the offer has ended, or is being received already), CCI_EMSGSIZE (longer than may be lent).
 */
int cci_messenger_receive(cci_messenger_t *messenger, uint64_t offer);

/*
 * Accepts an offer into memory of the program, which it must leave alone until the CCI_MESSENGER_RECEIVED with this context.
 *
 *   ptr, len   the memory, at least as long as the message
 *
 * Errors: CCI_EINVAL (NULL; the memory is not mapped or can't be written; or the offer has ended, or is being received already),
 * CCI_EMSGSIZE (the message is longer than the memory), CCI_ENOMEM. An offer that has not ended can be accepted again.
 */
int cci_messenger_receive_into(cci_messenger_t *messenger, uint64_t offer, void *ptr, uint64_t len, const void *context);

/*
 * Refuses an offer, or stops receiving the message. The sender learns the code, and no event comes here. The memory that it was to be
 * received into is the program's again at once.
 *
 * Errors: CCI_EINVAL (NULL, or the offer has ended).
 */
int cci_messenger_refuse(cci_messenger_t *messenger, uint64_t offer, uint32_t code);

/*
 * Says how much of an offered message is here.
 *
 * Errors: CCI_EINVAL (NULL, or the offer has ended).
 */
int cci_messenger_receive_progress(cci_messenger_t *messenger, uint64_t offer, cci_messenger_progress_t *progress);

/* --------------------------------------------------------------------------------------------- request and reply --- */

/*
 * Sends a request to the peer; never blocks. The call ends in one CCI_MESSENGER_REPLY with this context: when the reply is here, when the timeout has
 * passed, or when it is known that there will be none. Replies come in any order. A request reaches the server once at most.
 *
 *   ptr, len   the request, copied before the call returns; as long as the peer's whole_bytes_max at most
 *   timeout    how long to wait for the reply; NULL: for ever
 *   call       out: the number of the call, for cci_messenger_cancel_call(). NULL: not wanted
 *
 * Errors: as cci_messenger_send(); CCI_ENOBUFS also if 256 calls on this connection have not been answered; CCI_EINVAL also for a bad
 * timeout, and if the connection is not reliable.
 */
int cci_messenger_call(cci_messenger_t *messenger, cci_messenger_connection_t connection, const void *ptr, uint64_t len,
                       const struct timeval *timeout, const void *context, uint64_t *call);

/*
 * Sends a request that is gathered from iovcnt segments, as cci_messenger_sendv() gathers a message.
 *
 *   flags   CCI_FLAG_NO_COPY: the memory stays as it is until the call has ended, and long requests are fetched from it
 *
 * All else is as in cci_messenger_call().
 */
int cci_messenger_callv(cci_messenger_t *messenger, cci_messenger_connection_t connection, const struct iovec *data,
                        uint32_t iovcnt, const struct timeval *timeout, const void *context, int flags, uint64_t *call);

/*
 * Gives a call up, which ends with CCI_EXT_CANCELLED. The server's program is notified if it has the request.
 *
 * Errors: CCI_EINVAL (NULL, or the call has ended).
 */
int cci_messenger_cancel_call(cci_messenger_t *messenger, uint64_t call);

/*
 * Answers a request, once, in any order and on any thread. No event comes. The event can still be read, and must be returned.
 *
 *   messenger   the one that the request came to
 *   request     a CCI_MESSENGER_REQUEST that was not answered yet
 *   ptr, len    the reply, copied before the call returns; as long as half of the client's lent_bytes_max at most, or its
 *               whole_bytes_max, if that is more
 *
 * Errors: CCI_ENOBUFS (get events, then try again), CCI_EMSGSIZE (longer than staged_bytes_max), CCI_ENOMEM: the request can be
 * answered again. CCI_ERR_DISCONNECTED: nobody waits for the answer any more. CCI_EINVAL (NULL, not a request, answered already, or
 * of another messenger).
 */
int cci_messenger_reply(cci_messenger_t *messenger, cci_messenger_event_t *request, const void *ptr, uint64_t len);

/*
 * Answers a request with a reply that is gathered from iovcnt segments (1024 at most) and copied. All else is as in
 * cci_messenger_reply().
 */
int cci_messenger_replyv(cci_messenger_t *messenger, cci_messenger_event_t *request, const struct iovec *data, uint32_t iovcnt);

/*
 * Answers a request with an error of the program's own: a code, and bytes that say more. All else is as in cci_messenger_reply().
 */
int cci_messenger_reply_error(cci_messenger_t *messenger, cci_messenger_event_t *request, uint32_t code, const void *ptr,
                              uint64_t len);

/* --------------------------------------------------------------------------------------------------- diagnostics --- */

/*
 * Says, in lines for people, which path a connection takes, and what holds it up now, as cci_explain() does.
 * A connection that was closed from this side is shown until what was sent before is delivered.
 *
 *   text   out: the lines; the caller frees them with free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_ERR_DISCONNECTED (the connection has ended, or is none of this messenger), CCI_ENOMEM.
 */
int cci_messenger_explain(cci_messenger_t *messenger, cci_messenger_connection_t connection, char **text);

/*
 * Gives counters as one JSON object. With connection 0: those of the messenger's endpoint, as cci_get_counters() does, and in a
 * member "messenger" its own: long messages by how they ended (long_sent, long_received, long_failed), silent sends that failed
 * (silent_failed), peers that broke the protocol (faults), what came for messages that had ended (late), connection requests
 * of endpoints without a messenger (strangers), and memory (lent_bytes, staged_bytes; idle_lent_bytes and idle_staged_bytes: kept for later;
 * kept_regions). Otherwise those of the connection.
 *
 *   json   out: the object; the caller frees it with free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_ERR_DISCONNECTED (the connection has ended, or is none of this messenger), CCI_ENOMEM.
 */
int cci_messenger_get_counters(cci_messenger_t *messenger, cci_messenger_connection_t connection, char **json);

#ifdef __cplusplus
}
#endif

#endif /* CCI_MESSENGER_H */
