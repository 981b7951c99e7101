/*
 * The benchmark's exchanges over the C interface, as bench/src/worker/exchange does them over the Rust one.
 *
 *   messages DEVICE half-trip|rate|stream LEN COUNT FIRST_CORE SECOND_CORE
 *
 * Two processes, both polling, without locks. Prints one line of JSON: nanoseconds, or messages a second. DEVICE is the
 * beginning of a device's name.
 */
#define _GNU_SOURCE
#include <cci.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Messages between two calls that make progress, and in a burst, as in crates/measure/src/channel.rs. */
#define BURST 32
/* Messages that one call lends at most. */
#define LENT_MAX 64
#define URI_BYTES 256
/* Polls between two looks at the clock, and how long nothing may come. */
#define POLLS_PER_LOOK (1u << 16)
#define SILENCE_NS 20000000000ull

/* What is measured: messages there and back, one way, and one way in bursts received by a handler. */
enum work { HALF_TRIP, RATE, STREAM };

struct side {
    cci_endpoint_t *endpoint;
    cci_connection_t *connection;
    char *message;
    uint32_t len;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS)
        fail(what, cci_last_error());
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        fail("pinning", "not allowed");
}

/* Waits for an event of one type; others are returned. */
static inline cci_event_t *next(cci_endpoint_t *endpoint, cci_event_type_t type)
{
    uint64_t silent_since_ns = 0;
    for (;;) {
        for (uint32_t poll = 0; poll < POLLS_PER_LOOK; poll++) {
            cci_event_t *event;
            if (cci_get_event(endpoint, &event) != CCI_SUCCESS)
                continue;
            if (event->type == type)
                return event;
            cci_return_event(event);
        }
        if (silent_since_ns == 0)
            silent_since_ns = now_ns();
        else if (now_ns() - silent_since_ns > SILENCE_NS)
            fail("waiting", "nothing comes");
    }
}

static inline void receive(struct side *side)
{
    cci_return_event(next(side->endpoint, CCI_EVENT_RECV));
}

/* Makes progress. What comes meanwhile is not expected: it would be an answer too soon. */
static inline void progress(struct side *side)
{
    cci_event_t *event;
    if (cci_get_event(side->endpoint, &event) == CCI_SUCCESS) {
        if (event->type == CCI_EVENT_RECV)
            fail("sending", "an answer too soon");
        cci_return_event(event);
    }
}

static inline void send_one(struct side *side)
{
    for (;;) {
        int status = cci_send(side->connection, side->message, side->len, NULL, CCI_FLAG_SILENT);
        if (status == CCI_SUCCESS)
            return;
        if (status != CCI_ENOBUFS && status != CCI_EAGAIN)
            must("cci_send", status);
        progress(side);
    }
}

static void send_many(struct side *side, uint64_t count)
{
    for (uint64_t nth = 1; nth <= count; nth++) {
        send_one(side);
        /* Not behind the last: its answer may be there. */
        if (nth % BURST == 0 && nth < count)
            progress(side);
    }
}

static void send_bursts(struct side *side, uint64_t count)
{
    struct iovec burst[BURST];
    for (int nth = 0; nth < BURST; nth++) {
        burst[nth].iov_base = side->message;
        burst[nth].iov_len = side->len;
    }
    while (count > 0) {
        uint32_t taken = 0;
        int status = cci_send_burst(side->connection, burst, count < BURST ? (uint32_t)count : BURST, NULL,
                                    CCI_FLAG_SILENT, &taken);
        if (status != CCI_SUCCESS && status != CCI_ENOBUFS && status != CCI_EAGAIN)
            must("cci_send_burst", status);
        count -= taken;
        if (taken == 0)
            progress(side);
    }
}

static void count_message(cci_event_t *event, void *arg)
{
    uint64_t *count = arg;
    *count += event->type == CCI_EVENT_RECV;
}

static void receive_bursts(struct side *side, uint64_t count)
{
    uint64_t came = 0, before = 0, silent_since_ns = 0;
    while (came < count) {
        for (uint32_t poll = 0; poll < POLLS_PER_LOOK && came < count; poll++) {
            uint64_t left = count - came;
            cci_poll(side->endpoint, left < LENT_MAX ? (uint32_t)left : LENT_MAX, count_message, &came, NULL);
        }
        if (came > before)
            silent_since_ns = 0;
        else if (silent_since_ns == 0)
            silent_since_ns = now_ns();
        else if (now_ns() - silent_since_ns > SILENCE_NS)
            fail("waiting", "nothing comes");
        before = came;
    }
}

