/* The Common Communication Subsystem (CCS, 2006): active messages, described data and one-sided memory for runtimes such as MPI, Global
 * Arrays and UPC.
 *
 * The processes of a program start together, as a job: by `cci run`, or by a launcher that speaks PMIx or PMI-1. Each calls CCS_init, and in
 * the end CCS_finalize. In between, any process sends active messages to any other, which run a function there, and reads and writes memory
 * that the other has registered.
 *
 * Every function returns CCS_SUCCESS (0) or a code, which CCS_strerror says in words. A call that fails has changed nothing.
 *
 * Link with `pkg-config --cflags --libs ccs`. The header is for C99 to C23 and for C++.
 */
#ifndef CCS_H
#define CCS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Codes ---- */

#define CCS_SUCCESS 0
#define CCS_ERR_ARG 1            /* an argument that can never be right: nothing was done */
#define CCS_ERR_STATE 2          /* not now: not initialised, finalised, in a handler, or done already */
#define CCS_ERR_AGAIN 3          /* there is no space at the moment, or nothing ran */
#define CCS_ERR_NOMEM 4          /* memory or a limit is exhausted */
#define CCS_ERR_TOO_LONG 5       /* the data is longer than it may be */
#define CCS_ERR_EXISTS 6         /* the number of the handler is taken */
#define CCS_ERR_NOT_REGISTERED 7 /* the memory there is not registered by its process */
#define CCS_ERR_PEER 8           /* the process there is gone */
#define CCS_ERR_RANGE 9          /* no such rank, handler number or byte */
#define CCS_ERR_SYSTEM 10        /* the system or the launcher refuses */
#define CCS_ERR_UNSUPPORTED 11   /* not possible here */
#define CCS_ERR_ABORTED 12       /* the receiver did not want it */

/* A code in words. It never fails, may be called at any time, and the text stays. */
const char *CCS_strerror(int code);

/* ---- The job ---- */

/* Joins the job that this process was started in; without a launcher it is a job of one. Returns when this process can send. A process joins
 * once: a second call, even after CCS_finalize, is CCS_ERR_STATE. CCS_ERR_SYSTEM: a launcher's variables are set, and it does not answer. */
int CCS_init(void);

/* Joins for threads: only one thread calls (SINGLE), one at a time (SERIALIZED, as with CCS_init), or any at any time (MULTIPLE). *provided is
 * what was asked for. */
#define CCS_THREAD_SINGLE 0
#define CCS_THREAD_SERIALIZED 1
#define CCS_THREAD_MULTIPLE 2
int CCS_init_thread(int required, int *provided);

/* Completes all that any process has started, runs the handlers and callbacks that are due, and leaves. All processes call it; if some have
 * died, the living ones leave without them. Not in a handler or callback: CCS_ERR_STATE. */
int CCS_finalize(void);

/* *flag is 1 between CCS_init and CCS_finalize, else 0. May be called at any time. */
int CCS_initialized(int *flag);

/* The number of this process, from 0, and how many there are; and both among the processes of this host. */
int CCS_rank(int *rank);
int CCS_nprocs(int *n);
int CCS_local_rank(int *rank);
int CCS_local_nprocs(int *n);

/* Ends the whole job with this exit code (1 if it is not one of 1 to 255), and says why. Returns only if there is no job. */
int CCS_abort(int exit_code, const char *why);

/* Makes progress and runs what is due: handlers, callbacks, the error handler. Never blocks. CCS_SUCCESS if anything ran, else CCS_ERR_AGAIN. */
int CCS_poll(void);

/* Makes progress, and sleeps until something ran, for up to timeout_ns (-1: without a limit). CCS_SUCCESS: something ran, here or on any thread,
 * since this thread's last return from it; CCS_ERR_AGAIN: nothing did. */
int CCS_wait(int64_t timeout_ns);

/* Waits until a condition holds, with handlers running meanwhile. It also notices what a peer's put or atomic changed, which raises nothing:
 * it looks again at least every millisecond. Where nothing may wait (in a handler) it raises CCS_ERR_STATE by the error handler. */
#define CCS_block_until(condition)                       \
    do {                                                 \
        while (!(condition))                             \
            if (CCS_wait_for_change_() != CCS_SUCCESS)   \
                break;                                   \
    } while (0)
int CCS_wait_for_change_(void);

