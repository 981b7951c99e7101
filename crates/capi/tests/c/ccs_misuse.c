/* Every misuse that the interface names, function by function: its code, and that nothing came of it. Before CCS_init and after CCS_finalize all
 * functions are tried, and in between with every argument that can never be right. Runs as a job of any size. */
#include "ccs_check.h"

static int rank, size, ran, refusals;
static uint64_t words[32], mine[32];
static CCS_context_t context;

static void handler(CCS_token_t token, void *buffer, unsigned len)
{
    (void)token, (void)buffer, (void)len;
    ran++;
}

static void callback(void *arg)
{
    (void)arg;
    ran++;
}

static void done(void *arg, int status)
{
    (void)arg, (void)status;
    ran++;
}

static int large(CCS_token_t token, size_t bytes, CCS_target_t *target, int nargs, const CCS_arg_t *args, void *user)
{
    (void)token, (void)bytes, (void)target, (void)nargs, (void)args, (void)user;
    ran++;
    return CCS_LARGE_ABORT;
}

static void refused(int code, int who, const char *what, void *arg)
{
    (void)what, (void)arg;
    CHECK(code == CCS_ERR_NOT_REGISTERED && who == 0);
    refusals++;
}

/* All functions but CCS_init, CCS_init_thread, CCS_initialized and CCS_strerror, each as it could be called. What CCS_block_until waits by returns
 * no code: outside of a job it ends the process. */
