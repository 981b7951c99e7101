/* Files as buffers: their bytes are fetched from where they are. */
#include "ripc_check.h"

#include <fcntl.h>
#include <sys/stat.h>

#define SERVER 1
#define CLIENT 4
#define LARGE 3000000

static char folder[] = "/tmp/ripc_file.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static unsigned char byte_at(size_t at)
{
    return (unsigned char)(at * 31 + at / 4096);
}

static int is_file(const unsigned char *memory, size_t from, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (memory[at] != byte_at(from + at))
            return 0;
    return 1;
}

static void write_file(const char *path, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    CHECK(bytes);
    for (size_t at = 0; at < size; at++)
        bytes[at] = byte_at(at);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
}

static void wrong_files(void)
{
    size_t size = 77;
    CHECK(ripc_file_map(NULL, &size) == NULL && ripc_file_map(path_of("none"), &size) == NULL);
    CHECK(ripc_file_map(folder, &size) == NULL && ripc_file_map("/dev/zero", &size) == NULL);
    write_file(path_of("empty"), 0);
    CHECK(ripc_file_map(path_of("empty"), &size) == NULL);
    CHECK(mkfifo(path_of("fifo"), 0600) == 0 && ripc_file_map(path_of("fifo"), &size) == NULL);
    CHECK(ripc_file_map(path_of("file"), NULL) == NULL && size == 77);
    unlink(path_of("empty"));
    unlink(path_of("fifo"));
}

static void client(struct other *parent)
{
    await(parent);
    CHECK(ripc_register_service_id(CLIENT) == 1);
    write_file(path_of("file"), LARGE);
    wrong_files();
    size_t size;
    unsigned char *file = ripc_file_map(path_of("file"), &size), *twice = ripc_file_map(path_of("file"), &size);
    CHECK(file && twice && twice != file && size == LARGE && is_file(file, 0, LARGE));
    ripc_buf_free(twice);
    /* Nobody writes there. */
    CHECK(ripc_reg_recv_window(file, 100) == 1);
    void *items[] = {"a"}, *buffers[] = {file};
    uint32_t one = 1, hundred = 100;
    CHECK(ripc_send_short(CLIENT, SERVER, items, &one, 1, buffers, &hundred, 1) != 0);
    CHECK(send_long(CLIENT, SERVER, file + 1, LARGE) != 0);
    /* All of it, parts that overlap, and short items. */
    CHECK(send_long(CLIENT, SERVER, file, LARGE) == 0);
    void *parts[] = {file + 1, file + 500, file + LARGE - 1};
    uint32_t lengths[] = {1000000, 2000000, 1};
    CHECK(ripc_send_long(CLIENT, SERVER, parts, lengths, 3, NULL, NULL, 0) == 0);
    CHECK(send_bytes(CLIENT, SERVER, file, 1000) == 0);
    await(parent);
    /* A return buffer stays where it is: the bytes of a file are fetched. */
    CHECK(send_long(CLIENT, SERVER, file + 7, 5000) == 0);
    await(parent);
    /* Freed at once, and the name is gone: who was lent it fetches it all the same. */
    CHECK(send_long(CLIENT, SERVER, file, LARGE) == 0);
    ripc_buf_free(file);
    CHECK(unlink(path_of("file")) == 0 && send_long(CLIENT, SERVER, file, 100) != 0);
    await(parent);
    /* The file becomes shorter before it is fetched. */
    write_file(path_of("file"), LARGE);
    file = ripc_file_map(path_of("file"), &size);
    CHECK(file && size == LARGE && truncate(path_of("file"), 1000) == 0);
    CHECK(send_long(CLIENT, SERVER, file, LARGE) == 0 && send_long(CLIENT, SERVER, file, 1000) == 0);
    await(parent);
    /* A copy of it is a buffer like others. */
    unsigned char *copy = ripc_buf_realloc(file, 900);
    CHECK(copy && is_file(copy, 0, 900));
    copy[0] = 9;
    ripc_buf_free(copy);
    unlink(path_of("file"));
    tell(parent);
    await(parent);
}

static void expect(unsigned char *window, size_t from, uint32_t size)
{
    memset(window, 0, size);
    CHECK(ripc_reg_recv_window(window, size) == 0);
    struct message got = receive(SERVER);
    CHECK(got.result == 0 && got.from == CLIENT && got.long_count == 1 && got.longs[0] == window);
    CHECK(got.long_sizes[0] == size && is_file(window, from, size));
    done(&got);
}

int main(void)
{
    CHECK(mkdtemp(folder));
    struct other sender = start(client);
    CHECK(ripc_register_service_id(SERVER) == 1);
    unsigned char *window = ripc_buf_alloc(LARGE), *other = malloc(LARGE), *last = malloc(LARGE);
    CHECK(window && other && last);
    tell(&sender);
    expect(window, 0, LARGE);
    CHECK(ripc_reg_recv_window(window, LARGE) == 0 && ripc_reg_recv_window(other, LARGE) == 0);
    CHECK(ripc_reg_recv_window(last, LARGE) == 0);
    struct message got = receive(SERVER);
    CHECK(got.result == 0 && got.long_count == 3 && is_file(got.longs[0], 1, 1000000));
    CHECK(is_file(got.longs[1], 500, 2000000) && is_file(got.longs[2], LARGE - 1, 1));
    done(&got);
    got = receive(SERVER);
    CHECK(got.result == 0 && got.short_count == 1 && is_file(got.shorts[0], 0, 1000));
    done(&got);
    void *items[] = {"here"}, *buffers[] = {other};
    uint32_t four = 4, length = LARGE;
    memset(other, 5, LARGE);
    CHECK(ripc_send_short(SERVER, CLIENT, items, &four, 1, buffers, &length, 1) == 0);
    tell(&sender);
    expect(window, 7, 5000);
    CHECK(is_filled(other, LARGE, 5));
    tell(&sender);
    expect(window, 0, LARGE);
    tell(&sender);
    CHECK(ripc_reg_recv_window(window, LARGE) == 0);
    got = receive(SERVER);
    CHECK(got.result == 1 && got.long_count == 1 && got.longs[0] == NULL);
    done(&got);
    CHECK(ripc_buf_unregister(window) == 1);
    expect(window, 0, 1000);
    tell(&sender);
    await(&sender);
    tell(&sender);
    finish(&sender);
    CHECK(rmdir(folder) == 0);
    puts("ripc_file: all well");
    return 0;
}
