/*
 * acp.h: Advanced Communication Primitives, as published with ACP 3: the basic layer, channels, segmented
 * buffers and the data library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program is started as the processes of a job: by `cci run`, mpirun, mpiexec or srun; alone, it is a job of one.
 *
 * What differs from the published library by intent is in the guide, docs/guide.md, under "What differs from the published ACP".
 *
 * Calls that fail return what their descriptions say, and have done nothing; cci_last_error() of cci.h says why. Only acp_abort() ends the process or
 * prints anything. One thread is in a call at a time; others wait for it.
 *
 * A process serves the others in its calls, and by a thread of the library once it has not called for a millisecond, so it may compute for as long as
 * it likes. The thread takes no signals, sleeps while there is nothing to do, and ends with acp_finalize(). A fork() child takes part in no job.
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
 * Joins the job; all processes call it, each once. Removes options that begin with --acp- from the arguments, each with its value:
 * --acp-size-smem is the length of the starter memory in bytes (10,240 by default), and --acp-size-smem-dl that of the heap of each process (64 MiB by
 * default; only what is used of it takes memory). All processes must choose the same values. Both arguments may be NULL.
 *
 * Returns 0, or -1: an option is unknown or has no value, the launcher does not answer, or another one of the processes has gone.
 */
int acp_init(int *argc, char ***argv);

/* Leaves the job, when all operations of all processes have ended. All call it. Frees everything. Returns 0, or -1. */
int acp_finalize(void);

/*
 * Ends all registrations and channels, fills starter memory with zeros, and makes this process `rank`. All processes call it, each with another rank.
 * Returns 0, or -1: two want the same rank, or one that does not exist; then nothing has changed in any process.
 */
int acp_reset(int rank);

/* Prints str and the message of errno to standard error, and ends the whole job. */
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
 * Lets all processes access memory, which must stay mapped until it is unregistered. Accesses take the connection of this colour:
 * on the device "any", colour 0 is the best path, and colour 1 a network, even to processes of this host.
 * ACP_ATKEY_NULL: addr is NULL, size is 0, or there is no such colour.
 */
acp_atkey_t acp_register_memory(void *addr, size_t size, int color);

/* Returns 0 when no process accesses the memory by this registration any more, or -1: it has ended before. */
int acp_unregister_memory(acp_atkey_t atkey);

/* The global address of a byte of registered memory. ACP_GA_NULL: it is not in this registration. */
acp_ga_t acp_query_ga(acp_atkey_t atkey, void *addr);

/* The byte of this process that an address names. NULL: it is another process's, or not registered. */
void *acp_query_address(acp_ga_t ga);

/* Whose memory an address names, and its colour; -1 for ACP_GA_NULL and for a value that is no address. */
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
 * As an order: if ranks and colours are those of the operation before, start under its condition, and do not overtake it; otherwise like
 * ACP_HANDLE_ALL.
 */
#define ACP_HANDLE_CONT ((acp_handle_t)-2)

/*
 * Each starts an operation and returns its handle. Any other order than those above is a handle: start when that operation and all before it have
 * ended. Operations end in the order in which they were started; any number may be in progress.
 *
 * ACP_HANDLE_NULL: an address names no process or colour, memory of this process is not registered, an atomic operation's address is not a
 * multiple of its width, or its dst is not of this process.
 *
 * An operation on memory that another process has not registered does nothing. acp_complete() of it, or of a later one, makes cci_last_error() say so;
 * operations that are ordered after it are not started.
 */

/* Copies size bytes; source and destination may be in any processes. */
acp_handle_t acp_copy(acp_ga_t dst, acp_ga_t src, size_t size, acp_handle_t order);

/* Change the 4 or 8 bytes at src, of any process, atomically. The value from before is stored at dst, which must be of this process. */
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

/* One end of a channel; an operation that was started on it, until it was waited for. */
typedef struct acp_ch *acp_ch_t;
typedef struct acp_request *acp_request_t;

#define ACP_CH_NULL ((acp_ch_t)0)
#define ACP_REQUEST_NULL ((acp_request_t)0)

/* The most requests of one end that were not waited for. */
#define ACP_CH_REQUESTS_MAX 8

