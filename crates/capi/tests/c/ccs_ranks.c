/* CCS between processes: messages of every kind, memory by addresses, strided and scattered, atomics, broken promises. */
#include "ccs_check.h"

enum { PING, PONG, ADDRESS, COUNTED, FLOOD, ORDERED, ROWS = 40, COLUMNS = 50, EACH = 500 };

static CCS_context_t context, library;
static int rank, size, pongs, addresses, counted, floods;
static uint64_t words[64];
static double plate[ROWS][COLUMNS], seen[ROWS][COLUMNS];
static void *of[64];

static void ping(CCS_token_t token, void *buffer, unsigned len, int a, int64_t b)
{
    int sender;
    OK(CCS_sender_rank(token, &sender));
    CHECK((uintptr_t)buffer % 16 == 0 && a == sender * 1000 + (int)len && b == -(int64_t)len);
    OK(CCS_amreply(token, buffer, len, CCS_DATA8, PONG, 1, len));
}

static void pong(CCS_token_t token, void *buffer, unsigned len, unsigned was)
{
    CHECK(token && len == was);
    for (unsigned at = 0; at < len; at++)
        CHECK(((char *)buffer)[at] == (char)(at + len));
    pongs++;
}

static void address(CCS_token_t token, void *buffer, unsigned len, void *base)
{
    int sender;
    OK(CCS_sender_rank(token, &sender));
    CHECK(!buffer && len == 0);
    of[sender] = base;
    addresses++;
}

static void count(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && len == 6 && memcmp(buffer, "\0\1\4\5\10\11", 6) == 0);
    counted++;
}

static void flood(CCS_token_t token, void *buffer, unsigned len, int left)
{
    (void)buffer, (void)len;
    floods++;
    if (left > 0) {
        int code = CCS_amrequest(context, (rank + 1) % size, NULL, 0, CCS_DATA_NULL, FLOOD, 1, left - 1);
        if (code == CCS_ERR_AGAIN)
            code = CCS_amreply(token, NULL, 0, CCS_DATA_NULL, FLOOD, 1, left - 1);
        OK(code);
    }
}

static int next[64];

static void ordered(CCS_token_t token, void *buffer, unsigned len, int number)
{
    int sender;
    (void)buffer, (void)len;
    OK(CCS_sender_rank(token, &sender));
    CHECK(number == next[sender]);
    next[sender]++;
}

static void messages(void)
{
    char data[3000];
    OK(CCS_new_context(&context));
    /* Its handlers come later at some: messages for them wait. */
    if (rank % 2 == 0)
        OK(CCS_new_named_context("library", &library));
    OK(CCS_register_handler(context, PING, ping));
    OK(CCS_register_handler(context, PONG, pong));
    OK(CCS_register_handler(context, ADDRESS, address));
    OK(CCS_register_handler(context, COUNTED, count));
    OK(CCS_register_handler(context, FLOOD, flood));
    OK(CCS_register_handler(context, ORDERED, ordered));
    if (rank % 2 == 1)
        OK(CCS_new_named_context("library", &library));
    OK(CCS_register_handler(library, ORDERED, ordered));
    int len = 0;
    for (int round = 0; round < EACH; round++, len = (len + 37) % 3000) {
        for (int at = 0; at < len; at++)
            data[at] = (char)(at + len);
        OK(CCS_amrequest(context, round % size, data, len, CCS_DATA8, PING, 2, rank * 1000 + len, -(int64_t)len));
    }
    CCS_block_until(pongs == EACH);
    for (int number = 0; number < EACH; number++)
        for (int to = 0; to < size; to++)
            OK(CCS_amrequest(number % 3 ? context : library, to, NULL, 0, CCS_DATA_NULL, ORDERED, 1, number));
    OK(CCS_amrequest(context, (rank + 1) % size, NULL, 0, CCS_DATA_NULL, FLOOD, 1, 300));
    CCS_datadesc_t vector;
    unsigned char bytes[16];
    for (int at = 0; at < 16; at++)
        bytes[at] = (unsigned char)at;
    OK(CCS_datadesc_vector(3, 2, 4, CCS_DATA8, &vector));
    OK(CCS_amrequest(context, (rank + 1) % size, bytes, 1, vector, COUNTED, 0));
    OK(CCS_datadesc_free(&vector));
    CCS_block_until(counted == 1);
    for (int from = 0; from < size; from++)
        CCS_block_until(next[from] == EACH);
}

