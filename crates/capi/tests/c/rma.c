/*
 * Remote memory between two processes: every call, every status. Arguments: the transport, and "single" for no locks.
 * The server owns memory, looks at it when it is asked to, and otherwise only calls the library.
 */
#include "check.h"
#include <sys/wait.h>

#define AREA (256 * 1024)
#define WORDS 64

/* What the server sends each client. */
struct offer {
    /* AREA bytes of the library's, with every right. */
    struct cci_rma_handle all;
    /* The same of the server's own. */
    struct cci_rma_handle foreign;
    /* AREA bytes that may only be read; they hold pattern(7). */
    struct cci_rma_handle readable;
    /* The same that only another connection may read. */
    struct cci_rma_handle others;
    /* What was registered once. */
    struct cci_rma_handle stale;
};

/* What the client asks with a message; the answer is the same message with ok set. */
struct question {
    enum { LOOK, ZERO, COUNT_WORD, END } what;
    /* LOOK and ZERO: in which memory, where, how much, and what must be there. */
    uint32_t in_foreign, seed, ok;
    uint64_t offset, length, value;
};

static cci_endpoint_t *endpoint;
static uint32_t init_flags;

static unsigned char pattern(uint32_t seed, uint64_t at)
{
    return (unsigned char)(at * 31 + at / 253 + seed * 77 + 1);
}

static void paint(unsigned char *memory, uint64_t length, uint32_t seed)
{
    for (uint64_t at = 0; at < length; at++)
        memory[at] = pattern(seed, at);
}

static int painted(const unsigned char *memory, uint64_t length, uint32_t seed)
{
    for (uint64_t at = 0; at < length; at++)
        if (memory[at] != pattern(seed, at))
            return 0;
    return 1;
}

static cci_event_t *wait_event(void)
{
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    cci_event_t *event;
    OK(cci_wait_event(endpoint, &patience, &event));
    return event;
}

/* --------------------------------------------------------------------------------------------- the server --- */

static unsigned char foreign[AREA], readable[AREA];

static int answer(cci_event_recv_t *received, unsigned char *library)
{
    struct question question;
    CHECK(received->len == sizeof(question));
    memcpy(&question, received->ptr, sizeof(question));
    unsigned char *memory = question.in_foreign ? foreign : library;
    switch (question.what) {
    case LOOK:
        question.ok = (uint32_t)painted(memory + question.offset, question.length, question.seed);
        break;
    case ZERO:
        memset(memory + question.offset, 0, question.length);
        question.ok = 1;
        break;
    case COUNT_WORD:
        question.value = __atomic_load_n((uint64_t *)(void *)(memory + question.offset), __ATOMIC_SEQ_CST);
        question.ok = 1;
        break;
    case END:
        return 0;
    }
    OK(cci_send(received->connection, &question, sizeof(question), NULL, CCI_FLAG_SILENT));
    return 1;
}