/*
 * Makes this process's end of a channel from one rank to another. The n-th channel of two ranks is the same one at both; neither waits for the other.
 * A sender has 2 slots of 2,048 bytes, a receiver 8. ACP_CH_NULL: this process is neither of the two, or both, or a rank is not there.
 */
acp_ch_t acp_create_ch(int sender, int receiver);

/*
 * Starts to send size bytes, or to receive the next message into size bytes. Messages come in order; size may be 0. The memory belongs to the library until
 * the request was waited for. Long messages of the same host take one copy instead of two where buf is starter memory, or memory of acp_malloc, and requests
 * wait for them. ACP_REQUEST_NULL: the channel is none, was freed, or is at its other end; buf is NULL, and size is not 0; or
 * ACP_CH_REQUESTS_MAX requests were not waited for.
 */
acp_request_t acp_nbsend_ch(acp_ch_t ch, void *buf, size_t size);
acp_request_t acp_nbrecv_ch(acp_ch_t ch, void *buf, size_t size);

/*
 * Starts to free an end, after what was started on it. It must not be used any more. A sender's request ends when its messages have left; a receiver's, which
 * drops what was not received, when the sender has freed its end, too. ACP_REQUEST_NULL: the channel is none, or was freed.
 */
acp_request_t acp_nbfree_ch(acp_ch_t ch);

/* Frees an end, and waits until that is done. Returns 0, or -1. */
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

/*
 * How many bytes of memory an end takes, now and until it is freed: its slots and what is kept beside them, without requests in progress. Not in the
 * published interface. 0: there is no such channel, or it was freed.
 */
size_t acp_query_ch_bytes(acp_ch_t ch);

/* ---- Segmented buffers ------------------------------------------------------------------------------------------------------------- */

/*
 * One end of a ring of segments, which bring data from the program's memory at the source to the program's memory at the destination, without a
 * copy in between. Both ends have the same number of segments, of the same length. Segment n, counted from 0, is at place n modulo their number.
 */
typedef struct acp_segbuf *acp_segbuf_t;

#define ACP_SEGBUF_NULL ((acp_segbuf_t)0)

/*
 * Make this process's end of a buffer, in segsize * segnum bytes at buf. The n-th buffer from one rank to another is the same one at both; neither waits for
 * the other. Any pair of ranks may have buffers, in both directions. ACP_SEGBUF_NULL: there is no such rank, or it is this one; buf is NULL; or a size is 0.
 */
acp_segbuf_t acp_create_src_segbuf(int dst_rank, void *buf, size_t segsize, size_t segnum);
acp_segbuf_t acp_create_dst_segbuf(int src_rank, void *buf, size_t segsize, size_t segnum);

/* Waits until both ends were made. Returns 0, or -1: they have other segments, or the other process is gone. */
int acp_connect_segbuf(acp_segbuf_t segbuf);

/* 0 while both ends are there and neither was disconnected, 1 otherwise, -1: there is no such buffer. */
int acp_isconnected_segbuf(acp_segbuf_t segbuf);

/*
 * At the source. acp_isready_segbuf(): whether the segment at the tail may be written to (0), or not yet (1). acp_ack_segbuf() publishes that segment: all of it
 * comes to the destination. It must not be written to again before the destination has released it. -1: the buffer was disconnected, the other process is
 * gone, or there was no space.
 */
int acp_isready_segbuf(acp_segbuf_t segbuf);
int acp_ack_segbuf(acp_segbuf_t segbuf);

/*
 * At the destination. acp_isacked_segbuf(): whether the segment at the head is there (0), or not yet (1). acp_ready_segbuf() releases that segment: the source
 * may fill it again. -1: it is not there, and will not come, because the buffer was disconnected or the other process is gone; or there was none to release.
 */
int acp_isacked_segbuf(acp_segbuf_t segbuf);
int acp_ready_segbuf(acp_segbuf_t segbuf);

/* How many segments the destination has released (head), the source has published (tail), and have arrived (sent), as far as this end knows. -1: no buffer. */
int64_t acp_query_segbuf_head(acp_segbuf_t segbuf);
int64_t acp_query_segbuf_tail(acp_segbuf_t segbuf);
int64_t acp_query_segbuf_sent(acp_segbuf_t segbuf);

/* Ends the connection; a source waits until all that it has published is there. What has come can be taken afterwards. Returns 0, or -1. */
int acp_disconnect_segbuf(acp_segbuf_t segbuf);