/* With on not 0, a thread of the library makes progress and runs handlers and callbacks, while the program's threads compute; with 0 it ends,
 * after the handler that it runs has returned. It is off at first. Handlers run there and inside of calls, as before; one at a time, unless threads
 * are MULTIPLE. CCS_ERR_UNSUPPORTED with threads SINGLE; CCS_ERR_STATE in a handler. */
int CCS_set_progress_thread(int on);

/* Has lost processes, and broken promises of others, reported to a function: a code, the rank concerned and what happened, in words that last
 * until it returns. It runs as callbacks do. Without one they are printed to stderr and end the job. With one this process goes on when others
 * die, if all living ones have set one; operations on lost ranks end with their callback. NULL: as at the start. */
int CCS_set_error_handler(void (*fn)(int code, int rank, const char *what, void *arg), void *arg);

/* ---- Contexts and active messages ---- */

typedef struct CCS_context_s_ *CCS_context_t;
typedef struct CCS_token_s_ *CCS_token_t;
typedef struct CCS_datadesc_s_ *CCS_datadesc_t;
typedef intptr_t CCS_arg_t;

#define CCS_MAX_ARGS 16

/* Makes a context, in which handlers have their numbers. The n-th one without a name is the n-th of every other process; the same name is the
 * same context everywhere. */
int CCS_new_context(CCS_context_t *context);
int CCS_new_named_context(const char *name, CCS_context_t *context);

/* Frees a context, once the messages of this process have left. Messages that come for it later are discarded. */
int CCS_free_context(CCS_context_t context);

/* Has messages for the number id (0 to 65,535) of a context call a function:
 *
 *     void fn(CCS_token_t token, void *buffer, unsigned buf_len, ...);
 *
 * where ... stands for up to 16 arguments of its own, each an integer or a pointer, as they were sent. The buffer is aligned to 16 bytes, has
 * the packed data (NULL if there are none) and is valid in the handler only, as the token is. Handlers run inside the calls of this interface
 * that poll or wait, one at a time, and never inside each other. A handler may start anything, and waits for nothing. A message for a number
 * without a handler waits for one, and so do later messages from the same sender. CCS_ERR_EXISTS: the number is taken. */
#define CCS_register_handler(context, id, fn) CCS_register_handler_((context), (id), (CCS_handler_t_)(fn))
typedef void (*CCS_handler_t_)(void);
int CCS_register_handler_(CCS_context_t context, int id, CCS_handler_t_ fn);

/* Sends a message to any process, this one too: `count` elements of described data, packed, and up to 16 arguments. The data are copied or sent
 * when it returns. It waits where there is no space, with handlers running; in a handler or callback, or while interrupts are held, it is
 * CCS_ERR_AGAIN instead. Messages of one process to another are handled in the order in which they were sent, across all contexts.
 *
 *     CCS_amrequest(context, node, data, count, desc, handler_id, nargs, arg1, ...)
 *     CCS_amreply(token, data, count, desc, handler_id, nargs, arg1, ...)
 *
 * are macros, which cast each argument to CCS_arg_t. nargs must be the number of arguments that follow: else CCS_ERR_ARG. A handler replies once
 * at most, and there is always space for its reply. */
#define CCS_amrequest(context, node, data, count, desc, handler_id, ...) \
    CCS_amrequestv((context), (node), (data), (count), (desc), (handler_id), CCS_ARGS_(__VA_ARGS__))
#define CCS_amreply(token, data, count, desc, handler_id, ...) \
    CCS_amreplyv((token), (data), (count), (desc), (handler_id), CCS_ARGS_(__VA_ARGS__))

int CCS_amrequestv(CCS_context_t context, int node, const void *data, size_t count, CCS_datadesc_t desc, int handler_id,
                   int nargs, const CCS_arg_t *args);
int CCS_amreplyv(CCS_token_t token, const void *data, size_t count, CCS_datadesc_t desc, int handler_id, int nargs,
                 const CCS_arg_t *args);
/* Like CCS_amrequestv, but returns CCS_ERR_AGAIN instead of waiting for space. */
int CCS_try_amrequestv(CCS_context_t context, int node, const void *data, size_t count, CCS_datadesc_t desc,
                       int handler_id, int nargs, const CCS_arg_t *args);

/* The longest data of one active message, to any rank of this job; at least 4,096 bytes. */
int CCS_am_max(size_t *bytes);

