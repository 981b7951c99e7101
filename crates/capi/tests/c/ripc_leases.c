/* How long a service lends, what it learns of that, and how long it looks for others. */
#include "ripc_check.h"

#define SERVER 1
#define CLIENT 4
#define HUNG 5
#define NOBODY 999
#define LARGE 300000
#define HOUR_MS 3600000

/* Asks, and takes the answer: into a window, and, when it is asked to go on, without one. */
static void fetch(struct other *parent)
{
    await(parent);
    CHECK(ripc_register_service_id(CLIENT) == 1);
    for (int has_window = 1; has_window >= 0; has_window--) {
        if (has_window)
            CHECK(ripc_reg_recv_window_for_service(NULL, LARGE, CLIENT) == 0);
        struct ripc_message reply;
        uint64_t call = ripc_call(CLIENT, SERVER, NULL, PATIENCE_MS, 0);
        CHECK(call && ripc_reply(CLIENT, &call, PATIENCE_MS, &reply) == !has_window);
        if (has_window) {
            CHECK(reply.num_long == 1 && is_filled(reply.long_items[0], LARGE, 6));
            ripc_buf_free(reply.long_items[0]);
        }
        ripc_free_message(&reply);
        tell(parent);
        await(parent);
    }
}

/* Asks twice, and is stopped then. */
static void hang(struct other *parent)
{
    await(parent);
    CHECK(ripc_register_service_id(HUNG) == 1);
    CHECK(ripc_reg_recv_window_for_service(NULL, LARGE, HUNG) == 0 && ripc_reg_recv_window_for_service(NULL, LARGE, HUNG) == 0);
    CHECK(ripc_call(HUNG, SERVER, NULL, PATIENCE_MS, 0) && ripc_call(HUNG, SERVER, NULL, PATIENCE_MS, 0));
    tell(parent);
    await(parent);
}

static uint64_t next_request(uint16_t from)
{
    struct ripc_message message;
    uint64_t request;
    CHECK(ripc_receive_request(PATIENCE_MS, SERVER, &request, &message) == 0 && request && message.from == from);
    ripc_free_message(&message);
    return request;
}

static void lend(uint64_t request, void *memory)
{
    uint32_t size = LARGE;
    struct ripc_content content = {NULL, NULL, &memory, &size, NULL, NULL, 0, 1, 0};
    CHECK(ripc_lend_answer(request, &content) == 0 && ripc_lend_answer(request, &content) == 1);
}

/* Waits for what comes back, as a service does: it receives meanwhile. */
static void expect_returned(uint64_t request, int is_fetched)
{
    struct ripc_message message;
    uint64_t none, returned = 0;
    uint8_t fetched = 9;
    int result = ripc_returned(SERVER, &returned, &fetched);
    if (result == 2) {
        CHECK(ripc_receive_request(-1, SERVER, &none, &message) == 2 && none == 0);
        result = ripc_returned(SERVER, &returned, &fetched);
    }
    CHECK(result == 0 && returned == request && fetched == is_fetched);
    CHECK(ripc_returned(SERVER, &returned, &fetched) == 2);
}

static void misuse(void)
{
    uint64_t request;
    uint8_t fetched;
    struct ripc_content nothing = {NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0};
    CHECK(ripc_service_set_lease(9, 1, 1) == 1 && ripc_service_set_lease(SERVER, 0, 1) == 1);
    CHECK(ripc_service_set_lease(SERVER, -1, 1) == 1 && ripc_service_set_lease(SERVER, 1, -1) == 1);
    CHECK(ripc_service_set_resolve_timeout(9, 1) == 1 && ripc_service_set_resolve_timeout(SERVER, -1) == 1);
    CHECK(ripc_returned(9, &request, &fetched) == 255 && ripc_returned(SERVER, &request, &fetched) == 2);
    CHECK(ripc_returned(SERVER, NULL, &fetched) == 1 && ripc_returned(SERVER, &request, NULL) == 1);
    CHECK(ripc_lend_answer(12345, NULL) == 1 && ripc_lend_answer(12345, &nothing) == 1);
}

int main(void)
{
    struct other client = start(fetch), hung = start(hang);
    unsigned char *large = filled(LARGE, 6);
    CHECK(ripc_register_service_id(SERVER) == 1);
    misuse();
    /* With 10 s for each, this would take longer than any test may. */
    for (int timeout_ms = 0; timeout_ms <= 20; timeout_ms += 20) {
        CHECK(ripc_service_set_resolve_timeout(SERVER, timeout_ms) == 0);
        for (int time = 0; time < 20; time++)
            CHECK(send_text(SERVER, NOBODY, "anybody?") == 1 && strlen(cci_last_error()) > 0);
    }
    /* What was fetched comes back, and what was not wanted. */
    tell(&client);
    for (int is_fetched = 1; is_fetched >= 0; is_fetched--) {
        uint64_t request = next_request(CLIENT);
        lend(request, large);
        expect_returned(request, is_fetched);
        await(&client);
        if (is_fetched)
            tell(&client);
    }
    /* Who does not fetch keeps it for as long as the service lends; whose connection has ended, for less time. */
    tell(&hung);
    await(&hung);
    uint64_t first = next_request(HUNG), second = next_request(HUNG);
    CHECK(kill(hung.pid, SIGSTOP) == 0);
    /* A signal takes its time: until then its thread could still fetch. */
    int status;
    CHECK(waitpid(hung.pid, &status, WUNTRACED) == hung.pid && WIFSTOPPED(status));
    CHECK(ripc_service_set_lease(SERVER, 50, HOUR_MS) == 0);
    lend(first, large);
    expect_returned(first, 0);
    CHECK(ripc_service_set_lease(SERVER, HOUR_MS, 50) == 0);
    lend(second, large);
    CHECK(kill(hung.pid, SIGKILL) == 0);
    expect_returned(second, 0);
    CHECK(waitpid(hung.pid, NULL, 0) == hung.pid);
    tell(&client);
    finish(&client);
    puts("ripc_leases: all well");
    return 0;
}