/* Ends the connection as acp_disconnect_segbuf() does, and frees the end. The memory is the program's alone again. Returns 0, or -1: there is no such buffer. */
int acp_free_segbuf(acp_segbuf_t segbuf);

/* ---- Data library ------------------------------------------------------------------------------------------------------------------ */

/*
 * Each process has a heap, in which any process allocates memory, and containers are in the heaps. A container is memory and nothing else: any
 * process that has its handle, a small structure that may be sent as bytes, works on it at any time, wherever it is. Processes whose memory it is
 * take no part. Each call is atomic for all others, unless its description says that it takes several steps. If a process that survives deaths works on a
 * container, another one's death does not keep it from that.
 *
 * Where a call takes bytes, it takes them from global memory of any process. Calls that fail change nothing, unless their descriptions say so, and
 * return a value with ACP_GA_NULL as its address: a handle's ga, an iterator's elem (or its container's ga), an element's ga. Those that return numbers
 * return 0, and those that ask whether there is nothing return 1.
 *
 * Names end with the container's: acp_insert_map(), acp_increment_map_it(). acp_insert(map, ...) is the same as acp_insert_map(...), and
 * acp_increment(map, ...) as acp_increment_map_it(...).
 */

/*
 * Allocates memory on a rank, at a multiple of 16; size may be 0. ACP_GA_NULL: the heap there has no such memory, or there is no such
 * rank.
 */
acp_ga_t acp_malloc(size_t size, int rank);

/* Frees memory of any rank that acp_malloc() returned. Does nothing for ACP_GA_NULL, and for what was freed before. */
void acp_free(acp_ga_t ga);

/* Bytes in global memory, and two of them: a key and a value, or the two pieces of a range of a deque. */
typedef struct {
    acp_ga_t ga;
    size_t size;
} acp_element_t;
typedef struct {
    acp_element_t first, second;
} acp_pair_t;

/* -- Workspaces: memory over all ranks that is read and written like a file -- */

typedef acp_ga_t acp_wsd_t;
#define ACP_WSD_NULL ((acp_wsd_t)-1)

/* Makes a workspace of `size` zeros. All processes call it, and get the same descriptor. ACP_WSD_NULL: a heap is full, or the size is 0. */
acp_wsd_t acp_create_ws(size_t size);

/*
 * Says how workspaces are made from now on: in chunks of `size_default` bytes (at first 1 MiB), the first one on `proc_start` (at first 0), the next
 * ones on the ranks after it, in turn. The values of rank 0 count. Returns 0, or -1: there is no such rank, or the size is 0.
 */
int acp_setparams_ws(int proc_start, size_t size_default);

/*
 * Copy up to `size` bytes between global memory and a workspace, from an offset in the workspace on. Return how many: fewer at its end, 0 beyond
 * it. -1: there is no such workspace, or the memory is not registered.
 */
int64_t acp_read_ws(acp_wsd_t wsd, acp_ga_t ga, size_t size, size_t offset);
int64_t acp_write_ws(acp_wsd_t wsd, acp_ga_t ga, size_t size, size_t offset);

/* Frees a workspace. All processes call it; it is freed when the last one has. Returns 0, or -1. */
int acp_destroy_ws(acp_wsd_t wsd);

/* -- Vectors: bytes in a row on one rank. Sizes and indices are in bytes -- */

typedef struct {
    acp_ga_t ga;
} acp_vector_t;
typedef struct {
    acp_vector_t vector;
    int index;
} acp_vector_it_t;

/* Makes a vector of `size` zeros on a rank. */
acp_vector_t acp_create_vector(size_t size, int rank);
void acp_destroy_vector(acp_vector_t vector);

/* How many bytes it has, whether it has none, and for how many it has space. */
size_t acp_size_vector(acp_vector_t vector);
int acp_empty_vector(acp_vector_t vector);
size_t acp_capacity_vector(acp_vector_t vector);

/* Make space for `size` bytes in all; take all bytes off. */
void acp_reserve_vector(acp_vector_t vector, size_t size);
void acp_clear_vector(acp_vector_t vector);

/* Make the bytes of vector1 those of vector2, or of a range of one vector; give two vectors each other's bytes. */
void acp_assign_vector(acp_vector_t vector1, acp_vector_t vector2);
void acp_assign_range_vector(acp_vector_t vector, acp_vector_it_t start, acp_vector_it_t end);
void acp_swap_vector(acp_vector_t vector1, acp_vector_t vector2);

