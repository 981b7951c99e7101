/* CCS with a progress thread: what comes is handled while the program calls nothing. */
#include "ccs_check.h"
#include <pthread.h>
#include <time.h>

enum { EACH = 1000 };

static CCS_context_t context;
static int handled, answered, inside;
static pthread_t program;

/* Sleeps, outside of the library, until a number is what it should be. */
static void sleep_until(const int *number, int wanted)
{
    struct timespec pause = {0, 1000000};
    for (int turn = 0; __atomic_load_n(number, __ATOMIC_SEQ_CST) != wanted; turn++) {
        CHECK(turn < 60000);
        nanosleep(&pause, NULL);
    }
}

static void answer(CCS_token_t token, void *buffer, unsigned len, int number)
{
    CHECK(__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST) == 0);
    CHECK(len == 4 && memcmp(buffer, &number, 4) == 0);
    OK(CCS_amreply(token, NULL, 0, CCS_DATA_NULL, 1, 0));
    CODE(CCS_set_progress_thread(0), CCS_ERR_STATE);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}

static void count(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST) == 0);
    CHECK(token && !buffer && len == 0);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&answered, 1, __ATOMIC_SEQ_CST);
}

static int begun, may_end;

static void slow(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && !buffer && len == 0 && !pthread_equal(pthread_self(), program));
    __atomic_store_n(&begun, 1, __ATOMIC_SEQ_CST);
    sleep_until(&may_end, 1);
}

static void elsewhere(void *arg)
{
    CHECK(!pthread_equal(pthread_self(), program));
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : CCS_THREAD_SERIALIZED, rank, size, called = 0;
    CODE(CCS_set_progress_thread(1), CCS_ERR_STATE);
    OK(CCS_init_thread(threads, &threads));
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    program = pthread_self();
    if (threads == CCS_THREAD_SINGLE) {
        CODE(CCS_set_progress_thread(1), CCS_ERR_UNSUPPORTED);
        OK(CCS_finalize());
        puts("ccs_progress: all well");
        return 0;
    }
    OK(CCS_set_progress_thread(0));
    OK(CCS_set_progress_thread(1));
    OK(CCS_set_progress_thread(1));
    OK(CCS_new_context(&context));
    OK(CCS_register_handler(context, 0, answer));
    OK(CCS_register_handler(context, 1, count));
    OK(CCS_register_handler(context, 2, slow));
    int next = (rank + 1) % size;
    for (int number = 0; number < EACH; number++)
        OK(CCS_amrequest(context, next, &number, 4, CCS_DATA8, 0, 1, number));
    sleep_until(&handled, EACH);
    sleep_until(&answered, EACH);
    OK(CCS_barrier());
    /* A callback comes there, too: this thread asks for nothing. */
    static int64_t word, found;
    OK(CCS_register_mem(&word, sizeof word));
    OK(CCS_get(rank, &word, 1, CCS_DATA64, &found, 1, CCS_DATA64, elsewhere, &called));
    sleep_until(&called, 1);
    OK(CCS_barrier());
    /* What runs there keeps this thread from no barrier and no fence. */
    OK(CCS_amrequest(context, rank, NULL, 0, CCS_DATA_NULL, 2, 0));
    sleep_until(&begun, 1);
    OK(CCS_barrier());
    OK(CCS_gfence());
    __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
    OK(CCS_barrier());
    /* And again, without it. */
    OK(CCS_set_progress_thread(0));
    for (int number = 0; number < EACH; number++)
        OK(CCS_amrequest(context, next, &number, 4, CCS_DATA8, 0, 1, number));
    CCS_block_until(answered == 2 * EACH);
    OK(CCS_set_progress_thread(1));
    OK(CCS_finalize());
    CODE(CCS_set_progress_thread(1), CCS_ERR_STATE);
    CHECK(handled == 2 * EACH);
    puts("ccs_progress: all well");
    return 0;
}
