/* Calls: request and reply between processes, and what becomes of those that get no answer. */
#include "ripc_check.h"

#define SERVER 1
#define CLIENT 4
#define DEAF 5
#define LARGE 300000

/* One short item. */
struct one {
    void *item;
    uint32_t size;
    struct ripc_content content;
};

static const struct ripc_content *text(struct one *one, const char *text)
{
    memset(one, 0, sizeof *one);
    one->item = (void *)(uintptr_t)text;
    one->size = (uint32_t)strlen(text);
    one->content.short_items = &one->item;
    one->content.short_sizes = &one->size;
    one->content.num_short = 1;
    return &one->content;
}

/* One long item, or one return buffer. */
static const struct ripc_content *with_long(struct one *one, void *memory, uint32_t size, int is_return_buffer)
{
    memset(one, 0, sizeof *one);
    one->item = memory;
    one->size = size;
    if (is_return_buffer) {
        one->content.return_bufs = &one->item;
        one->content.return_sizes = &one->size;
        one->content.num_return_bufs = 1;
    } else {
        one->content.long_items = &one->item;
        one->content.long_sizes = &one->size;
        one->content.num_long = 1;
    }
    return &one->content;
}

static int says(const struct ripc_message *message, const char *text)
{
    return message->num_short == 1 && message->short_sizes[0] == strlen(text) &&
           memcmp(message->short_items[0], text, strlen(text)) == 0;
}

/* A service that takes messages only says so to those who call it. */
static void *is_deaf(void *unused)
{
    for (;;)
        CHECK(receive_within(DEAF, PATIENCE_MS).result == 2);
    return unused;
}

/* A life of the service: it echoes, answers late and in another order, refuses, stores, gives large data, or is silent. */
static void serve(struct other *parent)
{
    CHECK(ripc_register_service_id(SERVER) == 1 && ripc_register_service_id(DEAF) == 1);
    static unsigned char window[LARGE];
    unsigned char *large = filled(LARGE, 6);
    uint64_t later = 0;
    struct one one;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, is_deaf, NULL) == 0);
    tell(parent);
    for (;;) {
        struct ripc_message message;
        uint64_t request = 99;
        int result = ripc_receive_request(PATIENCE_MS, SERVER, &request, &message);
        CHECK(result == 0 || result == 1);
        if (request == 0) {
            CHECK(says(&message, "a message"));
            CHECK(send_text(SERVER, message.from, "and one back") == 0);
        } else if (message.num_long == 1) {
            CHECK(result == (message.long_items[0] == NULL));
            if (result == 0)
                CHECK(message.long_items[0] == window && is_filled(window, LARGE, 8));
            CHECK(ripc_answer(request, text(&one, result == 0 ? "stored" : "no window")) == 0);
        } else if (says(&message, "later")) {
            later = request;
        } else if (says(&message, "now")) {
            CHECK(ripc_answer(request, text(&one, "at once")) == 0);
            CHECK(ripc_answer(later, text(&one, "at last")) == 0);
            CHECK(ripc_answer(later, NULL) == 1 && ripc_refuse(request, "x", 1) == 1);
        } else if (says(&message, "refuse")) {
            CHECK(ripc_refuse(request, "I will not", 10) == 0);
        } else if (says(&message, "large")) {
            CHECK(ripc_answer(request, with_long(&one, large, LARGE, 0)) == 0);
        } else if (says(&message, "window")) {
            CHECK(ripc_reg_recv_window_for_service(window, LARGE, SERVER) == 0);
            CHECK(ripc_answer(request, NULL) == 0);
        } else if (!says(&message, "silence")) {
            struct ripc_content echo = {message.short_items, message.short_sizes, NULL, NULL, NULL, NULL, message.num_short, 0, 0};
            CHECK(ripc_answer(request, &echo) == 0);
        }
        ripc_free_message(&message);
    }
}

/* Starts the lives, since a process that has services can't fork one that has. */
static void conduct(struct other *parent)
{
    for (int life = 0; life < 2; life++) {
        struct other server = start(serve);
        await(&server);
        tell(parent);
        await(parent);
        end(&server);
        tell(parent);
        await(parent);
    }
}

static uint64_t begin(const char *request)
{
    struct one one;
    uint64_t number = ripc_call(CLIENT, SERVER, text(&one, request), PATIENCE_MS, 0);
    CHECK(number != 0);
    return number;
}

static int take(uint64_t call, struct ripc_message *reply)
{
    uint64_t number = call;
    int result = ripc_reply(CLIENT, &number, PATIENCE_MS, reply);
    CHECK(number == call);
    return result;
}

