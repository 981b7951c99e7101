/*
 * A peer is killed in the middle of long messages and calls: each operation of the survivor ends exactly once, and in front of the one
 * event that says that the connection has ended.
 */
#include "messenger.h"
#include <signal.h>
#include <sys/wait.h>

#define LONG_BYTES (32u << 20)
#define CALLS 3

/* What the processes say to each other. */
static int to_victim[2], to_survivor[2];

static void start(void)
{
    uint32_t caps;
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
}

/*
 * A survivor's side. Over UDP nothing but silence says that a peer has died: a send that it does not acknowledge fails in time, and to who
 * waits for an answer, keepalive says it.
 */
static void open_survivor(struct side *side, const char *transport)
{
    const uint32_t limit_us = strcmp(transport, "udp") == 0 ? 4 * 1000 * 1000 : 0;
    const cci_endpoint_options_t options = {
        .size = sizeof options, .send_timeout_us = limit_us, .keepalive_timeout_us = limit_us};
    open_side_with(side, transport, &options, NULL);
}

static cci_messenger_event_t *wait_event(cci_messenger_t *messenger)
{
    cci_messenger_event_t *event;
    OK(cci_messenger_wait_event(messenger, &(struct timeval){60, 0}, &event));
    return event;
}

/* Accepts everything, decides nothing, and says when it has seen all of it. */
static void victim_serves(const char *transport)
{
    start();
    open_side(&server, transport, NULL);
    char *uri, text[256] = {0};
    OK(cci_messenger_uri(server.messenger, &uri));
    strncpy(text, uri, sizeof text - 1);
    CHECK(write(to_survivor[1], text, sizeof text) == sizeof text);
    for (int seen = 0;;) {
        cci_messenger_event_t *event = wait_event(server.messenger);
        if (event->type == CCI_MESSENGER_CONNECT_REQUEST)
            OK(cci_messenger_accept(server.messenger, event, NULL));
        if (event->type == CCI_MESSENGER_OFFER || event->type == CCI_MESSENGER_REQUEST) {
            /* Kept, so that it stays unanswered. */
            if (++seen == 1 + CALLS)
                CHECK(write(to_survivor[1], "s", 1) == 1);
            continue;
        }
        OK(cci_messenger_return_event(event));
    }
}

/* Sends a long message, and asks. */
static void victim_asks(const char *transport)
{
    char uri[256];
    start();
    CHECK(read(to_victim[0], uri, sizeof uri) == sizeof uri);
    open_side(&client, transport, NULL);
    /* Made before, as nobody makes progress meanwhile. */
    unsigned char *bytes = contents(LONG_BYTES, 1);
    OK(cci_messenger_connect(client.messenger, uri, NULL, 0, CCI_CONN_ATTR_RU, NULL, NULL));
    for (;;) {
        cci_messenger_event_t *event = wait_event(client.messenger);
        if (event->type == CCI_MESSENGER_CONNECT) {
            OK(event->status);
            OK(cci_messenger_send(client.messenger, event->connection, bytes, LONG_BYTES, NULL, CCI_FLAG_NO_COPY, NULL));
            for (int at = 0; at < CALLS; at++)
                OK(cci_messenger_call(client.messenger, event->connection, "key", 3, NULL, NULL, NULL));
        }
        OK(cci_messenger_return_event(event));
    }
}

static pid_t start_victim(void (*role)(const char *), const char *transport)
{
    CHECK(pipe(to_victim) == 0 && pipe(to_survivor) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* It goes with its parent, if a test fails. */
        alarm(LIFE_MAX_S);
        role(transport);
        _exit(0);
    }
    return child;
}

