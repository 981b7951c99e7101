/* What acp.h promises, by the ranks of a job: 2 to 4 of them, or 1, which has nobody for channels. */
#include <acp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, acp_rank(), #condition);                                 \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

#define WORDS 64

static int rank, procs;
static uint64_t words[WORDS];

/* Where every process has its words. */
static acp_ga_t *exchange(acp_atkey_t key)
{
    acp_ga_t *all = calloc((size_t)procs, sizeof *all);
    acp_ga_t *starter = acp_query_address(acp_query_starter_ga(rank));
    starter[0] = acp_query_ga(key, words);
    acp_sync();
    for (int other = 0; other < procs; other++) {
        acp_ga_t here = acp_query_starter_ga(rank) + 8;
        acp_complete(acp_copy(here, acp_query_starter_ga(other), 8, ACP_HANDLE_NULL));
        all[other] = starter[1];
    }
    acp_sync();
    return all;
}

static void addresses(acp_atkey_t key)
{
    acp_ga_t ga = acp_query_ga(key, words);
    check(ga != ACP_GA_NULL && acp_query_ga(key, words + 3) == ga + 24);
    check(acp_query_address(ga + 24) == words + 3);
    check(acp_query_rank(ga) == rank && acp_query_color(ga) == acp_colors() - 1);
    check(acp_query_ga(key, words + WORDS) == ACP_GA_NULL && acp_query_ga(key, NULL) == ACP_GA_NULL);
    check(acp_query_rank(ACP_GA_NULL) == -1 && acp_query_color(ACP_GA_NULL) == -1 && acp_query_address(ACP_GA_NULL) == NULL);
    check(acp_query_rank(UINT64_MAX) == -1);
    check(acp_query_starter_ga(procs) == ACP_GA_NULL && acp_query_starter_ga(-1) == ACP_GA_NULL);
    check(acp_query_color(acp_query_starter_ga(0)) == 0);
    check(procs == 1 || acp_query_address(acp_query_starter_ga((rank + 1) % procs)) == NULL);
    check(acp_register_memory(NULL, 8, 0) == ACP_ATKEY_NULL && acp_register_memory(words, 0, 0) == ACP_ATKEY_NULL);
    check(acp_register_memory(words, 8, acp_colors()) == ACP_ATKEY_NULL && acp_register_memory(words, 8, -1) == ACP_ATKEY_NULL);
    acp_atkey_t other = acp_register_memory(words, 8, 0);
    check(other != ACP_ATKEY_NULL && acp_unregister_memory(other) == 0 && acp_unregister_memory(other) == -1);
    check(acp_unregister_memory(ACP_ATKEY_NULL) == -1);
}

