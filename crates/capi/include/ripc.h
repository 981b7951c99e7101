/*
 * ripc.h: libRIPC, services that are found by number, wherever they are: the published interface, and what was added.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A process registers services, each under a number that nobody else has, and sends messages from one of its services to any other one, by
 * its number: in this process, in another one, or on another host. A message has short items, which travel in it, or long ones, which stay
 * where they are until the receiver fetches them into a window, or are put into return buffers that the receiver has offered before.
 *
 *   1. ripc_register_service_id() registers a service. The first call that needs the library starts it.
 *   2. ripc_send_short() and ripc_send_long() send. A service that is not known yet is looked for.
 *   3. ripc_receive() receives one message, and waits for it.
 *
 * DIRECTORY. The directory that the environment variable CCI_DIRECTORY names knows where services are; without it, that of this host, which
 * needs no configuration. A service that is killed and started anew, or that has moved, is found again without a call by anybody.
 *
 * DELIVERY. A send returns when this process has done its part, and does not learn whether the message has arrived. As long as both processes
 * and the path between them live, it arrives, once, and in order. Messages that a service does not receive wait: at least 8, up to 128 of one
 * sender and 256 of all; further ones are dropped. A message to a process that has just died is lost.
 *
 * PROGRESS. A thread, ripc-progress, serves others while the program makes no calls: receivers fetch long items from a sender that computes,
 * and a service is found whose program is busy. It sleeps while nothing happens, does nothing while the program makes calls, and
 * handles no signals.
 *
 * THREADS. Any thread may make any call at any time, several at once. After fork(), only the parent may make calls; those of
 * the child fail.
 *
 * MEMORY. Long items and return buffers are lent to one partner: to be read until it has fetched them, or to be written once. Nobody else can
 * access them, and nobody at all after an hour, or the time of ripc_service_set_lease(). They, and windows, must stay mapped meanwhile. Processes
 * on the same host access memory of ripc_buf_alloc() directly; other memory is registered when it is first used.
 *
 * ERRORS. A call that fails has changed nothing, unless its description says otherwise. cci_last_error() of cci.h says why.
 */
#ifndef RIPC_H
#define RIPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes that the short items of one message have together. One item of 1,900 bytes fits on every path. */
#define RECV_BUF_SIZE 2000
/* For programs that use it. The library keeps more messages for each service than this. */
#define NUM_RECV_BUFFERS 10

/* ---- Services ---------------------------------------------------------------------------------------------------------------------- */

/* Starts the library, unless it is started. Returns 1, or 0: the directory can't be used, or the system gives no memory or thread. */
uint8_t ripc_init(void);
static inline uint8_t init(void)
{
    return ripc_init();
}

/* Registers a service under a number that nobody has. Returns the number, or 65535: the directory can't be used. */
uint16_t ripc_register_random_service_id(void);

/*
 * Registers a service under this number, from 0 to 65534. Returns 1, or 0: it is no such number, somebody else has it, in this process or in
 * another one, or the directory can't be used.
 */
uint8_t ripc_register_service_id(int service_id);

/*
 * Joins a group of this number, of which any number of processes are members. What a member sends from the group's number to the group's
 * number comes to all other members; `from` is the group's number there. Members hear of each other within 0.2 s. Returns what ripc_register_service_id() does.
 */
uint8_t ripc_register_multicast_service_id(int service_id);

/* ---- Buffers and windows ----------------------------------------------------------------------------------------------------------- */

/*
 * A registered buffer of zeros: from the pool, if it has one of this length or up to twice as long, or else a new one. NULL: size is 0, or
 * there is no memory.
 */
void *ripc_buf_alloc(size_t size);

/*
 * Changes the length of a buffer that ripc_buf_alloc() has given: a new one with its content, and the old one is freed. NULL for buf
 * allocates; 0 for size frees, and returns NULL. NULL: it is no such buffer, or there is no memory; nothing has changed then.
 */
void *ripc_buf_realloc(void *buf, size_t size);

/*
 * Puts the buffer that has this byte back into the pool; nothing happens if there is none. Nobody writes to it any more. A receiver that has
 * yet to fetch a long item from it can still do so; until then the buffer is not used again.
 */
void ripc_buf_free(void *buf);