static int callbacks;

static void callback(void *arg)
{
    int status;
    OK(CCS_callback_status(&status));
    CHECK(status == CCS_SUCCESS && arg == &callbacks);
    callbacks++;
}

static void memory(void)
{
    int there = (rank + 1) % size;
    OK(CCS_register_mem(words, sizeof words));
    OK(CCS_register_mem(plate, sizeof plate));
    for (int to = 0; to < size; to++)
        OK(CCS_amrequest(context, to, NULL, 0, CCS_DATA_NULL, ADDRESS, 1, plate));
    CCS_block_until(addresses == size);
    OK(CCS_barrier());
    /* A column of mine becomes a column of my neighbour's, and a block of its is read back transposed by pieces. */
    CCS_datadesc_t column, block;
    OK(CCS_datadesc_vector(ROWS, 1, COLUMNS, CCS_DATA64, &column));
    OK(CCS_datadesc_vector(10, 10, COLUMNS, CCS_DATA64, &block));
    for (int row = 0; row < ROWS; row++)
        plate[row][3] = rank * 1000 + row;
    double *base = of[there];
    OK(CCS_put(there, base + 7, 1, column, &plate[0][3], 1, column, callback, &callbacks));
    OK(CCS_fence(there));
    CHECK(callbacks == 1);
    OK(CCS_get(there, base + 7, 1, column, &seen[0][0], ROWS, CCS_DATA64, NULL, NULL));
    OK(CCS_fence(there));
    for (int row = 0; row < ROWS; row++)
        CHECK((&seen[0][0])[row] == rank * 1000 + row);
    OK(CCS_get(there, base, 1, block, &seen[20][20], 1, block, NULL, NULL));
    OK(CCS_gfence());
    for (int row = 0; row < ROWS; row++)
        CHECK(plate[row][7] == ((rank + size - 1) % size) * 1000 + row);
    for (int row = 0; row < 10; row++)
        CHECK(seen[20 + row][27] == rank * 1000 + row && seen[20 + row][19] == 0 && seen[20 + row][30] == 0);
    OK(CCS_barrier());
    /* Constant memory may be put. */
    static const char text[] = "constant";
    OK(CCS_put(there, base, sizeof text, CCS_DATA8, text, sizeof text, CCS_DATA8, NULL, NULL));
    OK(CCS_gfence());
    CHECK(strcmp((char *)plate, text) == 0);
    OK(CCS_datadesc_free(&column));
    OK(CCS_datadesc_free(&block));
}

static int announced;

static void announce(CCS_token_t token, void *buffer, unsigned len, double *where, int number)
{
    CHECK(token && !buffer && len == 0 && where[number] == number * 1.5 + 1000 * ((rank + size - 1) % size));
    announced++;
}

