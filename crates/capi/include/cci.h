/*
 * cci.h: the Common Communication Interface, version 2 of its C interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * CCI moves messages and memory between processes over whatever connects them: shared memory on one host; UDP, TCP and
 * raw Ethernet between hosts.
 *
 *   1. cci_init() finds the devices of the machine.
 *   2. cci_create_endpoint() opens an endpoint on one of them. The endpoint owns every buffer, queue and descriptor.
 *   3. cci_connect() and cci_accept() make connections between endpoints. A connection holds no buffers.
 *   4. cci_send() starts a send. cci_get_event() gives the next event: a message came, a send ended, somebody wants
 *      to connect. cci_return_event() returns an event, with the message in it.
 *   5. cci_rma_register() lets peers read and write memory of this process by cci_rma().
 *
 * Nothing blocks except cci_send() and its relatives with CCI_FLAG_BLOCKING, cci_wait_event(), cci_resolve(),
 * cci_destroy_endpoint() and the last cci_finalize() (for a second at most for each endpoint), and cci_rma_deregister() if a
 * process was stopped in the middle of a copy (for 0.1 s at most for each). The library installs no signal handler, prints
 * nothing, and starts no thread unless it is asked for one (cci_create_endpoint_with). An endpoint makes progress inside the
 * calls that name it, or one of its connections or events.
 *
 * RETURN VALUES. Every call that returns an int returns CCI_SUCCESS (0) or another value of enum cci_status.
 * A call that fails has changed nothing and will raise no event, unless its description says otherwise.
 * cci_last_error() says in words what was wrong.
 *
 * POINTERS given by the library are read-only and belong to it. Handles must be valid. NULL is answered with
 * CCI_EINVAL; a handle that was destroyed, disconnected or returned before must not be used.
 *
 * THREADS. Any thread may call anything at any time, with one exception that the program must ensure: a handle must not
 * be destroyed (cci_destroy_endpoint, the last cci_finalize, cci_disconnect, cci_return_event) while another thread is
 * in a call that uses it. A library initialised with CCI_INIT_SINGLE_THREADED takes no locks: each endpoint, with
 * its connections and events, is then used by one thread at a time.
 */
#ifndef CCI_H
#define CCI_H

#include <stdio.h>
#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/time.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define CCI_INLINE static inline
#elif defined(__GNUC__)
#define CCI_INLINE static __inline__
#else
#define CCI_INLINE static
#endif

/* ------------------------------------------------------------------------------------------------ the library --- */

/* Version of this interface, for cci_init(). */
#define CCI_ABI_VERSION 2

/* How a call, or an operation, ended. */
typedef enum cci_status {
    CCI_SUCCESS = 0,
    /* Something failed for which there is no better value; cci_last_error() says what. */
    CCI_ERROR = 1,
    /* The connection is closed: by this side, by the peer, or because the peer died. */
    CCI_ERR_DISCONNECTED = 2,
    /* The receiver had no buffer until the send timed out. The message was not delivered. */
    CCI_ERR_RNR = 3,
    /* The device failed. */
    CCI_ERR_DEVICE_DEAD = 4,
    /* The peer refused the RMA handle, the range, or the permission. What it refused was not touched. */
    CCI_ERR_RMA_HANDLE = 5,
    /* The peer could not do the operation: an atomic on an address that is not aligned to its width. */
    CCI_ERR_RMA_OP = 6,
    /* Not offered by this library, or not by this device. */
    CCI_ERR_NOT_IMPLEMENTED = 7,
    /* No device, no host of that name, or no proved name was found. */
    CCI_ERR_NOT_FOUND = 8,

    /* The following values equal their errno. */
    /* A wrong argument. */
    CCI_EINVAL = EINVAL,
    /* The peer was silent for too long, or did not take the send in time. Whether the message of such a send arrived, or
     * the remote operation was carried out, is not known. */
    CCI_ETIMEDOUT = ETIMEDOUT,
    /* Out of memory, or at the endpoint's memory cap. */
    CCI_ENOMEM = ENOMEM,
    /* The device is down or gone. */
    CCI_ENODEV = ENODEV,
    /* The network is down. */
    CCI_ENETDOWN = ENETDOWN,
    /* The object is in use. */
    CCI_EBUSY = EBUSY,
    /* The value is out of its range. */
    CCI_ERANGE = ERANGE,
    /* Nothing is there now; try again. */
    CCI_EAGAIN = EAGAIN,
    /* No buffer is free now. */
    CCI_ENOBUFS = ENOBUFS,
    /* The message is longer than the connection's max_send_size. */
    CCI_EMSGSIZE = EMSGSIZE,
    /* There is no message. */
    CCI_ENOMSG = ENOMSG,
    /* The service is taken, or the address is not of this machine. */
    CCI_EADDRNOTAVAIL = EADDRNOTAVAIL,
    /* The request was rejected, or nobody listens there. */
    CCI_ECONNREFUSED = ECONNREFUSED
} cci_status_t;

/*
 * Initialises the library. The first call reads the configuration file named by the environment variable CCI_CONFIG,
 * or finds the devices of the machine if there is none. Later calls with these arguments only count, and each is
 * matched by a cci_finalize().
 *
 *   abi_ver   CCI_ABI_VERSION
 *   flags     0, or CCI_INIT_SINGLE_THREADED (an extension)
 *   caps      out: the library's capabilities, a combination of CCI_CAP_...
 *
 * Errors: CCI_EINVAL (caps is NULL, wrong version, unknown flags, or flags other than at the first call),
 * CCI_ERR_NOT_FOUND (no device at all), CCI_ERROR (the configuration can't be read, has an unknown key or a
 * value out of range; cci_last_error() names the file, the line and, for a mistyped key, the nearest one).
 */
int cci_init(uint32_t abi_ver, uint32_t flags, uint32_t *caps);

/*
 * Ends one cci_init(). The one that matches the first call destroys the endpoints that are still open, as
 * cci_destroy_endpoint() would; devices, endpoints and connections are gone after it. (Events that the program still
 * has may still be read and returned.)
 *
 * Errors: CCI_ERROR if the library is not initialised.
 */
int cci_finalize(void);

/* -------------------------------------------------------------------------------------------------- devices --- */

/* A device: shared memory, a network interface (or two that are bonded), or several of these in one ("any"). */
typedef const struct cci_device {
    /* The section of the configuration file, or a name such as "shm" or "udp-eth0". */
    const char *name;
    /* What drives it: "shm", "udp", "tcp", "eth" or "any". */
    const char *transport;
    /* Not 0 when it can be used now. */
    unsigned up;
    /* A line for people. */
    const char *info;
    /* Its configuration: "key=value" strings, then NULL. */
    const char * const *conf_argv;
    /* The longest message, bytes: 8192 at most. A connection takes the smaller of its two sides'. */
    uint32_t max_send_size;
    /* Bits per second; 0 when unknown. */
    uint64_t rate;
    /* Its address on the PCI bus; all (uint32_t) -1 if it has none. */
    struct {
        uint32_t domain;
        uint32_t bus;
        uint32_t dev;
        uint32_t func;
    } pci;
} cci_device_t;

/*
 * Gives the devices, by priority, the highest first, and NULL at the end. The list and the devices stay until the
 * last cci_finalize(). A later call may give more devices, never fewer.
 *
 *   devices   out: the list
 *
 * Errors: CCI_EINVAL (devices is NULL), CCI_ERROR (not initialised).
 */