static void serve(const char *transport, int uri_pipe)
{
    uint32_t caps;
    void *library;
    cci_rma_handle_t *all, *own, *read_only, *others, *stale;
    const int rights = CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_ATOMIC;
    OK(cci_init(CCI_ABI_VERSION, init_flags, &caps));
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, NULL));
    OK(cci_rma_alloc(endpoint, AREA, &library));
    paint(readable, AREA, 7);
    OK(cci_rma_register(endpoint, library, AREA, rights, &all));
    OK(cci_rma_register(endpoint, foreign, AREA, rights, &own));
    OK(cci_rma_register(endpoint, readable, AREA, CCI_FLAG_READ, &read_only));
    OK(cci_rma_register(endpoint, foreign, AREA, rights, &stale));
    struct cci_rma_handle once;
    memcpy(&once, stale, sizeof(once));
    OK(cci_rma_deregister(endpoint, stale));
    char *uri = uri_of(endpoint);
    CHECK(write(uri_pipe, uri, strlen(uri) + 1) > 0);
    free(uri);

    cci_connection_t *first = NULL;
    for (int serving = 1; serving;) {
        cci_event_t *event = wait_event();
        if (event->type == CCI_EVENT_CONNECT_REQUEST) {
            OK(cci_accept(event, NULL));
        } else if (event->type == CCI_EVENT_ACCEPT) {
            OK(event->accept.status);
            if (!first) {
                first = event->accept.connection;
                OK(cci_rma_register_conn(first, readable, AREA, CCI_FLAG_READ, &others));
            }
            struct offer offer;
            memcpy(&offer.all, all, sizeof(offer.all));
            memcpy(&offer.foreign, own, sizeof(offer.foreign));
            memcpy(&offer.readable, read_only, sizeof(offer.readable));
            memcpy(&offer.others, others, sizeof(offer.others));
            offer.stale = once;
            if (event->accept.connection->attribute != CCI_CONN_ATTR_UU)
                OK(cci_send(event->accept.connection, &offer, sizeof(offer), NULL, CCI_FLAG_SILENT));
        } else if (event->type == CCI_EVENT_RECV) {
            serving = answer(&event->recv, library);
        }
        OK(cci_return_event(event));
    }
    /* Over shared memory the peer's library finds some bad handles before ours does. */
    OK(cci_rma_deregister(endpoint, all));
    OK(cci_rma_free(endpoint, library));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

/* --------------------------------------------------------------------------------------------- the client --- */

static struct offer offer;
/* The client's memory: of the library's and of its own. */
static unsigned char *library;
static unsigned char own[AREA];
static cci_rma_handle_t *library_handle, *own_handle;

static cci_connection_t *connect_to(const char *uri, cci_conn_attribute_t attribute)
{
    OK(cci_connect(endpoint, uri, NULL, 0, attribute, NULL, 0, NULL));
    cci_event_t *event = wait_event();
    CHECK(event->type == CCI_EVENT_CONNECT);
    OK(event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    OK(cci_return_event(event));
    if (attribute == CCI_CONN_ATTR_UU)
        return connection;
    event = wait_event();
    CHECK(event->type == CCI_EVENT_RECV && event->recv.len == sizeof(offer));
    memcpy(&offer, event->recv.ptr, sizeof(offer));
    OK(cci_return_event(event));
    return connection;
}

/* The status of the next completion, which must have a context. */
static int completion(cci_connection_t *connection, void *context)
{
    cci_event_t *event = wait_event();
    CHECK(event->type == CCI_EVENT_SEND && event->send.connection == connection && event->send.context == context);
    int status = (int)event->send.status;
    OK(cci_return_event(event));
    return status;
}

/* Waits for an answer of the server's; completions that come before it must be successes. */
static struct question answered(cci_connection_t *connection)
{
    struct question question;
    for (;;) {
        cci_event_t *event = wait_event();
        if (event->type == CCI_EVENT_RECV) {
            CHECK(event->recv.connection == connection && event->recv.len == sizeof(question));
            memcpy(&question, event->recv.ptr, sizeof(question));
            OK(cci_return_event(event));
            return question;
        }
        CHECK(event->type == CCI_EVENT_SEND);
        OK(event->send.status);
        OK(cci_return_event(event));
    }
}

static struct question ask(cci_connection_t *connection, struct question question)
{
    OK(cci_send(connection, &question, sizeof(question), NULL, CCI_FLAG_SILENT));
    struct question answer = answered(connection);
    CHECK(answer.ok);
    return answer;
}

static void arguments(cci_connection_t *connection)
{
    cci_rma_handle_t *remote = &offer.all, *local = own_handle;
    struct cci_rma_handle made_up = {{1, 2, 3, 4}};
    static char long_message[64 * 1024];
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, 0, 8, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, 0, 8, NULL, CCI_FLAG_READ | CCI_FLAG_WRITE),
                 CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "exactly one"));
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, 0, 8, NULL, CCI_FLAG_READ | 1 << 20), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, 0, 0, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, NULL, 0, remote, 0, 8, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, NULL, 0, 8, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 8, local, 0, remote, 0, 8, NULL, CCI_FLAG_READ), CCI_EINVAL);
    /* Local memory: known at once. */
    CHECK_STATUS(cci_rma(connection, NULL, 0, &made_up, 0, remote, 0, 8, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "local handle"));
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 1, remote, 0, AREA, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, UINT64_MAX, remote, 0, 2, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, remote, 0, remote, 0, 8, NULL, CCI_FLAG_WRITE), CCI_EINVAL);
    CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, UINT64_MAX, 2, NULL, CCI_FLAG_READ), CCI_EINVAL);
    uint32_t too_long = connection->max_send_size + 1;
    CHECK(too_long <= sizeof(long_message));
    CHECK_STATUS(cci_rma(connection, long_message, too_long, local, 0, remote, 0, 8, NULL, CCI_FLAG_WRITE),
                 CCI_EMSGSIZE);
    int silent = CCI_FLAG_WRITE | CCI_FLAG_SILENT | CCI_FLAG_NO_COPY;
    if (connection->attribute == CCI_CONN_ATTR_RU)
        CHECK_STATUS(cci_rma(connection, NULL, 0, local, 0, remote, 0, 8, NULL, silent), CCI_EINVAL);

    cci_rma_segment_t here = {local, 0, 16}, there = {remote, 0, 15}, nowhere = {NULL, 0, 16};
    CHECK_STATUS(cci_rmav(connection, NULL, 0, &here, 1, &there, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "same total length"));
    CHECK_STATUS(cci_rmav(connection, NULL, 0, &here, 0, &there, 0, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rmav(connection, NULL, 0, NULL, 1, &there, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rmav(connection, NULL, 0, &here, 1, &nowhere, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rmav(connection, NULL, 0, &here, 1025, &there, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);

    CHECK_STATUS(cci_atomic(connection, (cci_atomic_op_t)7, 8, 1, 0, remote, 0, NULL, 0, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 2, 1, 0, remote, 0, NULL, 0, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, NULL, 0, NULL, 0, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, remote, 0, local, 0, NULL, 0), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "no result"));
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_SWAP, 8, 1, 0, remote, 0, local, AREA - 7, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, remote, 0, NULL, 0, NULL, CCI_FLAG_READ),
                 CCI_EINVAL);
    cci_event_t *event;
    CHECK_STATUS(cci_get_event(endpoint, &event), CCI_EAGAIN);
}