static void expect(const char *request, const char *answer)
{
    struct ripc_message reply;
    CHECK(take(begin(request), &reply) == 0 && reply.from == SERVER && says(&reply, answer) && reply.num_long == 0);
    ripc_free_message(&reply);
}

static void misuse(void)
{
    struct one one;
    struct ripc_message reply;
    uint64_t number = 0;
    CHECK(ripc_call(9, SERVER, NULL, 1000, 0) == 0 && ripc_call(CLIENT, SERVER, NULL, 0, 0) == 0);
    CHECK(ripc_call(CLIENT, SERVER, NULL, -1, 0) == 0 && ripc_call(CLIENT, SERVER, NULL, 1000, 2) == 0);
    struct ripc_content content = *text(&one, "x");
    content.short_items = NULL;
    CHECK(ripc_call(CLIENT, SERVER, &content, 1000, 0) == 0);
    content = *text(&one, "x");
    one.size = 2001;
    CHECK(ripc_call(CLIENT, SERVER, &content, 1000, 0) == 0);
    CHECK(ripc_call(CLIENT, SERVER, with_long(&one, NULL, 5, 0), 1000, 0) == 0);
    CHECK(ripc_register_multicast_service_id(60) == 1 && ripc_call(60, SERVER, NULL, 1000, 0) == 0);
    /* Nothing was begun. */
    CHECK(ripc_reply(CLIENT, &number, 0, &reply) == 255 && number == 0);
    number = 12345;
    CHECK(ripc_reply(CLIENT, &number, 0, &reply) == 255 && ripc_reply(9, &number, 0, &reply) == 255);
    CHECK(ripc_reply(CLIENT, NULL, 0, &reply) == 1 && ripc_reply(CLIENT, &number, 0, NULL) == 1);
    CHECK(ripc_answer(12345, NULL) == 1 && ripc_refuse(12345, NULL, 0) == 1);
    CHECK(ripc_receive_request(0, 9, &number, &reply) == 255);
    CHECK(ripc_receive_request(0, CLIENT, NULL, &reply) == 1 && ripc_receive_request(0, CLIENT, &number, NULL) == 1);
    CHECK(ripc_receive_request(0, CLIENT, &number, &reply) == 2 && number == 0 && reply.num_short == 0);
    ripc_free_message(NULL);
}

static void answers(void)
{
    struct one one;
    struct ripc_message reply;
    expect("hello", "hello");
    /* In any order; and by the first that has ended. */
    uint64_t late = begin("later"), soon = begin("now"), first = 0;
    CHECK(ripc_reply(CLIENT, &first, PATIENCE_MS, &reply) == 0 && (first == soon || first == late));
    CHECK(says(&reply, first == soon ? "at once" : "at last"));
    ripc_free_message(&reply);
    CHECK(take(first, &reply) == 255);
    CHECK(take(first == soon ? late : soon, &reply) == 0);
    ripc_free_message(&reply);
    CHECK(take(begin("refuse"), &reply) == RIPC_REFUSED && says(&reply, "I will not"));
    ripc_free_message(&reply);
    /* Who takes no calls says so. */
    uint64_t deaf = ripc_call(CLIENT, DEAF, text(&one, "x"), PATIENCE_MS, 0);
    CHECK(deaf && take(deaf, &reply) == RIPC_REFUSED);
    ripc_free_message(&reply);
    /* Messages and replies do not get into each other's way. */
    uint64_t call = begin("hello");
    CHECK(send_text(CLIENT, SERVER, "a message") == 0);
    expect_text(CLIENT, SERVER, "and one back");
    CHECK(take(call, &reply) == 0 && says(&reply, "hello"));
    ripc_free_message(&reply);
    CHECK(send_text(CLIENT, SERVER, "a message") == 0);
    expect("again", "again");
    expect_text(CLIENT, SERVER, "and one back");
    /* Deadlines. */
    call = ripc_call(CLIENT, SERVER, text(&one, "silence"), 100, 0);
    CHECK(call && ripc_reply(CLIENT, &call, 0, &reply) == 2);
    CHECK(take(call, &reply) == RIPC_TIMED_OUT && reply.num_short == 0);
    call = ripc_call(CLIENT, 999, text(&one, "nobody is there"), 100, 0);
    CHECK(call && take(call, &reply) == RIPC_NOT_REACHED && strlen(cci_last_error()) > 0);
    /* A loop of the program's. */
    int fd = ripc_descriptor(CLIENT);
    CHECK(fd >= 0);
    for (int round = 0; round < 20; round++) {
        call = begin("by poll");
        long long until = now_ms() + PATIENCE_MS;
        int result;
        do {
            struct pollfd ready = {fd, POLLIN, 0};
            CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && now_ms() < until);
            CHECK(receive_within(CLIENT, 0).result == 2);
            result = ripc_reply(CLIENT, &call, 0, &reply);
        } while (result == 2);
        CHECK(result == 0 && says(&reply, "by poll"));
        ripc_free_message(&reply);
    }
    close(fd);
}

