/* What the C tests of messengers share: two messengers of one program, driven by turns. */
#ifndef MESSENGER_H
#define MESSENGER_H

#include "cci_messenger.h"
#include "check.h"

/* A messenger, its descriptor, and its end of the connection. */
struct side {
    cci_messenger_t *messenger;
    int fd;
    cci_messenger_connection_t peer;
};

static struct side client, server;

static inline const char *type_name(int type)
{
    static const char *const names[] = {"none",    "sent",  "message", "offer",           "received", "request",   "request cancelled",
                                        "reply",   "connect", "connect request", "accept",   "keepalive", "disconnected",
                                        "device failed"};
    return type >= 0 && type < (int)(sizeof names / sizeof *names) ? names[type] : "unknown";
}

/* The next event of one side, while the other makes progress and has no event. */
static inline cci_messenger_event_t *next_of(struct side *side)
{
    struct side *other = side == &client ? &server : &client;
    long long until = now_ms() + PATIENCE_MS;
    for (;;) {
        cci_messenger_event_t *event;
        int status = cci_messenger_get_event(side->messenger, &event);
        if (status == CCI_SUCCESS)
            return event;
        CHECK(event == NULL && status == CCI_EAGAIN);
        if (other->messenger) {
            status = cci_messenger_get_event(other->messenger, &event);
            if (status == CCI_SUCCESS) {
                fprintf(stderr, "unexpected event: %s\n", type_name(event->type));
                abort();
            }
        }
        CHECK(now_ms() < until);
    }
}

/* The next event of one side, which must be of a type. */
static inline cci_messenger_event_t *expect(struct side *side, cci_messenger_event_type_t type)
{
    cci_messenger_event_t *event = next_of(side);
    if (event->type != type) {
        fprintf(stderr, "got %s instead of %s\n", type_name(event->type), type_name(type));
        abort();
    }
    return event;
}

/* Lets both sides work for a while, in which nothing happens that a program would learn of. */
static inline void idle(void)
{
    cci_messenger_event_t *event;
    for (int turn = 0; turn < 2000; turn++) {
        CHECK_STATUS(cci_messenger_get_event(client.messenger, &event), CCI_EAGAIN);
        CHECK_STATUS(cci_messenger_get_event(server.messenger, &event), CCI_EAGAIN);
    }
}

static inline void return_event(cci_messenger_event_t *event)
{
    OK(cci_messenger_return_event(event));
}

/* The end of a send, with a context. */
static inline void expect_sent(struct side *side, void *context, int status)
{
    cci_messenger_event_t *event = expect(side, CCI_MESSENGER_SENT);
    CHECK_STATUS(event->status, status);
    CHECK(event->context == context && event->connection == side->peer);
    return_event(event);
}

static inline void open_side_with(struct side *side, const char *transport, const cci_endpoint_options_t *options,
                                  const cci_messenger_limits_t *limits)
{
    OK(cci_messenger_open(device_of(transport), NULL, options, limits, &side->messenger, &side->fd));
    CHECK(side->fd >= 0);
}

static inline void open_side(struct side *side, const char *transport, const cci_messenger_limits_t *limits)
{
    open_side_with(side, transport, NULL, limits);
}

/* Opens both sides, and connects them. The limits are the server's. */
static inline void open_pair(const char *transport, cci_conn_attribute_t attribute, const cci_messenger_limits_t *limits)
{
    open_side(&server, transport, limits);
    open_side(&client, transport, NULL);
    char *uri = NULL;
    OK(cci_messenger_uri(server.messenger, &uri));
    OK(cci_messenger_connect(client.messenger, uri, "hello", 5, attribute, (void *)1, NULL));
    free(uri);
    client.peer = server.peer = 0;
    long long until = now_ms() + PATIENCE_MS;
    while (!client.peer || !server.peer) {
        cci_messenger_event_t *event;
        if (cci_messenger_get_event(client.messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_CONNECT && event->context == (void *)1);
            OK(event->status);
            client.peer = event->connection;
            return_event(event);
        }
        if (cci_messenger_get_event(server.messenger, &event) == CCI_SUCCESS) {
            if (event->type == CCI_MESSENGER_CONNECT_REQUEST) {
                CHECK(event->len == 5 && memcmp(event->ptr, "hello", 5) == 0 && event->code == attribute);
                OK(cci_messenger_accept(server.messenger, event, (void *)2));
                CHECK_STATUS(cci_messenger_accept(server.messenger, event, (void *)2), CCI_EINVAL);
                CHECK_STATUS(cci_messenger_reject(server.messenger, event), CCI_EINVAL);
            } else {
                CHECK(event->type == CCI_MESSENGER_ACCEPT && event->context == (void *)2);
                OK(event->status);
                server.peer = event->connection;
            }
            return_event(event);
        }
        CHECK(now_ms() < until);
    }
}

static inline void close_pair(void)
{
    OK(cci_messenger_close(client.messenger));
    OK(cci_messenger_close(server.messenger));
    client.messenger = server.messenger = NULL;
}

/* Bytes that are different at every place and for every seed. */
static inline unsigned char *contents(size_t len, unsigned seed)
{
    unsigned char *bytes = malloc(len + 1);
    CHECK(bytes);
    for (size_t at = 0; at < len; at++)
        bytes[at] = (unsigned char)(at * 31 + at / 977 + seed * 101);
    return bytes;
}

static inline int is_contents(const void *bytes, size_t len, unsigned seed)
{
    unsigned char *expected = contents(len, seed);
    int is_same = len == 0 || memcmp(bytes, expected, len) == 0;
    free(expected);
    return is_same;
}

/* Initialises, runs the cases and says so. */
#define CASES(name, ...)                                                                                               \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        void (*const cases[])(const char *) = {__VA_ARGS__};                                                           \
        uint32_t caps;                                                                                                 \
        CHECK(argc > 1);                                                                                               \
        OK(cci_init(CCI_ABI_VERSION, argc > 2 ? CCI_INIT_SINGLE_THREADED : 0, &caps));                                 \
        for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)                                                   \
            cases[at](argv[1]);                                                                                        \
        OK(cci_finalize());                                                                                            \
        puts(name ": all well");                                                                                       \
        return 0;                                                                                                      \
    }

#endif