/* Unreliable connections have no remote memory. */
static void unreliable(cci_connection_t *connection)
{
    cci_rma_segment_t here = {own_handle, 0, 8}, there = {&offer.all, 0, 8};
    CHECK_STATUS(cci_rma(connection, NULL, 0, own_handle, 0, &offer.all, 0, 8, NULL, CCI_FLAG_WRITE), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "reliable"));
    CHECK_STATUS(cci_rmav(connection, NULL, 0, &here, 1, &there, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.all, 0, NULL, 0, NULL, 0), CCI_EINVAL);
}

/* There and back, the library's memory and each side's own, with a message that says what to look at. */
static void transfers(cci_connection_t *connection)
{
    static const uint64_t lengths[] = {1, 2, 7, 8, 9, 63, 1000, 1472, 4096, 8191, 65536, AREA - 24};
    for (uint32_t round = 0; round < 4 * sizeof(lengths) / sizeof(lengths[0]); round++) {
        uint64_t length = lengths[round / 4], at_server = round % 8 * 3, here = round % 3;
        int to_foreign = round & 1, from_own = round >> 1 & 1;
        cci_rma_handle_t *local = from_own ? own_handle : library_handle;
        unsigned char *memory = (from_own ? own : library) + here;
        cci_rma_handle_t *remote = to_foreign ? &offer.foreign : &offer.all;
        void *context = (void *)(uintptr_t)(round + 1000);
        struct question look = {LOOK, (uint32_t)to_foreign, round, 0, at_server, length, 0};
        paint(memory, length, round);
        OK(cci_rma(connection, &look, sizeof(look), local, here, remote, at_server, length, context,
                   CCI_FLAG_WRITE));
        CHECK_STATUS(completion(connection, context), CCI_SUCCESS);
        CHECK(answered(connection).ok);
        memset(memory, 0, length);
        OK(cci_rma(connection, NULL, 0, local, here, remote, at_server, length, context, CCI_FLAG_READ));
        CHECK_STATUS(completion(connection, context), CCI_SUCCESS);
        CHECK(painted(memory, length, round));
    }
    /* A message of no length is none. */
    OK(cci_rma(connection, own, 0, own_handle, 0, &offer.all, 0, 8, NULL, CCI_FLAG_WRITE | CCI_FLAG_BLOCKING));
    cci_event_t *event;
    CHECK_STATUS(cci_get_event(endpoint, &event), CCI_EAGAIN);
}

