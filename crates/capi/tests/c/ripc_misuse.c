/* Each call, called wrongly; and buffers. One process. */
#include "ripc_check.h"

static void before_anything(void)
{
    struct message got = receive_within(7, 0);
    CHECK(got.result == 255);
    CHECK(ripc_receive(7, &got.from, &got.shorts, &got.short_sizes, &got.short_count, &got.longs, &got.long_sizes,
                       &got.long_count) == 255);
    CHECK(send_text(7, 8, "x") != 0);
    CHECK(ripc_unregister(7) == 1 && ripc_descriptor(7) == -1);
    ripc_buf_free(NULL);
    ripc_buf_free(&got);
    CHECK(ripc_buf_unregister(&got) == 0);
}

static void services(void)
{
    CHECK(ripc_register_service_id(-1) == 0 && ripc_register_service_id(65535) == 0 && ripc_register_service_id(65536) == 0);
    CHECK(ripc_register_multicast_service_id(-1) == 0 && ripc_register_multicast_service_id(65535) == 0);
    CHECK(ripc_register_service_id(0) == 1 && ripc_register_service_id(65534) == 1);
    CHECK(ripc_register_service_id(0) == 0 && ripc_register_multicast_service_id(0) == 0);
    CHECK(ripc_register_multicast_service_id(50) == 1 && ripc_register_multicast_service_id(50) == 0);
    CHECK(ripc_register_service_id(50) == 0);
    uint16_t one = ripc_register_random_service_id(), other = ripc_register_random_service_id();
    CHECK(one != 65535 && other != 65535 && one != other && ripc_register_service_id(one) == 0);
    CHECK(ripc_unregister(one) == 0 && ripc_unregister(one) == 1 && receive_within(one, 0).result == 255);
    CHECK(ripc_register_service_id(one) == 1);
    CHECK(init() == 1 && ripc_init() == 1);
    char name[64];
    CHECK(ripc_name_of(80, name, sizeof name) == 0 && strcmp(name, "80") == 0);
    CHECK(ripc_name_of(80, name, 2) == 1 && ripc_name_of(80, NULL, 9) == 1);
    CHECK(ripc_register_named(NULL) == 65535 && ripc_register_named("a b") == 65535 && ripc_number_of("") == 65535);
    CHECK(ripc_number_of("80") == 80);
    uint16_t files = ripc_register_named("files");
    CHECK(files != 65535 && ripc_number_of("files") == files && ripc_register_named("files") == 65535);
    CHECK(ripc_name_of(files, name, sizeof name) == 0 && strcmp(name, "files") == 0);
    CHECK(send_text(0, files, "by name") == 0);
    expect_text(files, 0, "by name");
    CHECK(send_text(files, 0, "back") == 0);
    expect_text(0, files, "back");
}

static void sends(void)
{
    char bytes[2001] = {0};
    void *items[10];
    uint32_t sizes[10];
    for (int at = 0; at < 10; at++) {
        items[at] = bytes;
        sizes[at] = 1;
    }
    CHECK(ripc_send_short(1, 0, items, sizes, 1, NULL, NULL, 0) != 0);
    CHECK(ripc_send_short(0, 65534, items, sizes, 10, NULL, NULL, 0) != 0);
    CHECK(ripc_send_short(0, 65534, NULL, sizes, 1, NULL, NULL, 0) != 0);
    CHECK(ripc_send_short(0, 65534, items, NULL, 1, NULL, NULL, 0) != 0);
    CHECK(ripc_send_short(0, 65534, items, sizes, 1, NULL, sizes, 1) != 0);
    CHECK(send_bytes(0, 65534, bytes, 2001) != 0 && send_bytes(0, 65534, NULL, 1) != 0);
    sizes[0] = sizes[1] = 1001;
    CHECK(ripc_send_short(0, 65534, items, sizes, 2, NULL, NULL, 0) != 0);
    CHECK(send_long(1, 0, bytes, 10) != 0 && send_long(0, 65534, NULL, 10) != 0 && send_long(0, 65534, bytes, 0) != 0);
    CHECK(ripc_send_long(0, 65534, NULL, NULL, 3, NULL, NULL, 0) != 0);
    CHECK(send_long(50, 50, bytes, 10) == 1);
    void *freed = ripc_buf_alloc(100);
    CHECK(freed && send_long(0, 65534, freed, 101) != 0);
    ripc_buf_free(freed);
    CHECK(send_long(0, 65534, freed, 100) != 0);
    CHECK(receive_within(65534, 0).result == 2);
    struct message got;
    CHECK(ripc_receive(65534, NULL, &got.shorts, &got.short_sizes, &got.short_count, &got.longs, &got.long_sizes,
                       &got.long_count) == 1);
    /* Nothing of all that came; what is right does. */
    for (int at = 0; at < 10; at++)
        sizes[at] = (uint32_t)at;
    CHECK(ripc_send_short(0, 65534, items, sizes, 9, NULL, NULL, 0) == 0);
    got = receive(65534);
    CHECK(got.result == 0 && got.from == 0 && got.short_count == 9 && got.short_sizes[8] == 8 && got.short_sizes[0] == 0);
    done(&got);
    CHECK(ripc_send_short(0, 65534, NULL, NULL, 0, NULL, NULL, 0) == 0);
    got = receive(65534);
    CHECK(got.result == 0 && got.short_count == 0 && got.shorts == NULL && got.short_sizes == NULL);
    done(&got);
}