/* Append bytes, and take bytes off the end (all, if there are fewer). */
void acp_push_back_vector(acp_vector_t vector, acp_ga_t ga, size_t size);
void acp_pop_back_vector(acp_vector_t vector, size_t size);

/*
 * Put bytes in before an iterator, which then is theirs; take `size` bytes out (up to the end, if there are fewer), or a range. Return an iterator
 * of that place.
 */
acp_vector_it_t acp_insert_vector(acp_vector_it_t it, acp_ga_t ga, size_t size);
acp_vector_it_t acp_insert_range_vector(acp_vector_it_t it, acp_vector_it_t start, acp_vector_it_t end);
acp_vector_it_t acp_erase_vector(acp_vector_it_t it, size_t size);
acp_vector_it_t acp_erase_range_vector(acp_vector_it_t start, acp_vector_it_t end);

/* Where the byte with an index is, until the vector grows. ACP_GA_NULL: there is none. */
acp_ga_t acp_at_vector(acp_vector_t vector, int index);

acp_vector_it_t acp_begin_vector(acp_vector_t vector);
acp_vector_it_t acp_end_vector(acp_vector_t vector);
acp_vector_it_t acp_advance_vector_it(acp_vector_it_t it, int n);
int acp_distance_vector_it(acp_vector_it_t first, acp_vector_it_t last);

/* Where the byte of an iterator is, until the vector grows. */
acp_ga_t acp_dereference_vector_it(acp_vector_it_t it);

/* -- Deques: bytes in a row on one rank, which grow and shrink at both ends. Sizes and indices are in bytes -- */

typedef struct {
    acp_ga_t ga;
} acp_deque_t;
typedef struct {
    acp_deque_t deque;
    int index;
} acp_deque_it_t;

/* Makes an empty deque on a rank, with space for `size` bytes. */
acp_deque_t acp_create_deque(size_t size, int rank);
void acp_destroy_deque(acp_deque_t deque);

/* How many bytes it has, whether it has none, and for how many it has space. */
size_t acp_size_deque(acp_deque_t deque);
int acp_empty_deque(acp_deque_t deque);
size_t acp_capacity_deque(acp_deque_t deque);

/* Make space for `size` bytes in all; take all bytes off. */
void acp_reserve_deque(acp_deque_t deque, size_t size);
void acp_clear_deque(acp_deque_t deque);

/* Make the bytes of deque1 those of deque2, or of a range of one deque; give two deques each other's bytes. */
void acp_assign_deque(acp_deque_t deque1, acp_deque_t deque2);
void acp_assign_range_deque(acp_deque_t deque, acp_deque_it_t start, acp_deque_it_t end);
void acp_swap_deque(acp_deque_t deque1, acp_deque_t deque2);

/* Append bytes, and take bytes off the end (all, if there are fewer). */
void acp_push_back_deque(acp_deque_t deque, acp_ga_t ga, size_t size);
void acp_pop_back_deque(acp_deque_t deque, size_t size);

/* Take bytes off the front (all, if there are fewer), and put bytes there. */
void acp_pop_front_deque(acp_deque_t deque, size_t size);
void acp_push_front_deque(acp_deque_t deque, acp_ga_t ga, size_t size);

/*
 * Put bytes in before an iterator, which then is theirs; take `size` bytes out (up to the end, if there are fewer), or a range. Return an iterator
 * of that place.
 */
acp_deque_it_t acp_insert_deque(acp_deque_it_t it, acp_ga_t ga, size_t size);
acp_deque_it_t acp_insert_range_deque(acp_deque_it_t it, acp_deque_it_t start, acp_deque_it_t end);
acp_deque_it_t acp_erase_deque(acp_deque_it_t it, size_t size);
acp_deque_it_t acp_erase_range_deque(acp_deque_it_t start, acp_deque_it_t end);

/* Where the byte with an index is, until the deque grows. ACP_GA_NULL: there is none. */
acp_ga_t acp_at_deque(acp_deque_t deque, int index);

acp_deque_it_t acp_begin_deque(acp_deque_t deque);
acp_deque_it_t acp_end_deque(acp_deque_t deque);
acp_deque_it_t acp_advance_deque_it(acp_deque_it_t it, int n);
int acp_distance_deque_it(acp_deque_it_t first, acp_deque_it_t last);