/* BLOCKING gives the status and no event; SILENT gives no event; FENCE puts an end to reordering. */
static void flags(cci_connection_t *connection)
{
    struct question look = {LOOK, 0, 99, 0, 0, AREA, 0}, zero = {ZERO, 0, 0, 0, 0, AREA, 0};
    ask(connection, zero);
    paint(library, AREA, 99);
    for (uint64_t at = 0; at < AREA; at += 4096)
        OK(cci_rma(connection, NULL, 0, library_handle, at, &offer.all, at, 4096, NULL,
                   CCI_FLAG_WRITE | CCI_FLAG_SILENT));
    OK(cci_rma(connection, &look, sizeof(look), library_handle, 0, &offer.all, 0, 1, NULL,
               CCI_FLAG_WRITE | CCI_FLAG_SILENT | CCI_FLAG_FENCE));
    CHECK(answered(connection).ok);

    memset(own, 0, AREA);
    OK(cci_rma(connection, NULL, 0, own_handle, 0, &offer.readable, 0, AREA, NULL,
               CCI_FLAG_READ | CCI_FLAG_BLOCKING | CCI_FLAG_FENCE | CCI_FLAG_SILENT));
    CHECK(painted(own, AREA, 7));
    cci_event_t *event;
    CHECK_STATUS(cci_get_event(endpoint, &event), CCI_EAGAIN);
}

/* What the peer refuses, and that it was not touched. */
static void refusals(cci_connection_t *connection, int is_first)
{
    struct cci_rma_handle forged = offer.all;
    forged.stuff[2] ^= 1;
    struct {
        cci_rma_handle_t *remote;
        uint64_t offset, length;
        int direction;
    } refused[] = {
        {&forged, 0, 8, CCI_FLAG_READ},
        {&forged, 0, 8, CCI_FLAG_WRITE},
        {&offer.stale, 0, 8, CCI_FLAG_READ},
        {&offer.stale, 0, 8, CCI_FLAG_WRITE},
        {&offer.readable, 0, 8, CCI_FLAG_WRITE},
        {&offer.others, 0, 8, CCI_FLAG_WRITE},
        {&offer.all, AREA - 7, 8, CCI_FLAG_WRITE},
        {&offer.all, AREA, 1, CCI_FLAG_READ},
        {&offer.all, UINT64_MAX - 8, 8, CCI_FLAG_READ},
        {&offer.all, 1, AREA, CCI_FLAG_READ},
        {own_handle, 0, 8, CCI_FLAG_READ},
    };
    struct question zero = {ZERO, 0, 0, 0, AREA - 8, 8, 0}, count = {COUNT_WORD, 0, 0, 0, AREA - 8, 0, 0};
    ask(connection, zero);
    memset(own, 0x55, AREA);
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        void *context = (void *)(uintptr_t)(i + 1);
        OK(cci_rma(connection, "not delivered", 13, own_handle, 0, refused[i].remote, refused[i].offset,
                   refused[i].length, context, refused[i].direction));
        CHECK_STATUS(completion(connection, context), CCI_ERR_RMA_HANDLE);
        CHECK_STATUS(cci_rma(connection, NULL, 0, own_handle, 0, refused[i].remote, refused[i].offset,
                             refused[i].length, context, refused[i].direction | CCI_FLAG_BLOCKING),
                     CCI_ERR_RMA_HANDLE);
    }
    CHECK(strstr(cci_last_error(), "refused"));
    CHECK(own[0] == 0x55 && ask(connection, count).value == 0);
    /* What is for one connection is for that one. */
    CHECK_STATUS(cci_rma(connection, NULL, 0, own_handle, 0, &offer.others, 0, AREA, NULL,
                         CCI_FLAG_READ | CCI_FLAG_BLOCKING),
                 is_first ? CCI_SUCCESS : CCI_ERR_RMA_HANDLE);
    CHECK(painted(own, AREA, 7) == is_first);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.readable, 0, NULL, 0, NULL, CCI_FLAG_BLOCKING),
                 CCI_ERR_RMA_HANDLE);
    CHECK_STATUS(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.all, AREA - 4, NULL, 0, NULL,
                            CCI_FLAG_BLOCKING),
                 CCI_ERR_RMA_HANDLE);
    OK(cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.all, AREA - 12, NULL, 0, (void *)5, 0));
    CHECK_STATUS(completion(connection, (void *)5), CCI_ERR_RMA_OP);
    OK(cci_atomic(connection, CCI_ATOMIC_ADD, 4, 1, 0, &offer.all, AREA - 12, NULL, 0, NULL, CCI_FLAG_BLOCKING));
}

