/*
 * What the peers' programs share. Each is called the same way and tells one figure:
 *
 *   PROGRAM WORK LEN COUNT TRANSPORT
 *
 *   half-trip  half of the mean round trip of a message of LEN bytes, over COUNT trips: {"value": 240.5, "unit": "ns"}
 *   rate       messages of LEN bytes a second, one way, COUNT of them, until the receiver has said that it has all: "1/s"
 *   put        bytes a second of remote writes of LEN bytes, COUNT of them, until all are done at the target: "B/s"
 *
 * The MPIs do more, one at a time, with the time of one: "ns", or how many a second: "1/s"
 *
 *   put-fence  a remote write of LEN bytes that is done at the target; put-fence-heap: to memory of the program's own
 *   get-fence  a remote read of LEN bytes whose data are here
 *   fetch-add  an addition to a remote word of 8 bytes that has the value before: "1/s"; fetch-add-all: to one word by all ranks at once, COUNT each
 *   barrier    of all ranks
 *   allreduce  sums of numbers that fill LEN bytes
 *   start      from the start of the launcher, by CCI_BENCH_STARTED_NS in the environment, until a first barrier has ended
 *   pack-…     described data of LEN bytes copied into a row, by one rank, and unpack-… back: vector, face, indexed, struct, contiguous (`src/shape.rs`): "B/s"
 *
 * A tenth of COUNT is done before the clock starts; it is read twice, at the start and at the end.
 */
#ifndef PEER_H
#define PEER_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIFE_S_MAX 30

enum work {
    HALF_TRIP,
    RATE,
    PUT,
    PUT_FENCE,
    PUT_FENCE_HEAP,
    GET_FENCE,
    FETCH_ADD,
    FETCH_ADD_ALL,
    BARRIER,
    ALLREDUCE,
    START,
    PACK,
    PACK_LAST = PACK + 4,
    UNPACK,
    UNPACK_LAST = UNPACK + 4
};

struct job {
    enum work work;
    size_t len_bytes;
    uint64_t count;
    uint64_t warm_up;
    const char *transport;
};

static inline void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static inline uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == 0 || *end != 0 || value == 0)
        fail(text, "a number above 0 is expected");
    return value;
}

static inline struct job parse_job(int argc, char **argv)
{
    static const char *const words[] = {
        "half-trip",   "rate",          "put",         "put-fence",       "put-fence-heap", "get-fence", "fetch-add",
        "fetch-add-all", "barrier",     "allreduce",     "start",       "pack-vector", "pack-face",       "pack-indexed",   "pack-struct",
        "pack-contiguous", "unpack-vector", "unpack-face", "unpack-indexed", "unpack-struct", "unpack-contiguous",
    };
    if (argc != 5)
        fail(argv[0], "usage: WORK LEN COUNT TRANSPORT");
    struct job job = {.len_bytes = number(argv[2]), .count = number(argv[3]), .transport = argv[4]};
    while (strcmp(argv[1], words[job.work]) != 0)
        if (++job.work > UNPACK_LAST)
            fail(argv[1], "no such work");
    job.warm_up = job.count / 10 + 1;
    /* Whoever started this may be gone, and a side without its peer polls for ever: the kernel ends it. */
    alarm(LIFE_S_MAX);
    return job;
}

/* This process, and the threads it will start, stay on one core: the first or the second of those it may use. */
static inline void pin(int side)
{
    cpu_set_t allowed, mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        fail("sched_getaffinity", strerror(errno));
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && side-- == 0) {
            CPU_SET(core, &mine);
            if (sched_setaffinity(0, sizeof mine, &mine) != 0)
                fail("sched_setaffinity", strerror(errno));
            return;
        }
    }
    fail("pin", "two cores are needed, one for each side");
}

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Zeroed memory on a page of its own, written to, so that no page fault is measured. */
static inline void *pages(size_t len_bytes)
{
    void *memory = aligned_alloc(4096, (len_bytes + 4095) / 4096 * 4096);
    if (memory == NULL)
        fail("aligned_alloc", "out of memory");
    memset(memory, 1, len_bytes);
    memset(memory, 0, len_bytes);
    return memory;
}

/* What took `took_s` is told as one line of JSON. */
static inline void tell_result(const struct job *job, double took_s)
{
    double each_s = took_s / (double)job->count;
    if (job->work == HALF_TRIP)
        printf("{\"value\": %.2f, \"unit\": \"ns\"}\n", each_s * 1e9 / 2);
    else if (job->work == PUT_FENCE || job->work == PUT_FENCE_HEAP || job->work == GET_FENCE || job->work == BARRIER || job->work == ALLREDUCE || job->work == START)
        printf("{\"value\": %.2f, \"unit\": \"ns\"}\n", each_s * 1e9);
    else if (job->work == RATE || job->work == FETCH_ADD || job->work == FETCH_ADD_ALL)
        printf("{\"value\": %.0f, \"unit\": \"1/s\"}\n", 1 / each_s);
    else
        printf("{\"value\": %.0f, \"unit\": \"B/s\"}\n", (double)job->len_bytes / each_s);
    fflush(stdout);
}

/* ---- Two processes from one: for libraries without a launcher of their own -------------------------------------------------- */

/* Between the two sides: addresses at the start, and a word when something is over. */
static int other_side;

static inline void tell(const void *bytes, size_t len_bytes)
{
    if (send(other_side, bytes, len_bytes, MSG_NOSIGNAL) != (ssize_t)len_bytes)
        fail("the other side", "is gone");
}

static inline void hear(void *bytes, size_t len_bytes)
{
    if (recv(other_side, bytes, len_bytes, MSG_WAITALL) != (ssize_t)len_bytes)
        fail("the other side", "is gone");
}

/* Both sides are here. */
static inline void meet(void)
{
    char word = 0;
    tell(&word, 1);
    hear(&word, 1);
}

/* The last call: the first side stays until the other has put its things away, which it would be killed over. */
static inline void part(bool first)
{
    char word;
    while (first && recv(other_side, &word, 1, 0) > 0)
        ;
}

static inline void on_child_end(int signal)
{
    int status;
    (void)signal;
    if (waitpid(-1, &status, WNOHANG) > 0 && status != 0)
        _exit(1);
}

/*
 * Makes the other process; true in the first one, which measures. Call it before the library is started. The first ends
 * when the second fails, and the second when the first is gone.
 */
static inline bool split(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        fail("socketpair", strerror(errno));
    struct sigaction action = {.sa_handler = on_child_end, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);
    pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    bool first = child != 0;
    if (!first) {
        signal(SIGCHLD, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LIFE_S_MAX);
    }
    other_side = pair[first ? 0 : 1];
    close(pair[first ? 1 : 0]);
    return first;
}

#endif