int cci_get_devices(cci_device_t * const **devices);

/* ------------------------------------------------------------------------------------------------ endpoints --- */

/* An endpoint: a virtual instance of one device, with its own buffers, queues and connections. */
typedef const struct cci_endpoint {
    /* The device that it was opened on. */
    cci_device_t *device;
} cci_endpoint_t;

/* What an endpoint gives to poll(), select() or epoll: a file descriptor. */
typedef int cci_os_handle_t;

/*
 * Opens an endpoint at an address that the library chooses; see CCI_OPT_ENDPT_URI.
 *
 *   device     from cci_get_devices(); NULL: the default device, which is the one marked so in the configuration,
 *              or the first that is up. An endpoint that is opened with NULL connects to every URI that any of the devices
 *              leads to ("shm://...", "udp://...", "tcp://...", "eth://...", "any://..."). It listens where the default
 *              device does and nowhere else: a device that it dials gets its socket at that moment, and that socket
 *              admits nobody else
 *   flags      0
 *   endpoint   out: the endpoint
 *   fd         out: a descriptor that is readable whenever cci_get_event() may have something. It belongs to the
 *              endpoint: do not read from it or close it. It is level-triggered and needs no arming. It may be readable
 *              although nothing is there, and stops being so once cci_get_event() has returned CCI_EAGAIN. NULL: the
 *              program will only poll, which saves a system call when the endpoint goes idle.
 *
 * Errors: CCI_EINVAL (endpoint is NULL, or device is not one), CCI_ENODEV (the device is down), CCI_ENOMEM,
 * CCI_ERROR (not initialised), and errors of the system.
 */
int cci_create_endpoint(cci_device_t *device, int flags, cci_endpoint_t **endpoint, cci_os_handle_t *fd);

/*
 * Opens an endpoint at a service. A number from 1 to 65535, in a string, works on every device: it is the port on UDP and
 * TCP, the endpoint's number on Ethernet, and the name on shared memory. Shared memory also takes another name, or an
 * absolute path. On a device "any" a number is the port of UDP and TCP, and anything else is for shared memory. A name or an
 * address of this host ("localhost"), as some programs pass, stands for any port or name. All else is as in
 * cci_create_endpoint().
 *
 * Errors: those of cci_create_endpoint(), CCI_EINVAL (service is NULL or can't be understood), CCI_EADDRNOTAVAIL (somebody else
 * listens there).
 */
int cci_create_endpoint_at(cci_device_t *device, const char *service, int flags, cci_endpoint_t **endpoint,
                           cci_os_handle_t *fd);

/*
 * Ends an endpoint, as if every connection were disconnected: messages sent before are still delivered, for a second
 * at most, which is the longest this call takes. Endpoint, descriptor and connections are gone afterwards. Events that
 * the program still has may be read and returned, but not answered.
 *
 * Errors: CCI_EINVAL (NULL, or not an open endpoint).
 */
int cci_destroy_endpoint(cci_endpoint_t *endpoint);

/* ---------------------------------------------------------------------------------------------- connections --- */

/* Longest payload of a connection request, bytes. */
#define CCI_CONN_REQ_LEN (1024)

/* What a connection promises. */
typedef enum cci_conn_attribute {
    /* Reliable and ordered: each message arrives once, in order; completions come in order. */
    CCI_CONN_ATTR_RO,
    /* Reliable, unordered: each message arrives once, in any order. */
    CCI_CONN_ATTR_RU,
    /* Unreliable, unordered: a message may be lost. */
    CCI_CONN_ATTR_UU,
    /* Unreliable, to every member of a multicast group: sends and receives nothing. See cci_connect(). */
    CCI_CONN_ATTR_UU_MC_TX,
    /* Unreliable, from every sender to a multicast group: receives and sends nothing. See cci_connect(). */
    CCI_CONN_ATTR_UU_MC_RX
} cci_conn_attribute_t;

/*
 * A connection. Its address stays as long as it lives: use it as a key if you like. After cci_disconnect() it must not
 * be given to any call, but completions of earlier sends may still point to it: the memory stays readable until the
 * endpoint is destroyed, and is reused only by a later connection of the same endpoint.
 */
typedef const struct cci_connection {
    /* The longest message, bytes: the smaller of the two sides'. */
    uint32_t max_send_size;
    /* The endpoint that it belongs to. */
    cci_endpoint_t *endpoint;
    /* What it promises. */
    cci_conn_attribute_t attribute;
    /* As given to cci_connect() or cci_accept(). */
    void *context;
} cci_connection_t;

/* -------------------------------------------------------------------------------------------------- events --- */

/* The kinds of events. */
typedef enum cci_event_type {
    /* Never given out. */
    CCI_EVENT_NONE,
    /* A send, or an RMA, ended: exactly once for each that was started, unless CCI_FLAG_SILENT or BLOCKING. */
    CCI_EVENT_SEND,
    /* A message came. */
    CCI_EVENT_RECV,
    /* An attempt to connect ended: exactly once for each cci_connect() that succeeded. */
    CCI_EVENT_CONNECT,
    /* Somebody wants to connect: answer with cci_accept() or cci_reject(), then return the event. */
    CCI_EVENT_CONNECT_REQUEST,
    /* An accepted connection is open, or failed: exactly once for each cci_accept() that succeeded. */
    CCI_EVENT_ACCEPT,
    /* A peer was silent for longer than the keepalive time (CCI_OPT_CONN_KEEPALIVE_TIMEOUT). It is raised once; keepalive is
     * off then, and the connection stays. */
    CCI_EVENT_KEEPALIVE_TIMEDOUT,
    /* The device failed: everything on the endpoint ends with errors. Destroy it. */
    CCI_EVENT_ENDPOINT_DEVICE_FAILED
} cci_event_type_t;

/* Extension: the type of an event that a program gets only after asking for it, by CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS. It is
 * not an enumerator of cci_event_type_t, so that compilers do not warn of a missing case in older programs: compare it as an
 * int. */
enum { CCI_EVENT_EXT_DISCONNECTED = 1000 };

/* The name of an enumerator, for logs; "unknown event type" for another value. */
CCI_INLINE const char *cci_event_type_str(cci_event_type_t type)
{
    if ((int)type == CCI_EVENT_EXT_DISCONNECTED)
        return "CCI_EVENT_EXT_DISCONNECTED";
    switch (type) {
    case CCI_EVENT_NONE:
        return "CCI_EVENT_NONE";
    case CCI_EVENT_SEND:
        return "CCI_EVENT_SEND";
    case CCI_EVENT_RECV:
        return "CCI_EVENT_RECV";
    case CCI_EVENT_CONNECT:
        return "CCI_EVENT_CONNECT";
    case CCI_EVENT_CONNECT_REQUEST:
        return "CCI_EVENT_CONNECT_REQUEST";
    case CCI_EVENT_ACCEPT:
        return "CCI_EVENT_ACCEPT";
    case CCI_EVENT_KEEPALIVE_TIMEDOUT:
        return "CCI_EVENT_KEEPALIVE_TIMEDOUT";
    case CCI_EVENT_ENDPOINT_DEVICE_FAILED:
        return "CCI_EVENT_ENDPOINT_DEVICE_FAILED";
    }
    return "unknown event type";
}