/* Odd runs here to other runs there, in one operation, and back. */
static void scattered(cci_connection_t *connection)
{
    enum { HERE = 500, THERE = 20 };
    static cci_rma_segment_t here[HERE + 1], there[THERE + 1];
    const uint64_t unit = 40;
    uint64_t total = HERE * unit;
    struct question zero = {ZERO, 1, 0, 0, 0, AREA, 0}, look = {LOOK, 1, 0, 0, 0, total / THERE, 0};
    ask(connection, zero);
    /* Taken in turn from the library's memory and our own; every other unit of either. */
    for (uint64_t i = 0; i < HERE; i++) {
        unsigned char *memory = (i & 1 ? library : own) + i * 2 * unit;
        for (uint64_t at = 0; at < unit; at++)
            memory[at] = pattern((uint32_t)(i * unit / look.length), (i * unit + at) % look.length);
        here[i] = (cci_rma_segment_t){i & 1 ? library_handle : own_handle, i * 2 * unit, unit};
    }
    here[HERE] = (cci_rma_segment_t){own_handle, AREA, 0};
    for (uint64_t i = 0; i < THERE; i++)
        there[i] = (cci_rma_segment_t){&offer.foreign, i * 10001, look.length};
    there[THERE] = (cci_rma_segment_t){&offer.foreign, 0, 0};
    OK(cci_rmav(connection, NULL, 0, here, HERE + 1, there, THERE + 1, (void *)1, CCI_FLAG_WRITE));
    CHECK_STATUS(completion(connection, (void *)1), CCI_SUCCESS);
    for (uint32_t i = 0; i < THERE; i++) {
        look.seed = i;
        look.offset = i * 10001;
        ask(connection, look);
    }
    memset(own, 0, AREA);
    memset(library, 0, AREA);
    OK(cci_rmav(connection, &look, sizeof(look), here, HERE + 1, there, THERE + 1, NULL,
                CCI_FLAG_READ | CCI_FLAG_BLOCKING));
    CHECK(answered(connection).ok);
    for (uint64_t i = 0; i < HERE; i++) {
        unsigned char *memory = (i & 1 ? library : own) + i * 2 * unit;
        for (uint64_t at = 0; at < unit; at++)
            CHECK(memory[at] == pattern((uint32_t)(i * unit / look.length), (i * unit + at) % look.length));
        CHECK(memory[unit] == 0);
    }
}

