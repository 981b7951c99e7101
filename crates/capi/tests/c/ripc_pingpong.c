/* The shape of the published clients: server and client, rounds of short messages, and of long ones with windows and with return buffers. */
#include "ripc_check.h"

#define SERVER 1
#define ROUNDS 300
#define PACKET 100000

static void serve(struct other *parent)
{
    CHECK(init() == 1 && ripc_register_service_id(SERVER));
    tell(parent);
    uint16_t from, num_short, num_long;
    void **short_items, **long_items;
    uint32_t *short_sizes, *long_sizes;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(ripc_receive(SERVER, &from, &short_items, &short_sizes, &num_short, &long_items, &long_sizes, &num_long) == 0);
        CHECK(num_short == 1 && num_long == 0);
        CHECK(ripc_send_short(SERVER, from, short_items, short_sizes, num_short, NULL, NULL, 0) == 0);
        ripc_buf_free(short_items[0]);
        free(short_items);
        free(short_sizes);
    }
    void *windows[2] = {ripc_buf_alloc(PACKET), ripc_buf_alloc(PACKET)};
    CHECK(ripc_reg_recv_window(windows[0], PACKET) == 0 && ripc_reg_recv_window(windows[1], PACKET) == 0);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        CHECK(ripc_receive(SERVER, &from, &short_items, &short_sizes, &num_short, &long_items, &long_sizes, &num_long) == 0);
        CHECK(num_short == 0 && num_long == 1 && long_sizes[0] == PACKET);
        void *item = long_items[0];
        CHECK(*(int *)item == round);
        CHECK(ripc_send_long(SERVER, from, &item, long_sizes, 1, NULL, NULL, 0) == 0);
        /* The other window is free; this one is when its item was fetched, which the next message shows. */
        if (round > 0)
            CHECK(ripc_reg_recv_window(item == windows[0] ? windows[1] : windows[0], PACKET) == 0);
        free(long_items);
        free(long_sizes);
    }
    await(parent);
}

static double microseconds(struct timespec since)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((double)(now.tv_sec - since.tv_sec) * 1e9 + (double)(now.tv_nsec - since.tv_nsec)) / 1e3;
}

int main(void)
{
    struct other server = start(serve);
    await(&server);
    uint16_t me = ripc_register_random_service_id();
    CHECK(me != 65535);
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(send_bytes(me, SERVER, &round, sizeof round) == 0);
        struct message got = receive(me);
        CHECK(got.result == 0 && got.from == SERVER && got.short_count == 1 && *(int *)got.shorts[0] == round);
        done(&got);
    }
    printf("short: %.1f us a round\n", microseconds(since) / ROUNDS);
    char *packet = ripc_buf_alloc(PACKET), *back = ripc_buf_alloc(PACKET);
    uint32_t length = PACKET;
    for (int with_return_buffers = 0; with_return_buffers < 2; with_return_buffers++) {
        clock_gettime(CLOCK_MONOTONIC, &since);
        for (int round = 0; round < ROUNDS; round++) {
            int number = round + with_return_buffers * ROUNDS;
            memset(packet, number, PACKET);
            memcpy(packet, &number, sizeof number);
            void *item = packet, *buffer = back;
            if (!with_return_buffers)
                CHECK(ripc_reg_recv_window_for_service(back, PACKET, me) == 0);
            CHECK(ripc_send_long(me, SERVER, &item, &length, 1, &buffer, &length, (uint16_t)with_return_buffers) == 0);
            struct message got = receive(me);
            CHECK(got.result == 0 && got.from == SERVER && got.long_count == 1 && got.long_sizes[0] == PACKET);
            CHECK(got.longs[0] == back && memcmp(back, packet, PACKET) == 0);
            done(&got);
        }
        printf("long, with %s: %.1f us a round\n", with_return_buffers ? "return buffers" : "windows", microseconds(since) / ROUNDS);
    }
    tell(&server);
    finish(&server);
    puts("ripc_pingpong: all well");
    return 0;
}