/* Which rank has sent a message, and in which context. Only inside its handler. */
int CCS_sender_rank(CCS_token_t token, int *rank);
int CCS_token_context(CCS_token_t token, CCS_context_t *context);

/* Large messages have data of any length. The handler runs first, and says where the data go: they are fetched from where they lie, without a copy
 * in between. Each side's `done` is called once, with CCS_SUCCESS when all data are there; CCS_ERR_ABORTED if the receiver did not want them;
 * CCS_ERR_TOO_LONG if the target has space for more or fewer bytes, and nothing has come; CCS_ERR_PEER if the other side is gone. */
typedef struct CCS_held_s_ *CCS_held_t;
typedef void (*CCS_done_t)(void *arg, int status);

/* `count` elements of described memory, which the program must leave alone until done was called. done may be NULL. */
typedef struct {
    void *buffer;
    size_t count;
    CCS_datadesc_t desc;
    CCS_done_t done;
    void *arg;
} CCS_target_t;

/* What a handler of large messages returns: nothing is to come; the data go to *target, which it has filled in; it has called CCS_large_hold, and
 * says later what becomes of the message. */
#define CCS_LARGE_ABORT 0
#define CCS_LARGE_ACCEPT 1
#define CCS_LARGE_DELAY 2

/* Has large messages for the number id (0 to 65,535) of a context call a function, which may do what handlers may. Its numbers are not those of
 * CCS_register_handler. */
int CCS_register_large_handler(CCS_context_t context, int id,
                               int (*fn)(CCS_token_t token, size_t bytes, CCS_target_t *target, int nargs,
                                         const CCS_arg_t *args, void *user),
                               void *user);

/* Sends a large message to any process, this one too. The data stay as they are until done was called, which may be NULL. It is handled in its turn
 * among all messages to that process; the data of a held one come later, and it holds up none behind it. It waits while there is no space, or
 * while 256 large ones are in progress to that process; in a handler it is CCS_ERR_AGAIN instead. */
int CCS_amlarge(CCS_context_t context, int node, const void *data, size_t count, CCS_datadesc_t desc, int handler_id,
                CCS_done_t done, void *arg, int nargs, const CCS_arg_t *args);

/* Keeps the message whose handler runs. It is answered once, at any time, by CCS_large_accept or CCS_large_abort; CCS_ERR_STATE: it is not held any more. */
int CCS_large_hold(CCS_token_t token, CCS_held_t *held);
int CCS_large_accept(CCS_held_t held, const CCS_target_t *target);
int CCS_large_abort(CCS_held_t held);

/* Says, in lines for people, how things are between this process and another one: whether they are connected, or why not any more; which credits
 * are out, and which handler the first message from there waits for; what was not handled because this process does not poll, or because this
 * thread has a lock; and what the connection reports (as cci_explain does). Call it at both ends when nothing moves. It changes nothing, and may
 * be called anywhere. The caller frees *text with free(). CCS_ERR_RANGE: there is no such process. */
int CCS_explain(int node, char **text);

/* ---- Locks ---- */

typedef struct {
    uint64_t opaque_[8];
}
#if defined(__GNUC__)
__attribute__((aligned(16)))
#endif
CCS_lock_t;

/* Handlers may use locks: a thread that has one runs no handlers, so none waits for a lock of the thread that it runs on. CCS_lock on one's own
 * lock, and CCS_unlock of another thread's, are CCS_ERR_STATE; CCS_trylock of one that is taken is CCS_ERR_AGAIN. */
int CCS_lock_init(CCS_lock_t *lock);
int CCS_lock(CCS_lock_t *lock);
int CCS_trylock(CCS_lock_t *lock);
int CCS_unlock(CCS_lock_t *lock);
int CCS_lock_destroy(CCS_lock_t *lock);

/* Between the two no handler or callback runs on this thread. They nest; one resume too many is CCS_ERR_STATE. */
int CCS_hold_interrupts(void);
int CCS_resume_interrupts(void);

/* ---- Data descriptions ---- */

/* A description says which bytes belong to one element of data, and in which order; MPI's rules hold for its order, its extent and its lower
 * bound. It knows bytes only. It never changes, any thread may use it, and what uses it goes on when it is freed. */