static uint64_t result_of(cci_connection_t *connection, cci_atomic_op_t op, uint32_t width, uint64_t operand,
                          uint64_t compare)
{
    uint64_t result;
    memset(own, 0xee, 32);
    /* At an odd place: only the target must be aligned. */
    OK(cci_atomic(connection, op, width, operand, compare, &offer.all, 8, own_handle, 3, NULL, CCI_FLAG_BLOCKING));
    memcpy(&result, own + 3, sizeof(result));
    CHECK(own[2] == 0xee && own[11] == 0xee);
    return result;
}

static void change(cci_connection_t *connection, cci_atomic_op_t op, uint32_t width, uint64_t operand)
{
    OK(cci_atomic(connection, op, width, operand, 0, &offer.all, 8, NULL, 0, (void *)9, 0));
    CHECK_STATUS(completion(connection, (void *)9), CCI_SUCCESS);
}

static void atomics(cci_connection_t *connection)
{
    struct question zero = {ZERO, 0, 0, 0, 0, AREA, 0}, count = {COUNT_WORD, 0, 0, 0, 8, 0, 0};
    ask(connection, zero);
    CHECK(result_of(connection, CCI_ATOMIC_FETCH_ADD, 8, 5, 0) == 0);
    CHECK(result_of(connection, CCI_ATOMIC_FETCH_ADD, 8, UINT64_MAX, 0) == 5);
    CHECK(result_of(connection, CCI_ATOMIC_SWAP, 8, 0x1122334455667788, 0) == 4);
    CHECK(result_of(connection, CCI_ATOMIC_COMPARE_SWAP, 8, 1, 2) == 0x1122334455667788);
    CHECK(result_of(connection, CCI_ATOMIC_COMPARE_SWAP, 8, 0xff00ff00ff00ff00, 0x1122334455667788) ==
          0x1122334455667788);
    change(connection, CCI_ATOMIC_AND, 8, 0x0fffffffffffffff);
    change(connection, CCI_ATOMIC_OR, 8, 1);
    change(connection, CCI_ATOMIC_XOR, 8, 0x11);
    change(connection, CCI_ATOMIC_ADD, 8, 0x100);
    CHECK(ask(connection, count).value == 0x0f00ff00ff010010);
    /* Four bytes: the low ones here, and the neighbours are left alone. */
    CHECK(result_of(connection, CCI_ATOMIC_SWAP, 4, 0xabcdef99fffffffe, 0) == 0xff010010);
    CHECK(result_of(connection, CCI_ATOMIC_FETCH_ADD, 4, 3, 0) == 0xfffffffe);
    CHECK(result_of(connection, CCI_ATOMIC_COMPARE_SWAP, 4, 7, 0x5500000001) == 1);
    change(connection, CCI_ATOMIC_ADD, 4, 1);
    change(connection, CCI_ATOMIC_XOR, 4, 0xf0);
    change(connection, CCI_ATOMIC_OR, 4, 0x100);
    change(connection, CCI_ATOMIC_AND, 4, 0xffff0fff);
    CHECK(ask(connection, count).value == 0x0f00ff00000001f8);

    /* Many at once, on a few words, and all are counted. */
    uint32_t started = 0, ended = 0, turns = 3000;
    ask(connection, zero);
    while (ended < turns) {
        cci_event_t *event;
        if (started < turns) {
            int status = cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.all, started % WORDS * 8, NULL, 0,
                                    NULL, 0);
            CHECK(status == CCI_SUCCESS || status == CCI_ENOBUFS);
            started += status == CCI_SUCCESS;
            if (status == CCI_SUCCESS && started % 64)
                continue;
        }
        while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_EVENT_SEND);
            OK(event->send.status);
            ended++;
            OK(cci_return_event(event));
        }
    }
    uint64_t sum = 0;
    for (count.offset = 0; count.offset < WORDS * 8; count.offset += 8)
        sum += ask(connection, count).value;
    CHECK(sum == turns);
}

