/* A rank that the seed chooses kills itself at a moment that the seed chooses, while all do whatever there is. No rank has an error handler, so this
 * ends the job. Whoever leaves it by CCS_finalize says so: nobody may. With the argument "met" the rank dies when all have met, not before: a launcher
 * that lets the others go on reports nothing, and only who is connected with a rank sees that it is gone. */
#include "ccs_check.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { ASK, ANSWER, ARRIVED, RANKS_MAX = 8, BLOCK = 4096, LONG = 100000, WORDS = 5000, NUMBER_MAX = 400, MICROSECONDS_MAX = 30000 };

/* When the rank dies: before it has done anything, after some time, before a call, in a handler, or when the others leave. */
enum { AT_START, BY_TIME, BEFORE_CALL, IN_HANDLER, AT_END, MOMENTS };

/* Numbers from a seed (splitmix64). */
typedef struct {
    uint64_t state;
} draw_t;

static CCS_context_t context;
static int rank, size, is_victim, moment, number, calls, handled, passed;
static draw_t own, shared;
static char from[LONG], into[LONG];
static uint64_t block[BLOCK / 8];
static char *blocks[RANKS_MAX];
static uint64_t mine[WORDS], got[WORDS];

static uint64_t below(draw_t *draw, uint64_t end)
{
    uint64_t word = draw->state += 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return (word ^ word >> 31) % end;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void *die_later(void *microseconds)
{
    long nanoseconds = 1000 * (long)(intptr_t)microseconds;
    nanosleep(&(struct timespec){0, nanoseconds}, NULL);
    die();
    return NULL;
}

/* The rank that is to die may do so from now on. */
static void expose(intptr_t microseconds)
{
    pthread_t thread;
    printf("rank %d dies\n", rank);
    fflush(stdout);
    if (moment == AT_START)
        die();
    if (moment == BY_TIME)
        CHECK(pthread_create(&thread, NULL, die_later, (void *)microseconds) == 0);
}

/* The rank that dies may be one that the call needed: then the job is about to end. */
static void check(int code)
{
    if (code != CCS_ERR_AGAIN && code != CCS_ERR_PEER)
        OK(code);
}

/* What has to be there before anything else is done. */
static void need(int code)
{
    check(code);
    while (code != CCS_SUCCESS)
        CCS_wait(-1);
}

static void ends(void *count)
{
    int status;
    OK(CCS_callback_status(&status));
    CHECK(status == CCS_SUCCESS || status == CCS_ERR_PEER);
    if (count)
        __atomic_fetch_add((int *)count, 1, __ATOMIC_SEQ_CST);
}

static void large_ends(void *arg, int status)
{
    CHECK(!arg && (status == CCS_SUCCESS || status == CCS_ERR_ABORTED || status == CCS_ERR_PEER));
}

static int is_the_handler(void)
{
    return __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST) == number && is_victim && moment == IN_HANDLER;
}

static void ask(CCS_token_t token, void *buffer, unsigned len, int value)
{
    int dies = is_the_handler();
    if (dies && value % 2)
        die();
    check(CCS_amreply(token, buffer, len, CCS_DATA8, ANSWER, 1, value));
    if (dies)
        die();
}

static void answer(CCS_token_t token, void *buffer, unsigned len, int value)
{
    (void)token, (void)buffer, (void)len, (void)value;
    if (is_the_handler())
        die();
}

static int large(CCS_token_t token, size_t bytes, CCS_target_t *target, int nargs, const CCS_arg_t *args, void *user)
{
    (void)token, (void)nargs, (void)args, (void)user;
    if (is_the_handler())
        die();
    *target = (CCS_target_t){into, bytes, CCS_DATA8, large_ends, NULL};
    return bytes % 2 ? CCS_LARGE_ACCEPT : CCS_LARGE_ABORT;
}

