/* CCS in a job of one: every misuse has its code and changes nothing; messages, memory and descriptions work on oneself. */
#include "ccs_check.h"
#include <pthread.h>

static CCS_context_t context;
static int handled, called;
static CCS_token_t last_token;

static void before_and_after(void)
{
    int number;
    size_t size;
    CCS_context_t none = NULL;
    char byte = 0;
    CODE(CCS_rank(&number), CCS_ERR_STATE);
    CODE(CCS_nprocs(&number), CCS_ERR_STATE);
    CODE(CCS_local_rank(&number), CCS_ERR_STATE);
    CODE(CCS_local_nprocs(&number), CCS_ERR_STATE);
    CODE(CCS_poll(), CCS_ERR_STATE);
    CODE(CCS_wait(0), CCS_ERR_STATE);
    CODE(CCS_barrier(), CCS_ERR_STATE);
    CODE(CCS_finalize(), CCS_ERR_STATE);
    CODE(CCS_new_context(&none), CCS_ERR_STATE);
    CODE(CCS_new_named_context("name", &none), CCS_ERR_STATE);
    CODE(CCS_free_context(none), CCS_ERR_STATE);
    CODE(CCS_am_max(&size), CCS_ERR_STATE);
    CODE(CCS_amrequest(none, 0, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_STATE);
    CODE(CCS_register_mem(&byte, 1), CCS_ERR_STATE);
    CODE(CCS_deregister_mem(&byte, 1), CCS_ERR_STATE);
    CODE(CCS_put(0, &byte, 1, CCS_DATA8, &byte, 1, CCS_DATA8, NULL, NULL), CCS_ERR_STATE);
    CODE(CCS_fence(0), CCS_ERR_STATE);
    CODE(CCS_fence_all(), CCS_ERR_STATE);
    CODE(CCS_gfence(), CCS_ERR_STATE);
    CODE(CCS_hold_interrupts(), CCS_ERR_STATE);
    CODE(CCS_set_error_handler(NULL, NULL), CCS_ERR_STATE);
    CODE(CCS_abort(1, "there is no job"), CCS_ERR_STATE);
    OK(CCS_initialized(&number));
    CHECK(number == 0);
    CODE(CCS_initialized(NULL), CCS_ERR_ARG);
}

static void words(void)
{
    for (int code = -1; code < 20; code++)
        CHECK(strlen(CCS_strerror(code)) > 5);
    CHECK(strcmp(CCS_strerror(CCS_ERR_ABORTED), CCS_strerror(99)) != 0);
}

static void plain(CCS_token_t token, void *buffer, unsigned len)
{
    int rank = -1, code;
    CCS_context_t in;
    CHECK((uintptr_t)buffer % 16 == 0);
    OK(CCS_sender_rank(token, &rank));
    OK(CCS_token_context(token, &in));
    CHECK(rank == 0 && in == context && (len > 0) == (buffer != NULL));
    /* Nothing waits in a handler. */
    CODE(CCS_wait(0), CCS_ERR_STATE);
    CODE(CCS_barrier(), CCS_ERR_STATE);
    CODE(CCS_fence(0), CCS_ERR_STATE);
    CODE(CCS_fence_all(), CCS_ERR_STATE);
    CODE(CCS_gfence(), CCS_ERR_STATE);
    CODE(CCS_finalize(), CCS_ERR_STATE);
    CODE(CCS_poll(), CCS_ERR_AGAIN);
    CODE(CCS_callback_status(&code), CCS_ERR_STATE);
    last_token = token;
    handled++;
}

static void sixteen(CCS_token_t token, void *buffer, unsigned len, char *one, int two, long three, unsigned four, void *five, int six,
                    int seven, int eight, int nine, int ten, int eleven, int twelve, int thirteen, int fourteen, int fifteen, int64_t last)
{
    CHECK(token && !buffer && len == 0);
    CHECK(strcmp(one, "one") == 0 && two == -2 && three == -3000000000L && four == 4000000000U && five == (void *)&handled);
    CHECK(six == 6 && seven == 7 && eight == 8 && nine == 9 && ten == 10 && eleven == 11 && twelve == 12 && thirteen == 13);
    CHECK(fourteen == 14 && fifteen == 15 && last == INT64_MIN);
    handled++;
}

static void once(CCS_token_t token, void *buffer, unsigned len, int answer)
{
    (void)buffer, (void)len;
    OK(CCS_amreply(token, "answer", 7, CCS_DATA8, answer, 0));
    CODE(CCS_amreply(token, "answer", 7, CCS_DATA8, answer, 0), CCS_ERR_STATE);
}

static void answered(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(len == 7 && strcmp(buffer, "answer") == 0);
    /* An answer may be answered. */
    OK(CCS_amreply(token, NULL, 0, CCS_DATA_NULL, 0, 0));
    handled += 100;
}

static void late(CCS_token_t token, void *buffer, unsigned len)
{
    CHECK(token && !buffer && len == 0);
    handled += 100;
}

static void messages(void)
{
    static char data[1 << 20];
    size_t max;
    CCS_context_t named, same;
    OK(CCS_am_max(&max));
    CHECK(max >= 4096 && max < sizeof data);
    CODE(CCS_am_max(NULL), CCS_ERR_ARG);
    CODE(CCS_new_context(NULL), CCS_ERR_ARG);
    CODE(CCS_new_named_context(NULL, &named), CCS_ERR_ARG);
    CODE(CCS_new_named_context("\xff", &named), CCS_ERR_ARG);
    OK(CCS_new_context(&context));
    OK(CCS_new_named_context("one", &named));
    OK(CCS_new_named_context("one", &same));
    CHECK(named == same && named != context);
    OK(CCS_register_handler(context, 0, plain));
    OK(CCS_register_handler(context, 65535, sixteen));
    OK(CCS_register_handler(context, 1, once));
    OK(CCS_register_handler(context, 2, answered));
    CODE(CCS_register_handler(context, 0, plain), CCS_ERR_EXISTS);
    CODE(CCS_register_handler(context, -1, plain), CCS_ERR_RANGE);
    CODE(CCS_register_handler(context, 65536, plain), CCS_ERR_RANGE);
    CODE(CCS_register_handler(context, 3, NULL), CCS_ERR_ARG);
    CODE(CCS_register_handler(NULL, 3, plain), CCS_ERR_ARG);

    /* What is wrong is refused, and nothing comes of it. */
    CCS_arg_t args[17] = {0};
    CODE(CCS_amrequest(NULL, 0, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 1, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_RANGE);
    CODE(CCS_amrequest(context, -1, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_RANGE);
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, -1, 0), CCS_ERR_RANGE);
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 65536, 0), CCS_ERR_RANGE);
    CODE(CCS_amrequest(context, 0, NULL, 1, CCS_DATA8, 0, 0), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, data, 1, NULL, 0, 0), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, data, SIZE_MAX, CCS_DATA64, 0, 0), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, data, max + 1, CCS_DATA8, 0, 0), CCS_ERR_TOO_LONG);
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 2, 1), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 0, 1), CCS_ERR_ARG);
    CODE(CCS_amrequestv(context, 0, NULL, 0, CCS_DATA_NULL, 0, 17, args), CCS_ERR_ARG);
    CODE(CCS_amrequestv(context, 0, NULL, 0, CCS_DATA_NULL, 0, -1, args), CCS_ERR_ARG);
    CODE(CCS_amrequestv(context, 0, NULL, 0, CCS_DATA_NULL, 0, 1, NULL), CCS_ERR_ARG);
    CODE(CCS_try_amrequestv(context, 1, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_RANGE);
    CODE(CCS_amreplyv(NULL, NULL, 0, CCS_DATA_NULL, 0, 0, NULL), CCS_ERR_ARG);
    CODE(CCS_poll(), CCS_ERR_AGAIN);

    OK(CCS_amrequest(context, 0, data, max, CCS_DATA8, 0, 0));
    OK(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 0));
    OK(CCS_try_amrequestv(context, 0, data, 3, CCS_DATA32, 0, 0, NULL));
    CCS_block_until(handled == 3);
    CODE(CCS_amreply(last_token, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_ARG);
    CODE(CCS_sender_rank(last_token, &handled), CCS_ERR_ARG);
    handled = 0;
    OK(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 65535, 16, "one", -2, -3000000000L, 4000000000U, &handled, 6, 7, 8, 9, 10, 11, 12,
                     13, 14, 15, INT64_MIN));
    CCS_block_until(handled == 1);
    OK(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 1, 1, 2));
    CCS_block_until(handled == 102);

    /* A message waits for its handler, and none runs while interrupts are held. */
    handled = 0;
    OK(CCS_amrequest(named, 0, NULL, 0, CCS_DATA_NULL, 0, 0));
    OK(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 0));
    for (int times = 0; times < 10; times++)
        CODE(CCS_poll(), CCS_ERR_AGAIN);
    OK(CCS_hold_interrupts());
    OK(CCS_hold_interrupts());
    OK(CCS_register_handler(named, 0, late));
    CODE(CCS_poll(), CCS_ERR_AGAIN);
    CODE(CCS_wait(1000000), CCS_ERR_AGAIN);
    OK(CCS_resume_interrupts());
    CODE(CCS_poll(), CCS_ERR_AGAIN);
    CHECK(handled == 0);
    OK(CCS_resume_interrupts());
    CODE(CCS_resume_interrupts(), CCS_ERR_STATE);
}