#define CCS_DATA_NULL ((CCS_datadesc_t)(uintptr_t)1) /* no bytes */
#define CCS_DATA8 ((CCS_datadesc_t)(uintptr_t)2)     /* 1 byte */
#define CCS_DATA16 ((CCS_datadesc_t)(uintptr_t)3)    /* 2 bytes */
#define CCS_DATA32 ((CCS_datadesc_t)(uintptr_t)4)    /* 4 bytes */
#define CCS_DATA64 ((CCS_datadesc_t)(uintptr_t)5)    /* 8 bytes */

/* Elements one after the other; blocks of them, at distances in extents of the base (vector, indexed, blockindexed) or in bytes (h...); blocks of
 * different elements; the same bytes with other bounds. */
int CCS_datadesc_contiguous(size_t count, CCS_datadesc_t base, CCS_datadesc_t *out);
int CCS_datadesc_vector(size_t count, size_t blocklen, ptrdiff_t stride, CCS_datadesc_t base, CCS_datadesc_t *out);
int CCS_datadesc_hvector(size_t count, size_t blocklen, ptrdiff_t stride_bytes, CCS_datadesc_t base, CCS_datadesc_t *out);
int CCS_datadesc_indexed(size_t count, const size_t *blocklens, const ptrdiff_t *displs, CCS_datadesc_t base,
                         CCS_datadesc_t *out);
int CCS_datadesc_hindexed(size_t count, const size_t *blocklens, const ptrdiff_t *displs_bytes, CCS_datadesc_t base,
                          CCS_datadesc_t *out);
int CCS_datadesc_blockindexed(size_t count, size_t blocklen, const ptrdiff_t *displs, CCS_datadesc_t base,
                              CCS_datadesc_t *out);
int CCS_datadesc_hblockindexed(size_t count, size_t blocklen, const ptrdiff_t *displs_bytes, CCS_datadesc_t base,
                               CCS_datadesc_t *out);
int CCS_datadesc_struct(size_t count, const size_t *blocklens, const ptrdiff_t *displs_bytes, const CCS_datadesc_t *bases,
                        CCS_datadesc_t *out);
int CCS_datadesc_resized(CCS_datadesc_t base, ptrdiff_t lower_bound, size_t extent, CCS_datadesc_t *out);
/* ARMCI's strided data: counts[0] bytes, these counts[1] times at distances of strides_bytes[0], and so on: levels + 1 counts, levels strides. */
int CCS_datadesc_strided(int levels, const size_t *counts, const ptrdiff_t *strides_bytes, CCS_datadesc_t *out);
/* Pieces of memory by their addresses, to be used with a null buffer and the count 1. */
int CCS_datadesc_iov(size_t count, const struct iovec *iov, CCS_datadesc_t *out);
/* Frees a description, and sets *desc to NULL. CCS_ERR_ARG: it is one of the constants above, or was freed before. */
int CCS_datadesc_free(CCS_datadesc_t *desc);
/* How many bytes an element has, packed; where it begins, and how far it is from one to the next. */
int CCS_datadesc_size(CCS_datadesc_t desc, size_t *bytes);
int CCS_datadesc_extent(CCS_datadesc_t desc, ptrdiff_t *lower_bound, size_t *extent);

/* Copies a part of the packed row of described data, from its byte first_byte on, until the row or the buffer ends; *done says how many bytes.
 * first_byte at the end of the row gives 0, beyond it CCS_ERR_RANGE. */
int CCS_pack(const void *buf, size_t count, CCS_datadesc_t desc, size_t first_byte, void *packed, size_t max_bytes,
             size_t *done);
int CCS_unpack(void *buf, size_t count, CCS_datadesc_t desc, size_t first_byte, const void *packed, size_t bytes,
               size_t *done);

/* ---- One-sided memory ---- */

typedef void (*CCS_callback_t)(void *arg);

/* Lets all processes of the job access memory of this one: heap, stack, static. It may be registered several times; others' rights end with the
 * last CCS_deregister_mem of the same range. A further one is CCS_ERR_STATE. */
int CCS_register_mem(void *addr, size_t len);
int CCS_deregister_mem(void *addr, size_t len);

/* Writes to, or reads from, memory of a process, by its own addresses. Both sides describe the same number of bytes. What the remote side
 * describes may lie in several registrations, but each of its contiguous pieces in one. The local memory needs none, and must stay as it is (CCS_put), or be left alone (CCS_get), until the
 * callback runs, once, or a fence returns: then the operation is complete there. If the remote memory is not registered, the error handler gets
 * CCS_ERR_NOT_REGISTERED, and nothing is touched; the callback runs afterwards. */