/* Where `size` bytes from an iterator on are, until the deque grows: in one piece, or in two, of which the other one is empty otherwise. */
acp_pair_t acp_dereference_deque_it(acp_deque_it_t it, size_t size);

/* -- Lists: the handle and each element are on any rank -- */

typedef struct {
    acp_ga_t ga;
} acp_list_t;
/* An element, until it is removed; elem is ACP_GA_NULL at the end. */
typedef struct {
    acp_list_t list;
    acp_ga_t elem;
} acp_list_it_t;

acp_list_t acp_create_list(int rank);
void acp_destroy_list(acp_list_t list);

size_t acp_size_list(acp_list_t list);
int acp_empty_list(acp_list_t list);
void acp_clear_list(acp_list_t list);

/* Make the elements of a list copies of those of list2, or of a range of one list: each on the rank that it is on there. In several steps. */
void acp_assign_list(acp_list_t list1, acp_list_t list2);
void acp_assign_range_list(acp_list_t list, acp_list_it_t start, acp_list_it_t end);

/* Put in a copy of an element's bytes, on `rank`: before an iterator, at the end, or before all others. The first one returns the new element. */
acp_list_it_t acp_insert_list(acp_list_it_t it, acp_element_t elem, int rank);
void acp_push_back_list(acp_list_t list, acp_element_t elem, int rank);
void acp_push_front_list(acp_list_t list, acp_element_t elem, int rank);

/* Puts in copies of a range before an iterator. Returns the first of them. In several steps. */
acp_list_it_t acp_insert_range_list(acp_list_it_t it, acp_list_it_t start, acp_list_it_t end);

/* Remove an element, or a range, in several steps. Return the element after it. */
acp_list_it_t acp_erase_list(acp_list_it_t it);
acp_list_it_t acp_erase_range_list(acp_list_it_t start, acp_list_it_t end);
void acp_pop_back_list(acp_list_t list);
void acp_pop_front_list(acp_list_t list);

/* Remove all elements with the bytes of elem; remove each element that equals the one before it. */
void acp_remove_list(acp_list_t list, acp_element_t elem);
void acp_unique_list(acp_list_t list);

void acp_reverse_list(acp_list_t list);

/*
 * Sort a list, and merge copies of the elements of list2, which stays as it is, into list1, both of which are sorted. comp returns less than 0, 0
 * or more than 0, if elem1 comes before elem2, is equal to it, or comes after it; equal ones stay in their order. comp may call this library. No other
 * process may change the lists meanwhile: otherwise nothing is sorted, or the lists are merged in part.
 */
void acp_sort_list(acp_list_t list, int (*comp)(acp_element_t elem1, acp_element_t elem2));
void acp_merge_list(acp_list_t list1, acp_list_t list2, int (*comp)(acp_element_t elem1, acp_element_t elem2));

/*
 * Move element it2, or a range in several steps, before an iterator of the same list or of another one. Iterators of what was moved are of the
 * other list then.
 */
void acp_splice_list(acp_list_it_t it1, acp_list_it_t it2);
void acp_splice_range_list(acp_list_it_t it, acp_list_it_t start, acp_list_it_t end);

/* Gives two lists each other's elements, in several steps. */
void acp_swap_list(acp_list_t list1, acp_list_t list2);

acp_list_it_t acp_begin_list(acp_list_t list);
acp_list_it_t acp_end_list(acp_list_t list);
/* The iterator n elements further on, or back. The end is after the last element; there is nothing after the end. */
acp_list_it_t acp_advance_list_it(acp_list_it_t it, int n);
acp_list_it_t acp_increment_list_it(acp_list_it_t it);
acp_list_it_t acp_decrement_list_it(acp_list_it_t it);
int acp_distance_list_it(acp_list_it_t first, acp_list_it_t last);
/* Where the bytes of an element are, until it is removed. */
acp_element_t acp_dereference_list_it(acp_list_it_t it);

/* -- Sets, multisets and maps: hash tables over the memory of several ranks -- */

/* A set: keys. */
typedef struct {
    acp_ga_t ga;
    uint64_t num_ranks, num_slots;
} acp_set_t;
/*
 * An element, until it is removed: which of the ranks, which of its buckets, and where. elem is ACP_GA_NULL at the end. rank is below 0 in local
 * iterators.
 */