/* A send ended. CCI_SUCCESS means that the peer's library has the message (reliable), or that it has left (unreliable). */
typedef const struct cci_event_send {
    cci_event_type_t type;
    /* CCI_SUCCESS, CCI_ERR_DISCONNECTED, CCI_ERR_RNR, CCI_ETIMEDOUT or CCI_ERR_DEVICE_DEAD; for an RMA operation or an
     * atomic also CCI_ERR_RMA_HANDLE or CCI_ERR_RMA_OP. */
    cci_status_t status;
    /* The connection that it was sent on. */
    cci_connection_t *connection;
    /* As given to the send. */
    void *context;
} cci_event_send_t;

/* A message came. It may be read in place, kept, and sent from, until the event is returned. */
typedef const struct cci_event_recv {
    cci_event_type_t type;
    /* Length of the message, bytes; may be 0. */
    uint32_t len;
    /* The message, 8-byte aligned. */
    const void *ptr;
    /* The connection that it came on; send answers there. */
    cci_connection_t *connection;
} cci_event_recv_t;

/* An attempt to connect ended. */
typedef const struct cci_event_connect {
    cci_event_type_t type;
    /* CCI_SUCCESS; CCI_ECONNREFUSED: rejected, or nobody listens there, or one side does not allow it (another user's
     * process, a name without the right to connect, a peer that was not expected); CCI_ETIMEDOUT; CCI_ENOMEM: one side
     * was at its memory cap, or had no descriptor; CCI_ERR_DISCONNECTED: the peer closed or died meanwhile; CCI_ERROR: the
     * peer speaks another version of the protocol. cci_last_error() says which. */
    cci_status_t status;
    /* As given to cci_connect(). */
    void *context;
    /* The connection, open; NULL unless success. */
    cci_connection_t *connection;
} cci_event_connect_t;

/* Somebody wants to connect. */
typedef const struct cci_event_connect_request {
    cci_event_type_t type;
    /* Length of the payload, bytes. */
    uint32_t data_len;
    /* The payload, until the event is returned; NULL if there is none. */
    const void *data_ptr;
    /* What kind of connection it asks for. */
    cci_conn_attribute_t attribute;
} cci_event_connect_request_t;

/* An accepted connection is open, or failed. */
typedef const struct cci_event_accept {
    cci_event_type_t type;
    /* One of the values in cci_event_connect. */
    cci_status_t status;
    /* As given to cci_accept(). */
    void *context;
    /* The connection, open; NULL unless success. */
    cci_connection_t *connection;
} cci_event_accept_t;

/* A peer is silent. */
typedef const struct cci_event_keepalive_timedout {
    cci_event_type_t type;
    /* The connection, still open. */
    cci_connection_t *connection;
} cci_event_keepalive_timedout_t;

/* The device failed. */
typedef const struct cci_event_endpoint_device_failed {
    cci_event_type_t type;
    /* The endpoint on it. */
    cci_endpoint_t *endpoint;
} cci_event_endpoint_device_failed_t;

/* Extension: why a connection ended that the program has not disconnected. */
typedef enum cci_ext_disconnect_reason {
    /* The peer's program has disconnected, or destroyed its endpoint. */
    CCI_EXT_DISCONNECT_CLOSED,
    /* The peer's process or endpoint is gone without closing the connection. */
    CCI_EXT_DISCONNECT_DIED,
    /* The peer was silent, or took nothing, for too long. */
    CCI_EXT_DISCONNECT_TIMEDOUT,
    /* This endpoint has ended it: the peer broke the protocol, or there was no memory to go on. */
    CCI_EXT_DISCONNECT_REFUSED
} cci_ext_disconnect_reason_t;

/* Extension: a connection has ended, because its peer has closed or is lost. It comes once for each connection, after its last
 * message and last completion, and never for one that the program disconnects first. The connection stays valid, and refuses
 * all sends, until cci_disconnect(). */
typedef const struct cci_event_ext_disconnected {
    cci_event_type_t type;
    cci_ext_disconnect_reason_t reason;
    cci_connection_t *connection;
} cci_event_ext_disconnected_t;

/* An event; type says which of the others holds. */
typedef const union cci_event {
    cci_event_type_t type;
    cci_event_send_t send;
    cci_event_recv_t recv;
    cci_event_connect_t connect;
    cci_event_connect_request_t request;
    cci_event_accept_t accept;
    cci_event_keepalive_timedout_t keepalive;
    cci_event_endpoint_device_failed_t dev_failed;
    cci_event_ext_disconnected_t ext_disconnected;
} cci_event_t;

/*
 * Takes the next event of an endpoint, if there is one; never blocks. The program may read the event, and the message in
 * it, until cci_return_event().
 *
 *   event   out: the event; NULL if there is none, and if the call fails
 *
 * Errors: CCI_EAGAIN (no event), CCI_ENOBUFS (no event, and the program has every receive buffer: return some events; or it
 * has more events of other kinds than the endpoint has buffers), CCI_EINVAL (NULL).
 */
int cci_get_event(cci_endpoint_t *endpoint, cci_event_t **event);

/*
 * Returns an event, and the buffer in it. Events may be kept, and returned in any order and by any thread, even after
 * their endpoint was destroyed. (With CCI_INIT_SINGLE_THREADED, they must be returned by the endpoint's thread.)
 *
 * Errors: CCI_EINVAL (NULL, returned already, or a connection request that was neither accepted nor rejected; the
 * latter stays with the program).
 */
int cci_return_event(cci_event_t *event);

/*
 * Prepares the descriptor of an endpoint for a wait, on systems that need this. This library does not: the descriptor
 * is level-triggered. The call makes progress, and the descriptor is readable afterwards if there is an event.
 *
 *   flags   0
 *
 * Errors: CCI_EINVAL (NULL).
 */
int cci_arm_os_handle(cci_endpoint_t *endpoint, int flags);

/* --------------------------------------------------------------------------------------- making connections --- */

/*
 * Starts connecting to an endpoint; never blocks. The attempt ends in one CCI_EVENT_CONNECT with this context.
 *
 *   endpoint     the endpoint to connect from
 *   server_uri   what CCI_OPT_ENDPT_URI gave at the peer, such as "udp://192.0.2.1:4791". Addresses are numbers: a host name is
 *                CCI_EINVAL at once, and cci_resolve() looks it up. An endpoint that was opened with the device NULL takes
 *                every kind of URI; others take that of their own device
 *   data_ptr     payload, shown to the peer's program with the request; copied before the call returns
 *   data_len     its length, bytes; CCI_CONN_REQ_LEN at most
 *   attribute    what the connection should promise
 *   context      comes back with the event and in the connection
 *   flags        0
 *   timeout      how long to try; NULL: for ever
 *
 * Multicast (UDP): server_uri names a group and a port, "udp://239.1.2.3:5000" or "udp://[ff15::1]:5000". Nobody has to
 * accept: a connection of the attribute CCI_CONN_ATTR_UU_MC_RX joins the group on the device's interface and gets what is
 * sent there, one of CCI_CONN_ATTR_UU_MC_TX sends to it. The CCI_EVENT_CONNECT is there at once. There is no payload.
 * cci_disconnect() leaves the group. Messages may be lost, and are lost if there is no receive buffer; they come once at
 * most. An endpoint does not receive its own messages, unless multicast_loop = on in the configuration.
 *
 * Errors: CCI_EINVAL (NULL, the URI can't be understood, or the endpoint's device does not lead there, too much payload or any with
 * multicast, no such attribute, a group with another attribute, a bad timeout), CCI_ERR_NOT_IMPLEMENTED (the device has
 * no multicast: all but UDP, "any" and NULL, and IPv6 on the loopback interface; or the endpoint requires security, which groups do not
 * have), CCI_ENOMEM (too many connections, or at the memory cap), and errors of the system.
 */