/*
 * A file as a buffer, to be sent as long items or parts of some. Its bytes are read when a receiver fetches them, from the system's page cache
 * to where they go: nothing is copied before. A receiver on this host that belongs to the same user, or to root, is given the file's descriptor,
 * and reads by itself; so it can read all of the file. An item whose bytes the file does not have any more can't be fetched. Such items are
 * never put into return buffers, and the buffer is neither a window nor a return buffer.
 *
 *   path   a regular file that can be read, with a byte at least
 *   size   out: its length now, bytes
 *
 * The program may read the bytes at the address that is returned, as those of any file that is mapped: if the file becomes shorter, that is a
 * SIGBUS. ripc_buf_free() frees the buffer; who has yet to fetch from it can still do so. NULL: there is no such file, or no memory.
 */
void *ripc_file_map(const char *path, size_t *size);

/*
 * Gives a window, into which one long item of one message is fetched: the first that is long enough, those of the service before those of
 * all services. Afterwards it is the program's again; if fetching fails, it stays a window. base may be NULL: the library's memory is used, and
 * ripc_buf_free() frees it after the message. Returns 0, or 1: size is 0, the memory is in a buffer and reaches beyond its end, or the
 * service is not this process's.
 */
uint8_t ripc_reg_recv_window(void *base, size_t size);
uint8_t ripc_reg_recv_window_for_service(void *base, size_t size, uint16_t service_id);

/* Registers memory of the program's. Returns 0, or 1: buf is NULL, size is 0, or it reaches beyond the end of a buffer. */
uint8_t ripc_buf_register(void *buf, size_t size);

/*
 * Ends a registration: windows and return buffers in the memory are taken back. Returns 1, or 0: there is no registration that has this
 * byte.
 */
uint8_t ripc_buf_unregister(void *buf);

/* ---- Messages ---------------------------------------------------------------------------------------------------------------------- */

/*
 * Sends up to 9 items, of up to RECV_BUF_SIZE bytes together, as one message, whole or not at all. The items are the program's again when it
 * returns. It does not wait for the receiver; only a service that is not connected is looked for, for up to 10 s, or
 * the time of ripc_service_set_resolve_timeout().
 *
 *   src, dest             a service of this process, and whom to send to; from a group, they are the same, and what is for another
 *                         service is discarded
 *   buf, length           the items; num_items may be 0, and then both may be NULL
 *   return_bufs, ...      memory that the receiver may put long items of later messages into, each once, newest first: no more than 32. An
 *                         entry of length 0 is skipped; one that is NULL is allocated, and found in what is received; one that is registered
 *                         and too short is dropped
 *
 * Returns 0, or 1, and nothing was sent: src is not this process's, too much was given, something is NULL, the service was not found, or it
 * takes less than it is sent.
 */
uint8_t ripc_send_short(uint16_t src, uint16_t dest, void **buf, uint32_t *length, uint16_t num_items, void **return_bufs,
                        uint32_t *return_buf_lengths, uint16_t num_return_bufs);

/*
 * Sends a message with up to 32 long items, none of them empty: those for which the receiver has offered return buffers are put there before
 * it returns; the receiver fetches the others when it receives the message. Leave them as they are until it has confirmed that it has
 * fetched them. All else is as with ripc_send_short(); from a group it returns 1.
 */
uint8_t ripc_send_long(uint16_t src, uint16_t dest, void **buf, uint32_t *length, uint16_t num_items, void **return_bufs,
                       uint32_t *return_buf_lengths, uint16_t num_return_bufs);

/*
 * Receives one message, and waits for it.
 *
 *   from_service_id       who has sent it: its number, or one that this process gives to a service that has none; answers go there
 *   short_items, ...      the items, in one buffer, which ripc_buf_free(short_items[0]) frees; the two arrays are the program's to free()
 *   long_items, ...       where the long items are: in windows, or in return buffers of this process's; the arrays are the program's to
 *                         free(). An item that was not fetched is NULL, with length 0
 *
 * Arrays are NULL where there are no items.
 *
 * Returns 0; 1 if a signal was handled meanwhile (so alarm() can end a wait), a place is NULL, or there is no memory:
 * there is no message then, and all numbers of items are 0. Also 1 if not all long items of a message could be fetched, because there were
 * too few windows or its sender has died: num_long_items counts all. 255: it is no service of this process.
 */
uint8_t ripc_receive(uint16_t service_id, uint16_t *from_service_id, void ***short_items, uint32_t **short_item_sizes,
                     uint16_t *num_short_items, void ***long_items, uint32_t **long_item_sizes, uint16_t *num_long_items);