static void buffers(void)
{
    CHECK(ripc_buf_alloc(0) == NULL && ripc_buf_alloc((size_t)-1) == NULL);
    for (size_t size = 1; size <= 3000000; size = size * 7 + 1) {
        unsigned char *buffer = ripc_buf_alloc(size);
        CHECK(buffer && is_filled(buffer, size, 0));
        memset(buffer, 9, size);
        ripc_buf_free(buffer + size / 2);
        unsigned char *again = ripc_buf_alloc(size);
        CHECK(again && is_filled(again, size, 0));
        ripc_buf_free(again);
        ripc_buf_free(again);
    }
    /* First fit, from the length that is asked for up to twice of it. */
    unsigned char *large = ripc_buf_alloc(300000);
    ripc_buf_free(large);
    unsigned char *half = ripc_buf_alloc(150000);
    CHECK(half == large);
    ripc_buf_free(half);
    unsigned char *less = ripc_buf_alloc(149999);
    CHECK(less && less != large);
    ripc_buf_free(less);
    /* Another length keeps the content. */
    unsigned char *buffer = ripc_buf_realloc(NULL, 1000);
    CHECK(buffer && is_filled(buffer, 1000, 0));
    memset(buffer, 3, 1000);
    buffer = ripc_buf_realloc(buffer, 70000);
    CHECK(buffer && is_filled(buffer, 1000, 3) && is_filled(buffer + 1000, 69000, 0));
    buffer = ripc_buf_realloc(buffer, 10);
    CHECK(buffer && is_filled(buffer, 10, 3));
    CHECK(ripc_buf_realloc(buffer, (size_t)-1) == NULL && is_filled(buffer, 10, 3));
    CHECK(ripc_buf_realloc(buffer, 0) == NULL);
    static unsigned char own[1000];
    CHECK(ripc_buf_realloc(own, 2000) == NULL);
    /* The program's own memory. */
    CHECK(ripc_buf_register(own, 0) == 1 && ripc_buf_register(NULL, 5) == 1 && ripc_buf_register(own, (size_t)-1) == 1);
    CHECK(ripc_buf_unregister(own) == 0 && ripc_buf_unregister(NULL) == 0);
    CHECK(ripc_buf_register(own, sizeof own) == 0 && ripc_buf_register(own, sizeof own) == 0);
    CHECK(ripc_buf_unregister(own) == 1 && ripc_buf_unregister(own) == 0);
    /* Windows. */
    CHECK(ripc_reg_recv_window(own, 0) == 1 && ripc_reg_recv_window(NULL, 0) == 1);
    CHECK(ripc_reg_recv_window_for_service(own, 10, 1) == 1 && ripc_reg_recv_window_for_service(NULL, 10, 0) == 0);
    void *window = ripc_buf_alloc(100);
    CHECK(ripc_reg_recv_window(window, 101) == 1 && ripc_reg_recv_window(window, 100) == 0);
    ripc_buf_free(window);
    CHECK(ripc_reg_recv_window(window, 100) == 1);
}

/* A child of a process that has services can't use them. */
static void in_a_child(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(!(send_text(0, 65534, "x") == 1 && ripc_register_service_id(9) == 0 && ripc_buf_alloc(9) == NULL));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(send_text(0, 65534, "still here") == 0);
    expect_text(65534, 0, "still here");
}

int main(void)
{
    before_anything();
    services();
    sends();
    buffers();
    in_a_child();
    puts("ripc_misuse: all well");
    return 0;
}