int CCS_put(int node, void *remote_buf, size_t remote_count, CCS_datadesc_t remote_desc, const void *local_buf,
            size_t local_count, CCS_datadesc_t local_desc, CCS_callback_t callback, void *cb_arg);
int CCS_get(int node, const void *remote_buf, size_t remote_count, CCS_datadesc_t remote_desc, void *local_buf,
            size_t local_count, CCS_datadesc_t local_desc, CCS_callback_t callback, void *cb_arg);

/* CCS_put, after which a handler runs at the target, with these arguments and without data (buffer NULL), when what was put is there. It does not
 * run if the put fails. The callback of the put does not wait for it. */
int CCS_put_am(int node, void *remote_buf, size_t remote_count, CCS_datadesc_t remote_desc, const void *local_buf,
               size_t local_count, CCS_datadesc_t local_desc, CCS_callback_t callback, void *cb_arg, CCS_context_t context,
               int handler_id, int nargs, const CCS_arg_t *args);

/* Inside a callback: how its operation has ended, as a code. */
int CCS_callback_status(int *status);

/* CCS_fence waits until all puts, gets and atomics of this process on the memory of node are complete; CCS_fence_all, on that of all processes. CCS_gfence
 * waits for those of all processes, which all call it. */
int CCS_fence(int node);
int CCS_fence_all(void);
int CCS_gfence(void);

typedef int CCS_op_t;
#define CCS_OP_FETCH 0
#define CCS_OP_SET 1
#define CCS_OP_ADD 2
#define CCS_OP_AND 3
#define CCS_OP_OR 4
#define CCS_OP_XOR 5
#define CCS_OP_MIN 6
#define CCS_OP_MAX 7
#define CCS_OP_CAS 8
#define CCS_OP_PROD 9

typedef int CCS_type_t;
#define CCS_TYPE_I32 0
#define CCS_TYPE_U32 1
#define CCS_TYPE_I64 2
#define CCS_TYPE_U64 3
#define CCS_TYPE_F32 4
#define CCS_TYPE_F64 5

/* Changes a word of a process's memory, at a multiple of its width, atomically towards all such operations from any process, and stores the value
 * from before in *result, if that is not NULL. CAS replaces it if it equals *compare, bit by bit. Bit operations on floats, and PROD, are
 * CCS_ERR_ARG. MIN, MAX and sums of floats are repeated when somebody else changes the word at the same time. */
int CCS_atomic(int node, void *remote, CCS_op_t op, CCS_type_t type, const void *operand, const void *compare,
               void *result, CCS_callback_t callback, void *cb_arg);

/* Changes each element of what is described at a process by the next one of this process's: op is SET, ADD, PROD, MIN, MAX, AND, OR or XOR. Each
 * element is changed atomically, towards all atomics and accumulates of all processes. Both sides are whole elements, and each piece at the
 * target is, at a multiple of their length; else, and for bit operations on floats, it is CCS_ERR_ARG. The target's library does it while that
 * process makes progress. All else is as with CCS_put. */
int CCS_accumulate(int node, void *remote_buf, size_t remote_count, CCS_datadesc_t remote_desc, const void *local_buf,
                   size_t local_count, CCS_datadesc_t local_desc, CCS_op_t op, CCS_type_t type, CCS_callback_t callback,
                   void *cb_arg);

/* Writes bytes to where the 8-byte pointer at remote_pointer of a process points, and then moves the pointer on by bytes, atomically: so several
 * processes append to one buffer. Pointer and buffer must be registered there. If it is refused, it moves nothing, and touches nothing. Data are not
 * aligned. The target's library does it while that process makes progress. */
int CCS_indexed_put(int node, void *remote_pointer, const void *local_buf, size_t bytes, CCS_callback_t callback,
                    void *cb_arg);

/* Allocates memory at the same address in every process, and registers it; all processes call it, with the same number of bytes. It is zeroed and
 * begins a page. On one host the processes map each other's, so that puts, gets and atomics are copies in which the other program takes no part.
 * CCS_ERR_ARG: no bytes, or processes differ in how many; CCS_ERR_NOMEM: some process can't have it. Then none has. */
int CCS_symmetric_alloc(size_t bytes, void **addr);
/* Frees it: all processes call it, when the operations on it are complete. CCS_ERR_ARG: no such memory begins there. */
int CCS_symmetric_free(void *addr);