/* ---- Beyond the published interface ------------------------------------------------------------------------------------------------ */

/* Like ripc_receive(), but returns 2 if nothing came for timeout_ms milliseconds. With 0 it never waits; with less, it waits for ever. */
uint8_t ripc_receive_within(int timeout_ms, uint16_t service_id, uint16_t *from_service_id, void ***short_items,
                            uint32_t **short_item_sizes, uint16_t *num_short_items, void ***long_items,
                            uint32_t **long_item_sizes, uint16_t *num_long_items);

/*
 * A descriptor for poll(), select() or epoll, which is readable while a message waits for a service, and when one may have come: receive with
 * a time of 0. It is the program's to close(). Returns -1: it is no service of this process, or there is no descriptor left.
 */
int ripc_descriptor(uint16_t service_id);

/* Withdraws a service, or leaves a group. A thread that waits to receive for it gets 255. Returns 0, or 1: it is no service of this process. */
uint8_t ripc_unregister(uint16_t service_id);

/*
 * CALLS. A call is a request that wants exactly one answer, before its deadline. It goes to wherever the service is, now or until then: if the
 * service moves or is started anew, the request is sent again. One life of a service gets a request once, however often it comes. Programs in
 * Rust (Node::call, Node::answer) and in C call each other.
 *
 * What is sent with a request or an answer: short items as for ripc_send_short(), long items as for ripc_send_long(), and return buffers, which
 * suit long items of an answer best. A member that is 0 is not there. Long items of requests are fetched when they are received, into
 * the windows that are there then, and those of answers when they come: give windows before the call, or return buffers with it. What is lent
 * with a call or an answer stays as it is until the other side has confirmed that it has it; ripc_buf_free() takes care of that.
 */
struct ripc_content {
    void **short_items;
    uint32_t *short_sizes;
    void **long_items;
    uint32_t *long_sizes;
    void **return_bufs;
    uint32_t *return_sizes;
    uint16_t num_short, num_long, num_return_bufs;
};

/* What was received, as by ripc_receive(). ripc_free_message() frees the short items and all arrays, but not the memory of the long items. */
struct ripc_message {
    void **short_items;
    uint32_t *short_sizes;
    void **long_items;
    uint32_t *long_sizes;
    uint16_t num_short, num_long;
    uint16_t from;
};

void ripc_free_message(struct ripc_message *message);

/* A flag of ripc_call(): if the service dies with the request, no later life of it gets it, and the call is lost. */
#define RIPC_ONCE 1

/* Ends of a call. */
#define RIPC_REFUSED 3     /* the service refuses: short item 0 of the reply has the reason */
#define RIPC_TIMED_OUT 4   /* the deadline came; the service has the request, and may have carried it out */
#define RIPC_NOT_REACHED 5 /* the deadline came, and no service has got the request */
#define RIPC_LOST 6        /* only with RIPC_ONCE: the service has died, and may have carried it out */

/*
 * Begins a call of dest by src, with a deadline timeout_ms milliseconds from now, and does not wait: the reply shows whether the service is
 * there. Short items are the program's again when it returns; content may be NULL. Returns the number of the call, or 0: src is not this
 * process's or is a group, timeout_ms is less than 1, too much was given, 256 calls of src have not ended, or 1,024 of the process have no
 * reply taken.
 */
uint64_t ripc_call(uint16_t src, uint16_t dest, const struct ripc_content *content, int timeout_ms, int flags);

/*
 * Takes the end of a call of src, and waits for it timeout_ms milliseconds; with 0 it never waits, with less it waits until the call ends. The
 * number of the call is in *call; if it is 0, the first that has ended is taken, and its number put there. Each call ends once. A descriptor of
 * src (ripc_descriptor) is readable then, too.
 *
 * Returns 0: reply is the answer. 2: no such call has ended in the time, or before a signal was handled; it goes on. RIPC_REFUSED,
 * RIPC_TIMED_OUT, RIPC_NOT_REACHED, RIPC_LOST: it has ended without an answer. 1: it has ended, and the answer's long items could not be
 * fetched, or there is no memory; or a place is NULL, and nothing has changed. 255: src is not this process's, or has no such call.
 */
uint8_t ripc_reply(uint16_t src, uint64_t *call, int timeout_ms, struct ripc_message *reply);