static void kill_victim(pid_t child)
{
    int status;
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void nothing_more(cci_messenger_t *messenger)
{
    cci_messenger_event_t *event;
    for (int turn = 0; turn < 2000; turn++)
        CHECK_STATUS(cci_messenger_get_event(messenger, &event), CCI_EAGAIN);
    OK(cci_messenger_close(messenger));
    OK(cci_finalize());
}

/* The client is killed while its message is being received, and its requests wait. */
static void client_dies(const char *transport)
{
    pid_t child = start_victim(victim_asks, transport);
    start();
    open_survivor(&server, transport);
    char *uri, text[256] = {0};
    OK(cci_messenger_uri(server.messenger, &uri));
    strncpy(text, uri, sizeof text - 1);
    free(uri);
    CHECK(write(to_victim[1], text, sizeof text) == sizeof text);
    unsigned char *into = malloc(LONG_BYTES);
    cci_messenger_event_t *requests[CALLS];
    int asked = 0, offered = 0, received = 0, cancelled = 0;
    uint64_t offer = 0;
    for (int is_over = 0; !is_over;) {
        cci_messenger_event_t *event = wait_event(server.messenger);
        switch (event->type) {
        case CCI_MESSENGER_CONNECT_REQUEST:
            OK(cci_messenger_accept(server.messenger, event, NULL));
            break;
        case CCI_MESSENGER_OFFER:
            CHECK(!offered++);
            offer = event->id;
            break;
        case CCI_MESSENGER_REQUEST:
            CHECK(asked < CALLS);
            requests[asked++] = event;
            break;
        case CCI_MESSENGER_RECEIVED:
            CHECK(!received++ && event->id == offer && event->context == (void *)5);
            break;
        case CCI_MESSENGER_REQUEST_CANCELLED:
            CHECK(cancelled++ < CALLS);
            break;
        case CCI_MESSENGER_DISCONNECTED:
            CHECK(event->code != CCI_EXT_DISCONNECT_CLOSED);
            is_over = 1;
            break;
        case CCI_MESSENGER_KEEPALIVE_TIMEDOUT:
            break;
        default:
            CHECK(event->type == CCI_MESSENGER_ACCEPT);
            OK(event->status);
        }
        if (offered == 1 && asked == CALLS) {
            OK(cci_messenger_receive_into(server.messenger, offer, into, LONG_BYTES, (void *)5));
            kill_victim(child);
            offered++;
        }
        if (event->type != CCI_MESSENGER_REQUEST)
            return_event(event);
    }
    CHECK(offered == 2 && received == 1);
    for (int at = 0; at < CALLS; at++) {
        CHECK(requests[at]->len == 3 && memcmp(requests[at]->ptr, "key", 3) == 0);
        CHECK_STATUS(cci_messenger_reply(server.messenger, requests[at], "late", 4), CCI_ERR_DISCONNECTED);
        return_event(requests[at]);
    }
    CHECK_STATUS(cci_messenger_refuse(server.messenger, offer, 1), CCI_EINVAL);
    nothing_more(server.messenger);
    free(into);
}

/* The server is killed while it has an offer, and requests. */
static void server_dies(const char *transport)
{
    char uri[256], seen;
    pid_t child = start_victim(victim_serves, transport);
    start();
    open_survivor(&client, transport);
    CHECK(read(to_survivor[0], uri, sizeof uri) == sizeof uri);
    OK(cci_messenger_connect(client.messenger, uri, NULL, 0, CCI_CONN_ATTR_RU, NULL, NULL));
    cci_messenger_event_t *event = wait_event(client.messenger);
    CHECK(event->type == CCI_MESSENGER_CONNECT);
    OK(event->status);
    const cci_messenger_connection_t to = event->connection;
    return_event(event);
    unsigned char *bytes = contents(LONG_BYTES, 2);
    OK(cci_messenger_send(client.messenger, to, bytes, LONG_BYTES, (void *)9, CCI_FLAG_NO_COPY, NULL));
    for (uintptr_t at = 0; at < CALLS; at++)
        OK(cci_messenger_call(client.messenger, to, "key", 3, NULL, (void *)at, NULL));
    /* The server has all of it, once it says so. */
    struct pollfd wait[2] = {{to_survivor[0], POLLIN, 0}, {client.fd, POLLIN, 0}};
    for (long long until = now_ms() + PATIENCE_MS; !(wait[0].revents & POLLIN);) {
        CHECK(now_ms() < until);
        CHECK_STATUS(cci_messenger_get_event(client.messenger, &event), CCI_EAGAIN);
        poll(wait, 2, 1000);
    }
    CHECK(read(to_survivor[0], &seen, 1) == 1);
    kill_victim(child);
    int sent = 0, replied[CALLS] = {0}, replies = 0, is_given_up = 0;
    for (int is_over = 0; !is_over;) {
        event = wait_event(client.messenger);
        if (event->type == CCI_MESSENGER_SENT) {
            CHECK(!sent++ && event->context == (void *)9 && event->status != CCI_SUCCESS);
        } else if (event->type == CCI_MESSENGER_REPLY) {
            CHECK((uintptr_t)event->context < CALLS && !replied[(uintptr_t)event->context]++);
            CHECK(event->status != CCI_SUCCESS);
            replies++;
        } else if (event->type == CCI_MESSENGER_KEEPALIVE_TIMEDOUT) {
            CHECK(event->connection == to && !is_given_up++);
            OK(cci_messenger_disconnect(client.messenger, to));
        } else {
            CHECK(event->type == CCI_MESSENGER_DISCONNECTED && event->code != CCI_EXT_DISCONNECT_CLOSED);
            is_over = 1;
        }
        return_event(event);
        /* What the program itself ends has no event for its end. */
        is_over |= is_given_up && sent == 1 && replies == CALLS;
    }
    CHECK(sent == 1 && replies == CALLS);
    CHECK_STATUS(cci_messenger_send(client.messenger, to, "x", 1, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    nothing_more(client.messenger);
    free(bytes);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    client_dies(argv[1]);
    server_dies(argv[1]);
    puts("messenger_deaths: all well");
    return 0;
}
