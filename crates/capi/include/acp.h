/*
 * acp.h: Advanced Communication Primitives, as published with ACP 3: the basic layer and channels.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program is started as the processes of a job: by `cci run`, mpirun, mpiexec or srun; alone, it is a job of one. Segmented buffers and the data
 * library are not here yet.
 *
 * Calls that fail return what their descriptions say, and have done nothing; cci_last_error() of cci.h says why. Only acp_abort() ends the process or
 * prints anything. One thread is in a call at a time; others wait for it.
 *
 * A process serves the others in its calls: where its memory is not mapped by them, which it is for starter memory on one host, a process that
 * computes for long calls acp_inquire() now and then.
 */
#ifndef ACP_H
#define ACP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Infrastructure ---------------------------------------------------------------------------------------------------------------- */

/*
 * Joins the job, once a process; all processes call it. Removes options that begin with --acp- from the arguments, each with its value; of these,
 * --acp-size-smem is the length of the starter memory (10,240 bytes without), which all processes choose alike. Both arguments may be NULL.
 *
 * Returns 0, or -1: an option is unknown or has no value, the launcher does not answer, or another one of the processes has gone.
 */
int acp_init(int *argc, char ***argv);

/* Leaves the job, when all operations of all processes have ended. All call it. Frees everything. Returns 0, or -1. */
int acp_finalize(void);

/*
 * Ends all registrations and channels, fills starter memory with zeros, and makes this process `rank`. All processes call it, each with another rank.
 * Returns 0, or -1: two want the same rank, or one that there is not; then nothing has changed on any process.
 */
int acp_reset(int rank);

/* Says str and the message of errno on standard error, and ends the whole job. */
void acp_abort(const char *str);

/* Waits until all processes have called it; sleeps meanwhile. Returns 0, or -1. */
int acp_sync(void);

/* The number of this process, from 0, and how many there are; -1 before acp_init() and after acp_finalize(). */
int acp_rank(void);
int acp_procs(void);

/* ---- Global memory management ------------------------------------------------------------------------------------------------------ */

/* Names a byte of registered memory in every process. Within registered memory, its bytes have consecutive addresses. */
typedef uint64_t acp_ga_t;
/* Names a registration. */
typedef uint64_t acp_atkey_t;

#define ACP_GA_NULL ((acp_ga_t)0)
#define ACP_ATKEY_NULL ((acp_atkey_t)0)

/* Where the starter memory of a process begins; its colour is 0. ACP_GA_NULL: there is no such rank. */
acp_ga_t acp_query_starter_ga(int rank);

/*
 * Lets all processes access memory, which stays mapped until it was unregistered. Accesses take the connection of this colour.
 * ACP_ATKEY_NULL: addr is NULL, size is 0, or there is no such colour.
 */
acp_atkey_t acp_register_memory(void *addr, size_t size, int color);

/* Returns 0 when no process accesses the memory by this registration any more, or -1: it has ended before. */
int acp_unregister_memory(acp_atkey_t atkey);

/* The global address of a byte of registered memory. ACP_GA_NULL: it is not in this registration. */
acp_ga_t acp_query_ga(acp_atkey_t atkey, void *addr);

/* The byte of this process that an address names. NULL: it is another process's, or not registered. */
void *acp_query_address(acp_ga_t ga);

/* Whose memory an address names, and its colour; -1 for ACP_GA_NULL and what is no address. */
int acp_query_rank(acp_ga_t ga);
int acp_query_color(acp_ga_t ga);

/* How many colours there are, from 0. */
int acp_colors(void);

/* ---- Global memory access ---------------------------------------------------------------------------------------------------------- */

/* Names an operation of this process. Those that were started later have greater handles. */
typedef int64_t acp_handle_t;

/* As an order: start at once. As a result: the operation was not started. */
#define ACP_HANDLE_NULL ((acp_handle_t)0)
/* As an order: start when all operations of this process have ended. To acp_complete() and acp_inquire(): all operations. */
#define ACP_HANDLE_ALL ((acp_handle_t)-1)
/*
 * As an order: where ranks and colours are those of the operation before, start under its condition, and do not overtake it; else as
 * ACP_HANDLE_ALL.
 */
#define ACP_HANDLE_CONT ((acp_handle_t)-2)

/*
 * Each starts an operation and returns its handle. Any other order than those above is a handle: start when that operation and all before it have
 * ended. Operations end in the order in which they were started; any number may be under way.
 *
 * ACP_HANDLE_NULL: an address names no process or colour, memory of this process is not registered, an atomic operation's address is not a
 * multiple of its width, or its dst is not of this process.
 *
 * An operation on memory that another process has not registered does nothing. acp_complete() of it, or of a later one, sets what cci_last_error() says;
 * what is ordered behind it is not started.
 */

