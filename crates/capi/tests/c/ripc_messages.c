/* Short messages between processes, and how a program waits for them. */
#include "ripc_check.h"

#define SERVER 1
#define CLIENT 4

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void serve(struct other *parent)
{
    CHECK(ripc_register_service_id(SERVER) == 1);
    uint16_t id = ripc_register_random_service_id();
    CHECK(id != 65535 && id != SERVER);
    tell(parent);
    /* It receives nothing meanwhile. */
    await(parent);
    for (int number = 0; number < 40; number++) {
        struct message got = receive(SERVER);
        CHECK(got.result == 0 && got.from == CLIENT && got.short_count == 2);
        CHECK(got.short_sizes[0] == 7 && memcmp(got.shorts[0], "number ", 7) == 0);
        CHECK(got.short_sizes[1] == sizeof number && memcmp(got.shorts[1], &number, sizeof number) == 0);
        done(&got);
    }
    CHECK(receive_within(SERVER, 200).result == 2);
    struct message got = receive(SERVER);
    CHECK(got.result == 0 && got.short_sizes[0] == 1900 && is_filled(got.shorts[0], 1900, 5));
    done(&got);
    CHECK(send_text(SERVER, CLIENT, "all came") == 0);
    /* Answers until it is asked to end. */
    for (;;) {
        got = receive(SERVER);
        CHECK(got.result == 0);
        int ends = is_text(&got, "end");
        if (!ends)
            CHECK(send_bytes(SERVER, got.from, got.shorts[0], got.short_sizes[0]) == 0);
        done(&got);
        if (ends)
            return;
    }
}

/* Two processes can't have one number; random numbers differ. */
static void compete(struct other *parent)
{
    await(parent);
    CHECK(ripc_register_service_id(SERVER) == 0);
    uint16_t id = ripc_register_random_service_id();
    CHECK(id != 65535 && id != SERVER && id != CLIENT);
    tell(parent);
    await(parent);
    CHECK(ripc_register_service_id(SERVER) == 1);
}

static void *waits(void *unused)
{
    (void)unused;
    struct message got = receive(77);
    CHECK(got.result == 255);
    return NULL;
}

static void signals_and_descriptors(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct message got;
    for (int round = 1; round <= 3; round++) {
        ualarm(100000, 0);
        CHECK(ripc_receive(CLIENT, &got.from, &got.shorts, &got.short_sizes, &got.short_count, &got.longs, &got.long_sizes,
                           &got.long_count) == 1);
        CHECK(alarms == round && got.short_count == 0 && got.long_count == 0 && got.shorts == NULL && got.longs == NULL);
    }
    int fd = ripc_descriptor(CLIENT);
    CHECK(fd >= 0);
    for (int round = 0; round < 20; round++) {
        CHECK(send_text(CLIENT, SERVER, "echo") == 0);
        long long until = now_ms() + PATIENCE_MS;
        for (;;) {
            struct pollfd ready = {fd, POLLIN, 0};
            CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && now_ms() < until);
            got = receive_within(CLIENT, 0);
            if (got.result == 0)
                break;
            CHECK(got.result == 2);
        }
        CHECK(is_text(&got, "echo"));
        done(&got);
    }
    /* Two that wait are there after one was taken. */
    CHECK(send_text(CLIENT, SERVER, "one") == 0 && send_text(CLIENT, SERVER, "two") == 0);
    expect_text(CLIENT, SERVER, "one");
    struct pollfd ready = {fd, POLLIN, 0};
    CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
    expect_text(CLIENT, SERVER, "two");
    close(fd);
    /* Who waits for a service that is taken back waits no more. */
    CHECK(ripc_register_service_id(77) == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    sleep_ms(50);
    CHECK(ripc_unregister(77) == 0 && pthread_join(thread, NULL) == 0);
}

static void *echoes(void *of)
{
    uint16_t id = *(uint16_t *)of;
    for (int round = 0; round < 200; round++) {
        CHECK(send_bytes(id, SERVER, &round, sizeof round) == 0);
        struct message got = receive(id);
        CHECK(got.result == 0 && got.from == SERVER && got.short_sizes[0] == sizeof round);
        CHECK(memcmp(got.shorts[0], &round, sizeof round) == 0);
        done(&got);
    }
    return NULL;
}

static void many_threads(void)
{
    uint16_t ids[4];
    pthread_t threads[4];
    for (int at = 0; at < 4; at++) {
        ids[at] = ripc_register_random_service_id();
        CHECK(ids[at] != 65535 && pthread_create(&threads[at], NULL, echoes, &ids[at]) == 0);
    }
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
}

/* Each service sends as itself, whichever of them a service with a name has spoken to last. */
static void several_services(void)
{
    uint16_t named = ripc_register_named("somebody"), one = ripc_register_random_service_id(),
             other = ripc_register_random_service_id();
    CHECK(named != 65535 && one != 65535 && other != 65535);
    uint16_t to = ripc_number_of("somebody");
    uint16_t from[] = {one, other, one};
    for (int turn = 0; turn < 3; turn++) {
        CHECK(send_text(from[turn], to, "question") == 0);
        struct message asked = receive(named);
        CHECK(asked.result == 0 && asked.from == from[turn]);
        done(&asked);
        CHECK(send_text(named, asked.from, "answer") == 0);
        expect_text(from[turn], to, "answer");
    }
    CHECK(ripc_unregister(named) == 0 && ripc_unregister(one) == 0 && ripc_unregister(other) == 0);
}

int main(void)
{
    struct other server = start(serve), competitor = start(compete);
    await(&server);
    tell(&competitor);
    await(&competitor);
    CHECK(ripc_register_service_id(CLIENT) == 1);
    for (int number = 0; number < 40; number++) {
        void *items[] = {"number ", &number};
        uint32_t sizes[] = {7, sizeof number};
        CHECK(ripc_send_short(CLIENT, SERVER, items, sizes, 2, NULL, NULL, 0) == 0);
    }
    tell(&server);
    void *bytes = filled(1900, 5);
    sleep_ms(400);
    CHECK(send_bytes(CLIENT, SERVER, bytes, 1900) == 0);
    expect_text(CLIENT, SERVER, "all came");
    CHECK(ripc_short_item_size_max(CLIENT, SERVER) == 2000 && ripc_short_item_size_max(CLIENT, 99) == 0);
    CHECK(ripc_short_item_size_max(99, SERVER) == 0);
    char transport[8];
    CHECK(ripc_transport(CLIENT, SERVER, transport, sizeof transport) == 0);
    CHECK(strcmp(transport, "shm") == 0 || strcmp(transport, "udp") == 0 || strcmp(transport, "tcp") == 0);
    CHECK(ripc_transport(CLIENT, SERVER, transport, 3) == 1 && ripc_transport(CLIENT, SERVER, NULL, 8) == 1);
    CHECK(ripc_transport(CLIENT, 99, transport, 8) == 1 && ripc_transport(99, SERVER, transport, 8) == 1);
    signals_and_descriptors();
    many_threads();
    several_services();
    CHECK(send_text(CLIENT, SERVER, "end") == 0);
    finish(&server);
    tell(&competitor);
    finish(&competitor);
    puts("ripc_messages: all well");
    return 0;
}