static void outside(void)
{
    const int state = CCS_ERR_STATE;
    int number = 7;
    size_t length = 7, counts[2] = {1, 1};
    ptrdiff_t bound = 7, at[2] = {0, 8};
    char *text = NULL;
    void *address = words;
    uint64_t word = 1;
    struct iovec piece = {words, 8};
    CCS_datadesc_t d8 = CCS_DATA8, out = NULL, bases[2] = {CCS_DATA8, CCS_DATA8};
    CCS_context_t made = NULL, some = (CCS_context_t)(uintptr_t)1;
    CCS_token_t token = (CCS_token_t)(uintptr_t)1;
    CCS_team_t world = CCS_TEAM_WORLD, team = NULL;
    CCS_held_t held = NULL;
    CCS_target_t target = {words, 1, CCS_DATA8, done, NULL};
    CCS_lock_t lock;
    memset(&lock, 0, sizeof lock);

    CODE(CCS_finalize(), state);
    CODE(CCS_rank(&number), state);
    CODE(CCS_nprocs(&number), state);
    CODE(CCS_local_rank(&number), state);
    CODE(CCS_local_nprocs(&number), state);
    CODE(CCS_abort(1, "there is no job"), state);
    CODE(CCS_poll(), state);
    CODE(CCS_wait(0), state);
    CODE(CCS_set_progress_thread(1), state);
    CODE(CCS_set_error_handler(NULL, NULL), state);
    CODE(CCS_new_context(&made), state);
    CODE(CCS_new_named_context("name", &made), state);
    CODE(CCS_free_context(some), state);
    CODE(CCS_register_handler_(some, 0, (CCS_handler_t_)handler), state);
    CODE(CCS_amrequestv(some, 0, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), state);
    CODE(CCS_amreplyv(token, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), state);
    CODE(CCS_try_amrequestv(some, 0, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), state);
    CODE(CCS_am_max(&length), state);
    CODE(CCS_sender_rank(token, &number), state);
    CODE(CCS_token_context(token, &made), state);
    CODE(CCS_register_large_handler(some, 0, large, NULL), state);
    CODE(CCS_amlarge(some, 0, mine, 1, CCS_DATA8, 0, done, NULL, 0, NULL), state);
    CODE(CCS_large_hold(token, &held), state);
    CODE(CCS_large_accept((CCS_held_t)(uintptr_t)1, &target), state);
    CODE(CCS_large_abort((CCS_held_t)(uintptr_t)1), state);
    CODE(CCS_explain(0, &text), state);
    CODE(CCS_lock_init(&lock), state);
    CODE(CCS_lock(&lock), state);
    CODE(CCS_trylock(&lock), state);
    CODE(CCS_unlock(&lock), state);
    CODE(CCS_lock_destroy(&lock), state);
    CODE(CCS_hold_interrupts(), state);
    CODE(CCS_resume_interrupts(), state);
    CODE(CCS_datadesc_contiguous(1, d8, &out), state);
    CODE(CCS_datadesc_vector(1, 1, 1, d8, &out), state);
    CODE(CCS_datadesc_hvector(1, 1, 1, d8, &out), state);
    CODE(CCS_datadesc_indexed(1, counts, at, d8, &out), state);
    CODE(CCS_datadesc_hindexed(1, counts, at, d8, &out), state);
    CODE(CCS_datadesc_blockindexed(1, 1, at, d8, &out), state);
    CODE(CCS_datadesc_hblockindexed(1, 1, at, d8, &out), state);
    CODE(CCS_datadesc_struct(2, counts, at, bases, &out), state);
    CODE(CCS_datadesc_resized(d8, 0, 8, &out), state);
    CODE(CCS_datadesc_strided(1, counts, at, &out), state);
    CODE(CCS_datadesc_iov(1, &piece, &out), state);
    CODE(CCS_datadesc_free(&d8), state);
    CODE(CCS_datadesc_size(CCS_DATA8, &length), state);
    CODE(CCS_datadesc_extent(CCS_DATA8, &bound, &length), state);
    CODE(CCS_pack(words, 1, CCS_DATA8, 0, mine, 1, &length), state);
    CODE(CCS_unpack(words, 1, CCS_DATA8, 0, mine, 1, &length), state);
    CODE(CCS_register_mem(words, sizeof words), state);
    CODE(CCS_deregister_mem(words, sizeof words), state);
    CODE(CCS_put(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL), state);
    CODE(CCS_get(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL), state);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, some, 0, 0, NULL), state);
    CODE(CCS_callback_status(&number), state);
    CODE(CCS_fence(0), state);
    CODE(CCS_fence_all(), state);
    CODE(CCS_gfence(), state);
    CODE(CCS_atomic(0, words, CCS_OP_ADD, CCS_TYPE_U64, &word, NULL, NULL, callback, NULL), state);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA64, mine, 1, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, callback, NULL), state);
    CODE(CCS_indexed_put(0, words, mine, 8, callback, NULL), state);
    CODE(CCS_symmetric_alloc(64, &address), state);
    CODE(CCS_symmetric_free(words), state);
    CODE(CCS_team_split(world, 0, 0, &team), state);
    CODE(CCS_team_free(&world), state);
    CODE(CCS_team_rank(world, &number), state);
    CODE(CCS_team_size(world, &number), state);
    CODE(CCS_barrier(), state);
    CODE(CCS_team_barrier(world), state);
    CODE(CCS_broadcast(world, 0, mine, 1, CCS_DATA8), state);
    CODE(CCS_gather(world, 0, mine, words, 8), state);
    CODE(CCS_scatter(world, 0, mine, words, 8), state);
    CODE(CCS_allgather(world, mine, words, 8), state);
    CODE(CCS_alltoall(world, mine, words, 8), state);
    CODE(CCS_alltoallv(world, mine, counts, counts, words, counts, counts), state);
    CODE(CCS_reduce(world, 0, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD), state);
    CODE(CCS_allreduce(world, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD), state);
    CODE(CCS_scan(world, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD), state);
    CODE(CCS_barrier_nb(callback, NULL), state);
    CODE(CCS_team_barrier_nb(world, callback, NULL), state);
    CODE(CCS_broadcast_nb(world, 0, mine, 1, CCS_DATA8, callback, NULL), state);
    CODE(CCS_gather_nb(world, 0, mine, words, 8, callback, NULL), state);
    CODE(CCS_scatter_nb(world, 0, mine, words, 8, callback, NULL), state);
    CODE(CCS_allgather_nb(world, mine, words, 8, callback, NULL), state);
    CODE(CCS_alltoall_nb(world, mine, words, 8, callback, NULL), state);
    CODE(CCS_alltoallv_nb(world, mine, counts, counts, words, counts, counts, callback, NULL), state);
    CODE(CCS_reduce_nb(world, 0, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD, callback, NULL), state);
    CODE(CCS_allreduce_nb(world, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD, callback, NULL), state);
    CODE(CCS_scan_nb(world, mine, words, 1, CCS_TYPE_U64, CCS_OP_ADD, callback, NULL), state);

    CHECK(number == 7 && length == 7 && bound == 7 && !text && !out && !made && !team && !held);
    CHECK(address == words && d8 == CCS_DATA8 && world == CCS_TEAM_WORLD && ran == 0);
    /* These two always work. */
    OK(CCS_initialized(&number));
    CHECK(number == 0 && strlen(CCS_strerror(state)) > 5);
}