/*
 * As ripc_receive_within(), and receives requests, too. *request is the number of the request, to be answered once by ripc_answer() or
 * ripc_refuse(), now or later, in any order, by any thread; 0: it is a message. A service that receives by the other calls has its requests
 * refused. If a request's long items can't be fetched it returns 1, with the request.
 */
uint8_t ripc_receive_request(int timeout_ms, uint16_t service_id, uint64_t *request, struct ripc_message *message);

/*
 * Answers a request. The answer is kept, in case the request comes again; content may be NULL. Returns 0, or 1: there is no such request without
 * an answer, its client is gone for long, or too much was given, and then it still has no answer.
 */
uint8_t ripc_answer(uint64_t request, const struct ripc_content *content);

/*
 * Like ripc_answer(), with one long item at least, and ripc_returned() reports when the long items are the program's again. So a service can
 * bound what its clients keep. Returns 0, or 1: for the reasons of ripc_answer(), because there is no long item, or because 4,096 such answers still
 * lend or were not taken by ripc_returned().
 */
uint8_t ripc_lend_answer(uint64_t request, const struct ripc_content *content);

/*
 * Takes the number of a request of this service whose answer, given by ripc_lend_answer(), lends nothing any more; never waits. *fetched is 1 if
 * the client has fetched all long items, and 0 if it did not want them, has gone, or had them for as long as the service lends. Each comes once.
 * While one is there, ripc_receive_request() returns 2 at once if there is nothing to receive, and the service's descriptor is readable.
 *
 * Returns 0; 2: nothing has returned; 1: a place is NULL; 255: it is no service of this process. What a service has lent is the program's again
 * when it is unregistered, and nobody is notified.
 */
uint8_t ripc_returned(uint16_t service_id, uint64_t *request, uint8_t *fetched);

/*
 * Says for how long a service lends from now on: for lease_ms at most. When the connection of a client has ended, the long items of an answer stay
 * lent for disconnected_ms at most, during which the client may come back and ask for the answer again. At first both are an hour. Returns 0, or
 * 1: it is no service of this process, lease_ms is less than 1, or disconnected_ms less than 0.
 */
uint8_t ripc_service_set_lease(uint16_t service_id, int lease_ms, int disconnected_ms);

/*
 * Says how long ripc_send_short() and ripc_send_long() from a service look for another one that is not connected: at first 10 s. With 0
 * they fail at once; the other service is looked for all the same, and a later send may find it connected. Returns 0, or 1: it is no service of this process,
 * or the time is less than 0.
 */
uint8_t ripc_service_set_resolve_timeout(uint16_t service_id, int timeout_ms);

/*
 * How long the only item of a message by ripc_send_short() may be on the present path to another service: RECV_BUF_SIZE bytes, or fewer where
 * a network takes only shorter messages. 0: the other service is not connected, and is looked for from then on without waiting, or src is no
 * service of this process. A message with more items has space for 4 bytes less with each.
 */
uint32_t ripc_short_item_size_max(uint16_t src, uint16_t dest);

/*
 * Writes what carries messages to another service on the present path, with a 0 at its end: "shm", "udp", "tcp" or "eth". Returns 0, or 1: the
 * other service is not connected, src is no service of this process, or size is too small; 8 always suffices.
 */
uint8_t ripc_transport(uint16_t src, uint16_t dest, char *transport, size_t size);

/* Answers that the request is not carried out, and why: up to RECV_BUF_SIZE bytes. Returns what ripc_answer() does. */
uint8_t ripc_refuse(uint64_t request, const void *reason, uint32_t size);

/*
 * Services may have names: 1 to 63 letters, digits, '-', '_' and '.', first a letter or a digit. The name of service 80 is "80". Others get
 * a number, which means the service in this process only and in all calls.
 *
 * ripc_register_named() registers a service under a name, and ripc_number_of() names another one. Both return the number, or 65535: it is no
 * name, it is taken, or the directory can't be used.
 *
 * ripc_name_of() writes the name of a number, with a 0 at its end. Returns 0, or 1: size is too small; 64 always suffices.
 */
uint16_t ripc_register_named(const char *name);
uint16_t ripc_number_of(const char *name);
uint8_t ripc_name_of(uint16_t service_id, char *name, size_t size);

#ifdef __cplusplus
}
#endif

#endif
