/* Three processes work on a map with one bucket for each of two. One dies at work, at any instant: the others go on. */
#include <acp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, acp_rank(), #condition);                                 \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

enum { KEYS = 5, VALUE = 60, TURNS = 400, EXIT = 9 };

static struct {
    acp_map_t map;
    int key;
    char value[VALUE];
} own;

static void *die(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){0, 1000 * (long)((unsigned)getpid() * 7919u % 20000u)}, NULL);
    _exit(EXIT);
}

int main(int argc, char **argv)
{
    check(acp_init(&argc, &argv) == 0);
    int rank = acp_rank(), owners[] = {0, 2};
    check(acp_procs() == 3);
    acp_atkey_t key = acp_register_memory(&own, sizeof own, 0);
    acp_ga_t at = acp_query_ga(key, &own), starter = acp_query_starter_ga(0);
    acp_pair_t pair = {{at + (acp_ga_t)((char *)&own.key - (char *)&own), sizeof own.key}, {at + (acp_ga_t)(own.value - (char *)&own), VALUE}};
    if (rank == 0) {
        own.map = acp_create_map(2, owners, 1, 0);
        check(own.map.ga != ACP_GA_NULL);
        acp_complete(acp_copy(starter, at, sizeof own.map, ACP_HANDLE_NULL));
    }
    acp_sync();
    acp_complete(acp_copy(at, starter, sizeof own.map, ACP_HANDLE_NULL));
    acp_sync();
    pthread_t thread;
    if (rank == 1)
        check(pthread_create(&thread, NULL, die, NULL) == 0);
    for (int turn = 0; rank == 1 || turn < TURNS; turn++) {
        own.key = turn % KEYS;
        memset(own.value, 'a' + rank, VALUE);
        if (turn % 3 == 0)
            acp_remove_map(own.map, pair.first);
        else
            acp_insert_map(own.map, pair);
    }
    /* The values that are there are whole: each of one process. */
    for (own.key = 0; own.key < KEYS; own.key++) {
        own.value[0] = 0;
        size_t size = acp_retrieve_map(own.map, pair);
        check(size == 0 || size == VALUE);
        for (size_t byte = 1; byte < size; byte++)
            check(own.value[byte] == own.value[0]);
    }
    /* Both keep until the other one is done, too: what it still asks for is answered by the library's thread. */
    own.key = 100 + rank;
    check(acp_insert_map(own.map, pair) == 1);
    own.key = 102 - rank;
    struct timespec pause = {0, 10000000};
    while (acp_retrieve_map(own.map, pair) != VALUE)
        nanosleep(&pause, NULL);
    pause.tv_nsec = 500000000;
    nanosleep(&pause, NULL);
    puts("acp_deaths: all well");
    return 0;
}