typedef struct {
    acp_set_t set;
    int rank, slot;
    acp_ga_t elem;
} acp_set_it_t;

/* Makes a set with num_slots buckets on each of the ranks. Its directory is on `rank`. */
acp_set_t acp_create_set(int num_ranks, int *ranks, int num_slots, int rank);
void acp_destroy_set(acp_set_t set);

/* Enters a key. Returns 1, or 0: it was there. */
int acp_insert_set(acp_set_t set, acp_element_t key);
void acp_remove_set(acp_set_t set, acp_element_t key);

size_t acp_size_set(acp_set_t set);
size_t acp_size_local_set(acp_set_t set);
int acp_empty_set(acp_set_t set);
int acp_empty_local_set(acp_set_t set);
void acp_clear_set(acp_set_t set);
void acp_clear_local_set(acp_set_t set);

/*
 * In several steps: make the elements of set1 those of set2; enter those of set2, which keeps them (merge) or loses them (move). The local ones do
 * so with elements in the caller's memory.
 */
void acp_assign_set(acp_set_t set1, acp_set_t set2);
void acp_assign_local_set(acp_set_t set1, acp_set_t set2);
void acp_merge_set(acp_set_t set1, acp_set_t set2);
void acp_merge_local_set(acp_set_t set1, acp_set_t set2);
void acp_move_set(acp_set_t set1, acp_set_t set2);
void acp_move_local_set(acp_set_t set1, acp_set_t set2);

/* Gives two each other's elements. Both must have been made with the same number of ranks. */
void acp_swap_set(acp_set_t set1, acp_set_t set2);

/* The element with a key, or the end. */
acp_set_it_t acp_find_set(acp_set_t set, acp_element_t key);

/*
 * Go through the elements, in no order: all, or those in the caller's memory. What changes meanwhile may be seen or not; after an element that was
 * removed, those of the next bucket follow.
 */
acp_set_it_t acp_begin_set(acp_set_t set);
acp_set_it_t acp_begin_local_set(acp_set_t set);
acp_set_it_t acp_end_set(acp_set_t set);
acp_set_it_t acp_end_local_set(acp_set_t set);
acp_set_it_t acp_increment_set_it(acp_set_it_t it);

/* Where a key is, until the element is removed. */
acp_element_t acp_dereference_set_it(acp_set_it_t it);

/* A multiset: keys, each of which counts how often it was entered; sizes and iterators count a key once. */
typedef struct {
    acp_ga_t ga;
    uint64_t num_ranks, num_slots;
} acp_multiset_t;
/*
 * An element, until it is removed: which of the ranks, which of its buckets, and where. elem is ACP_GA_NULL at the end. rank is below 0 in local
 * iterators.
 */
typedef struct {
    acp_multiset_t set;
    int rank, slot;
    acp_ga_t elem;
} acp_multiset_it_t;

/* Makes a multiset with num_slots buckets on each of the ranks. Its directory is on `rank`. */
acp_multiset_t acp_create_multiset(int num_ranks, int *ranks, int num_slots, int rank);
void acp_destroy_multiset(acp_multiset_t set);

/* Enters a key once more. Returns 1, or 0: the heap is full, or a rank is gone. */
int acp_insert_multiset(acp_multiset_t set, acp_element_t key);
/* How often a key is there. */
uint64_t acp_retrieve_multiset(acp_multiset_t set, acp_element_t key);
/* Remove a key once, or however often it is there. */
void acp_remove_multiset(acp_multiset_t set, acp_element_t key);
void acp_remove_all_multiset(acp_multiset_t set, acp_element_t key);

size_t acp_size_multiset(acp_multiset_t set);
size_t acp_size_local_multiset(acp_multiset_t set);
int acp_empty_multiset(acp_multiset_t set);
int acp_empty_local_multiset(acp_multiset_t set);
void acp_clear_multiset(acp_multiset_t set);
void acp_clear_local_multiset(acp_multiset_t set);

/*
 * In several steps: make the elements of set1 those of set2; enter those of set2, which keeps them (merge) or loses them (move). Counts add up. The
 * local ones do so with elements in the caller's memory.
 */