/* A handler runs at the target when the data are there. */
static void puts_that_announce(void)
{
    int there = (rank + 1) % size;
    double *base = of[there], values[500];
    OK(CCS_register_handler(context, 9, announce));
    OK(CCS_barrier());
    for (int number = 0; number < 500; number++) {
        CCS_arg_t args[2] = {(CCS_arg_t)base, number};
        values[number] = number * 1.5 + 1000 * rank;
        OK(CCS_put_am(there, base + number, 1, CCS_DATA64, &values[number], 1, CCS_DATA64, NULL, NULL, context, 9, 2, args));
    }
    CODE(CCS_put_am(there, base, 1, CCS_DATA64, values, 1, CCS_DATA64, NULL, NULL, context, -1, 0, NULL), CCS_ERR_RANGE);
    CODE(CCS_put_am(there, base, 1, CCS_DATA64, values, 1, CCS_DATA64, NULL, NULL, context, 9, 1, NULL), CCS_ERR_ARG);
    CODE(CCS_put_am(there, base, 1, CCS_DATA64, values, 1, CCS_DATA64, NULL, NULL, NULL, 9, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_put_am(size, base, 1, CCS_DATA64, values, 1, CCS_DATA64, NULL, NULL, context, 9, 0, NULL), CCS_ERR_RANGE);
    OK(CCS_fence(there));
    CCS_block_until(announced == 500);
    OK(CCS_barrier());
}

enum { LATE = 101, ROUNDS = 6, PUTS_MAX = 3 * 4096 };
static int put_number, rounds, late;
static double *pair;

/* In a callback nothing waits: at last a put finds no space. */
static void fill(void *none)
{
    int code = CCS_SUCCESS;
    CHECK(none == NULL);
    while (code == CCS_SUCCESS) {
        CCS_arg_t args[1] = {put_number};
        code = CCS_put_am(rank, pair, 1, CCS_DATA64, pair + 1, 1, CCS_DATA64, NULL, NULL, context, LATE, 1, args);
        put_number += code == CCS_SUCCESS;
    }
    CHECK(code == CCS_ERR_AGAIN);
    rounds++;
}

static void come_late(CCS_token_t token, void *buffer, unsigned len, int number)
{
    CHECK(token && !buffer && len == 0 && number == late);
    late++;
}

/* Puts end, while the messages that follow them wait for their handler: so many may wait, and no more. */
static void puts_whose_handler_is_late(void)
{
    void *found = NULL;
    OK(CCS_symmetric_alloc(2 * sizeof *pair, &found));
    pair = found;
    for (int round = 1; round <= ROUNDS; round++) {
        OK(CCS_put(rank, pair, 1, CCS_DATA64, pair + 1, 1, CCS_DATA64, fill, NULL));
        CCS_block_until(rounds == round);
        OK(CCS_fence(rank));
    }
    CHECK(put_number > 0 && put_number <= PUTS_MAX);
    OK(CCS_register_handler(context, LATE, come_late));
    CCS_block_until(late == put_number);
    OK(CCS_symmetric_free(pair));
}

enum { SLOW = 102, QUICK = 103, GO = 104, SLOW_PUTS = 1000 };
static int slow, quick, may_go;

static void count_slow(CCS_token_t token, void *buffer, unsigned len, int number)
{
    CHECK(token && !buffer && len == 0 && number == slow);
    slow++;
}

static void go(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && !buffer && len == 0);
    may_go = 1;
}

static void be_quick(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && !buffer && len == 0);
    quick = 1;
}

/* Rank 1 has no handler before rank 2 has run its own, whose message rank 0 has sent behind all those for rank 1. */
static void a_rank_whose_handler_is_late_delays_no_other(void)
{
    void *found = NULL;
    if (size < 3)
        return;
    OK(CCS_register_handler(context, GO, go));
    OK(CCS_symmetric_alloc(2 * sizeof *pair, &found));
    pair = found;
    if (rank == 0) {
        for (int number = 0; number < SLOW_PUTS; number++) {
            CCS_arg_t args[1] = {number};
            OK(CCS_put_am(1, pair, 1, CCS_DATA64, pair + 1, 1, CCS_DATA64, NULL, NULL, context, SLOW, 1, args));
        }
        OK(CCS_put_am(2, pair, 1, CCS_DATA64, pair + 1, 1, CCS_DATA64, NULL, NULL, context, QUICK, 0, NULL));
    } else if (rank == 1) {
        CCS_block_until(may_go);
        OK(CCS_register_handler(context, SLOW, count_slow));
        CCS_block_until(slow == SLOW_PUTS);
    } else if (rank == 2) {
        OK(CCS_register_handler(context, QUICK, be_quick));
        CCS_block_until(quick);
        OK(CCS_amrequest(context, 1, NULL, 0, CCS_DATA_NULL, GO, 0));
    }
    OK(CCS_symmetric_free(pair));
}