/* Ranks, handlers and bytes that are none; arguments that can never be right. */
static void messages(void)
{
    const int wrong_ranks[] = {-1, INT32_MIN, size, INT32_MAX}, wrong_ids[] = {-1, 65536, INT32_MAX, INT32_MIN};
    const CCS_arg_t args[17] = {0};
    size_t max;
    CCS_datadesc_t freed;
    OK(CCS_am_max(&max));
    OK(CCS_datadesc_contiguous(2, CCS_DATA64, &freed));
    CCS_datadesc_t copy = freed;
    OK(CCS_datadesc_free(&freed));
    for (int at = 0; at < 4; at++) {
        CODE(CCS_amrequestv(context, wrong_ranks[at], NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_RANGE);
        CODE(CCS_try_amrequestv(context, wrong_ranks[at], NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_RANGE);
        CODE(CCS_amrequestv(context, 0, NULL, 0, CCS_DATA_NULL, wrong_ids[at], 0, NULL), CCS_ERR_RANGE);
        CODE(CCS_try_amrequestv(context, 0, NULL, 0, CCS_DATA_NULL, wrong_ids[at], 0, NULL), CCS_ERR_RANGE);
        CODE(CCS_register_handler(context, wrong_ids[at], handler), CCS_ERR_RANGE);
    }
    CODE(CCS_register_handler(context, 0, handler), CCS_ERR_EXISTS);
    CODE(CCS_register_handler(context, 1, NULL), CCS_ERR_ARG);
    CODE(CCS_register_handler(NULL, 1, handler), CCS_ERR_ARG);
    CODE(CCS_register_handler((CCS_context_t)(uintptr_t)4000, 1, handler), CCS_ERR_ARG);
    CODE(CCS_new_context(NULL), CCS_ERR_ARG);
    CODE(CCS_new_named_context("name", NULL), CCS_ERR_ARG);
    CODE(CCS_new_named_context(NULL, &context), CCS_ERR_ARG);
    for (int times = 0; times < 2; times++) {
        int (*const send)(CCS_context_t, int, const void *, size_t, CCS_datadesc_t, int, int, const CCS_arg_t *) =
            times ? CCS_try_amrequestv : CCS_amrequestv;
        CODE(send(NULL, 0, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, NULL, 0, CCS_DATA_NULL, 0, 17, args), CCS_ERR_ARG);
        CODE(send(context, 0, NULL, 0, CCS_DATA_NULL, 0, -1, args), CCS_ERR_ARG);
        CODE(send(context, 0, NULL, 0, CCS_DATA_NULL, 0, 1, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, NULL, 1, CCS_DATA8, 0, 0, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, mine, 1, NULL, 0, 0, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, mine, 1, copy, 0, 0, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, mine, SIZE_MAX, CCS_DATA64, 0, 0, NULL), CCS_ERR_ARG);
        CODE(send(context, 0, mine, max + 1, CCS_DATA8, 0, 0, NULL), CCS_ERR_TOO_LONG);
    }
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 2, 1), CCS_ERR_ARG);
    CODE(CCS_amreplyv(NULL, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_amreplyv((CCS_token_t)(uintptr_t)1, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_sender_rank(NULL, &rank), CCS_ERR_ARG);
    CODE(CCS_token_context(NULL, &context), CCS_ERR_ARG);
    CODE(CCS_am_max(NULL), CCS_ERR_ARG);
    CODE(CCS_explain(0, NULL), CCS_ERR_ARG);
    char *text = NULL;
    CODE(CCS_explain(-1, &text), CCS_ERR_RANGE);
    CODE(CCS_explain(size, &text), CCS_ERR_RANGE);
    CHECK(text == NULL);
    /* Nothing was sent. */
    CODE(CCS_poll(), CCS_ERR_AGAIN);
}

static void descriptions(void)
{
    size_t done = 7, lens[2] = {1, SIZE_MAX};
    ptrdiff_t at[2] = {0, PTRDIFF_MAX}, bound = 7;
    CCS_datadesc_t out = NULL, freed, gone, null_base[2] = {CCS_DATA8, NULL};
    struct iovec piece = {NULL, 8};
    OK(CCS_datadesc_contiguous(2, CCS_DATA64, &freed));
    gone = freed;
    OK(CCS_datadesc_free(&freed));
    CCS_datadesc_t wrong[] = {NULL, gone, (CCS_datadesc_t)(uintptr_t)6, (CCS_datadesc_t)(uintptr_t)-1};
    for (int each = 0; each < 4; each++) {
        CCS_datadesc_t base = wrong[each];
        CODE(CCS_datadesc_contiguous(1, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_vector(1, 1, 1, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_hvector(1, 1, 1, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_indexed(1, lens, at, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_hindexed(1, lens, at, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_blockindexed(1, 1, at, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_hblockindexed(1, 1, at, base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_struct(1, lens, at, &base, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_resized(base, 0, 8, &out), CCS_ERR_ARG);
        CODE(CCS_datadesc_size(base, &done), CCS_ERR_ARG);
        CODE(CCS_datadesc_extent(base, &bound, &done), CCS_ERR_ARG);
        CODE(CCS_datadesc_free(&wrong[each]), CCS_ERR_ARG);
        CODE(CCS_pack(words, 1, base, 0, mine, 1, &done), CCS_ERR_ARG);
        CODE(CCS_unpack(words, 1, base, 0, mine, 1, &done), CCS_ERR_ARG);
        CODE(CCS_put(0, words, 1, base, mine, 1, CCS_DATA8, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_put(0, words, 1, CCS_DATA8, mine, 1, base, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_get(0, words, 1, base, mine, 1, CCS_DATA8, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_get(0, words, 1, CCS_DATA8, mine, 1, base, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_put_am(0, words, 1, base, mine, 1, CCS_DATA8, callback, NULL, context, 0, 0, NULL), CCS_ERR_ARG);
        CODE(CCS_accumulate(0, words, 1, base, mine, 1, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_broadcast(CCS_TEAM_WORLD, 0, mine, 1, base), CCS_ERR_ARG);
        CODE(CCS_broadcast_nb(CCS_TEAM_WORLD, 0, mine, 1, base, callback, NULL), CCS_ERR_ARG);
    }
    /* Sizes that overflow. */
    CODE(CCS_datadesc_contiguous(SIZE_MAX, CCS_DATA64, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_vector(SIZE_MAX, SIZE_MAX, 1, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_vector(3, 1, PTRDIFF_MAX, CCS_DATA64, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_hvector(3, 1, PTRDIFF_MAX, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_indexed(2, lens, at, CCS_DATA64, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_hindexed(2, lens, at, CCS_DATA64, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_blockindexed(2, SIZE_MAX, at, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_hblockindexed(2, SIZE_MAX, at, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_struct(2, lens, at, (CCS_datadesc_t[2]){CCS_DATA8, CCS_DATA8}, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_struct(2, (size_t[2]){1, 1}, (ptrdiff_t[2]){0, 1}, null_base, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_strided(-1, lens, at, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_strided(1, (size_t[2]){2, SIZE_MAX}, at, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_iov(1, &piece, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_iov(1, NULL, &out), CCS_ERR_ARG);
    /* No place for an answer, or none to read from. */
    CODE(CCS_datadesc_contiguous(1, CCS_DATA8, NULL), CCS_ERR_ARG);
    CODE(CCS_datadesc_size(CCS_DATA8, NULL), CCS_ERR_ARG);
    CODE(CCS_datadesc_extent(CCS_DATA8, NULL, &done), CCS_ERR_ARG);
    CODE(CCS_datadesc_extent(CCS_DATA8, &bound, NULL), CCS_ERR_ARG);
    CODE(CCS_pack(words, 1, CCS_DATA64, 9, mine, 8, &done), CCS_ERR_RANGE);
    CODE(CCS_unpack(words, 1, CCS_DATA64, 9, mine, 8, &done), CCS_ERR_RANGE);
    CODE(CCS_pack(NULL, 1, CCS_DATA64, 0, mine, 8, &done), CCS_ERR_ARG);
    CODE(CCS_unpack(words, 1, CCS_DATA64, 0, NULL, 8, &done), CCS_ERR_ARG);
    CODE(CCS_pack(words, 1, CCS_DATA64, 0, mine, 8, NULL), CCS_ERR_ARG);
    CHECK(out == NULL && done == 7 && bound == 7);
}

static void memory(void)
{
    const int wrong_ranks[] = {-1, INT32_MIN, size, INT32_MAX};
    const CCS_arg_t args[17] = {0};
    uint64_t one = 1, before[32];
    memcpy(before, words, sizeof before);
    for (int at = 0; at < 4; at++) {
        int node = wrong_ranks[at];
        CODE(CCS_put(node, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL), CCS_ERR_RANGE);
        CODE(CCS_get(node, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL), CCS_ERR_RANGE);
        CODE(CCS_put_am(node, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, context, 0, 0, NULL), CCS_ERR_RANGE);
        CODE(CCS_fence(node), CCS_ERR_RANGE);
        CODE(CCS_atomic(node, words, CCS_OP_ADD, CCS_TYPE_U64, &one, NULL, NULL, callback, NULL), CCS_ERR_RANGE);
        CODE(CCS_accumulate(node, words, 1, CCS_DATA64, mine, 1, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, callback, NULL), CCS_ERR_RANGE);
        CODE(CCS_indexed_put(node, words, mine, 8, callback, NULL), CCS_ERR_RANGE);
    }
    /* Described bytes that differ, no memory, and sizes that overflow. */
    for (int gets = 0; gets < 2; gets++) {
#define MOVE(remote, remote_count, local, local_count)                                                         \
    (gets ? CCS_get(0, remote, remote_count, CCS_DATA16, local, local_count, CCS_DATA8, callback, NULL)        \
          : CCS_put(0, remote, remote_count, CCS_DATA16, local, local_count, CCS_DATA8, callback, NULL))
        CODE(MOVE(words, 2, mine, 3), CCS_ERR_ARG);
        CODE(MOVE(words, 2, mine, 5), CCS_ERR_ARG);
        CODE(MOVE(words, 0, mine, 1), CCS_ERR_ARG);
        CODE(MOVE(NULL, 2, mine, 4), CCS_ERR_ARG);
        CODE(MOVE(words, 2, NULL, 4), CCS_ERR_ARG);
        CODE(MOVE(words, SIZE_MAX, mine, SIZE_MAX), CCS_ERR_ARG);
    }
    CODE(CCS_put_am(0, words, 2, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, context, 0, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, NULL, 0, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, context, 65536, 0, NULL), CCS_ERR_RANGE);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, context, 0, 17, args), CCS_ERR_ARG);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, context, 0, 1, NULL), CCS_ERR_ARG);
    /* Operations and types. */
    CODE(CCS_atomic(0, NULL, CCS_OP_ADD, CCS_TYPE_U64, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    for (int op = CCS_OP_SET; op <= CCS_OP_CAS; op++)
        CODE(CCS_atomic(0, words, op, CCS_TYPE_U64, NULL, &one, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_CAS, CCS_TYPE_U64, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    for (int op = CCS_OP_AND; op <= CCS_OP_XOR; op++)
        for (int type = CCS_TYPE_F32; type <= CCS_TYPE_F64; type++) {
            CODE(CCS_atomic(0, words, op, type, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
            CODE(CCS_accumulate(0, words, 1, CCS_DATA64, mine, 1, CCS_DATA64, op, type, callback, NULL), CCS_ERR_ARG);
            CODE(CCS_allreduce(CCS_TEAM_WORLD, mine, words, 1, type, op), CCS_ERR_ARG);
        }
    for (int op = CCS_OP_CAS; op <= CCS_OP_CAS + 3; op++)
        if (op != CCS_OP_CAS)
            CODE(CCS_atomic(0, words, op, CCS_TYPE_U64, &one, &one, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, -1, CCS_TYPE_U64, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_ADD, -1, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_ADD, 6, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, (char *)words + 1, CCS_OP_ADD, CCS_TYPE_U32, &one, NULL, NULL, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 3, CCS_DATA8, mine, 3, CCS_DATA8, CCS_OP_ADD, CCS_TYPE_U32, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA64, mine, 1, CCS_DATA32, CCS_OP_ADD, CCS_TYPE_U32, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA64, mine, 1, CCS_DATA64, CCS_OP_CAS, CCS_TYPE_U64, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA64, mine, 1, CCS_DATA64, CCS_OP_FETCH, CCS_TYPE_U64, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA64, NULL, 1, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, NULL, mine, 8, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, words, NULL, 8, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, words, mine, SIZE_MAX, callback, NULL), CCS_ERR_ARG);
    CODE(CCS_register_mem(NULL, 8), CCS_ERR_ARG);
    CODE(CCS_register_mem(words, 0), CCS_ERR_ARG);
    CODE(CCS_register_mem(words, SIZE_MAX), CCS_ERR_ARG);
    /* Other bounds than those that were registered. */
    CODE(CCS_deregister_mem(words, sizeof words - 1), CCS_ERR_STATE);
    CODE(CCS_deregister_mem(words + 1, sizeof words - 8), CCS_ERR_STATE);
    CODE(CCS_callback_status(NULL), CCS_ERR_ARG);
    OK(CCS_fence_all());
    CHECK(ran == 0 && memcmp(before, words, sizeof before) == 0);
}

/* A member that is none, or a team; lengths that overflow. All members are refused alike, so that none waits for another. */
static void collectives(void)
{
    const int wrong_roots[] = {-1, size, INT32_MAX};
    uint64_t got[2] = {7, 7};
    size_t lens[64] = {0};
    int number;
    CCS_team_t none = NULL, freed, gone, world = CCS_TEAM_WORLD, node = CCS_TEAM_NODE;
    OK(CCS_team_split(CCS_TEAM_WORLD, 0, 0, &freed));
    gone = freed;
    OK(CCS_team_free(&freed));
    CCS_team_t wrong[] = {NULL, gone, (CCS_team_t)(uintptr_t)-1};
    for (int at = 0; at < 3; at++) {
        CCS_team_t team = wrong[at];
        CODE(CCS_team_rank(team, &number), CCS_ERR_ARG);
        CODE(CCS_team_size(team, &number), CCS_ERR_ARG);
        CODE(CCS_team_split(team, 0, 0, &none), CCS_ERR_ARG);
        CODE(CCS_team_free(&wrong[at]), CCS_ERR_ARG);
        CODE(CCS_team_barrier(team), CCS_ERR_ARG);
        CODE(CCS_team_barrier_nb(team, callback, NULL), CCS_ERR_ARG);
        CODE(CCS_broadcast(team, 0, got, 1, CCS_DATA64), CCS_ERR_ARG);
        CODE(CCS_gather(team, 0, mine, got, 8), CCS_ERR_ARG);
        CODE(CCS_scatter(team, 0, mine, got, 8), CCS_ERR_ARG);
        CODE(CCS_allgather(team, mine, got, 8), CCS_ERR_ARG);
        CODE(CCS_alltoall(team, mine, got, 8), CCS_ERR_ARG);
        CODE(CCS_alltoallv(team, mine, lens, lens, got, lens, lens), CCS_ERR_ARG);
        CODE(CCS_reduce(team, 0, mine, got, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
        CODE(CCS_allreduce(team, mine, got, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
        CODE(CCS_scan(team, mine, got, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
        CODE(CCS_broadcast(world, wrong_roots[at], got, 1, CCS_DATA64), CCS_ERR_RANGE);
        CODE(CCS_gather(world, wrong_roots[at], mine, got, 8), CCS_ERR_RANGE);
        CODE(CCS_scatter(world, wrong_roots[at], mine, got, 8), CCS_ERR_RANGE);
        CODE(CCS_reduce(world, wrong_roots[at], mine, got, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_RANGE);
    }
    CODE(CCS_team_free(&world), CCS_ERR_ARG);
    CODE(CCS_team_free(&node), CCS_ERR_ARG);
    CODE(CCS_team_free(NULL), CCS_ERR_ARG);
    CODE(CCS_team_rank(world, NULL), CCS_ERR_ARG);
    CODE(CCS_team_size(world, NULL), CCS_ERR_ARG);
    CODE(CCS_allgather(world, NULL, got, 8), CCS_ERR_ARG);
    CODE(CCS_allgather(world, mine, NULL, 8), CCS_ERR_ARG);
    CODE(CCS_alltoall(world, NULL, got, 8), CCS_ERR_ARG);
    CODE(CCS_alltoallv(world, mine, NULL, lens, got, lens, lens), CCS_ERR_ARG);
    CODE(CCS_alltoallv(world, mine, lens, NULL, got, lens, lens), CCS_ERR_ARG);
    CODE(CCS_alltoallv(world, mine, lens, lens, got, NULL, lens), CCS_ERR_ARG);
    CODE(CCS_alltoallv(world, mine, lens, lens, got, lens, NULL), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, NULL, got, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, mine, got, 1, CCS_TYPE_U64, CCS_OP_CAS), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, mine, got, 1, CCS_TYPE_U64, CCS_OP_FETCH), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, mine, got, 1, CCS_TYPE_U64, 77), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, mine, got, 1, 77, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_allreduce(world, mine, got, SIZE_MAX, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_scan(world, mine, NULL, 1, CCS_TYPE_U64, CCS_OP_ADD), CCS_ERR_ARG);
    CHECK(none == NULL && got[0] == 7 && got[1] == 7 && ran == 0);
}

static void once_too_often(void)
{
    int number = 7;
    CCS_lock_t lock, zeros;
    memset(&zeros, 0, sizeof zeros);
    CODE(CCS_init(), CCS_ERR_STATE);
    CODE(CCS_init_thread(CCS_THREAD_SINGLE, &number), CCS_ERR_STATE);
    CODE(CCS_resume_interrupts(), CCS_ERR_STATE);
    CODE(CCS_initialized(NULL), CCS_ERR_ARG);
    CODE(CCS_rank(NULL), CCS_ERR_ARG);
    CODE(CCS_nprocs(NULL), CCS_ERR_ARG);
    CODE(CCS_local_rank(NULL), CCS_ERR_ARG);
    CODE(CCS_local_nprocs(NULL), CCS_ERR_ARG);
    CODE(CCS_wait(-2), CCS_ERR_ARG);
    CODE(CCS_wait(INT64_MIN), CCS_ERR_ARG);
    CODE(CCS_lock_init(NULL), CCS_ERR_ARG);
    CODE(CCS_lock(NULL), CCS_ERR_ARG);
    CODE(CCS_lock(&zeros), CCS_ERR_ARG);
    CODE(CCS_trylock(NULL), CCS_ERR_ARG);
    CODE(CCS_unlock(NULL), CCS_ERR_ARG);
    CODE(CCS_lock_destroy(NULL), CCS_ERR_ARG);
    OK(CCS_lock_init(&lock));
    CODE(CCS_unlock(&lock), CCS_ERR_STATE);
    OK(CCS_lock(&lock));
    CODE(CCS_trylock(&lock), CCS_ERR_AGAIN);
    CODE(CCS_lock(&lock), CCS_ERR_STATE);
    CODE(CCS_lock_destroy(&lock), CCS_ERR_STATE);
    /* Whoever has a lock can be seen from outside. */
    char *text = NULL;
    OK(CCS_explain(rank, &text));
    CHECK(strstr(text, "this thread has locks, or holds interrupts, 1 deep"));
    free(text);
    OK(CCS_unlock(&lock));
    CODE(CCS_resume_interrupts(), CCS_ERR_STATE);
    OK(CCS_lock_destroy(&lock));
    CHECK(number == 7);
}

/* What was registered once too few, or behind its end, is reported once an operation, and nothing is touched. */
static void not_registered(void)
{
    static uint64_t other[4];
    uint64_t one = 1, got = 7;
    CCS_context_t freed;
    OK(CCS_set_error_handler(refused, NULL));
    if (rank == 0) {
        uint64_t *last = words + 31;
        OK(CCS_put(0, last, 2, CCS_DATA64, mine, 2, CCS_DATA64, callback, NULL));
        OK(CCS_get(0, other, 1, CCS_DATA64, &got, 1, CCS_DATA64, callback, NULL));
        OK(CCS_put_am(0, other, 1, CCS_DATA64, mine, 1, CCS_DATA64, callback, NULL, context, 0, 0, NULL));
        OK(CCS_atomic(0, other, CCS_OP_ADD, CCS_TYPE_U64, &one, NULL, &got, callback, NULL));
        OK(CCS_accumulate(0, other, 1, CCS_DATA64, &one, 1, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, callback, NULL));
        OK(CCS_indexed_put(0, other, &one, 8, callback, NULL));
        words[0] = (uint64_t)(uintptr_t)other;
        OK(CCS_indexed_put(0, words, &one, 8, callback, NULL));
        OK(CCS_fence(0));
        CCS_block_until(refusals == 7 && ran == 7);
        CHECK(words[0] == (uint64_t)(uintptr_t)other && words[31] == 0 && other[0] == 0 && got == 7);
    }
    OK(CCS_barrier());
    ran = 0;
    /* A context that was freed. */
    OK(CCS_new_context(&freed));
    OK(CCS_free_context(freed));
    CODE(CCS_free_context(freed), CCS_ERR_ARG);
    CODE(CCS_register_handler(freed, 0, handler), CCS_ERR_ARG);
    CODE(CCS_amrequest(freed, 0, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_ARG);
    CODE(CCS_put_am(0, words, 1, CCS_DATA8, mine, 1, CCS_DATA8, callback, NULL, freed, 0, 0, NULL), CCS_ERR_ARG);
}

int main(void)
{
    int provided = 7;
    outside();
    CODE(CCS_init_thread(-1, &provided), CCS_ERR_ARG);
    CODE(CCS_init_thread(3, &provided), CCS_ERR_ARG);
    CODE(CCS_init_thread(CCS_THREAD_SINGLE, NULL), CCS_ERR_ARG);
    CHECK(provided == 7);
    OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    OK(CCS_new_context(&context));
    OK(CCS_register_handler(context, 0, handler));
    OK(CCS_register_mem(words, sizeof words));
    OK(CCS_barrier());
    messages();
    descriptions();
    memory();
    collectives();
    once_too_often();
    OK(CCS_barrier());
    not_registered();
    OK(CCS_finalize());
    CHECK(ran == 0);
    outside();
    CODE(CCS_init(), CCS_ERR_STATE);
    CODE(CCS_init_thread(CCS_THREAD_SINGLE, &provided), CCS_ERR_STATE);
    puts("ccs_misuse: all well");
    return 0;
}