void acp_assign_multiset(acp_multiset_t set1, acp_multiset_t set2);
void acp_assign_local_multiset(acp_multiset_t set1, acp_multiset_t set2);
void acp_merge_multiset(acp_multiset_t set1, acp_multiset_t set2);
void acp_merge_local_multiset(acp_multiset_t set1, acp_multiset_t set2);
void acp_move_multiset(acp_multiset_t set1, acp_multiset_t set2);
void acp_move_local_multiset(acp_multiset_t set1, acp_multiset_t set2);

/* Gives two each other's elements. Both must have been made with the same number of ranks. */
void acp_swap_multiset(acp_multiset_t set1, acp_multiset_t set2);

/* The element with a key, or the end. */
acp_multiset_it_t acp_find_multiset(acp_multiset_t set, acp_element_t key);

/*
 * Go through the elements, in no order: all, or those in the caller's memory. What changes meanwhile may be seen or not; after an element that was
 * removed, those of the next bucket follow.
 */
acp_multiset_it_t acp_begin_multiset(acp_multiset_t set);
acp_multiset_it_t acp_begin_local_multiset(acp_multiset_t set);
acp_multiset_it_t acp_end_multiset(acp_multiset_t set);
acp_multiset_it_t acp_end_local_multiset(acp_multiset_t set);
acp_multiset_it_t acp_increment_multiset_it(acp_multiset_it_t it);

/* Where a key is, until the element is removed. */
acp_element_t acp_dereference_multiset_it(acp_multiset_it_t it);

/* A map: keys with a value each. */
typedef struct {
    acp_ga_t ga;
    uint64_t num_ranks, num_slots;
} acp_map_t;
/*
 * An element, until it is removed: which of the ranks, which of its buckets, and where. elem is ACP_GA_NULL at the end. rank is below 0 in local
 * iterators.
 */
typedef struct {
    acp_map_t map;
    int rank, slot;
    acp_ga_t elem;
} acp_map_it_t;

/* Makes a map with num_slots buckets on each of the ranks. Its directory is on `rank`. */
acp_map_t acp_create_map(int num_ranks, int *ranks, int num_slots, int rank);
void acp_destroy_map(acp_map_t map);

/*
 * Enters the value pair.second under the key pair.first. Returns 1, or 0: the key has a value, which stays. A value of no bytes removes the key,
 * and 0 is returned, as by the published library.
 */
int acp_insert_map(acp_map_t map, acp_pair_t pair);
/* Copies the value under the key pair.first to pair.second, as much as fits there. Returns the length of the value, or 0: there is none. */
size_t acp_retrieve_map(acp_map_t map, acp_pair_t pair);
void acp_remove_map(acp_map_t map, acp_element_t key);

size_t acp_size_map(acp_map_t map);
size_t acp_size_local_map(acp_map_t map);
int acp_empty_map(acp_map_t map);
int acp_empty_local_map(acp_map_t map);
void acp_clear_map(acp_map_t map);
void acp_clear_local_map(acp_map_t map);

/*
 * In several steps: make the elements of map1 those of map2; enter those of map2, which keeps them (merge) or loses them (move). Of a key that both
 * have, the value of map1 stays. The local ones do so with elements in the caller's memory.
 */
void acp_assign_map(acp_map_t map1, acp_map_t map2);
void acp_assign_local_map(acp_map_t map1, acp_map_t map2);
void acp_merge_map(acp_map_t map1, acp_map_t map2);
void acp_merge_local_map(acp_map_t map1, acp_map_t map2);
void acp_move_map(acp_map_t map1, acp_map_t map2);
void acp_move_local_map(acp_map_t map1, acp_map_t map2);

/* Gives two each other's elements. Both must have been made with the same number of ranks. */
void acp_swap_map(acp_map_t map1, acp_map_t map2);

/* The element with a key, or the end. */
acp_map_it_t acp_find_map(acp_map_t map, acp_element_t key);

/*
 * Go through the elements, in no order: all, or those in the caller's memory. What changes meanwhile may be seen or not; after an element that was
 * removed, those of the next bucket follow.
 */
acp_map_it_t acp_begin_map(acp_map_t map);
acp_map_it_t acp_begin_local_map(acp_map_t map);
acp_map_it_t acp_end_map(acp_map_t map);
acp_map_it_t acp_end_local_map(acp_map_t map);
acp_map_it_t acp_increment_map_it(acp_map_it_t it);