/* More operations than there is room for: the call says so, and what was started ends. */
static void crowded(cci_connection_t *connection)
{
    uint64_t started = 0, ended = 0, refused = 0, wanted = 10000;
    struct question look = {LOOK, 0, 55, 0, 0, 64 * 1024, 0};
    paint(library, look.length, 55);
    long long until = now_ms() + PATIENCE_MS;
    while (ended < wanted) {
        while (started < wanted) {
            uint64_t at = started * 512 % look.length;
            int status = cci_rma(connection, NULL, 0, library_handle, at, &offer.all, at, 512,
                                 (void *)(uintptr_t)started, CCI_FLAG_WRITE);
            if (status == CCI_ENOBUFS) {
                refused++;
                break;
            }
            OK(status);
            started++;
        }
        cci_event_t *event;
        while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_EVENT_SEND);
            OK(event->send.status);
            /* In order where order was promised. */
            if (connection->attribute == CCI_CONN_ATTR_RO)
                CHECK(event->send.context == (void *)(uintptr_t)ended);
            ended++;
            OK(cci_return_event(event));
        }
        CHECK(now_ms() < until);
    }
    CHECK(started == wanted);
    ask(connection, look);
    printf("%llu writes, out of room %llu times\n", (unsigned long long)ended, (unsigned long long)refused);
}

static void counted(void)
{
    char *json;
    OK(cci_get_counters(endpoint, NULL, &json));
    static const char *const names[] = {"\"rma_writes\":", "\"rma_reads\":", "\"rma_bytes\":", "\"atomics\":"};
    for (int i = 0; i < 4; i++) {
        const char *found = strstr(json, names[i]);
        CHECK(found && atoll(found + strlen(names[i])) > 40);
    }
    CHECK(strstr(json, "\"regions\":2,") && strstr(json, "\"rma_refused\":0,"));
    free(json);
}

static void be_client(const char *transport, const char *uri)
{
    uint32_t caps;
    void *start;
    const cci_conn_attribute_t attributes[] = {CCI_CONN_ATTR_RO, CCI_CONN_ATTR_RU};
    cci_connection_t *connections[2];
    OK(cci_init(CCI_ABI_VERSION, init_flags, &caps));
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, NULL));
    OK(cci_rma_alloc(endpoint, AREA, &start));
    library = start;
    OK(cci_rma_register(endpoint, library, AREA, 0, &library_handle));
    OK(cci_rma_register(endpoint, own, AREA, 0, &own_handle));
    for (int i = 0; i < 2; i++) {
        connections[i] = connect_to(uri, attributes[i]);
        arguments(connections[i]);
        transfers(connections[i]);
        flags(connections[i]);
        refusals(connections[i], i == 0);
        scattered(connections[i]);
        atomics(connections[i]);
        crowded(connections[i]);
    }
    cci_connection_t *without = connect_to(uri, CCI_CONN_ATTR_UU);
    unreliable(without);
    OK(cci_disconnect(without));
    counted();
    struct question end = {END, 0, 0, 0, 0, 0, 0};
    OK(cci_disconnect(connections[0]));
    CHECK_STATUS(cci_rma(connections[0], NULL, 0, own_handle, 0, &offer.all, 0, 8, NULL, CCI_FLAG_WRITE),
                 CCI_ERR_DISCONNECTED);
    OK(cci_send(connections[1], &end, sizeof(end), NULL, CCI_FLAG_BLOCKING));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

int main(int argc, char **argv)
{
    int uri_pipe[2], status;
    char uri[256] = "";
    CHECK(argc >= 2 && pipe(uri_pipe) == 0);
    init_flags = argc > 2 ? CCI_INIT_SINGLE_THREADED : 0;
    pid_t server = fork();
    CHECK(server >= 0);
    alarm(LIFE_MAX_S);
    if (server == 0) {
        serve(argv[1], uri_pipe[1]);
        _exit(0);
    }
    CHECK(read(uri_pipe[0], uri, sizeof(uri) - 1) > 0);
    be_client(argv[1], uri);
    CHECK(waitpid(server, &status, 0) == server);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("rma: all well\n");
    return 0;
}
