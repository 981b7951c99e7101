/* What the C tests of ripc.h share: checks, messages, and processes that wait for each other. */
#ifndef RIPC_CHECK_H
#define RIPC_CHECK_H

#include <cci.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <ripc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Nothing takes as long; a test that waits longer has failed. */
#define PATIENCE_MS 60000

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, cci_last_error());         \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

/* A message, with what ripc_receive() returned. */
struct message {
    int result;
    uint16_t from;
    void **shorts;
    uint32_t *short_sizes;
    uint16_t short_count;
    void **longs;
    uint32_t *long_sizes;
    uint16_t long_count;
};

static inline struct message receive_within(uint16_t id, int timeout_ms)
{
    struct message got;
    memset(&got, 0x55, sizeof got);
    got.result = ripc_receive_within(timeout_ms, id, &got.from, &got.shorts, &got.short_sizes, &got.short_count, &got.longs,
                                     &got.long_sizes, &got.long_count);
    return got;
}

static inline struct message receive(uint16_t id)
{
    return receive_within(id, PATIENCE_MS);
}

/* Gives back what came with a message, but for long items. */
static inline void done(struct message *got)
{
    if (got->short_count)
        ripc_buf_free(got->shorts[0]);
    free(got->shorts);
    free(got->short_sizes);
    free(got->longs);
    free(got->long_sizes);
}

static inline int send_bytes(uint16_t src, uint16_t dest, const void *bytes, uint32_t size)
{
    void *items[] = {(void *)(uintptr_t)bytes};
    return ripc_send_short(src, dest, items, &size, 1, NULL, NULL, 0);
}

static inline int send_text(uint16_t src, uint16_t dest, const char *text)
{
    return send_bytes(src, dest, text, (uint32_t)strlen(text));
}

static inline int send_long(uint16_t src, uint16_t dest, void *bytes, uint32_t size)
{
    return ripc_send_long(src, dest, &bytes, &size, 1, NULL, NULL, 0);
}

static inline int is_text(const struct message *got, const char *text)
{
    return got->short_count == 1 && got->short_sizes[0] == strlen(text) && memcmp(got->shorts[0], text, strlen(text)) == 0;
}

static inline void expect_text(uint16_t id, uint16_t from, const char *text)
{
    struct message got = receive(id);
    CHECK(got.result == 0 && got.from == from && is_text(&got, text));
    CHECK(got.long_count == 0 && got.longs == NULL && got.long_sizes == NULL);
    done(&got);
}

static inline void *filled(size_t size, int byte)
{
    void *memory = malloc(size);
    CHECK(memory);
    return memset(memory, byte, size);
}

static inline int is_filled(const void *memory, size_t size, int byte)
{
    const unsigned char *bytes = (const unsigned char *)memory;
    for (size_t at = 0; at < size; at++)
        if (bytes[at] != (unsigned char)byte)
            return 0;
    return 1;
}

static inline long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline void sleep_ms(int ms)
{
    poll(NULL, 0, ms);
}

/* Another process, and a pipe each way. Both sides have one of these. */
struct other {
    pid_t pid;
    int in, out;
};

static inline void tell(struct other *other)
{
    CHECK(write(other->out, "x", 1) == 1);
}

static inline void await(struct other *other)
{
    char byte;
    struct pollfd ready = {other->in, POLLIN, 0};
    CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && read(other->in, &byte, 1) == 1);
}

/* Starts a process, before this one has made any call of the library. */
static inline struct other start(void (*run)(struct other *))
{
    int down[2], up[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct other parent = {getppid(), down[0], up[1]};
        close(down[1]);
        close(up[0]);
        run(&parent);
        exit(0);
    }
    close(down[0]);
    close(up[1]);
    struct other child = {pid, up[0], down[1]};
    return child;
}

static inline void finish(struct other *child)
{
    int status;
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(child->in);
    close(child->out);
}

static inline void end(struct other *child)
{
    CHECK(kill(child->pid, SIGKILL) == 0 && waitpid(child->pid, NULL, 0) == child->pid);
    close(child->in);
    close(child->out);
}

#endif