static void locks(void)
{
    CCS_lock_t lock, none;
    memset(&none, 0, sizeof none);
    CODE(CCS_lock(&none), CCS_ERR_ARG);
    CODE(CCS_lock_init(NULL), CCS_ERR_ARG);
    OK(CCS_lock_init(&lock));
    CODE(CCS_unlock(&lock), CCS_ERR_STATE);
    OK(CCS_lock(&lock));
    CODE(CCS_lock(&lock), CCS_ERR_STATE);
    CODE(CCS_trylock(&lock), CCS_ERR_AGAIN);
    CODE(CCS_lock_destroy(&lock), CCS_ERR_STATE);
    handled = 0;
    OK(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 0));
    CODE(CCS_poll(), CCS_ERR_AGAIN);
    OK(CCS_unlock(&lock));
    OK(CCS_poll());
    CHECK(handled == 1);
    OK(CCS_trylock(&lock));
    OK(CCS_unlock(&lock));
    OK(CCS_lock_destroy(&lock));
    CODE(CCS_lock(&lock), CCS_ERR_ARG);
}

static void descriptions(void)
{
    unsigned char bytes[64], packed[64], back[64];
    size_t done = 77, size;
    ptrdiff_t lower;
    CCS_datadesc_t vector, nested, text, freed, out = NULL;
    for (int at = 0; at < 64; at++)
        bytes[at] = (unsigned char)at;
    OK(CCS_datadesc_vector(3, 2, 4, CCS_DATA8, &vector));
    OK(CCS_datadesc_size(vector, &size));
    CHECK(size == 6);
    OK(CCS_datadesc_extent(vector, &lower, &size));
    CHECK(lower == 0 && size == 10);
    OK(CCS_pack(bytes, 2, vector, 0, packed, sizeof packed, &done));
    CHECK(done == 12 && memcmp(packed, "\0\1\4\5\10\11\12\13\16\17\22\23", 12) == 0);
    OK(CCS_pack(bytes, 2, vector, 5, packed, 3, &done));
    CHECK(done == 3 && memcmp(packed, "\11\12\13", 3) == 0);
    OK(CCS_pack(bytes, 2, vector, 12, packed, 3, &done));
    CHECK(done == 0);
    CODE(CCS_pack(bytes, 2, vector, 13, packed, 3, &done), CCS_ERR_RANGE);
    CODE(CCS_pack(NULL, 2, vector, 0, packed, 3, &done), CCS_ERR_ARG);
    CODE(CCS_pack(bytes, 2, vector, 0, NULL, 3, &done), CCS_ERR_ARG);
    CODE(CCS_pack(bytes, 2, vector, 0, packed, 3, NULL), CCS_ERR_ARG);
    CODE(CCS_pack(bytes, SIZE_MAX / 2, vector, 0, packed, 3, &done), CCS_ERR_ARG);
    memset(back, 0xee, sizeof back);
    OK(CCS_unpack(back, 2, vector, 4, "\1\2\3", 3, &done));
    CHECK(done == 3 && back[8] == 1 && back[9] == 2 && back[10] == 3 && back[7] == 0xee && back[11] == 0xee);

    /* What is made of another one outlives it. */
    size_t lens[2] = {1, 2};
    ptrdiff_t at[2] = {0, 16};
    CCS_datadesc_t bases[2] = {vector, CCS_DATA64};
    OK(CCS_datadesc_struct(2, lens, at, bases, &nested));
    freed = vector;
    OK(CCS_datadesc_free(&vector));
    CHECK(vector == NULL);
    CODE(CCS_datadesc_free(&vector), CCS_ERR_ARG);
    CODE(CCS_datadesc_free(&freed), CCS_ERR_ARG);
    CODE(CCS_datadesc_size(freed, &size), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, bytes, 1, freed, 0, 0), CCS_ERR_ARG);
    CODE(CCS_put(0, bytes, 1, freed, packed, 1, CCS_DATA8, NULL, NULL), CCS_ERR_ARG);
    OK(CCS_datadesc_contiguous(5, CCS_DATA8, &text));
    CHECK(text != freed);
    OK(CCS_datadesc_size(nested, &size));
    CHECK(size == 22);
    OK(CCS_datadesc_free(&nested));
    OK(CCS_datadesc_free(&text));
    for (CCS_datadesc_t each = NULL, all[] = {CCS_DATA_NULL, CCS_DATA8, CCS_DATA16, CCS_DATA32, CCS_DATA64}, *of = all; of < all + 5; of++) {
        each = *of;
        CODE(CCS_datadesc_free(&each), CCS_ERR_ARG);
        OK(CCS_datadesc_size(*of, &size));
        CHECK(size == (of == all ? 0 : (size_t)1 << (of - all - 1)));
    }
    CODE(CCS_datadesc_free(NULL), CCS_ERR_ARG);
    CODE(CCS_datadesc_contiguous(2, NULL, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_contiguous(2, CCS_DATA8, NULL), CCS_ERR_ARG);
    CODE(CCS_datadesc_contiguous(SIZE_MAX, CCS_DATA64, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_indexed(2, NULL, at, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_hindexed(2, lens, NULL, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_blockindexed(2, 1, NULL, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_hblockindexed(2, 1, NULL, CCS_DATA8, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_struct(2, lens, at, NULL, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_strided(-1, lens, at, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_strided(1, NULL, at, &out), CCS_ERR_ARG);
    CODE(CCS_datadesc_iov(1, NULL, &out), CCS_ERR_ARG);
    CHECK(out == NULL);

    /* ARMCI's strides, other bounds, and addresses. */
    size_t counts[2] = {2, 3};
    ptrdiff_t stride = 5;
    OK(CCS_datadesc_strided(1, counts, &stride, &out));
    OK(CCS_pack(bytes, 1, out, 0, packed, 64, &done));
    CHECK(done == 6 && memcmp(packed, "\0\1\5\6\12\13", 6) == 0);
    OK(CCS_datadesc_resized(out, -8, 20, &nested));
    OK(CCS_datadesc_extent(nested, &lower, &size));
    CHECK(lower == -8 && size == 20);
    OK(CCS_datadesc_free(&nested));
    OK(CCS_datadesc_free(&out));
    struct iovec pieces[2] = {{bytes + 40, 3}, {bytes + 2, 2}};
    OK(CCS_datadesc_iov(2, pieces, &out));
    OK(CCS_pack(NULL, 1, out, 0, packed, 64, &done));
    CHECK(done == 5 && memcmp(packed, "()*\2\3", 5) == 0);
    CODE(CCS_pack(bytes, 1, out, 0, packed, 64, &done), CCS_ERR_ARG);
    OK(CCS_datadesc_free(&out));
}

static void *describe(void *arg)
{
    (void)arg;
    for (int round = 0; round < 2000; round++) {
        CCS_datadesc_t one, other;
        size_t size;
        OK(CCS_datadesc_contiguous(3, CCS_DATA16, &one));
        OK(CCS_datadesc_vector(4, 1, 2, one, &other));
        OK(CCS_datadesc_free(&one));
        OK(CCS_datadesc_size(other, &size));
        CHECK(size == 24);
        OK(CCS_datadesc_free(&other));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&all[at], NULL, describe, NULL) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(all[at], NULL) == 0);
}

static int last_status = -1;

static void done(void *arg)
{
    OK(CCS_callback_status(&last_status));
    CODE(CCS_fence(0), CCS_ERR_STATE);
    called += *(int *)arg;
}

static int refusals, refused_code, refused_rank;

static void refused(int code, int rank, const char *what, void *arg)
{
    CHECK(strlen(what) > 10 && arg == &refusals);
    refusals++;
    refused_code = code;
    refused_rank = rank;
}

static void memory(void)
{
    static const char text[] = "this can't be written";
    static uint64_t words[64];
    char got[64] = {0};
    int one = 1, code;
    CODE(CCS_register_mem(NULL, 8), CCS_ERR_ARG);
    CODE(CCS_register_mem(words, 0), CCS_ERR_ARG);
    CODE(CCS_register_mem(words, SIZE_MAX), CCS_ERR_ARG);
    CODE(CCS_deregister_mem(words, sizeof words), CCS_ERR_STATE);
    OK(CCS_register_mem(words, sizeof words));
    OK(CCS_register_mem(words, sizeof words));
    OK(CCS_put(0, words, sizeof text, CCS_DATA8, text, sizeof text, CCS_DATA8, done, &one));
    OK(CCS_fence(0));
    CHECK(called == 1 && last_status == CCS_SUCCESS && strcmp((char *)words, text) == 0);
    OK(CCS_get(0, words, 3, CCS_DATA64, got, 24, CCS_DATA8, done, &one));
    CCS_block_until(called == 2);
    CHECK(memcmp(got, words, 24) == 0);
    CODE(CCS_callback_status(&code), CCS_ERR_STATE);
    CODE(CCS_callback_status(NULL), CCS_ERR_ARG);
    CODE(CCS_put(0, words, 3, CCS_DATA8, text, 2, CCS_DATA8, done, &one), CCS_ERR_ARG);
    CODE(CCS_put(0, NULL, 3, CCS_DATA8, text, 3, CCS_DATA8, done, &one), CCS_ERR_ARG);
    CODE(CCS_put(0, words, 3, CCS_DATA8, NULL, 3, CCS_DATA8, done, &one), CCS_ERR_ARG);
    CODE(CCS_put(1, words, 3, CCS_DATA8, text, 3, CCS_DATA8, done, &one), CCS_ERR_RANGE);
    CODE(CCS_get(-1, words, 3, CCS_DATA8, got, 3, CCS_DATA8, done, &one), CCS_ERR_RANGE);
    CODE(CCS_fence(1), CCS_ERR_RANGE);
    CODE(CCS_fence(-1), CCS_ERR_RANGE);
    OK(CCS_put(0, NULL, 0, CCS_DATA8, NULL, 5, CCS_DATA_NULL, done, &one));
    OK(CCS_fence_all());
    CHECK(called == 3);

    /* Pieces by addresses, here and there. */
    struct iovec here[2] = {{got + 1, 2}, {got + 20, 6}}, there[2] = {{words + 7, 4}, {words + 5, 4}};
    CCS_datadesc_t from, to;
    memcpy(got, "-ab----------------------", 20);
    memcpy(got + 20, "cdefgh", 6);
    OK(CCS_datadesc_iov(2, here, &from));
    OK(CCS_datadesc_iov(2, there, &to));
    OK(CCS_put(0, NULL, 1, to, NULL, 1, from, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(memcmp(words + 7, "abcd\0\0\0\0", 8) == 0 && memcmp(words + 5, "efgh\0\0\0\0", 8) == 0);
    memset(got, 0, sizeof got);
    OK(CCS_get(0, NULL, 1, to, NULL, 1, from, done, &one));
    OK(CCS_datadesc_free(&from));
    OK(CCS_datadesc_free(&to));
    OK(CCS_gfence());
    CHECK(called == 4 && memcmp(got, "\0ab\0", 4) == 0 && memcmp(got + 20, "cdefgh", 6) == 0);

    /* Atomics. */
    int64_t five = 5, seven = 7, found = -1;
    float half = 0.5F, none = 0, was = -1;
    words[0] = 37;
    OK(CCS_atomic(0, words, CCS_OP_ADD, CCS_TYPE_I64, &five, NULL, &found, done, &one));
    OK(CCS_fence(0));
    CHECK(found == 37 && words[0] == 42 && called == 5);
    OK(CCS_atomic(0, words, CCS_OP_FETCH, CCS_TYPE_U64, NULL, NULL, &found, NULL, NULL));
    OK(CCS_atomic(0, words, CCS_OP_SET, CCS_TYPE_U64, &seven, NULL, NULL, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(found == 42 && words[0] == 7);
    OK(CCS_atomic(0, words, CCS_OP_CAS, CCS_TYPE_U64, &five, &five, &found, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(found == 7 && words[0] == 7);
    OK(CCS_atomic(0, words, CCS_OP_CAS, CCS_TYPE_F32, &half, &none, &was, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(was != 0 && words[0] == 7);
    int32_t least = -5, was32 = 1;
    words[1] = 0;
    OK(CCS_atomic(0, words + 1, CCS_OP_MIN, CCS_TYPE_I32, &least, NULL, &was32, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(was32 == 0 && words[1] == 0xfffffffb);
    OK(CCS_atomic(0, words + 1, CCS_OP_MAX, CCS_TYPE_U32, &five, NULL, &was32, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(was32 == -5 && words[1] == 0xfffffffb);
    double quarter = 0.25, before = -1, now;
    words[1] = 0;
    for (int round = 0; round < 3; round++)
        OK(CCS_atomic(0, words + 1, CCS_OP_ADD, CCS_TYPE_F64, &quarter, NULL, &before, NULL, NULL));
    OK(CCS_fence(0));
    memcpy(&now, words + 1, sizeof now);
    CHECK(now == 0.75 && before == 0.5);
    CODE(CCS_atomic(0, words, CCS_OP_PROD, CCS_TYPE_I64, &five, NULL, NULL, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_ADD, CCS_TYPE_I64, NULL, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_CAS, CCS_TYPE_I64, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, NULL, CCS_OP_ADD, CCS_TYPE_I64, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, (char *)words + 4, CCS_OP_ADD, CCS_TYPE_I64, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_XOR, CCS_TYPE_F64, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, 99, CCS_TYPE_I64, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(0, words, CCS_OP_ADD, 99, &five, NULL, &found, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_atomic(3, words, CCS_OP_ADD, CCS_TYPE_I64, &five, NULL, &found, NULL, NULL), CCS_ERR_RANGE);

    /* Accumulations. */
    uint32_t mine[4] = {1, 2, 3, 4}, sums[4] = {10, 20, 30, 40};
    double floats[2] = {0.5, 0.25};
    called = 0;
    memcpy(words, sums, sizeof sums);
    OK(CCS_accumulate(0, words, 4, CCS_DATA32, mine, 2, CCS_DATA64, CCS_OP_ADD, CCS_TYPE_U32, done, &one));
    OK(CCS_accumulate(0, words, 1, CCS_DATA32, mine, 4, CCS_DATA8, CCS_OP_PROD, CCS_TYPE_I32, done, &one));
    OK(CCS_accumulate(0, NULL, 0, CCS_DATA64, NULL, 0, CCS_DATA8, CCS_OP_SET, CCS_TYPE_F64, done, &one));
    OK(CCS_fence(0));
    memcpy(sums, words, sizeof sums);
    CHECK(sums[0] == 11 && sums[1] == 22 && sums[2] == 33 && sums[3] == 44 && called == 3);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA32, mine, 1, CCS_DATA32, CCS_OP_ADD, CCS_TYPE_U64, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 1, CCS_DATA32, mine, 2, CCS_DATA32, CCS_OP_ADD, CCS_TYPE_U32, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, (char *)words + 2, 1, CCS_DATA32, mine, 1, CCS_DATA32, CCS_OP_ADD, CCS_TYPE_U32, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 2, CCS_DATA64, floats, 2, CCS_DATA64, CCS_OP_OR, CCS_TYPE_F64, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 2, CCS_DATA64, floats, 2, CCS_DATA64, CCS_OP_CAS, CCS_TYPE_U64, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 2, CCS_DATA64, floats, 2, CCS_DATA64, CCS_OP_FETCH, CCS_TYPE_U64, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 2, CCS_DATA64, NULL, 2, CCS_DATA64, CCS_OP_SET, CCS_TYPE_U64, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(0, words, 2, CCS_DATA64, floats, 2, CCS_DATA64, CCS_OP_SET, 6, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_accumulate(-1, words, 2, CCS_DATA64, floats, 2, CCS_DATA64, CCS_OP_SET, CCS_TYPE_U64, NULL, NULL), CCS_ERR_RANGE);

    /* Indexed puts. */
    words[0] = (uint64_t)(uintptr_t)(words + 2);
    OK(CCS_indexed_put(0, words, "abc", 3, done, &one));
    OK(CCS_indexed_put(0, words, "defgh", 5, done, &one));
    OK(CCS_indexed_put(0, words, NULL, 0, done, &one));
    OK(CCS_fence(0));
    CHECK(memcmp(words + 2, "abcdefgh", 8) == 0 && words[0] == (uint64_t)(uintptr_t)(words + 3) && called == 6);
    CODE(CCS_indexed_put(0, NULL, "a", 1, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, words, NULL, 1, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, (char *)words + 1, "a", 1, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(0, words, text, SIZE_MAX, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_indexed_put(1, words, "a", 1, NULL, NULL), CCS_ERR_RANGE);

    /* What is not registered is not touched, and the error handler knows of it before the callback runs. */
    OK(CCS_set_error_handler(refused, &refusals));
    OK(CCS_deregister_mem(words, sizeof words));
    OK(CCS_put(0, words, 1, CCS_DATA8, text, 1, CCS_DATA8, NULL, NULL));
    OK(CCS_fence(0));
    CHECK(refusals == 0);
    OK(CCS_deregister_mem(words, sizeof words));
    CODE(CCS_deregister_mem(words, sizeof words), CCS_ERR_STATE);
    words[0] = 1234;
    OK(CCS_put(0, words, 1, CCS_DATA8, text, 1, CCS_DATA8, done, &one));
    OK(CCS_fence(0));
    CHECK(refusals == 1 && refused_code == CCS_ERR_NOT_REGISTERED && refused_rank == 0);
    CHECK(last_status == CCS_ERR_NOT_REGISTERED && called == 7 && words[0] == 1234);
    OK(CCS_set_error_handler(NULL, NULL));
}

int main(void)
{
    int number = -1;
    before_and_after();
    CODE(CCS_init_thread(3, &number), CCS_ERR_ARG);
    CODE(CCS_init_thread(-1, &number), CCS_ERR_ARG);
    CODE(CCS_init_thread(0, NULL), CCS_ERR_ARG);
    OK(CCS_init_thread(CCS_THREAD_MULTIPLE, &number));
    CHECK(number == CCS_THREAD_MULTIPLE);
    CODE(CCS_init(), CCS_ERR_STATE);
    OK(CCS_initialized(&number));
    CHECK(number == 1);
    OK(CCS_nprocs(&number));
    CHECK(number == 1);
    OK(CCS_local_nprocs(&number));
    CHECK(number == 1);
    OK(CCS_rank(&number));
    CHECK(number == 0);
    OK(CCS_local_rank(&number));
    CHECK(number == 0);
    CODE(CCS_rank(NULL), CCS_ERR_ARG);
    CODE(CCS_wait(-2), CCS_ERR_ARG);
    CODE(CCS_wait(0), CCS_ERR_AGAIN);
    OK(CCS_barrier());
    words();
    messages();
    CCS_block_until(handled == 101);
    locks();
    descriptions();
    threads();
    memory();
    OK(CCS_free_context(context));
    CODE(CCS_free_context(context), CCS_ERR_ARG);
    CODE(CCS_amrequest(context, 0, NULL, 0, CCS_DATA_NULL, 0, 0), CCS_ERR_ARG);
    OK(CCS_finalize());
    before_and_after();
    CODE(CCS_init(), CCS_ERR_STATE);
    puts("ccs_alone: all well");
    return 0;
}