/* Copies size bytes; source and destination are any processes'. */
acp_handle_t acp_copy(acp_ga_t dst, acp_ga_t src, size_t size, acp_handle_t order);

/* Change the 4 or 8 bytes at src, of any process, atomically. The value from before is put to dst, which is of this process. */
acp_handle_t acp_cas4(acp_ga_t dst, acp_ga_t src, uint32_t oldval, uint32_t newval, acp_handle_t order);
acp_handle_t acp_cas8(acp_ga_t dst, acp_ga_t src, uint64_t oldval, uint64_t newval, acp_handle_t order);
acp_handle_t acp_swap4(acp_ga_t dst, acp_ga_t src, uint32_t value, acp_handle_t order);
acp_handle_t acp_swap8(acp_ga_t dst, acp_ga_t src, uint64_t value, acp_handle_t order);
acp_handle_t acp_add4(acp_ga_t dst, acp_ga_t src, uint32_t value, acp_handle_t order);
acp_handle_t acp_add8(acp_ga_t dst, acp_ga_t src, uint64_t value, acp_handle_t order);
acp_handle_t acp_xor4(acp_ga_t dst, acp_ga_t src, uint32_t value, acp_handle_t order);
acp_handle_t acp_xor8(acp_ga_t dst, acp_ga_t src, uint64_t value, acp_handle_t order);
acp_handle_t acp_or4(acp_ga_t dst, acp_ga_t src, uint32_t value, acp_handle_t order);
acp_handle_t acp_or8(acp_ga_t dst, acp_ga_t src, uint64_t value, acp_handle_t order);
acp_handle_t acp_and4(acp_ga_t dst, acp_ga_t src, uint32_t value, acp_handle_t order);
acp_handle_t acp_and8(acp_ga_t dst, acp_ga_t src, uint64_t value, acp_handle_t order);

/* Waits until an operation and all before it have ended. Returns at once for ACP_HANDLE_NULL and for operations that were not started. */
void acp_complete(acp_handle_t handle);

/* 1 while an operation up to this one has not ended, else 0. Never waits. */
int acp_inquire(acp_handle_t handle);

/* ---- Channels ---------------------------------------------------------------------------------------------------------------------- */

/* One end of a channel, and what was started on it, until it was waited for. */
typedef struct acp_ch *acp_ch_t;
typedef struct acp_request *acp_request_t;

#define ACP_CH_NULL ((acp_ch_t)0)
#define ACP_REQUEST_NULL ((acp_request_t)0)

/* So many requests at most of an end that were not waited for. */
#define ACP_CH_REQUESTS_MAX 8

/*
 * Makes this process's end of a channel from one rank to another. The n-th channel of two ranks is the same one at both; neither waits for the other.
 * A sender has 2 slots of 2,048 bytes, a receiver 8. ACP_CH_NULL: this process is neither of the two, or both, or a rank is not there.
 */
acp_ch_t acp_create_ch(int sender, int receiver);

/*
 * Starts to send size bytes, or to receive the next message into size bytes. Messages come in order; size may be 0. The memory belongs to the library until
 * the request was waited for. ACP_REQUEST_NULL: the channel is none, was freed, or is at its other end; buf is NULL, and size is not 0; or
 * ACP_CH_REQUESTS_MAX requests were not waited for.
 */
acp_request_t acp_nbsend_ch(acp_ch_t ch, void *buf, size_t size);
acp_request_t acp_nbrecv_ch(acp_ch_t ch, void *buf, size_t size);

/*
 * Starts to free an end, behind what was started on it. It may not be used any more. A sender's request ends when its messages have left; a receiver's, which
 * drops what was not received, when the sender has freed its end, too. ACP_REQUEST_NULL: the channel is none, or was freed.
 */
acp_request_t acp_nbfree_ch(acp_ch_t ch);

/* Does so, and waits. Returns 0, or -1. */
int acp_free_ch(acp_ch_t ch);

/*
 * Waits for a request, once. Returns how many bytes of the message are in the memory; of one that is longer than the memory, the rest is lost. 0 for a
 * message that was sent and for an end that was freed. (size_t)-1: the request is none, was waited for before, or has failed, because the other process is
 * gone, or has freed its end and sent nothing more.
 */
size_t acp_wait_ch(acp_request_t request);

/*
 * Waits for n requests. sizes, unless it is NULL, gets what acp_wait_ch() would return for each. Returns 0, or -1: one has failed, or n is negative, or
 * requests is NULL.
 */
int acp_waitall_ch(acp_request_t *requests, int n, size_t *sizes);

#ifdef __cplusplus
}
#endif

#endif