static void atomics(void)
{
    static uint64_t *zero;
    int64_t one = 1, found = -1;
    uint64_t last = 0;
    OK(CCS_barrier());
    memset(plate, 0, sizeof plate);
    zero = of[0];
    OK(CCS_barrier());
    for (int round = 0; round < 200; round++) {
        OK(CCS_atomic(0, zero, CCS_OP_ADD, CCS_TYPE_I64, &one, NULL, &found, NULL, NULL));
        OK(CCS_fence(0));
        CHECK(round == 0 || (uint64_t)found > last);
        last = (uint64_t)found;
    }
    OK(CCS_gfence());
    if (rank == 0)
        CHECK(*(uint64_t *)plate == 200 * (uint64_t)size);
    /* Floats are added at the same time from all, and the largest of all numbers stays. */
    double half = 0.5;
    int32_t number = rank * 3 - 5;
    for (int round = 0; round < 50; round++) {
        OK(CCS_atomic(0, (char *)zero + 16, CCS_OP_ADD, CCS_TYPE_F64, &half, NULL, NULL, NULL, NULL));
        OK(CCS_atomic(0, (char *)zero + 24, CCS_OP_MAX, CCS_TYPE_I32, &number, NULL, NULL, NULL, NULL));
    }
    OK(CCS_gfence());
    if (rank == 0) {
        int32_t most = 3 * size - 8;
        CHECK((&plate[0][0])[2] == 25.0 * size);
        CHECK(*(int32_t *)(&plate[0][0] + 3) == (most > 0 ? most : 0));
    }
    /* Everybody adds to each second number of a row, and appends to one buffer. */
    static double tenth[COLUMNS / 2];
    static unsigned char block[5000];
    CCS_datadesc_t second;
    for (int at = 0; at < COLUMNS / 2; at++)
        tenth[at] = at;
    OK(CCS_datadesc_vector(COLUMNS / 2, 1, 2, CCS_DATA64, &second));
    for (int round = 0; round < 20; round++)
        OK(CCS_accumulate(0, (char *)zero + sizeof plate[0] * 2, 1, second, tenth, COLUMNS / 2, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_F64, NULL, NULL));
    OK(CCS_datadesc_free(&second));
    OK(CCS_gfence());
    if (rank == 0) {
        for (int at = 0; at < COLUMNS; at++)
            CHECK(plate[2][at] == (at % 2 ? 0 : 10.0 * at * size));
        *(void **)plate[3] = plate[4];
    }
    OK(CCS_barrier());
    memset(block, rank + 1, sizeof block);
    size_t share = sizeof(double) * COLUMNS * (ROWS - 4) / (size_t)size / 16, sent = 0;
    for (size_t length = 1; sent + length <= share && length <= sizeof block; sent += length, length = length * 3 % 4999)
        OK(CCS_indexed_put(0, (char *)zero + sizeof plate[0] * 3, block, length, NULL, NULL));
    OK(CCS_gfence());
    if (rank == 0) {
        size_t of_rank[64] = {0}, total = 0;
        unsigned char *from = (unsigned char *)plate[4], *to = *(unsigned char **)plate[3];
        for (unsigned char *at = from; at < to; at++)
            of_rank[*at - 1]++;
        for (int who = 0; who < size; who++, total += sent)
            CHECK(of_rank[who] == sent && sent > 0);
        CHECK(total == (size_t)(to - from));
    }
    OK(CCS_barrier());
    /* Somebody else's change is noticed without a message. */
    if (rank == 0)
        CCS_block_until(*(volatile uint64_t *)&plate[1][0] == (uint64_t)size - 1);
    else
        OK(CCS_atomic(0, (char *)zero + sizeof plate[0], CCS_OP_ADD, CCS_TYPE_U64, &one, NULL, NULL, NULL, NULL));
    OK(CCS_gfence());
}

/* Memory at one address everywhere: mine, and that of the others. */
static void symmetric(void)
{
    enum { WORDS = 100000 };
    void *first = NULL, *second = NULL;
    int64_t one = 1, found = -1;
    CODE(CCS_symmetric_alloc(0, &first), CCS_ERR_ARG);
    CODE(CCS_symmetric_alloc(8, NULL), CCS_ERR_ARG);
    if (size > 1)
        CODE(CCS_symmetric_alloc(rank ? 8 : 16, &first), CCS_ERR_ARG);
    OK(CCS_symmetric_alloc(WORDS * sizeof(int64_t), &first));
    OK(CCS_symmetric_alloc(8, &second));
    int64_t *table = first, sum = 0;
    CHECK((uintptr_t)table % 4096 == 0 && table[WORDS - 1] == 0 && second != first);
    CODE(CCS_deregister_mem(second, 8), CCS_ERR_STATE);
    for (int to = 0; to < size; to++) {
        int64_t value = 100 * rank + to;
        OK(CCS_put(to, table + rank, 1, CCS_DATA64, &value, 1, CCS_DATA64, NULL, NULL));
        OK(CCS_fence(to));
        OK(CCS_atomic(to, second, CCS_OP_ADD, CCS_TYPE_I64, &one, NULL, &found, NULL, NULL));
    }
    OK(CCS_gfence());
    for (int from = 0; from < size; from++)
        CHECK(table[from] == 100 * from + rank);
    CHECK(*(int64_t *)second == size && found >= 0 && found < size);
    /* From the one to the other. */
    OK(CCS_get((rank + 1) % size, table, (size_t)size, CCS_DATA64, table + 1000, (size_t)size, CCS_DATA64, NULL, NULL));
    OK(CCS_gfence());
    for (int from = 0; from < size; from++)
        sum += table[1000 + from];
    CHECK(sum == 50 * (int64_t)size * (size - 1) + (int64_t)size * ((rank + 1) % size));
    OK(CCS_symmetric_free(second));
    CODE(CCS_symmetric_free(second), CCS_ERR_ARG);
    CODE(CCS_symmetric_free(NULL), CCS_ERR_ARG);
    OK(CCS_symmetric_free(first));
}