/* Begins one of all that there is. */
static void operate(void)
{
    int to = (int)below(&own, (uint64_t)size);
    size_t len = below(&own, BLOCK);
    char *there = blocks[to];
    uint64_t one = 1;
    if (++calls == number && is_victim && moment == BEFORE_CALL)
        die();
    switch (below(&own, 12)) {
    case 0:
    case 1:
    case 2:
        check(CCS_amrequest(context, to, from, len, CCS_DATA8, ASK, 1, len));
        break;
    case 3:
        check(CCS_put(to, there, len, CCS_DATA8, from, len, CCS_DATA8, ends, NULL));
        break;
    case 4:
        check(CCS_get(to, there, len, CCS_DATA8, into, len, CCS_DATA8, ends, NULL));
        break;
    case 5:
        check(CCS_put_am(to, there, len, CCS_DATA8, from, len, CCS_DATA8, ends, NULL, context, ARRIVED, 1, (CCS_arg_t[]){1}));
        break;
    case 6:
    case 7:
        check(CCS_atomic(to, there + len / 8 * 8, CCS_OP_ADD, CCS_TYPE_U64, &one, NULL, NULL, ends, NULL));
        break;
    case 8:
        check(CCS_accumulate(to, there, 64, CCS_DATA64, mine, 64, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U64, ends, NULL));
        break;
    case 9:
        check(CCS_amlarge(context, to, from, below(&own, LONG), CCS_DATA8, 0, large_ends, NULL, 0, NULL));
        break;
    case 10:
        check(CCS_fence(to));
        break;
    default:
        check(CCS_wait((int64_t)below(&own, 100000)));
    }
}

/* All ranks meet in the same way. */
static void meet(void)
{
    size_t count = below(&shared, 2) ? WORDS : 1;
    int root = (int)below(&shared, (uint64_t)size), code, before;
    switch (below(&shared, 6)) {
    case 0:
        check(CCS_barrier());
        break;
    case 1:
        code = CCS_allreduce(CCS_TEAM_WORLD, mine, got, count, CCS_TYPE_U64, CCS_OP_ADD);
        check(code);
        CHECK(code != CCS_SUCCESS || got[count - 1] == mine[count - 1] * (uint64_t)size);
        break;
    case 2:
        check(CCS_broadcast(CCS_TEAM_WORLD, root, got, count, CCS_DATA64));
        break;
    case 3:
        check(CCS_alltoall(CCS_TEAM_WORLD, mine, got, 8 * count / RANKS_MAX));
        break;
    case 4:
        check(CCS_gfence());
        break;
    default:
        before = __atomic_load_n(&passed, __ATOMIC_SEQ_CST);
        code = CCS_team_barrier_nb(CCS_TEAM_WORLD, ends, &passed);
        check(code);
        operate();
        if (code == CCS_SUCCESS)
            CCS_block_until(__atomic_load_n(&passed, __ATOMIC_SEQ_CST) > before);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    uint64_t seed = strtoull(argv[1], NULL, 10);
    int met = argc > 2 && strcmp(argv[2], "met") == 0;
    OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    CHECK(size <= RANKS_MAX);
    shared.state = seed << 16 | (uint64_t)size << 8;
    own.state = shared.state | (uint64_t)(rank + 1);
    is_victim = (int)below(&shared, (uint64_t)size) == rank;
    moment = (int)below(&shared, MOMENTS);
    number = 1 + (int)below(&shared, NUMBER_MAX);
    int has_thread = below(&shared, 3) == 0, is_symmetric = below(&shared, 2) == 0, rounds = (int)below(&shared, 10);
    intptr_t microseconds = (intptr_t)below(&own, MICROSECONDS_MAX);
    if (is_victim && !met)
        expose(microseconds);
    OK(CCS_set_progress_thread(has_thread));
    OK(CCS_new_context(&context));
    OK(CCS_register_handler(context, ASK, ask));
    OK(CCS_register_handler(context, ANSWER, answer));
    OK(CCS_register_handler(context, ARRIVED, answer));
    OK(CCS_register_large_handler(context, 0, large, NULL));
    for (size_t at = 0; at < WORDS; at++)
        mine[at] = at + seed;
    void *base = block;
    need(is_symmetric ? CCS_symmetric_alloc(BLOCK, &base) : CCS_register_mem(block, BLOCK));
    need(CCS_allgather(CCS_TEAM_WORLD, &base, blocks, sizeof base));
    if (is_victim && met)
        expose(microseconds);
    /* Where all leave, one of them never arrives. Otherwise all go on until the job ends. */
    for (int round = 0; moment != AT_END || round < rounds; round++) {
        for (uint64_t left = below(&own, 40); left > 0; left--)
            operate();
        meet();
    }
    if (is_victim)
        die();
    check(CCS_finalize());
    puts("ccs_kills: has left");
    return 0;
}