/* ---- Collectives ---- */

/* A team has all processes, those of this host, or those that CCS_team_split puts together: the members of a team that give the same color form a new
 * one, in the order of their keys, and with equal keys in the order of the old team. All members call it. The two constant teams can't be freed. */
typedef struct CCS_team_s_ *CCS_team_t;
#define CCS_TEAM_WORLD ((CCS_team_t)(uintptr_t)1)
#define CCS_TEAM_NODE ((CCS_team_t)(uintptr_t)2)
int CCS_team_split(CCS_team_t team, int color, int key, CCS_team_t *out);
int CCS_team_free(CCS_team_t *team);
int CCS_team_rank(CCS_team_t team, int *rank);
int CCS_team_size(CCS_team_t team, int *size);

/* All members of a team call a collective, and those of one team in the same order. The blocking form waits with handlers running meanwhile, and
 * is CCS_ERR_STATE in a handler; CCS_ERR_PEER if a member is lost. The form with _nb starts it, and calls back when it has ended
 * (CCS_callback_status says how); until then recv must be left alone, while send was copied. Lengths are the same at all
 * members: `bytes` is each member's (of CCS_alltoall: each pair's). send may be recv. Those that are not the root may give NULL for what only
 * the root needs. CCS_alltoallv has a length and a displacement for each member, in bytes. Reductions take CCS_OP_ADD, PROD, MIN, MAX, AND,
 * OR, XOR; all members get the same bits. CCS_scan gives each member the reduction of its own data and those before it. */
int CCS_barrier(void);
int CCS_team_barrier(CCS_team_t team);
int CCS_broadcast(CCS_team_t team, int root, void *buf, size_t count, CCS_datadesc_t desc);
int CCS_gather(CCS_team_t team, int root, const void *send, void *recv, size_t bytes);
int CCS_scatter(CCS_team_t team, int root, const void *send, void *recv, size_t bytes);
int CCS_allgather(CCS_team_t team, const void *send, void *recv, size_t bytes);
int CCS_alltoall(CCS_team_t team, const void *send, void *recv, size_t bytes);
int CCS_alltoallv(CCS_team_t team, const void *send, const size_t *send_bytes, const size_t *send_displs, void *recv,
                  const size_t *recv_bytes, const size_t *recv_displs);
int CCS_reduce(CCS_team_t team, int root, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op);
int CCS_allreduce(CCS_team_t team, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op);
int CCS_scan(CCS_team_t team, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op);

int CCS_barrier_nb(CCS_callback_t callback, void *cb_arg);
int CCS_team_barrier_nb(CCS_team_t team, CCS_callback_t callback, void *cb_arg);
int CCS_broadcast_nb(CCS_team_t team, int root, void *buf, size_t count, CCS_datadesc_t desc, CCS_callback_t callback,
                     void *cb_arg);
int CCS_gather_nb(CCS_team_t team, int root, const void *send, void *recv, size_t bytes, CCS_callback_t callback,
                  void *cb_arg);
int CCS_scatter_nb(CCS_team_t team, int root, const void *send, void *recv, size_t bytes, CCS_callback_t callback,
                   void *cb_arg);
int CCS_allgather_nb(CCS_team_t team, const void *send, void *recv, size_t bytes, CCS_callback_t callback, void *cb_arg);
int CCS_alltoall_nb(CCS_team_t team, const void *send, void *recv, size_t bytes, CCS_callback_t callback, void *cb_arg);
int CCS_alltoallv_nb(CCS_team_t team, const void *send, const size_t *send_bytes, const size_t *send_displs, void *recv,
                     const size_t *recv_bytes, const size_t *recv_displs, CCS_callback_t callback, void *cb_arg);
int CCS_reduce_nb(CCS_team_t team, int root, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op,
                  CCS_callback_t callback, void *cb_arg);
int CCS_allreduce_nb(CCS_team_t team, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op,
                     CCS_callback_t callback, void *cb_arg);
int CCS_scan_nb(CCS_team_t team, const void *send, void *recv, size_t count, CCS_type_t type, CCS_op_t op,
                CCS_callback_t callback, void *cb_arg);

/* ---- What the macros above consist of ---- */

