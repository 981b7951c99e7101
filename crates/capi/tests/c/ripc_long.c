/* Long items: windows, return buffers, and memory that is lent. */
#include "ripc_check.h"

#define SERVER 1
#define CLIENT 4
#define LARGE 3000000

static int send_three(uint16_t src, uint16_t dest, unsigned char *memory, const uint32_t *sizes)
{
    void *items[] = {memory, memory + 1, memory + 2};
    uint32_t lengths[] = {sizes[0], sizes[1], sizes[2]};
    return ripc_send_long(src, dest, items, lengths, 3, NULL, NULL, 0);
}

/* Sends, and makes no call while the other side fetches. */
static void client(struct other *parent)
{
    CHECK(ripc_register_service_id(CLIENT) == 1);
    unsigned char *memory = filled(LARGE, 7);
    CHECK(send_long(CLIENT, SERVER, memory, LARGE) == 0 && send_text(CLIENT, SERVER, "after it") == 0);
    await(parent);
    const uint32_t sizes[] = {500, 50, 501};
    CHECK(send_three(CLIENT, SERVER, memory, sizes) == 0);
    await(parent);
    /* Freed at once: until it was fetched, nobody else gets the memory. */
    for (int round = 0; round < 8; round++) {
        unsigned char *buffer = ripc_buf_alloc(40000);
        CHECK(buffer);
        memset(buffer, round, 40000);
        CHECK(send_long(CLIENT, SERVER, buffer, 40000) == 0);
        ripc_buf_free(buffer);
    }
    tell(parent);
    await(parent);
    /* Return buffers: one of a byte too few, one that fits, one that is registered and too short, one of no bytes, one for the library. */
    static unsigned char small[1001], fits[3000], registered[500];
    memset(fits, 1, sizeof fits);
    CHECK(ripc_buf_register(registered, 500) == 0);
    void *buffers[] = {small, fits + 1000, registered, NULL, NULL};
    uint32_t lengths[] = {999, 1000, 501, 0, 70000};
    void *items[] = {"answer here"};
    uint32_t length = 11;
    CHECK(ripc_send_short(CLIENT, SERVER, items, &length, 1, buffers, lengths, 5) == 0);
    struct message got = receive(CLIENT);
    CHECK(got.result == 0 && got.from == SERVER && got.long_count == 2);
    /* The newest that is long enough. */
    CHECK(got.long_sizes[0] == 70000 && is_filled(got.longs[0], 70000, 3));
    CHECK(got.longs[1] == fits + 1000 && got.long_sizes[1] == 1000 && is_filled(got.longs[1], 1000, 3));
    CHECK(is_filled(fits, 1000, 1) && is_filled(fits + 2000, 1000, 1) && is_filled(small, sizeof small, 0));
    ripc_buf_free(got.longs[0]);
    done(&got);
    /* Each is used once: what comes now needs a window. */
    CHECK(ripc_reg_recv_window(NULL, 2000) == 0);
    tell(parent);
    got = receive(CLIENT);
    CHECK(got.result == 0 && got.long_count == 1 && got.longs[0] != fits + 1000 && is_filled(got.longs[0], 1000, 3));
    ripc_buf_free(got.longs[0]);
    done(&got);
    /* One that is freed, or whose registration ends, is taken back. */
    void *freed = ripc_buf_alloc(2000);
    buffers[0] = freed;
    buffers[1] = fits;
    lengths[0] = lengths[1] = 2000;
    CHECK(ripc_send_short(CLIENT, SERVER, items, &length, 1, buffers, lengths, 2) == 0);
    ripc_buf_free(freed);
    CHECK(ripc_buf_unregister(fits) == 1);
    memset(fits, 1, sizeof fits);
    tell(parent);
    got = receive(CLIENT);
    CHECK(got.result == 1 && got.long_count == 1 && got.longs[0] == NULL);
    CHECK(is_filled(fits, sizeof fits, 1));
    done(&got);
    /* Dies with something lent, and with something sent. */
    CHECK(send_long(CLIENT, SERVER, memory, LARGE) == 0);
    CHECK(send_text(CLIENT, SERVER, "last words") == 0);
    tell(parent);
    pause();
}

static void expect_large(unsigned char *window)
{
    struct message got = receive(SERVER);
    CHECK(got.result == 0 && got.from == CLIENT && got.short_count == 0 && got.shorts == NULL && got.long_count == 1);
    CHECK(got.longs[0] == window && got.long_sizes[0] == LARGE && is_filled(window, LARGE, 7));
    CHECK(is_filled(window + LARGE, 100, 0));
    done(&got);
}

int main(void)
{
    struct other sender = start(client);
    CHECK(ripc_register_service_id(SERVER) == 1);
    /* The window is given when the message is there, and those behind it wait. */
    sleep_ms(300);
    unsigned char *window = ripc_buf_alloc(LARGE + 100);
    CHECK(window && ripc_reg_recv_window_for_service(window, LARGE + 100, SERVER) == 0);
    expect_large(window);
    expect_text(SERVER, CLIENT, "after it");
    /* The service's windows before those of all, the first that is long enough; the last item has none. */
    static unsigned char windows[4][1000];
    CHECK(ripc_reg_recv_window(windows[0], 1000) == 0 && ripc_reg_recv_window_for_service(windows[1], 100, SERVER) == 0);
    CHECK(ripc_reg_recv_window(windows[2], 500) == 0);
    tell(&sender);
    struct message got = receive(SERVER);
    CHECK(got.result == 1 && got.long_count == 3);
    CHECK(got.longs[0] == windows[0] && got.long_sizes[0] == 500 && is_filled(windows[0], 500, 7));
    CHECK(got.longs[1] == windows[1] && got.long_sizes[1] == 50 && is_filled(windows[1], 50, 7));
    CHECK(got.longs[2] == NULL && is_filled(windows[0] + 500, 500, 0) && is_filled(windows[1] + 50, 950, 0));
    done(&got);
    CHECK(ripc_buf_unregister(windows[2]) == 1);
    tell(&sender);
    await(&sender);
    for (int round = 0; round < 8; round++) {
        CHECK(ripc_reg_recv_window(NULL, 40000) == 0);
        got = receive(SERVER);
        CHECK(got.result == 0 && got.long_count == 1 && is_filled(got.longs[0], 40000, round));
        ripc_buf_free(got.longs[0]);
        done(&got);
    }
    tell(&sender);
    expect_text(SERVER, CLIENT, "answer here");
    unsigned char *data = filled(70000, 3);
    void *items[] = {data, data};
    uint32_t lengths[] = {70000, 1000};
    CHECK(ripc_send_long(SERVER, CLIENT, items, lengths, 2, NULL, NULL, 0) == 0);
    await(&sender);
    CHECK(send_long(SERVER, CLIENT, data, 1000) == 0);
    expect_text(SERVER, CLIENT, "answer here");
    await(&sender);
    CHECK(send_long(SERVER, CLIENT, data, 1500) == 0);
    await(&sender);
    sleep_ms(100);
    end(&sender);
    CHECK(ripc_reg_recv_window(window, LARGE) == 0);
    got = receive(SERVER);
    CHECK(got.result != 255 && got.long_count == 1 && (got.result == 0 || got.longs[0] == NULL));
    done(&got);
    expect_text(SERVER, CLIENT, "last words");
    puts("ripc_long: all well");
    return 0;
}