static void copies(const acp_ga_t *all)
{
    int next = (rank + 1) % procs, after = (rank + 2) % procs;
    /* To the next one, and from there to the one after it: the copy of others. */
    words[0] = 100 + (uint64_t)rank;
    acp_sync();
    acp_handle_t first = acp_copy(all[next] + 8, all[rank], 8, ACP_HANDLE_NULL);
    acp_handle_t second = acp_copy(all[after] + 16, all[next] + 8, 8, first);
    check(first > 0 && second > first);
    acp_complete(second);
    check(acp_inquire(first) == 0 && acp_inquire(second) == 0 && acp_inquire(second + 1) == 0);
    acp_sync();
    check(words[1] == 100 + (uint64_t)((rank + procs - 1) % procs));
    check(words[2] == 100 + (uint64_t)((rank + 2 * procs - 2) % procs));
    check(acp_copy(all[next], all[rank], 0, ACP_HANDLE_ALL) > second);
    acp_handle_t data = acp_copy(all[next] + 24, all[rank], 8, ACP_HANDLE_ALL);
    acp_handle_t flag = acp_copy(all[next] + 32, all[rank], 8, ACP_HANDLE_CONT);
    check(flag > data);
    acp_complete(ACP_HANDLE_ALL);
    check(acp_inquire(ACP_HANDLE_ALL) == 0 && acp_inquire(ACP_HANDLE_NULL) == 0);
    check(acp_copy(ACP_GA_NULL, all[rank], 8, ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
    check(acp_copy(all[next], all[rank], 8, -3) == ACP_HANDLE_NULL);
    check(acp_copy(all[next], all[rank] + sizeof words, 8, ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
    /* Beyond what the other one has registered: nothing is done, and later operations are as good as ever. */
    if (next != rank)
        acp_complete(acp_copy(all[next] + sizeof words, all[rank], 8, ACP_HANDLE_NULL));
    acp_complete(acp_copy(all[next] + 40, all[rank], 8, ACP_HANDLE_ALL));
    acp_sync();
    check(words[5] == 100 + (uint64_t)((rank + procs - 1) % procs));
    acp_sync();
}

static void atomics(const acp_ga_t *all)
{
    acp_ga_t old = all[rank] + 8 * 20;
    memset(words, 0, sizeof words);
    acp_sync();
    for (int turn = 0; turn < 100; turn++)
        acp_add8(old, all[0] + 80, 3, ACP_HANDLE_ALL);
    acp_complete(ACP_HANDLE_ALL);
    acp_sync();
    check(rank != 0 || words[10] == 300 * (uint64_t)procs);
    acp_sync();
    if (rank == procs - 1) {
        acp_ga_t there = all[0] + 88;
        uint64_t *was = words + 20;
        uint32_t *was4 = (uint32_t *)was;
#define gives(call, value)                                                                                                       \
    do {                                                                                                                         \
        acp_complete(call);                                                                                                      \
        check(*was == (value));                                                                                                  \
    } while (0)
        gives(acp_swap8(old, there, 0xf0, ACP_HANDLE_NULL), 0);
        gives(acp_or8(old, there, 0x0f, ACP_HANDLE_NULL), 0xf0);
        gives(acp_and8(old, there, 0x3c, ACP_HANDLE_NULL), 0xff);
        gives(acp_xor8(old, there, 0x30, ACP_HANDLE_NULL), 0x3c);
        gives(acp_cas8(old, there, 1, 2, ACP_HANDLE_NULL), 0x0c);
        gives(acp_cas8(old, there, 0x0c, 7, ACP_HANDLE_NULL), 0x0c);
        gives(acp_add8(old, there, 0, ACP_HANDLE_NULL), 7);
#undef gives
#define gives(call, value)                                                                                                       \
    do {                                                                                                                         \
        acp_complete(call);                                                                                                      \
        check(*was4 == (value));                                                                                                 \
    } while (0)
        there += 12;
        gives(acp_swap4(old, there, 0xf0, ACP_HANDLE_NULL), 0);
        gives(acp_or4(old, there, 0x0f, ACP_HANDLE_NULL), 0xf0);
        gives(acp_and4(old, there, 0x3c, ACP_HANDLE_NULL), 0xff);
        gives(acp_xor4(old, there, 0x30, ACP_HANDLE_NULL), 0x3c);
        gives(acp_cas4(old, there, 0x0c, 7, ACP_HANDLE_NULL), 0x0c);
        gives(acp_add4(old, there, 0, ACP_HANDLE_NULL), 7);
        check(acp_add8(old, there, 1, ACP_HANDLE_NULL) == ACP_HANDLE_NULL && acp_add4(old + 2, there, 1, ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
        check(procs == 1 || acp_add8(all[0], all[0], 1, ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
    }
    acp_sync();
}

static void channels(void)
{
    static char out[20000], in[20000];
    int next = (rank + 1) % procs, before = (rank + procs - 1) % procs;
    check(acp_create_ch(rank, rank) == ACP_CH_NULL && acp_create_ch(next, next) == ACP_CH_NULL);
    check(acp_create_ch(rank, procs) == ACP_CH_NULL && acp_create_ch(-1, rank) == ACP_CH_NULL);
    acp_ch_t to = acp_create_ch(rank, next), from = acp_create_ch(before, rank);
    acp_ch_t to_2 = acp_create_ch(rank, next), from_2 = acp_create_ch(before, rank);
    check(to != ACP_CH_NULL && from != ACP_CH_NULL && to_2 != ACP_CH_NULL && from_2 != ACP_CH_NULL);
    /* Two slots of 2,048 bytes, and eight with 16 bytes more in whole pages; little beside them. */
    size_t sender = acp_query_ch_bytes(to), receiver = acp_query_ch_bytes(from);
    check(sender >= 4096 && sender <= 4096 + 168 + 2 * 16 && receiver >= 16512 && receiver <= 20480 + 160);
    check(acp_query_ch_bytes(ACP_CH_NULL) == 0);
    check(acp_nbrecv_ch(to, in, 1) == ACP_REQUEST_NULL && acp_nbsend_ch(from, out, 1) == ACP_REQUEST_NULL);
    check(acp_nbsend_ch(to, NULL, 1) == ACP_REQUEST_NULL && acp_nbsend_ch(ACP_CH_NULL, out, 1) == ACP_REQUEST_NULL);
    for (size_t at = 0; at < sizeof out; at++)
        out[at] = (char)(at * 7 + (size_t)rank);
    /* Shorter and longer than the memory, over several slots. */
    static const size_t sizes[][2] = {{10, 100}, {100, 10}, {5000, 3000}, {20000, 20000}, {0, 5}, {5, 0}, {0, 0}, {1, 1}};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    for (int at = 0; at < COUNT; at++) {
        acp_request_t receive = acp_nbrecv_ch(from, in, sizes[at][1]), send = acp_nbsend_ch(to, out, sizes[at][0]);
        size_t least = sizes[at][0] < sizes[at][1] ? sizes[at][0] : sizes[at][1];
        check(send != ACP_REQUEST_NULL && receive != ACP_REQUEST_NULL);
        check(acp_wait_ch(send) == 0 && acp_wait_ch(receive) == least);
        check(acp_wait_ch(send) == (size_t)-1);
        for (size_t byte = 0; byte < least; byte++)
            check(in[byte] == (char)(byte * 7 + (size_t)before));
    }
    /* Receiving from the second channel first. */
    acp_request_t sends[] = {acp_nbsend_ch(to, "first", 5), acp_nbsend_ch(to_2, "second", 6)};
    check(acp_wait_ch(acp_nbrecv_ch(from_2, in, 100)) == 6 && memcmp(in, "second", 6) == 0);
    check(acp_wait_ch(acp_nbrecv_ch(from, in, 100)) == 5 && memcmp(in, "first", 5) == 0);
    check(acp_waitall_ch(sends, 2, NULL) == 0);
    acp_request_t receives[ACP_CH_REQUESTS_MAX];
    size_t received[ACP_CH_REQUESTS_MAX];
    for (int at = 0; at < ACP_CH_REQUESTS_MAX; at++)
        check((receives[at] = acp_nbrecv_ch(from, in + at, 1)) != ACP_REQUEST_NULL);
    check(acp_nbrecv_ch(from, in, 1) == ACP_REQUEST_NULL);
    for (int at = 0; at < ACP_CH_REQUESTS_MAX; at++)
        check(acp_wait_ch(acp_nbsend_ch(to, out + at, 1)) == 0);
    check(acp_waitall_ch(receives, ACP_CH_REQUESTS_MAX, received) == 0);
    for (int at = 0; at < ACP_CH_REQUESTS_MAX; at++)
        check(received[at] == 1 && in[at] == (char)(at * 7 + before));
    check(acp_waitall_ch(receives, -1, NULL) == -1 && acp_waitall_ch(NULL, 1, NULL) == -1);
    acp_request_t freed[] = {acp_nbfree_ch(from), acp_nbfree_ch(to), acp_nbfree_ch(from_2), acp_nbfree_ch(to_2)};
    check(acp_query_ch_bytes(to) == 0 && acp_query_ch_bytes(from) == 0);
    check(acp_nbfree_ch(to) == ACP_REQUEST_NULL && acp_nbsend_ch(to, out, 1) == ACP_REQUEST_NULL);
    check(acp_waitall_ch(freed, 4, NULL) == 0);
    acp_ch_t one = rank == 0 ? acp_create_ch(0, 1) : rank == 1 ? acp_create_ch(0, 1) : ACP_CH_NULL;
    check(rank > 1 ? acp_free_ch(one) == -1 : acp_free_ch(one) == 0);
}

/* Long messages to memory that ranks of one host copy to straight: the heap, and one request's in starter memory. */
static void long_messages(void)
{
    enum { LEN = 50000, UNDER_WAY = 8, ROUNDS = 10 };
    static char out[LEN];
    int next = (rank + 1) % procs, before = (rank + procs - 1) % procs;
    acp_ga_t ga = acp_malloc((size_t)UNDER_WAY * LEN, rank);
    char *heap = acp_query_address(ga), *starter = acp_query_address(acp_query_starter_ga(rank));
    check(ga != ACP_GA_NULL && heap != NULL && starter != NULL);
    acp_ch_t to = acp_create_ch(rank, next), from = acp_create_ch(before, rank);
    for (int round = 0; round < ROUNDS; round++) {
        acp_request_t receives[UNDER_WAY];
        size_t received[UNDER_WAY];
        for (int at = 0; at < UNDER_WAY; at++) {
            memset(heap + at * LEN, 0x55, LEN);
            /* The last one is too short for its message. */
            char *into = at == UNDER_WAY - 1 ? starter : heap + at * LEN;
            receives[at] = acp_nbrecv_ch(from, into, at == UNDER_WAY - 1 ? 500 : LEN);
            check(receives[at] != ACP_REQUEST_NULL);
        }
        for (int at = 0; at < UNDER_WAY; at++) {
            for (size_t byte = 0; byte < LEN; byte++)
                out[byte] = (char)(byte * 7 + (size_t)(rank + at + round));
            check(acp_wait_ch(acp_nbsend_ch(to, out, LEN - (size_t)at)) == 0);
        }
        check(acp_waitall_ch(receives, UNDER_WAY, received) == 0);
        for (int at = 0; at < UNDER_WAY; at++) {
            int is_short = at == UNDER_WAY - 1;
            char *into = is_short ? starter : heap + at * LEN;
            size_t len = is_short ? 500 : (size_t)(LEN - at);
            check(received[at] == len);
            for (size_t byte = 0; byte < len; byte++)
                check(into[byte] == (char)(byte * 7 + (size_t)(before + at + round)));
            check(is_short || at == 0 || into[LEN - 1] == 0x55);
        }
    }
    acp_request_t freed[] = {acp_nbfree_ch(from), acp_nbfree_ch(to)};
    check(acp_waitall_ch(freed, 2, NULL) == 0);
    acp_free(ga);
    acp_sync();
}

/* A ring of processes, each the source of one buffer and the destination of another one. */
static void segmented_buffers(void)
{
    enum { SIZE = 1000, COUNT = 3, TURNS = 50 };
    static char out[SIZE * COUNT], in[SIZE * COUNT];
    int next = (rank + 1) % procs, before = (rank + procs - 1) % procs;
    check(acp_create_src_segbuf(rank, out, SIZE, COUNT) == ACP_SEGBUF_NULL && acp_create_src_segbuf(procs, out, SIZE, COUNT) == ACP_SEGBUF_NULL);
    check(acp_create_src_segbuf(next, NULL, SIZE, COUNT) == ACP_SEGBUF_NULL && acp_create_dst_segbuf(before, in, 0, COUNT) == ACP_SEGBUF_NULL);
    check(acp_create_dst_segbuf(before, in, SIZE, 0) == ACP_SEGBUF_NULL && acp_create_dst_segbuf(-1, in, SIZE, COUNT) == ACP_SEGBUF_NULL);
    acp_segbuf_t to = acp_create_src_segbuf(next, out, SIZE, COUNT), from = acp_create_dst_segbuf(before, in, SIZE, COUNT);
    check(to != ACP_SEGBUF_NULL && from != ACP_SEGBUF_NULL);
    check(acp_connect_segbuf(to) == 0 && acp_connect_segbuf(from) == 0);
    check(acp_isconnected_segbuf(to) == 0 && acp_isconnected_segbuf(from) == 0);
    check(acp_isready_segbuf(from) == -1 && acp_isacked_segbuf(to) == -1 && acp_ack_segbuf(from) == -1 && acp_ready_segbuf(to) == -1);
    check(acp_query_segbuf_head(from) == 0 && acp_query_segbuf_tail(to) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        while (acp_isready_segbuf(to) == 1)
            ;
        memset(out + acp_query_segbuf_tail(to) % COUNT * SIZE, turn + rank, SIZE);
        check(acp_ack_segbuf(to) == 0 && acp_query_segbuf_tail(to) == turn + 1);
        while (acp_isacked_segbuf(from) == 1)
            ;
        const char *segment = in + acp_query_segbuf_head(from) % COUNT * SIZE;
        for (int byte = 0; byte < SIZE; byte++)
            check(segment[byte] == (char)(turn + before));
        check(acp_ready_segbuf(from) == 0 && acp_query_segbuf_head(from) == turn + 1);
    }
    check(acp_disconnect_segbuf(to) == 0 && acp_query_segbuf_sent(to) == TURNS && acp_ack_segbuf(to) == -1);
    while (acp_isconnected_segbuf(from) == 0)
        ;
    check(acp_isacked_segbuf(from) == -1 && acp_ready_segbuf(from) == -1);
    check(acp_free_segbuf(to) == 0 && acp_free_segbuf(from) == 0 && acp_free_segbuf(from) == -1);
    check(acp_isconnected_segbuf(to) == -1 && acp_query_segbuf_head(ACP_SEGBUF_NULL) == -1);
}

int main(int argc, char **argv)
{
    check(acp_rank() == -1 && acp_procs() == -1 && acp_sync() == -1 && acp_query_starter_ga(0) == ACP_GA_NULL);
    check(acp_copy(1, 1, 1, ACP_HANDLE_NULL) == ACP_HANDLE_NULL && acp_create_ch(0, 1) == ACP_CH_NULL);
    char *wrong[] = {"program", "--acp-unknown", "1", NULL}, *short_one[] = {"program", "--acp-taskid", NULL};
    char **wrong_argv = wrong, **short_argv = short_one;
    int wrong_argc = 3, short_argc = 2;
    check(acp_init(&wrong_argc, &wrong_argv) == -1 && acp_init(&short_argc, &short_argv) == -1 && wrong_argc == 3);
    /* As the published launcher calls programs. */
    char *given[] = {argv[0], "own", "--acp-myrank", "0", "--acp-size-smem", "4096", "argument", NULL};
    char **given_argv = given;
    int given_argc = 7;
    check(acp_init(&given_argc, &given_argv) == 0);
    check(given_argc == 3 && strcmp(given_argv[1], "own") == 0 && strcmp(given_argv[2], "argument") == 0 && given_argv[3] == NULL);
    check(acp_init(&argc, &argv) == -1);
    rank = acp_rank();
    procs = acp_procs();
    check(rank >= 0 && rank < procs);
    acp_atkey_t key = acp_register_memory(words, sizeof words, acp_colors() - 1);
    check(key != ACP_ATKEY_NULL);
    addresses(key);
    acp_ga_t *all = exchange(key);
    copies(all);
    atomics(all);
    free(all);
    if (procs > 1) {
        channels();
        long_messages();
        segmented_buffers();
    }
    check(acp_reset(0) == (procs == 1 ? 0 : -1) && acp_rank() == rank);
    check(acp_reset(-1) == -1);
    int other = (rank + 1) % procs;
    check(acp_reset(other) == 0 && acp_rank() == other && acp_unregister_memory(key) == -1);
    rank = other;
    if (procs > 1) {
        channels();
        segmented_buffers();
    }
    check(acp_finalize() == 0 && acp_finalize() == -1 && acp_rank() == -1);
    check(acp_init(NULL, NULL) == -1);
    puts("acp_ranks: all well");
    return 0;
}