int cci_connect(cci_endpoint_t *endpoint, const char *server_uri, const void *data_ptr, uint32_t data_len,
                cci_conn_attribute_t attribute, const void *context, int flags, const struct timeval *timeout);

/*
 * Accepts a connection request, on the endpoint that it came to. This ends in one CCI_EVENT_ACCEPT with this context. The
 * program must still return the request's event.
 *
 * Errors: CCI_EINVAL (NULL, not a connection request, or one that was answered already). After the other errors the
 * request is answered, and the peer learns that it was refused: CCI_ERR_DISCONNECTED (the peer has given
 * up), CCI_ECONNREFUSED (the peer may not connect to this endpoint), CCI_EINVAL (the request is this endpoint's own, and it has
 * security), CCI_ENOMEM, and errors of the system. cci_last_error() says which CCI_EINVAL it is.
 */
int cci_accept(cci_event_t *conn_req, const void *context);

/*
 * Rejects a connection request: the peer's attempt ends with CCI_ECONNREFUSED. The program must still return the event.
 *
 * Errors: CCI_EINVAL (NULL, not a connection request, or one that was answered already).
 */
int cci_reject(cci_event_t *conn_req);

/*
 * Closes a connection from this side; never blocks. Messages sent before are still delivered, or fail with their own
 * completions. The peer gets CCI_EVENT_EXT_DISCONNECTED if it has asked for that, and otherwise CCI_ERR_DISCONNECTED when it
 * next uses the connection.
 *
 * Errors: CCI_EINVAL (NULL, or closed already).
 */
int cci_disconnect(cci_connection_t *connection);

/* ------------------------------------------------------------------------------------------------- options --- */

/* An endpoint or a connection, as the option asks. */
typedef const void cci_opt_handle_t;

/* Options. The value is a uint32_t that can be read and set, unless the option says otherwise. */
typedef enum cci_opt_name {
    /* Of an endpoint: how long a reliable send may take on connections made from now on, microseconds, not 0. */
    CCI_OPT_ENDPT_SEND_TIMEOUT,
    /* Of an endpoint: receive buffers. Setting raises their number, and the memory cap by what they take; a smaller
     * number than there are changes nothing. */
    CCI_OPT_ENDPT_RECV_BUF_COUNT,
    /* Of an endpoint: sends that may be in progress, 16384 unless asked otherwise. Their number is fixed when the endpoint is
     * created; memory for those that wait is borrowed under the cap. Setting a number not larger succeeds and changes
     * nothing, a larger one is CCI_ERR_NOT_IMPLEMENTED (see cci_create_endpoint_with). */
    CCI_OPT_ENDPT_SEND_BUF_COUNT,
    /* Of an endpoint: keepalive time of connections made from now on, microseconds; 0 = off. */
    CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT,
    /* Of an endpoint, get only, char *: the URI that others connect to. The caller frees it with free(). */
    CCI_OPT_ENDPT_URI,
    /* Of an endpoint, get only, cci_alignment_t: the alignment that RMA needs. It needs none: all are 0. */
    CCI_OPT_ENDPT_RMA_ALIGN,
    /* Of a connection: how long a reliable send may take, microseconds, not 0. A device may round it up to a
     * millisecond. */
    CCI_OPT_CONN_SEND_TIMEOUT,
    /* Of a connection: raise CCI_EVENT_KEEPALIVE_TIMEDOUT when the peer is silent for so long, microseconds;
     * 0 = off. */
    CCI_OPT_CONN_KEEPALIVE_TIMEOUT,

    /* Extensions. */
    /* Of an endpoint, get only, uint64_t: cap on every byte that the endpoint holds. */
    CCI_OPT_EXT_ENDPT_MEMORY_CAP = 1000,
    /* Of an endpoint, get only, uint64_t: bytes that it holds now. */
    CCI_OPT_EXT_ENDPT_MEMORY_USED = 1001,
    /* Of an endpoint: 1 = the program gets CCI_EVENT_EXT_DISCONNECTED for connections that end from now on; 0 (at first) = it
     * gets CCI_ERR_DISCONNECTED when it next uses one. */
    CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS = 1002,
    /* Of a connection, set only: 1 = messages that the peer lends (cci_loan) are received where they lie, where that is possible; 0
     * (at first) = they are copied. A message in place is read like any other, but the peer's process could still change it. So set
     * 1 only if the program trusts that process to leave the message alone until it is returned. */
    CCI_OPT_EXT_CONN_LOANS = 1003
} cci_opt_name_t;

/* The alignment that RMA needs of addresses and lengths, bytes; 0 = none. */
typedef struct cci_alignment {
    uint32_t rma_write_local_addr;
    uint32_t rma_write_remote_addr;
    uint32_t rma_write_length;
    uint32_t rma_read_local_addr;
    uint32_t rma_read_remote_addr;
    uint32_t rma_read_length;
} cci_alignment_t;

/*
 * Sets an option.
 *
 * Errors: CCI_EINVAL (NULL, no such option, or one that can only be read), CCI_ERANGE (the value is out of range),
 * CCI_ERR_NOT_IMPLEMENTED (not by this device), CCI_ERR_DISCONNECTED (the connection is closed), CCI_ENOMEM.
 */
int cci_set_opt(cci_opt_handle_t *handle, cci_opt_name_t name, const void *val);

/*
 * Reads an option.
 *
 * Errors: CCI_EINVAL (NULL, or no such option), CCI_ERR_DISCONNECTED (the connection is closed), CCI_ENOMEM.
 */
int cci_get_opt(cci_opt_handle_t *handle, cci_opt_name_t name, void *val);

/* ------------------------------------------------------------------------------------------------ messages --- */

/* Flags of sends and RMA. A send ignores those that are for RMA alone. */
/* Return when the operation has ended, with its status; raise no event. The call waits for space where it would otherwise
 * return CCI_ENOBUFS, for the connection's send timeout at most. Other threads can use the endpoint meanwhile. */
#define CCI_FLAG_BLOCKING (1 << 0)
/* The buffer belongs to the library until completion, so that it need not copy. It may still do so. */
#define CCI_FLAG_NO_COPY (1 << 1)
/* Raise no event at completion. Together with CCI_FLAG_NO_COPY it is for RO connections only: completions come in order there,
 * so that a later one shows that this buffer is free. A silent send that failed is counted (cci_get_counters); if it ended the
 * connection, the next use of that fails, too. */
#define CCI_FLAG_SILENT (1 << 3)
/* RMA: from the peer's memory to ours. */
#define CCI_FLAG_READ (1 << 4)
/* RMA: from our memory to the peer's. */
#define CCI_FLAG_WRITE (1 << 5)
/* RMA: everything earlier on this connection is complete at the peer first. */
#define CCI_FLAG_FENCE (1 << 6)