/* Nanoseconds for `count` round trips, or for `count` messages and the word that all have come. */
static uint64_t ask(struct side *side, enum work work, uint64_t count)
{
    uint64_t begin_ns = now_ns();
    if (work == STREAM) {
        send_bursts(side, count);
        receive(side);
    } else if (work == RATE) {
        send_many(side, count);
        receive(side);
    } else {
        for (uint64_t trip = 0; trip < count; trip++) {
            send_one(side);
            receive(side);
        }
    }
    return now_ns() - begin_ns;
}

static void answer(struct side *side, enum work work, uint64_t count)
{
    if (work == STREAM) {
        receive_bursts(side, count);
    } else {
        for (uint64_t nth = 0; nth < count; nth++) {
            receive(side);
            if (work == HALF_TRIP)
                send_one(side);
        }
    }
    if (work != HALF_TRIP)
        send_one(side);
}

static cci_endpoint_t *open_endpoint(const char *device, char *uri)
{
    cci_device_t *const *devices;
    cci_endpoint_t *endpoint;
    uint32_t caps;
    char *told;

    must("cci_init", cci_init(CCI_ABI_VERSION, CCI_INIT_SINGLE_THREADED, &caps));
    must("cci_get_devices", cci_get_devices(&devices));
    while (*devices && strncmp((*devices)->name, device, strlen(device)) != 0)
        devices++;
    if (!*devices)
        fail(device, "no such device");
    must("cci_create_endpoint", cci_create_endpoint(*devices, 0, &endpoint, NULL));
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &told));
    snprintf(uri, URI_BYTES, "%s", told);
    free(told);
    return endpoint;
}

static void partner(struct side *side, const char *device, enum work work, uint64_t warm_up, uint64_t count, int from)
{
    char own[URI_BYTES], first[URI_BYTES];
    struct timeval timeout = {10, 0};

    /* Before anything else: a process of its own, which ends with the first one. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(from, first, sizeof(first)) != sizeof(first))
        exit(1);
    side->endpoint = open_endpoint(device, own);
    must("cci_connect", cci_connect(side->endpoint, first, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
    cci_event_t *event = next(side->endpoint, CCI_EVENT_CONNECT);
    must("connecting", event->connect.status);
    side->connection = event->connect.connection;
    cci_return_event(event);
    answer(side, work, warm_up);
    answer(side, work, count);
    receive(side);
    exit(0);
}

static void accept_partner(struct side *side)
{
    cci_event_t *event = next(side->endpoint, CCI_EVENT_CONNECT_REQUEST);
    must("cci_accept", cci_accept(event, NULL));
    cci_return_event(event);
    event = next(side->endpoint, CCI_EVENT_ACCEPT);
    must("accepting", event->accept.status);
    side->connection = event->accept.connection;
    cci_return_event(event);
}

int main(int argc, char **argv)
{
    char uri[URI_BYTES] = "";
    struct side side = {0};
    int status, tell[2];

    if (argc != 7) {
        fprintf(stderr, "usage: messages DEVICE half-trip|rate|stream LEN COUNT FIRST_CORE SECOND_CORE\n");
        return 2;
    }
    enum work work = HALF_TRIP;
    if (strcmp(argv[2], "rate") == 0)
        work = RATE;
    else if (strcmp(argv[2], "stream") == 0)
        work = STREAM;
    else if (strcmp(argv[2], "half-trip") != 0)
        fail(argv[2], "no such work");
    uint64_t count = strtoull(argv[4], NULL, 10), warm_up = count / 10 + 1;
    side.len = (uint32_t)strtoul(argv[3], NULL, 10);
    side.message = calloc(1, side.len + 1);
    if (!side.message || pipe(tell) != 0)
        fail("messages", "no memory");
    /* Before the library is there: its endpoints belong to the process that made them. */
    pid_t child = fork();
    if (child < 0)
        fail("fork", "not allowed");
    pin(atoi(argv[child == 0 ? 6 : 5]));
    if (child == 0)
        partner(&side, argv[1], work, warm_up, count, tell[0]);
    side.endpoint = open_endpoint(argv[1], uri);
    if (write(tell[1], uri, sizeof(uri)) != sizeof(uri))
        fail("messages", "the partner is gone");
    accept_partner(&side);
    ask(&side, work, warm_up);
    uint64_t took_ns = ask(&side, work, count);
    /* The partner ends when it has this. */
    send_one(&side);
    while (waitpid(child, &status, WNOHANG) == 0) {
        cci_event_t *event;
        if (cci_get_event(side.endpoint, &event) == CCI_SUCCESS)
            cci_return_event(event);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("messages", "the partner failed");
    double each_ns = (double)took_ns / (double)count;
    printf("{\"value\": %.3f}\n", work == HALF_TRIP ? each_ns / 2.0 : 1e9 / each_ns);
    return 0;
}
