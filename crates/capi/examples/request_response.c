/*
 * Requests and responses in programs that have an event loop of their own: the endpoint's descriptor is one among
 * others in epoll.
 *
 *   request_response             the server: prints its URI; ends with its standard input
 *   request_response URI [N]     the client: keeps a few of N requests under way and matches the responses
 *
 * A request is a number; the response is the number and its square.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define UNDER_WAY 8

struct message {
    uint32_t id;
    uint32_t reserved;
    uint64_t value;
};

static cci_endpoint_t *endpoint;

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

/* Opens the endpoint and an epoll set that watches it, and another descriptor if there is one. */
static int open_loop(int other_fd)
{
    uint32_t caps;
    int fd, loop = epoll_create1(EPOLL_CLOEXEC);
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(NULL, 0, &endpoint, &fd));
    struct epoll_event watch = {.events = EPOLLIN, .data = {.fd = fd}};
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, fd, &watch) != 0) {
        perror("epoll");
        exit(1);
    }
    if (other_fd >= 0) {
        watch.data.fd = other_fd;
        /* Fails for a plain file, which never blocks: then only the endpoint is watched. */
        (void)epoll_ctl(loop, EPOLL_CTL_ADD, other_fd, &watch);
    }
    return loop;
}

/* ------------------------------------------------------------------------------------------------ the server --- */

static void answer(cci_event_recv_t *received)
{
    struct message message;
    if (received->len != sizeof(message))
        return; /* Not one of our clients. */
    memcpy(&message, received->ptr, sizeof(message));
    message.value *= message.value;
    int status = cci_send(received->connection, &message, sizeof(message), NULL, CCI_FLAG_SILENT);
    if (status == CCI_ERR_DISCONNECTED)
        cci_disconnect(received->connection);
}

static void serve_what_is_there(void)
{
    cci_event_t *event;
    while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
        if (event->type == CCI_EVENT_CONNECT_REQUEST)
            cci_accept(event, NULL);
        else if (event->type == CCI_EVENT_RECV)
            answer(&event->recv);
        cci_return_event(event);
    }
}

static void serve(void)
{
    int loop = open_loop(STDIN_FILENO);
    char *uri, input[256];
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    free(uri);
    for (;;) {
        struct epoll_event ready;
        serve_what_is_there();
        /* Nothing is there now. The descriptor is level-triggered, so nothing can be missed from here on. */
        if (epoll_wait(loop, &ready, 1, -1) == 1 && ready.data.fd == STDIN_FILENO)
            if (read(STDIN_FILENO, input, sizeof(input)) <= 0)
                return;
    }
}

/* ------------------------------------------------------------------------------------------------ the client --- */

static cci_connection_t *connection;
static uint32_t asked, answered;

static void take_what_is_there(void)
{
    cci_event_t *event;
    while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
        if (event->type == CCI_EVENT_CONNECT) {
            must("connecting", event->connect.status);
            connection = event->connect.connection;
        } else if (event->type == CCI_EVENT_SEND) {
            must("a request", event->send.status);
        } else if (event->type == CCI_EVENT_RECV) {
            struct message message;
            memcpy(&message, event->recv.ptr, sizeof(message));
            if (message.value != (uint64_t)message.id * message.id) {
                fprintf(stderr, "wrong response to %u\n", message.id);
                exit(1);
            }
            answered++;
        }
        cci_return_event(event);
    }
}

static void ask(const char *uri, uint32_t count)
{
    int loop = open_loop(-1);
    struct timeval timeout = {10, 0};
    must("cci_connect", cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
    while (answered < count) {
        struct epoll_event ready;
        take_what_is_there();
        while (connection && asked < count && asked - answered < UNDER_WAY) {
            struct message message = {asked, 0, asked};
            must("cci_send", cci_send(connection, &message, sizeof(message), NULL, 0));
            asked++;
        }
        if (answered < count && epoll_wait(loop, &ready, 1, 10000) == 0) {
            fprintf(stderr, "no response within 10 s\n");
            exit(1);
        }
    }
    printf("%u requests answered\n", answered);
    cci_disconnect(connection);
    close(loop);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        ask(argv[1], argc > 2 ? (uint32_t)atoi(argv[2]) : 1000);
    else
        serve();
    cci_destroy_endpoint(endpoint);
    return cci_finalize() == CCI_SUCCESS ? 0 : 1;
}