/*
 * Sends one message; never blocks, unless asked to. The send ends in one CCI_EVENT_SEND with this context, unless
 * CCI_FLAG_SILENT or CCI_FLAG_BLOCKING.
 *
 *   connection   an open connection
 *   msg_ptr      the message; copied before the call returns, unless CCI_FLAG_NO_COPY
 *   msg_len      its length, bytes; may be 0
 *   context      comes back with the event
 *   flags        CCI_FLAG_...
 *
 * Errors: CCI_EMSGSIZE (longer than max_send_size), CCI_ENOBUFS (as many sends are in progress as there are send
 * buffers, or as is this connection's quota of them, or the memory cap is reached: get events, then try again),
 * CCI_ERR_DISCONNECTED, CCI_EINVAL (NULL, unknown flags, or SILENT with NO_COPY on a connection that is not RO). With
 * CCI_FLAG_BLOCKING also the status of the send, as in cci_event_send.
 */
int cci_send(cci_connection_t *connection, const void *msg_ptr, uint32_t msg_len, const void *context, int flags);

/*
 * Sends one message that is gathered from iovcnt segments (1024 at most; more than 16 cost an allocation). The array
 * itself is the caller's again when the call returns, even with CCI_FLAG_NO_COPY. All else is as in cci_send().
 */
int cci_sendv(cci_connection_t *connection, const struct iovec *data, uint32_t iovcnt, const void *context, int flags);

/* ---------------------------------------------------------------------------------- remote memory access --- */

/*
 * A program registers memory with an endpoint and gets a handle: 32 plain bytes that it may send to peers in any
 * message. A peer that has them can read and write the memory, as far as was allowed; the program takes no part in that. Its
 * library does the work, inside the calls that name the endpoint (cci_get_event() and all others), or in
 * its progress thread (cci_endpoint_options_t). The side that starts an operation is the initiator, the side with the memory
 * is the target. Remote memory needs a reliable connection.
 */

/*
 * Names registered memory, for its own program and for peers. A call that takes a handle takes a pointer to any copy of its
 * bytes, at any alignment: what cci_rma_register() gave, or what a message brought.
 */
typedef const struct cci_rma_handle {
    uint64_t stuff[4];
} cci_rma_handle_t;

/*
 * Registers memory of this process. The same memory may be registered any number of times, in overlapping parts, with
 * several endpoints. An endpoint is a protection domain: a handle is valid on the connections of the endpoint that it
 * was registered with, and nowhere else.
 *
 *   start, length   the memory, at any address; length in bytes, not 0. Memory from cci_rma_alloc() is recognised by its
 *                   address. Other memory must stay mapped, and as it was mapped, until cci_rma_deregister(): to
 *                   unmap it earlier is like freeing memory that a thread still writes.
 *   flags           what peers may do: CCI_FLAG_READ, CCI_FLAG_WRITE, CCI_FLAG_ATOMIC (an extension), any of them, or
 *                   0: only the local side of this program's own operations
 *   rma_handle      out: the handle, which stays there until cci_rma_deregister() or cci_destroy_endpoint()
 *
 * Errors: CCI_EINVAL (NULL, length 0, other flags, a range that is not mapped, or that is read-only although peers may
 * write, or that is partly from cci_rma_alloc() and partly not), CCI_ENOMEM (too many regions), and errors of the system.
 */
int cci_rma_register(cci_endpoint_t *endpoint, void *start, uint64_t length, int flags, cci_rma_handle_t **rma_handle);

/*
 * Ends a registration. When it returns no peer reads or changes the memory any more, not even one in the middle of an
 * operation: the remainder of that fails with CCI_ERR_RMA_HANDLE. Operations of this program's own that use the memory should
 * be over; those that are not fail with that status, too.
 *
 * Errors: CCI_EINVAL (NULL, or a handle that names nothing registered here: of another endpoint, or deregistered before).
 */
int cci_rma_deregister(cci_endpoint_t *endpoint, cci_rma_handle_t *rma_handle);

/*
 * Writes to a peer's memory, or reads from it; never blocks, unless asked to. The operation ends in one CCI_EVENT_SEND with
 * this context, unless CCI_FLAG_SILENT or CCI_FLAG_BLOCKING. The local memory belongs to the library until then: data that is
 * written must not change, data that is read is there with the completion.
 *
 *   connection      an open connection, RO or RU
 *   msg_ptr, msg_len   a message for the peer's program (the notification), or NULL and 0. It is copied before the call
 *                   returns, and arrives as an ordinary CCI_EVENT_RECV once the data are in place. If the operation
 *                   fails, it is not delivered.
 *   local_handle, local_offset     this program's memory, and bytes from its start
 *   remote_handle, remote_offset   the peer's memory, and bytes from its start
 *   data_len        bytes; not 0, at any alignment, of any number
 *   context         comes back with the event
 *   flags           exactly one of CCI_FLAG_READ (from the peer) and CCI_FLAG_WRITE (to the peer), and any of
 *                   CCI_FLAG_BLOCKING, CCI_FLAG_SILENT, CCI_FLAG_NO_COPY (as for cci_send()), and CCI_FLAG_FENCE:
 *                   everything started earlier on this connection is complete at the peer before this operation
 *                   touches its memory. Without it operations, with their notifications, may overtake one another and
 *                   messages of cci_send(), on RO connections too, where only completions come in order.
 *
 * Completions: CCI_SUCCESS: the data are in place. CCI_ERR_RMA_HANDLE: the peer refused the handle (not registered
 * there, or not any more), the range or the permission, and the memory was not touched; or the local memory was
 * deregistered meanwhile. With any other status it is not known whether data arrived.
 *
 * Errors: CCI_EINVAL (NULL, an unreliable connection, data_len 0, neither or both of READ and WRITE, unknown flags, a
 * local handle that names nothing registered at this endpoint, a local range that is not within it, or a remote range that
 * ends beyond 64 bits), CCI_EMSGSIZE (the message is longer than max_send_size), CCI_ENOBUFS (as many operations are in progress
 * as may be, or as is this connection's quota; or the operation is fenced, and sends of the connection wait for space: get
 * events, then try again), CCI_ERR_DISCONNECTED. With CCI_FLAG_BLOCKING also the status of the operation.
 */
int cci_rma(cci_connection_t *connection, const void *msg_ptr, uint32_t msg_len, cci_rma_handle_t *local_handle,
            uint64_t local_offset, cci_rma_handle_t *remote_handle, uint64_t remote_offset, uint64_t data_len,
            const void *context, int flags);

/* --------------------------------------------------------------------------------------------------- words --- */

/*
 * Describes a status: a constant string that begins with the enumerator's name ("CCI_EINVAL: invalid argument"); NULL
 * for a value that is no status. endpoint may be NULL.
 */
const char *cci_strerror(cci_endpoint_t *endpoint, enum cci_status status);

/* ============================================================================================== extensions ===
 *
 * What published CCI 2.x does not have: calls of the CCI paper of 2011 that version 2 dropped, and calls that are new here. Nothing above needs
 * anything below.
 */

/*
 * Flag of cci_init(): take no locks. Each endpoint, with its connections and events, is then used by one thread at a time;
 * a call that finds another thread inside the endpoint may notice it and return CCI_EBUSY.
 */
#define CCI_INIT_SINGLE_THREADED (1u << 0)

/* Capability: any thread may call with any handle. Not given with CCI_INIT_SINGLE_THREADED. */
#define CCI_CAP_THREAD_SAFE (1u << 0)

/*
 * Explains the last call that failed in this thread: what failed, where, and what to do about it. Never NULL; "" if no call
 * failed. The text stays until the thread's next failing call. CCI_EAGAIN, CCI_ENOBUFS and CCI_ERR_DISCONNECTED have no
 * text and leave the earlier one. An event that reports a failed attempt to connect counts as a failing call: the text says
 * why.
 */
