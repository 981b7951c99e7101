/* What the C tests share: plain checks, and waiting for events with poll(). */
#ifndef CHECK_H
#define CHECK_H

#include "cci.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Nothing takes as long, not even on a busy machine; a test that waits longer has failed. */
#define PATIENCE_MS 60000

/* A process that a failed test leaves behind ends after so many seconds. */
#define LIFE_MAX_S 600

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, cci_last_error());         \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

#define CHECK_STATUS(call, expected)                                                                                  \
    do {                                                                                                              \
        int status_ = (call);                                                                                         \
        if (status_ != (int)(expected)) {                                                                             \
            const char *words_ = cci_strerror(NULL, (enum cci_status)status_);                                        \
            fprintf(stderr, "%s:%d: %s gave %d (%s), not %s; last error: %s\n", __FILE__, __LINE__, #call, status_,   \
                    words_ ? words_ : "?", #expected, cci_last_error());                                              \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

#define OK(call) CHECK_STATUS(call, CCI_SUCCESS)

static inline long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The device that a transport drives. */
static inline cci_device_t *device_of(const char *transport)
{
    cci_device_t *const *devices;
    OK(cci_get_devices(&devices));
    for (; *devices; devices++)
        if (strcmp((*devices)->transport, transport) == 0)
            return *devices;
    fprintf(stderr, "no device of transport %s\n", transport);
    abort();
}

static inline char *uri_of(cci_endpoint_t *endpoint)
{
    char *uri = NULL;
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    CHECK(uri && strstr(uri, "://"));
    return uri;
}

/* The next event; sleeps on the descriptor where there is none. */
static inline cci_event_t *next_event(cci_endpoint_t *endpoint, int fd)
{
    long long until = now_ms() + PATIENCE_MS;
    for (;;) {
        cci_event_t *event = NULL;
        int status = cci_get_event(endpoint, &event);
        if (status == CCI_SUCCESS)
            return event;
        CHECK(status == CCI_EAGAIN || status == CCI_ENOBUFS);
        CHECK(event == NULL);
        struct pollfd wait = {fd, POLLIN, 0};
        CHECK(now_ms() < until);
        poll(&wait, 1, 1000);
    }
}

/* The next event, which must be of a type. */
static inline cci_event_t *expect_event(cci_endpoint_t *endpoint, int fd, cci_event_type_t type)
{
    cci_event_t *event = next_event(endpoint, fd);
    if (event->type != type) {
        fprintf(stderr, "got %s instead of %s\n", cci_event_type_str(event->type), cci_event_type_str(type));
        abort();
    }
    return event;
}

/* Two endpoints of one program, driven by turns: gives the next event of either. */
static inline cci_event_t *next_of_two(cci_endpoint_t *one, cci_endpoint_t *other)
{
    long long until = now_ms() + PATIENCE_MS;
    for (;;) {
        cci_event_t *event;
        if (cci_get_event(one, &event) == CCI_SUCCESS || cci_get_event(other, &event) == CCI_SUCCESS)
            return event;
        CHECK(now_ms() < until);
    }
}

/* The next event of endpoint, which must be of a type, while other makes progress and has no event. */
static inline cci_event_t *expect_while(cci_endpoint_t *endpoint, cci_endpoint_t *other, cci_event_type_t type)
{
    long long until = now_ms() + PATIENCE_MS;
    for (;;) {
        cci_event_t *event;
        if (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
            if (event->type != type) {
                fprintf(stderr, "got %s instead of %s\n", cci_event_type_str(event->type), cci_event_type_str(type));
                abort();
            }
            return event;
        }
        CHECK(cci_get_event(other, &event) != CCI_SUCCESS);
        CHECK(now_ms() < until);
    }
}

/* Connects two endpoints of one program. */
static inline void connect_pair(cci_endpoint_t *client, cci_endpoint_t *server, cci_conn_attribute_t attribute,
                                cci_connection_t **to_server, cci_connection_t **to_client)
{
    char *uri = uri_of(server);
    OK(cci_connect(client, uri, NULL, 0, attribute, (void *)0x11, 0, NULL));
    free(uri);
    *to_server = *to_client = NULL;
    while (!*to_server || !*to_client) {
        cci_event_t *event = next_of_two(client, server);
        if (event->type == CCI_EVENT_CONNECT_REQUEST) {
            OK(cci_accept(event, (void *)0x22));
        } else if (event->type == CCI_EVENT_CONNECT) {
            OK(event->connect.status);
            CHECK(event->connect.context == (void *)0x11);
            *to_server = event->connect.connection;
        } else {
            CHECK(event->type == CCI_EVENT_ACCEPT);
            OK(event->accept.status);
            CHECK(event->accept.context == (void *)0x22);
            *to_client = event->accept.connection;
        }
        OK(cci_return_event(event));
    }
    CHECK((*to_server)->endpoint == client && (*to_server)->attribute == attribute);
    CHECK((*to_client)->endpoint == server && (*to_client)->attribute == attribute);
    CHECK((*to_server)->context == (void *)0x11 && (*to_client)->context == (void *)0x22);
    CHECK((*to_server)->max_send_size == (*to_client)->max_send_size);
}

#endif