static void long_items(void)
{
    struct one one;
    struct ripc_message reply;
    unsigned char *buffer = ripc_buf_alloc(LARGE);
    CHECK(buffer);
    /* An answer into a return buffer, and into a window. */
    struct ripc_content content = *with_long(&one, buffer, LARGE, 1);
    void *items[] = {"large"};
    uint32_t sizes[] = {5};
    content.short_items = items;
    content.short_sizes = sizes;
    content.num_short = 1;
    uint64_t call = ripc_call(CLIENT, SERVER, &content, PATIENCE_MS, 0);
    CHECK(call && take(call, &reply) == 0 && reply.num_long == 1 && reply.long_items[0] == buffer);
    CHECK(reply.long_sizes[0] == LARGE && is_filled(buffer, LARGE, 6));
    ripc_free_message(&reply);
    memset(buffer, 0, LARGE);
    CHECK(ripc_reg_recv_window_for_service(buffer, LARGE, CLIENT) == 0);
    CHECK(take(begin("large"), &reply) == 0 && reply.long_items[0] == buffer && is_filled(buffer, LARGE, 6));
    ripc_free_message(&reply);
    CHECK(take(begin("large"), &reply) == 1 && reply.num_long == 0);
    /* A request with large data, freed at once. */
    CHECK(take(begin("window"), &reply) == 0 && reply.num_short == 0);
    memset(buffer, 8, LARGE);
    call = ripc_call(CLIENT, SERVER, with_long(&one, buffer, LARGE, 0), PATIENCE_MS, 0);
    ripc_buf_free(buffer);
    void *others = ripc_buf_alloc(LARGE);
    CHECK(call && others);
    /* The same memory only if the service has all of the request already: it gets what was sent, whatever is written here. */
    memset(others, 9, LARGE);
    CHECK(take(call, &reply) == 0 && says(&reply, "stored"));
    ripc_free_message(&reply);
    call = ripc_call(CLIENT, SERVER, with_long(&one, others, LARGE, 0), PATIENCE_MS, 0);
    CHECK(call && take(call, &reply) == 0 && says(&reply, "no window"));
    ripc_free_message(&reply);
    ripc_buf_free(others);
}

/* Several threads take replies of one service. */
static void *calls(void *unused)
{
    (void)unused;
    for (int round = 0; round < 100; round++)
        expect("by thread", "by thread");
    return NULL;
}

int main(void)
{
    struct other conductor = start(conduct);
    CHECK(ripc_register_service_id(CLIENT) == 1);
    await(&conductor);
    misuse();
    answers();
    long_items();
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, calls, NULL) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    /* The service is killed with two requests: one goes to its next life, the other is lost. */
    struct one one;
    struct ripc_message reply;
    uint64_t repeated = begin("later"), lost = ripc_call(CLIENT, SERVER, text(&one, "silence"), PATIENCE_MS, RIPC_ONCE);
    CHECK(lost);
    expect("both are there", "both are there");
    tell(&conductor);
    await(&conductor);
    CHECK(take(lost, &reply) == RIPC_LOST);
    tell(&conductor);
    await(&conductor);
    uint64_t again = begin("later");
    /* Of the two that wait in the new life, the later one is answered. */
    CHECK(again && repeated);
    uint64_t now = begin("now"), which = 0;
    CHECK(take(now, &reply) == 0 && says(&reply, "at once"));
    ripc_free_message(&reply);
    CHECK(ripc_reply(CLIENT, &which, PATIENCE_MS, &reply) == 0 && (which == again || which == repeated) && says(&reply, "at last"));
    ripc_free_message(&reply);
    /* Calls end with their service. */
    CHECK(ripc_unregister(CLIENT) == 0 && ripc_reply(CLIENT, &which, 0, &reply) == 255);
    tell(&conductor);
    await(&conductor);
    tell(&conductor);
    finish(&conductor);
    puts("ripc_calls: all well");
    return 0;
}