const char *cci_last_error(void);

/* What happens to peers without security. */
/* What the device's configuration says; if it does not mention security, they are refused. */
#define CCI_PLAIN_PEERS_DEFAULT 0u
/* They get no answer at all. */
#define CCI_PLAIN_PEERS_REFUSED 1u
/* They are served, too, in the clear and without a name; connections made by this side are sealed all the same. */
#define CCI_PLAIN_PEERS_SERVED 2u

/*
 * How an endpoint recognises its peers, and what each may do. Everything that it sends and receives is encrypted and
 * authenticated. Set size and clear all other fields. Then set psk_file, or the three files of certificates. Without any of
 * them those of the device are used; if its configuration requires them, a program may narrow but not replace them. Not for
 * shared memory. A library that was built without the feature "sealing" refuses it (CCI_EINVAL).
 * Names are DNS names or names of keys with commas between. "*.domain" stands for any one label, "*" for everyone, NULL
 * for everyone who is known. See docs/guide.md, "Encryption".
 */
typedef struct cci_security {
    /* sizeof(cci_security_t). */
    uint32_t size;
    /* CCI_PLAIN_PEERS_... */
    uint32_t plain_peers;
    /* A file of lines "name = 64 hexadecimal digits", readable by nobody else. The first key is for the connections that
     * this side makes; all are accepted. */
    const char *psk_file;
    /* PEM files: the own certificate with those between it and an authority; its private key, readable by nobody else;
     * the authorities that sign for peers. */
    const char *certificate, *private_key, *authorities;
    /* Who may be at the other end of a connection, whichever side connects. */
    const char *allow_connect;
    /* Who may read, and write to, the memory that is registered, as far as each registration allows it. Atomic
     * operations take both. */
    const char *allow_rma_read, *allow_rma_write;
} cci_security_t;

/* How an endpoint is opened. Set size, clear all other fields, then set those that should differ: 0 is the default. */
typedef struct cci_endpoint_options {
    /* sizeof(cci_endpoint_options_t). */
    uint32_t size;
    /* Receive buffers, shared by all peers: 1024. Each message that the program keeps occupies one. */
    uint32_t recv_buf_count;
    /* Sends that may be in progress at once, of any length, whether their peers take them or not: 16384. Those for
     * which the transport has no space wait in memory that is borrowed under the cap. While several connections are open,
     * one may have no more than are left for the others. */
    uint32_t send_buf_count;
    /* How long a reliable send may take, microseconds: 10,000,000. A send that waits for space while the peer goes on taking
     * others has more time: as long as those before it need at 64 KiB a second. */
    uint32_t send_timeout_us;
    /* Raise CCI_EVENT_KEEPALIVE_TIMEDOUT when a peer is silent for so long, microseconds; 0 = off. */
    uint32_t keepalive_timeout_us;
    /* RMA operations and atomics that may be in progress at once: 16384. Memory for them is borrowed as they are begun. */
    uint32_t rma_op_count;
    /* Cap on every byte that the endpoint holds for buffers, queues, connections and mappings of peers' memory: 256 MiB.
     * (This interface adds 32 bytes for each connection and 96 for each event that is kept. They are bounded by those numbers
     * and not under the cap; nor are registered regions, and memory from cci_rma_alloc().) */
    uint64_t memory_cap_bytes;
    /* Not 0: a thread of the library serves peers (their RMA, acknowledgements, time-outs) while the program computes
     * and calls nothing. It begins within a millisecond of the program's last call, and sleeps when there is nothing to do. It takes no events, handles
     * no signals, and ends with the endpoint; a fork() child has none. Not with CCI_INIT_SINGLE_THREADED. */
    uint32_t progress_thread;
    /* Must be 0. */
    uint32_t reserved;
    /* Turns encryption on, and says who may be a peer. NULL: as the device's configuration says. The struct and its texts
     * are the caller's again when the call returns. */
    const cci_security_t *security;
} cci_endpoint_options_t;

/*
 * Opens an endpoint with options.
 *
 *   service   as for cci_create_endpoint_at(), or NULL: the library chooses
 *   options   or NULL: all defaults
 *
 * Errors: as cci_create_endpoint_at(); CCI_EINVAL also for an option out of range, and for a progress thread in a library
 * initialised with CCI_INIT_SINGLE_THREADED, and for security that can't be had (a file that can't be used, a device that
 * requires more, shared memory): cci_last_error() says which and what to do. CCI_ENOMEM if the buffers do not fit under
 * the cap.
 */
int cci_create_endpoint_with(cci_device_t *device, const char *service, const cci_endpoint_options_t *options,
                             int flags, cci_endpoint_t **endpoint, cci_os_handle_t *fd);

/*
 * Waits for the next event: spins for as long as that pays, then sleeps. Each event goes to one of the threads that
 * wait.
 *
 *   timeout   NULL: for ever
 *   event     out: the event; NULL if none came, and if the call fails
 *
 * Errors: CCI_EAGAIN (nothing came in time), CCI_ENOBUFS (the program has more events than the endpoint has buffers),
 * CCI_EINVAL, and errors of the system.
 */
int cci_wait_event(cci_endpoint_t *endpoint, const struct timeval *timeout, cci_event_t **event);

/*
 * Sends one message made of a header and data, which the program need not copy together. All else is as in cci_send().
 */
int cci_send2(cci_connection_t *connection, const void *header_ptr, uint32_t header_len, const void *data_ptr,
              uint32_t data_len, const void *context, int flags);

/*
 * Sends several messages, in order, as if each were sent by cci_send(); the receiver sees no difference. It costs
 * less than sending each by itself. They are copied before the call returns.
 *
 *   messages   where each message is, and its length
 *   count      how many there are
 *   context    comes back with the event
 *   flags      0 or CCI_FLAG_SILENT
 *   taken      out: how many were taken, from the first on; 0 if the call fails
 *
 * If nothing is in progress on the connection, they leave at once. Otherwise they leave as soon as there is a batch, and at the latest with
 * the next call that makes progress (cci_get_event(), cci_poll()). A program that has more to send makes such a call when there is no space,
 * and after its last burst. After every burst it would send batches that are not full.
 *
 * Fewer than all are taken if there is no space for more, or if the next one can't be sent; another call with the rest returns the reason.
 * All that were taken end in one CCI_EVENT_SEND together, once the last of them has ended: with CCI_SUCCESS, or with the status of the
 * first of them that failed. There is no event with CCI_FLAG_SILENT, or if none was taken.
 *
 * Errors: those of cci_send() for the first message, CCI_ENOBUFS among them; CCI_EINVAL also if messages or taken is NULL, and for other
 * flags. An empty burst is no error.
 */
int cci_send_burst(cci_connection_t *connection, const struct iovec *messages, uint32_t count, const void *context,
                   int flags, uint32_t *taken);

/*
 * What cci_poll() calls with each event. The event, and the message in it, are lent to the handler until it returns. It must not return
 * them; it may keep them (cci_keep_event). A handler must not use the endpoint that called it: such calls fail with CCI_EBUSY, except
 * cci_return_event() for events that were kept before. It must not leave by longjmp() or an exception.
 */
typedef void (*cci_ext_handler_t)(cci_event_t *event, void *arg);