/* Where a key and its value are, until the element is removed. */
acp_pair_t acp_dereference_map_it(acp_map_it_t it);

/* What an insertion may return in C++'s containers; no call here does. */
typedef struct {
    acp_map_it_t it;
    int success;
} acp_map_ib_t;

/* -- The same calls by the container's name as the first argument -- */

#define acp_assign(type, ...) acp_assign_##type(__VA_ARGS__)
#define acp_assign_local(type, ...) acp_assign_local_##type(__VA_ARGS__)
#define acp_assign_range(type, ...) acp_assign_range_##type(__VA_ARGS__)
#define acp_at(type, ...) acp_at_##type(__VA_ARGS__)
#define acp_begin(type, ...) acp_begin_##type(__VA_ARGS__)
#define acp_begin_local(type, ...) acp_begin_local_##type(__VA_ARGS__)
#define acp_capacity(type, ...) acp_capacity_##type(__VA_ARGS__)
#define acp_clear(type, ...) acp_clear_##type(__VA_ARGS__)
#define acp_clear_local(type, ...) acp_clear_local_##type(__VA_ARGS__)
#define acp_create(type, ...) acp_create_##type(__VA_ARGS__)
#define acp_destroy(type, ...) acp_destroy_##type(__VA_ARGS__)
#define acp_empty(type, ...) acp_empty_##type(__VA_ARGS__)
#define acp_empty_local(type, ...) acp_empty_local_##type(__VA_ARGS__)
#define acp_end(type, ...) acp_end_##type(__VA_ARGS__)
#define acp_end_local(type, ...) acp_end_local_##type(__VA_ARGS__)
#define acp_erase(type, ...) acp_erase_##type(__VA_ARGS__)
#define acp_erase_range(type, ...) acp_erase_range_##type(__VA_ARGS__)
#define acp_find(type, ...) acp_find_##type(__VA_ARGS__)
#define acp_insert(type, ...) acp_insert_##type(__VA_ARGS__)
#define acp_insert_range(type, ...) acp_insert_range_##type(__VA_ARGS__)
#define acp_merge(type, ...) acp_merge_##type(__VA_ARGS__)
#define acp_merge_local(type, ...) acp_merge_local_##type(__VA_ARGS__)
#define acp_move(type, ...) acp_move_##type(__VA_ARGS__)
#define acp_move_local(type, ...) acp_move_local_##type(__VA_ARGS__)
#define acp_pop_back(type, ...) acp_pop_back_##type(__VA_ARGS__)
#define acp_pop_front(type, ...) acp_pop_front_##type(__VA_ARGS__)
#define acp_push_back(type, ...) acp_push_back_##type(__VA_ARGS__)
#define acp_push_front(type, ...) acp_push_front_##type(__VA_ARGS__)
#define acp_remove(type, ...) acp_remove_##type(__VA_ARGS__)
#define acp_remove_all(type, ...) acp_remove_all_##type(__VA_ARGS__)
#define acp_reserve(type, ...) acp_reserve_##type(__VA_ARGS__)
#define acp_retrieve(type, ...) acp_retrieve_##type(__VA_ARGS__)
#define acp_reverse(type, ...) acp_reverse_##type(__VA_ARGS__)
#define acp_size(type, ...) acp_size_##type(__VA_ARGS__)
#define acp_size_local(type, ...) acp_size_local_##type(__VA_ARGS__)
#define acp_sort(type, ...) acp_sort_##type(__VA_ARGS__)
#define acp_splice(type, ...) acp_splice_##type(__VA_ARGS__)
#define acp_splice_range(type, ...) acp_splice_range_##type(__VA_ARGS__)
#define acp_swap(type, ...) acp_swap_##type(__VA_ARGS__)
#define acp_unique(type, ...) acp_unique_##type(__VA_ARGS__)
#define acp_advance(type, ...) acp_advance_##type##_it(__VA_ARGS__)
#define acp_decrement(type, ...) acp_decrement_##type##_it(__VA_ARGS__)
#define acp_dereference(type, ...) acp_dereference_##type##_it(__VA_ARGS__)
#define acp_distance(type, ...) acp_distance_##type##_it(__VA_ARGS__)
#define acp_increment(type, ...) acp_increment_##type##_it(__VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
