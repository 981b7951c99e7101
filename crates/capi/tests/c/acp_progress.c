/* A process that computes and calls nothing is served all the same; and what serves it is gone at the end. Three processes or more. */
#include <acp.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, acp_rank(), #condition);                                 \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

enum { WORDS = 4096, DONE = WORDS - 1, COUNTER = WORDS - 2 };

static uint64_t words[WORDS];
static char message[100000];

static int entries(const char *folder)
{
    int count = 0;
    DIR *all = opendir(folder);
    check(all != NULL);
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

static uint64_t is_done(void)
{
    return __atomic_load_n(&words[DONE], __ATOMIC_ACQUIRE);
}

/* All that one process wants of another one. */
static void ask(const acp_ga_t *all, int procs)
{
    for (uint64_t at = 0; at < WORDS / 4; at++)
        words[at] = at * 7 + 1;
    for (size_t size = 8; size <= WORDS / 4 * 8; size *= 4) {
        acp_handle_t there = acp_copy(all[1], all[0], size, ACP_HANDLE_NULL);
        acp_complete(acp_copy(all[0] + WORDS / 2 * 8, all[1], size, there));
        check(memcmp(words, words + WORDS / 2, size) == 0);
    }
    /* From one that computes to another one, and back. */
    acp_handle_t between = acp_copy(all[2] + 800, all[1], 4000, ACP_HANDLE_ALL);
    between = acp_copy(all[1] + WORDS / 2 * 8, all[2] + 800, 4000, between);
    acp_complete(acp_copy(all[0] + WORDS / 2 * 8, all[1] + WORDS / 2 * 8, 4000, between));
    check(memcmp(words, words + WORDS / 2, 4000) == 0);
    for (uint64_t turn = 0; turn < 20; turn++) {
        acp_complete(acp_add8(all[0] + WORDS / 2 * 8, all[1] + COUNTER * 8, 1, ACP_HANDLE_NULL));
        check(words[WORDS / 2] == turn);
        acp_complete(acp_cas4(all[0] + WORDS / 2 * 8, all[1] + COUNTER * 8 - 8, (uint32_t)turn, (uint32_t)turn + 1, ACP_HANDLE_NULL));
        check((uint32_t)words[WORDS / 2] == turn);
    }
    /* A channel connects, and a message goes through more segments than there are slots. */
    acp_ch_t channel = acp_create_ch(0, 1);
    check(acp_wait_ch(acp_nbsend_ch(channel, message, sizeof message)) == 0);
    words[WORDS / 2] = 1;
    for (int other = 1; other < procs; other++)
        acp_complete(acp_copy(all[other] + DONE * 8, all[0] + WORDS / 2 * 8, 8, ACP_HANDLE_NULL));
    check(acp_free_ch(channel) == 0);
}

int main(int argc, char **argv)
{
    int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    check(acp_init(&argc, &argv) == 0);
    int rank = acp_rank(), procs = acp_procs();
    check(procs >= 3);
    acp_atkey_t key = acp_register_memory(words, sizeof words, 0);
    acp_ga_t *starter = acp_query_address(acp_query_starter_ga(rank)), all[8];
    check(starter != NULL && procs <= 8);
    starter[0] = acp_query_ga(key, words);
    acp_sync();
    for (int other = 0; other < procs; other++) {
        acp_complete(acp_copy(acp_query_starter_ga(rank) + 8, acp_query_starter_ga(other), 8, ACP_HANDLE_NULL));
        all[other] = starter[1];
    }
    acp_ch_t channel = ACP_CH_NULL;
    acp_request_t request = ACP_REQUEST_NULL;
    memset(message, rank == 0 ? 'm' : 0, sizeof message);
    if (rank == 1) {
        channel = acp_create_ch(0, 1);
        request = acp_nbrecv_ch(channel, message, sizeof message);
        check(request != ACP_REQUEST_NULL);
    }
    acp_sync();
    check(entries("/proc/self/task") == threads + 1);
    if (rank == 0)
        ask(all, procs);
    else if (rank == 1)
        while (is_done() == 0) /* It computes. */
            ;
    else
        while (is_done() == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (rank == 1) {
        check(acp_wait_ch(request) == sizeof message && message[0] == 'm' && message[sizeof message - 1] == 'm');
        check(acp_free_ch(channel) == 0);
    }
    acp_sync();
    check(acp_finalize() == 0);
    check(entries("/proc/self/task") == threads && entries("/proc/self/fd") == descriptors);
    puts("acp_progress: all well");
    return 0;
}