enum { LARGE = 400000 };

static int ended[13], large_answers;
static char source[3 * LARGE], sink[3 * LARGE];
static CCS_held_t held;
static CCS_datadesc_t every_third;

/* What has ended, at the sender and at the receiver, and how. */
static void at_end(void *arg, int status)
{
    CHECK(status >= 0 && status < 13);
    ended[status]++;
    CHECK(arg == source || arg == sink);
}

static int decide(CCS_token_t token, size_t bytes, CCS_target_t *target, int nargs, const CCS_arg_t *args, void *user)
{
    CCS_target_t whole = {sink, bytes, CCS_DATA8, at_end, sink};
    CHECK(user == &held && nargs == 1);
    OK(CCS_amreply(token, NULL, 0, CCS_DATA_NULL, 10, 0));
    switch (args[0]) {
    case 0: /* in a row */
        *target = whole;
        return CCS_LARGE_ACCEPT;
    case 1: /* to every third byte */
        whole.desc = every_third;
        *target = whole;
        return CCS_LARGE_ACCEPT;
    case 2: /* one byte too short */
        whole.count--;
        *target = whole;
        return CCS_LARGE_ACCEPT;
    case 3:
        OK(CCS_large_hold(token, &held));
        CODE(CCS_large_hold(token, &held), CCS_ERR_STATE);
        return CCS_LARGE_DELAY;
    case 4:
        return CCS_LARGE_ABORT;
    default: /* a target that can't be */
        *target = whole;
        target->buffer = NULL;
        return CCS_LARGE_ACCEPT;
    }
}

static void answered(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && !buffer && len == 0);
    large_answers++;
}

static void send_large(int to, size_t count, CCS_datadesc_t desc, CCS_arg_t how)
{
    OK(CCS_amlarge(context, to, source, count, desc, 77, at_end, source, 1, &how));
}