/*
 * Makes progress, and gives what came to a handler. The order is that of cci_get_event(), except that messages may come before completions
 * that were ready before them. It never blocks. It costs less than cci_get_event() and cci_return_event() for each event. Other threads that
 * use the endpoint wait until it returns.
 *
 *   max       the most events to handle
 *   handler   called once for each
 *   arg       given to each call
 *   count     out: how many were handled; NULL if that is of no interest
 *
 * A CCI_EVENT_CONNECT_REQUEST that the handler does not keep is refused. To answer it, keep it, and accept or reject it after the call.
 *
 * Errors, each only if nothing was handled: CCI_EAGAIN (nothing there), CCI_ENOBUFS (nothing there, and every receive buffer is out with
 * the program; or the program has more events than the endpoint has buffers), CCI_EINVAL (endpoint or handler is NULL).
 */
int cci_poll(cci_endpoint_t *endpoint, uint32_t max, cci_ext_handler_t handler, void *arg, uint32_t *count);

/*
 * Makes an event that is lent to a handler one of the program's own. It counts like any that cci_get_event() gives, holds a receive
 * buffer if it is a message, and must be returned by cci_return_event(). Only a handler may call this, with the event that it was given.
 *
 *   lent   the event; not to be used any more after this
 *   kept   out: the event to use from now on, which may be elsewhere; NULL if the call fails
 *
 * Errors: CCI_EINVAL (NULL, or an event that is the program's already).
 */
int cci_keep_event(cci_event_t *lent, cci_event_t **kept);

/*
 * Lends memory for one message. The program writes the message there and sends it by cci_send_loan(). That saves a buffer and, over shared
 * memory, from 2 KiB on, copies: the peer gets the message where it lies (CCI_OPT_EXT_CONN_LOANS), or copies it once. The first loans
 * of a connection may have to be copied when they are sent, as other messages are, since the peer has to map the memory first.
 *
 *   len      the length of the message, at most connection->max_send_size
 *   memory   out: where it is written to; it holds what earlier messages had, or zeros. The program's until it is sent or returned
 *
 * Errors: CCI_ENOBUFS (all memory for loans is out: a CCI_EVENT_SEND of a loan says that some is back), CCI_EMSGSIZE (too long),
 * CCI_ERR_DISCONNECTED (the connection is closed), CCI_EINVAL (NULL).
 */
int cci_loan(cci_connection_t *connection, uint32_t len, void **memory);

/*
 * Sends the message that was written to memory from cci_loan(). This ends in one CCI_EVENT_SEND with this context, unless
 * CCI_FLAG_SILENT, when the library can lend the memory again. If the message was received where it lies, that is when the receiver has
 * returned it, or the connection has ended; so this event may come out of the order of the others. The message itself arrives in order.
 *
 *   memory    from cci_loan(), for this connection; not to be used any more after this, unless the call fails
 *   len       the length of the message, at most what was asked for
 *   flags     0 or CCI_FLAG_SILENT
 *
 * Errors: as cci_send(), and nothing was sent then: the memory is still the program's, for a message no longer than this one. CCI_EINVAL also
 * if the memory was not lent for this connection, and for other flags.
 */
int cci_send_loan(cci_connection_t *connection, void *memory, uint32_t len, const void *context, int flags);

/*
 * Gives memory from cci_loan() back unsent.
 *
 * Errors: CCI_EINVAL (NULL, or not memory that was lent).
 */
int cci_return_loan(cci_connection_t *connection, void *memory);

/*
 * Accepts a connection request on another endpoint than the one that it came to, on the same kind of device. So a broker
 * can give connections to workers. CCI_EVENT_ACCEPT comes on that endpoint. The program must still return the request's event.
 *
 * Errors: as cci_accept(); CCI_EINVAL also if the endpoint is NULL, or on another kind of device (the peer is then
 * refused).
 */
int cci_accept_on(cci_event_t *conn_req, cci_endpoint_t *endpoint, const void *context);

/*
 * Flag of cci_rma_register(), a third right: peers may use atomic operations (cci_atomic) on the memory. (Bits below 16
 * are left to the 2.x interface.)
 */
#define CCI_FLAG_ATOMIC (1 << 16)

/*
 * Registers memory for the peer of one connection only: on any other connection the handle is refused. All else is as in
 * cci_rma_register().
 *
 * Errors: also CCI_ERR_DISCONNECTED (the connection is closed).
 */
int cci_rma_register_conn(cci_connection_t *connection, void *start, uint64_t length, int flags,
                          cci_rma_handle_t **rma_handle);

/*
 * Registers a part of a file, for peers to read. The bytes are read when a peer asks for them, from the system's page cache to where they
 * go. A process on the same host that belongs to the same user, or to root, is given the file's descriptor with its first region, and reads by
 * itself: it can read the rest of the file, too, and go on after cci_rma_deregister(). Where the file has become shorter, or can't be
 * read, operations end with CCI_ERR_RMA_HANDLE. The handle is not for the local side of operations.
 *
 *   endpoint     the endpoint
 *   connection   the only connection whose peer may read; NULL: all of the endpoint
 *   fd           a regular file that is open for reading; it stays the program's, who may close it at once
 *   offset       where the part begins, bytes
 *   length       its length, not 0; the file has these bytes now
 *   rma_handle   out: the handle
 *
 * Errors: CCI_EINVAL (no such file, a part that it does not have, NULL, or a connection of another endpoint), CCI_ERR_DISCONNECTED,
 * CCI_ENOMEM.
 */
int cci_rma_register_file(cci_endpoint_t *endpoint, cci_connection_t *connection, int fd, uint64_t offset, uint64_t length,
                          cci_rma_handle_t **rma_handle);

/*
 * Allocates memory of the library for RMA: zeroed, aligned to a page, in huge pages where the system has them. Peers
 * on the same host that were given a handle of it map it, so that their operations are plain copies. It may be
 * registered, whole or in parts, with any endpoint of this process. It lives until cci_rma_free(), or until the endpoint
 * is destroyed.
 *
 *   length   bytes, not 0; rounded up to whole pages
 *   start    out: the memory
 *
 * Errors: CCI_EINVAL (NULL, or length 0), CCI_ENOMEM, and errors of the system.
 */
int cci_rma_alloc(cci_endpoint_t *endpoint, uint64_t length, void **start);

/*
 * Frees memory from cci_rma_alloc().
 *
 *   endpoint   the endpoint that it came from
 *   start      as cci_rma_alloc() gave it
 *
 * Errors: CCI_EINVAL (NULL, or not the start of memory of this endpoint), CCI_EBUSY (some of it is registered).
 */
int cci_rma_free(cci_endpoint_t *endpoint, void *start);

/*
 * Says that the program has unmapped, remapped or protected memory of its own at these addresses. Registering checks that
 * all of the memory is mapped as the rights need, which touches every page; so the library remembers what it found, also
 * for some time after cci_rma_deregister(), and does not watch what the program does to its mappings meanwhile. After
 * this call the next registration of any of these addresses checks again. Only a program that relies on being
 * refused needs it; memory that is registered stays registered.
 *
 * Errors: CCI_EINVAL (endpoint is NULL).
 */
int cci_rma_invalidate(cci_endpoint_t *endpoint, const void *start, uint64_t length);

/* A segment: a run of bytes in registered memory. */
typedef struct cci_rma_segment {
    /* The memory: a handle, or a copy of one. */
    cci_rma_handle_t *handle;
    /* Where the segment begins, bytes from the start of the memory. */
    uint64_t offset;
    /* How long it is, bytes; may be 0. */
    uint64_t length;
} cci_rma_segment_t;