struct CCS_args_ {
    CCS_arg_t first[CCS_MAX_ARGS + 1];
};
static inline int CCS_nargs_(int nargs, int given) {
    return nargs == given ? nargs : -1;
}
#ifdef __cplusplus
#define CCS_LITERAL_ CCS_args_
#else
#define CCS_LITERAL_ (struct CCS_args_)
#endif
#define CCS_ARGS_(...) \
    CCS_nargs_(CCS_FIRST_(__VA_ARGS__, 0), CCS_COUNT_(__VA_ARGS__)), (CCS_LITERAL_{{0 CCS_CASTS_(__VA_ARGS__)}}).first + 1
#define CCS_FIRST_(first, ...) ((int)(first))
#define CCS_COUNT_(...) CCS_PICK_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define CCS_CASTS_(...)                                                                                              \
    CCS_PICK_(__VA_ARGS__, CCS_C16_, CCS_C15_, CCS_C14_, CCS_C13_, CCS_C12_, CCS_C11_, CCS_C10_, CCS_C9_, CCS_C8_, \
              CCS_C7_, CCS_C6_, CCS_C5_, CCS_C4_, CCS_C3_, CCS_C2_, CCS_C1_, CCS_C0_, 0)                            \
    (__VA_ARGS__)
#define CCS_PICK_(n, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, picked, ...) picked
#define CCS_C0_(n)
#define CCS_C1_(n, ...) CCS_D1_(__VA_ARGS__)
#define CCS_C2_(n, ...) CCS_D2_(__VA_ARGS__)
#define CCS_C3_(n, ...) CCS_D3_(__VA_ARGS__)
#define CCS_C4_(n, ...) CCS_D4_(__VA_ARGS__)
#define CCS_C5_(n, ...) CCS_D5_(__VA_ARGS__)
#define CCS_C6_(n, ...) CCS_D6_(__VA_ARGS__)
#define CCS_C7_(n, ...) CCS_D7_(__VA_ARGS__)
#define CCS_C8_(n, ...) CCS_D8_(__VA_ARGS__)
#define CCS_C9_(n, ...) CCS_D9_(__VA_ARGS__)
#define CCS_C10_(n, ...) CCS_D10_(__VA_ARGS__)
#define CCS_C11_(n, ...) CCS_D11_(__VA_ARGS__)
#define CCS_C12_(n, ...) CCS_D12_(__VA_ARGS__)
#define CCS_C13_(n, ...) CCS_D13_(__VA_ARGS__)
#define CCS_C14_(n, ...) CCS_D14_(__VA_ARGS__)
#define CCS_C15_(n, ...) CCS_D15_(__VA_ARGS__)
#define CCS_C16_(n, ...) CCS_D16_(__VA_ARGS__)
#define CCS_D1_(a) , (CCS_arg_t)(a)
#define CCS_D2_(a, ...) , (CCS_arg_t)(a) CCS_D1_(__VA_ARGS__)
#define CCS_D3_(a, ...) , (CCS_arg_t)(a) CCS_D2_(__VA_ARGS__)
#define CCS_D4_(a, ...) , (CCS_arg_t)(a) CCS_D3_(__VA_ARGS__)
#define CCS_D5_(a, ...) , (CCS_arg_t)(a) CCS_D4_(__VA_ARGS__)
#define CCS_D6_(a, ...) , (CCS_arg_t)(a) CCS_D5_(__VA_ARGS__)
#define CCS_D7_(a, ...) , (CCS_arg_t)(a) CCS_D6_(__VA_ARGS__)
#define CCS_D8_(a, ...) , (CCS_arg_t)(a) CCS_D7_(__VA_ARGS__)
#define CCS_D9_(a, ...) , (CCS_arg_t)(a) CCS_D8_(__VA_ARGS__)
#define CCS_D10_(a, ...) , (CCS_arg_t)(a) CCS_D9_(__VA_ARGS__)
#define CCS_D11_(a, ...) , (CCS_arg_t)(a) CCS_D10_(__VA_ARGS__)
#define CCS_D12_(a, ...) , (CCS_arg_t)(a) CCS_D11_(__VA_ARGS__)
#define CCS_D13_(a, ...) , (CCS_arg_t)(a) CCS_D12_(__VA_ARGS__)
#define CCS_D14_(a, ...) , (CCS_arg_t)(a) CCS_D13_(__VA_ARGS__)
#define CCS_D15_(a, ...) , (CCS_arg_t)(a) CCS_D14_(__VA_ARGS__)
#define CCS_D16_(a, ...) , (CCS_arg_t)(a) CCS_D15_(__VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