/* A handler says where data of any length go, at once or later, or that it does not want them. */
static void large(void)
{
    int to = (rank + 1) % size;
    CCS_arg_t how = 0;
    for (int at = 0; at < 3 * LARGE; at++)
        source[at] = (char)(at * 7 + at / 300);
    OK(CCS_datadesc_resized(CCS_DATA8, 0, 3, &every_third));
    OK(CCS_register_handler(context, 10, answered));
    OK(CCS_register_large_handler(context, 77, decide, &held));
    CODE(CCS_register_large_handler(context, 77, decide, NULL), CCS_ERR_EXISTS);
    CODE(CCS_register_large_handler(context, 65536, decide, NULL), CCS_ERR_RANGE);
    CODE(CCS_register_large_handler(context, 78, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_register_large_handler(NULL, 78, decide, NULL), CCS_ERR_ARG);
    CODE(CCS_amlarge(context, size, source, 1, CCS_DATA8, 77, at_end, source, 1, &how), CCS_ERR_RANGE);
    CODE(CCS_amlarge(context, to, NULL, 1, CCS_DATA8, 77, at_end, source, 1, &how), CCS_ERR_ARG);
    CODE(CCS_amlarge(context, to, source, 1, CCS_DATA8, 77, at_end, source, 17, &how), CCS_ERR_ARG);
    CODE(CCS_amlarge(context, to, source, 1, NULL, 77, at_end, source, 1, &how), CCS_ERR_ARG);
    CODE(CCS_amlarge(NULL, to, source, 1, CCS_DATA8, 77, at_end, source, 1, &how), CCS_ERR_ARG);
    OK(CCS_barrier());

    send_large(to, LARGE, CCS_DATA8, 0);
    CCS_block_until(ended[CCS_SUCCESS] == 2);
    CHECK(memcmp(source, sink, LARGE) == 0);
    memset(sink, 1, sizeof sink);
    OK(CCS_barrier());
    send_large(to, LARGE, every_third, 1);
    CCS_block_until(ended[CCS_SUCCESS] == 4);
    for (int at = 0; at < 3 * LARGE; at++)
        CHECK(sink[at] == (at % 3 ? 1 : source[at]));
    memset(sink, 1, sizeof sink);
    OK(CCS_barrier());
    send_large(to, 0, CCS_DATA8, 0);
    CCS_block_until(ended[CCS_SUCCESS] == 6);

    send_large(to, 100, CCS_DATA8, 2);
    CCS_block_until(ended[CCS_ERR_TOO_LONG] == 2);
    send_large(to, 100, CCS_DATA8, 4);
    CCS_block_until(ended[CCS_ERR_ABORTED] == 1);
    send_large(to, 100, CCS_DATA8, 5);
    CCS_block_until(ended[CCS_ERR_ABORTED] == 2 && ended[CCS_ERR_ARG] == 1);
    CHECK(sink[0] == 1);
    OK(CCS_barrier());

    /* What is held does not hold up what comes behind it. */
    send_large(to, LARGE, CCS_DATA8, 3);
    send_large(to, 50, CCS_DATA8, 0);
    CCS_block_until(ended[CCS_SUCCESS] == 8 && held);
    CHECK(memcmp(source, sink, 50) == 0 && sink[50] == 1);
    CCS_target_t later = {sink, LARGE, CCS_DATA8, at_end, sink};
    CODE(CCS_large_accept(held, NULL), CCS_ERR_ARG);
    OK(CCS_barrier());
    OK(CCS_large_accept(held, &later));
    CODE(CCS_large_accept(held, &later), CCS_ERR_STATE);
    CODE(CCS_large_abort(held), CCS_ERR_STATE);
    CCS_block_until(ended[CCS_SUCCESS] == 10);
    CHECK(memcmp(source, sink, LARGE) == 0);
    held = NULL;
    OK(CCS_barrier());
    send_large(to, 100, CCS_DATA8, 3);
    CCS_block_until(held);
    OK(CCS_large_abort(held));
    CCS_block_until(ended[CCS_ERR_ABORTED] == 3 && large_answers == 9);
    OK(CCS_datadesc_free(&every_third));
    OK(CCS_barrier());
}

static int refusals;

static void refused(int code, int who, const char *what, void *arg)
{
    CHECK(code == CCS_ERR_NOT_REGISTERED && who == (rank + 1) % size && what && arg == NULL);
    refusals++;
}

static void broken_promises(void)
{
    int there = (rank + 1) % size;
    char byte = 1;
    OK(CCS_set_error_handler(refused, NULL));
    OK(CCS_put(there, (char *)of[there] + sizeof plate - 1, 2, CCS_DATA8, "ab", 2, CCS_DATA8, NULL, NULL));
    OK(CCS_get(there, (void *)16, 1, CCS_DATA8, &byte, 1, CCS_DATA8, NULL, NULL));
    OK(CCS_fence(there));
    CCS_block_until(refusals == 2);
    CHECK(byte == 1);
    OK(CCS_barrier());
    OK(CCS_deregister_mem(plate, sizeof plate));
    OK(CCS_barrier());
    OK(CCS_put(there, of[there], 1, CCS_DATA8, &byte, 1, CCS_DATA8, NULL, NULL));
    OK(CCS_fence_all());
    CCS_block_until(refusals == 3);
}

int main(int argc, char **argv)
{
    int provided;
    if (argc > 1)
        OK(CCS_init_thread(atoi(argv[1]), &provided));
    else
        OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    CHECK(size <= 64);
    messages();
    memory();
    puts_that_announce();
    puts_whose_handler_is_late();
    a_rank_whose_handler_is_late_delays_no_other();
    atomics();
    symmetric();
    large();
    broken_promises();
    OK(CCS_finalize());
    CHECK(floods > 0);
    puts("ccs_ranks: all well");
    return 0;
}