/*
 * One RMA operation on memory that is not contiguous: moves the segments of one list, in order, into those of the other.
 * Both lists have the same total length, but may be divided differently. The operation ends in one completion; the
 * notification comes after all of the data. All else is as in cci_rma().
 *
 *   local, local_count     segments of this program's memory
 *   remote, remote_count   segments of the peer's memory
 *
 * The lists, and the handles that they point to, are the caller's again when the call returns.
 *
 * Errors: as cci_rma(); CCI_EINVAL also for an empty list, for lists of different length, and if they make more than
 * 1024 runs that are contiguous on both sides.
 */
int cci_rmav(cci_connection_t *connection, const void *msg_ptr, uint32_t msg_len, const cci_rma_segment_t *local,
             uint32_t local_count, const cci_rma_segment_t *remote, uint32_t remote_count, const void *context,
             int flags);

/* What an atomic operation does with its word. All wrap around. */
typedef enum cci_atomic_op {
    /* Adds the operand. The result is the value before. */
    CCI_ATOMIC_FETCH_ADD,
    /* Stores the operand. The result is the value before. */
    CCI_ATOMIC_SWAP,
    /* Stores the operand if the word equals compare. The result is the value before: compare, if it was stored. */
    CCI_ATOMIC_COMPARE_SWAP,
    /* Adds the operand; no result. */
    CCI_ATOMIC_ADD,
    /* Keeps the bits that are set in the operand; no result. */
    CCI_ATOMIC_AND,
    /* Sets the bits that are set in the operand; no result. */
    CCI_ATOMIC_OR,
    /* Flips the bits that are set in the operand; no result. */
    CCI_ATOMIC_XOR
} cci_atomic_op_t;

/*
 * Changes one word of a peer's memory, exactly once and atomically: against every other atomic operation on it, of
 * any peer, and over shared memory also against the target's own (those of <stdatomic.h>, __atomic_fetch_add() and
 * the like). The operation ends in one CCI_EVENT_SEND with this context, unless CCI_FLAG_SILENT or CCI_FLAG_BLOCKING.
 *
 *   connection        an open connection, RO or RU
 *   op                what to do
 *   width             4 or 8: bytes of the word, which has the byte order of the peer's machine
 *   operand, compare  with width 4 only their low halves are used
 *   target_handle, target_offset   the peer's memory, registered with CCI_FLAG_ATOMIC, and bytes from its start. The
 *                     address there must be a multiple of width
 *   result_handle, result_offset   where in this program's registered memory the result goes: a uint64_t, 8 bytes for
 *                     either width; there with the completion. NULL: it is not wanted, or there is none
 *   context           comes back with the event
 *   flags             CCI_FLAG_BLOCKING, CCI_FLAG_SILENT, CCI_FLAG_FENCE
 *
 * Completions: as cci_rma(); CCI_ERR_RMA_OP: the word is not aligned to its width.
 *
 * Errors: CCI_EINVAL (NULL, no such operation or width, an unreliable connection, a result address that is not in
 * registered memory of this endpoint, or one for an operation without result), CCI_ENOBUFS, CCI_ERR_DISCONNECTED. With
 * CCI_FLAG_BLOCKING also the status of the operation.
 */
int cci_atomic(cci_connection_t *connection, cci_atomic_op_t op, uint32_t width, uint64_t operand, uint64_t compare,
               cci_rma_handle_t *target_handle, uint64_t target_offset, cci_rma_handle_t *result_handle,
               uint64_t result_offset, const void *context, int flags);

/*
 * Starts connecting to a peer that must prove this name, by a certificate that has it or by the pre-shared key of that
 * name. With keys, this side uses that key in place of the first of its file; a peer that does not have it gives no answer
 * (CCI_ETIMEDOUT over UDP and Ethernet, CCI_ECONNREFUSED over TCP). Nobody else learns anything of the payload. If another
 * peer answers, the CCI_EVENT_CONNECT has CCI_ECONNREFUSED, and cci_last_error() says so. The key "expect" in a device's
 * configuration does this for all connections that its endpoints make.
 *
 *   peer   the name, such as "hub" or "hub.cluster.example"; no pattern. The other arguments are those of cci_connect()
 *
 * Errors: as cci_connect(); CCI_EINVAL also if the endpoint has no security, has no key of that name, or is on a
 * device whose configuration expects another name; and with multicast.
 */
int cci_connect_expecting(cci_endpoint_t *endpoint, const char *peer, const char *server_uri, const void *data_ptr,
                          uint32_t data_len, cci_conn_attribute_t attribute, const void *context, int flags,
                          const struct timeval *timeout);

/*
 * Replaces the names of hosts in a URI by addresses, as cci_connect() wants them: "udp://localhost:7811" becomes
 * "udp://127.0.0.1:7811". Other URIs stay as they are. It asks the system (/etc/hosts, DNS), which MAY BLOCK FOR SECONDS;
 * it needs no cci_init(), and no endpoint waits for it.
 *
 *   uri        such as "udp://host.example:7811"
 *   resolved   out: the caller frees it with free(); NULL if the call fails
 *
 * Errors: CCI_EINVAL (NULL, or the URI can't be understood), CCI_ERR_NOT_FOUND (the system knows no such host), CCI_ENOMEM.
 */
int cci_resolve(const char *uri, char **resolved);

/*
 * Says who is at the other end of a connection, if that was proved: the name of its key, or the DNS names of its
 * certificate with commas between. It does not change while the connection lives.
 *
 *   names   out: the caller frees them with free()
 *
 * Errors: CCI_ERR_NOT_FOUND (the connection is not encrypted), CCI_EINVAL (NULL), CCI_ERR_DISCONNECTED (closed), CCI_ENOMEM.
 */
int cci_peer_names(cci_connection_t *connection, char **names);

/*
 * Says who wants to connect, if that was proved, before the request is answered. Peers that may not connect are refused
 * before the program sees a request.
 *
 *   conn_req   a CCI_EVENT_CONNECT_REQUEST that was not answered yet
 *
 * Errors: as cci_peer_names(); CCI_EINVAL also for another event, or one that was answered.
 */
int cci_conn_req_names(cci_event_t *conn_req, char **names);

/*
 * Says, in lines for people, which path a connection takes, which others were tried and why they were not taken, what was
 * measured, and what holds it up now.
 *
 *   text   out: the lines; the caller frees them with free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_ERR_DISCONNECTED (closed), CCI_ENOMEM.
 */
int cci_explain(cci_connection_t *connection, char **text);

/*
 * Gives counters as one JSON object: messages, bytes, RMA operations, atomics, accesses of peers that were refused
 * (rma_refused; because the peer's name lacks a right: rma_refused_by_name), registered regions, how often registering
 * needed no check (registration_hits), retransmissions, round trip (rtt_ns), drops by reason, memory by kind.
 *
 *   endpoint     the endpoint whose counters are wanted, if connection is NULL
 *   connection   the connection whose counters are wanted, or NULL
 *   json         out: the object; the caller frees it with free()
 *
 * Errors: CCI_EINVAL (NULL), CCI_ERR_DISCONNECTED (closed), CCI_ENOMEM.
 */
int cci_get_counters(cci_endpoint_t *endpoint, cci_connection_t *connection, char **json);

#undef CCI_INLINE

#ifdef __cplusplus
}
#endif

#endif /* CCI_H */
