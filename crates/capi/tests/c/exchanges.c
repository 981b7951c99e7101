/*
 * What `cargo xtask counts` runs under callgrind: `exchanges c-message-TRANSPORT ROUNDS`, c-silent- or c-stream-TRANSPORT. As its
 * namesake in crates/testkit/examples, of which it is the part that a C program sees.
 */
#include "check.h"
#include <stdio.h>

#define WARM_UP 2000
#define BURST 32

static unsigned long late;
/* Of the messages. */
static int flags;

/* Takes events until a message; 0 when there is none. */
static inline int receive(cci_endpoint_t *endpoint)
{
    cci_event_t *event;
    while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
        int is_message = event->type == CCI_EVENT_RECV;
        CHECK(is_message || event->type == CCI_EVENT_SEND);
        OK(cci_return_event(event));
        if (is_message)
            return 1;
    }
    return 0;
}

static inline int exchange(cci_endpoint_t *sender, cci_endpoint_t *receiver, cci_connection_t *connection)
{
    static const char message[8] = "1234567";
    cci_event_t *event;
    OK(cci_send(connection, message, sizeof(message), (void *)1, flags));
    while (cci_get_event(sender, &event) == CCI_SUCCESS) {
        CHECK(event->type == CCI_EVENT_SEND);
        OK(cci_return_event(event));
    }
    return receive(receiver);
}

/* callgrind finds it by its name. */
__attribute__((noinline)) static int counted(cci_endpoint_t *sender, cci_endpoint_t *receiver,
                                             cci_connection_t *connection)
{
    return exchange(sender, receiver, connection);
}

static void message(cci_endpoint_t *sender, cci_endpoint_t *receiver, cci_connection_t *connection, int is_counted)
{
    int arrived =
        is_counted ? counted(sender, receiver, connection) : exchange(sender, receiver, connection);
    /* The clock is not read for a message in time: where instructions are counted, each reading moves it on. */
    if (arrived)
        return;
    long long until = now_ms() + PATIENCE_MS;
    while (!arrived) {
        late++;
        usleep(20);
        CHECK(now_ms() < until);
        receive(sender);
        arrived = receive(receiver);
    }
}

/* Counts messages; the completion of a burst may come, too. */
static void handle(cci_event_t *event, void *arg)
{
    if (event->type == CCI_EVENT_RECV) {
        CHECK(event->recv.len == 8);
        ++*(unsigned *)arg;
    } else {
        CHECK(event->type == CCI_EVENT_SEND);
    }
}

/* Has handled what came, until nothing is there. */
static inline void handle_all(cci_endpoint_t *endpoint, unsigned *messages)
{
    while (cci_poll(endpoint, 2 * BURST, handle, messages, NULL) == CCI_SUCCESS)
        ;
}

/* Sends a burst, and handles what has arrived on both sides. */
static inline void send_burst(cci_endpoint_t *sender, cci_endpoint_t *receiver, cci_connection_t *connection,
                              unsigned *arrived)
{
    static char text[8] = "1234567";
    struct iovec messages[BURST];
    uint32_t taken;
    for (int at = 0; at < BURST; at++)
        messages[at] = (struct iovec){text, sizeof(text)};
    OK(cci_send_burst(connection, messages, BURST, (void *)1, 0, &taken));
    CHECK(taken == BURST);
    handle_all(sender, arrived);
    handle_all(receiver, arrived);
}

/* callgrind finds it by its name, too. */
__attribute__((noinline)) static void counted_burst(cci_endpoint_t *sender, cci_endpoint_t *receiver,
                                                    cci_connection_t *connection, unsigned *arrived)
{
    send_burst(sender, receiver, connection, arrived);
}

static void burst(cci_endpoint_t *sender, cci_endpoint_t *receiver, cci_connection_t *connection, int is_counted)
{
    unsigned arrived = 0;
    if (is_counted)
        counted_burst(sender, receiver, connection, &arrived);
    else
        send_burst(sender, receiver, connection, &arrived);
    if (arrived == BURST)
        return;
    long long until = now_ms() + PATIENCE_MS;
    while (arrived < BURST) {
        late++;
        usleep(20);
        CHECK(now_ms() < until);
        handle_all(sender, &arrived);
        handle_all(receiver, &arrived);
    }
}

int main(int count, char **words)
{
    CHECK(count == 3);
    int is_stream = strncmp(words[1], "c-stream-", 9) == 0;
    int is_silent = strncmp(words[1], "c-silent-", 9) == 0;
    CHECK(is_stream || is_silent || strncmp(words[1], "c-message-", 10) == 0);
    flags = is_silent ? CCI_FLAG_SILENT : 0;
    void (*round_of)(cci_endpoint_t *, cci_endpoint_t *, cci_connection_t *, int) = is_stream ? burst : message;
    cci_device_t *device;
    cci_endpoint_t *ends[2];
    cci_connection_t *connections[2];
    uint32_t caps;
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    device = device_of(strrchr(words[1], '-') + 1);
    for (int end = 0; end < 2; end++)
        OK(cci_create_endpoint(device, 0, &ends[end], NULL));
    connect_pair(ends[0], ends[1], CCI_CONN_ATTR_RO, &connections[0], &connections[1]);
    unsigned long rounds = strtoul(words[2], NULL, 10);
    for (unsigned long round = 0; round < WARM_UP + rounds; round++) {
        if (round == WARM_UP)
            late = 0;
        round_of(ends[0], ends[1], connections[0], round >= WARM_UP);
        round_of(ends[1], ends[0], connections[1], round >= WARM_UP);
    }
    printf("late\t%lu\n", late);
    for (int end = 0; end < 2; end++)
        OK(cci_destroy_endpoint(ends[end]));
    OK(cci_finalize());
    return 0;
}
