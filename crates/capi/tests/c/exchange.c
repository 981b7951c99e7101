/*
 * Two processes: the server echoes, asleep in epoll; the client tries every kind of send. Arguments: the transport, and
 * "single" for the library without locks.
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/wait.h>

#define ROUNDS 500

static uint32_t init_flags;

static void pattern(unsigned char *into, uint32_t len, uint32_t seed)
{
    for (uint32_t at = 0; at < len; at++)
        into[at] = (unsigned char)(seed * 31 + at * 7);
}

/* ------------------------------------------------------------------------------------------ the server --- */

static void serve(const char *transport, int uri_pipe)
{
    uint32_t caps;
    int fd, connections = 0, closed = 0;
    cci_endpoint_t *endpoint;
    OK(cci_init(CCI_ABI_VERSION, init_flags, &caps));
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, &fd));
    char *uri = uri_of(endpoint);
    CHECK(write(uri_pipe, uri, strlen(uri) + 1) == (ssize_t)strlen(uri) + 1);
    free(uri);

    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event watch = {.events = EPOLLIN, .data = {.fd = fd}};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &watch) == 0);
    while (!closed || connections < 3) {
        cci_event_t *event;
        int status = cci_get_event(endpoint, &event);
        if (status != CCI_SUCCESS) {
            CHECK_STATUS(status, CCI_EAGAIN);
            CHECK(epoll_wait(set, &watch, 1, PATIENCE_MS) == 1);
            continue;
        }
        switch (event->type) {
        case CCI_EVENT_CONNECT_REQUEST:
            CHECK(event->request.data_len == 5 && memcmp(event->request.data_ptr, "hello", 5) == 0);
            OK(cci_accept(event, NULL));
            break;
        case CCI_EVENT_ACCEPT:
            OK(event->accept.status);
            connections++;
            break;
        case CCI_EVENT_RECV:
            if (event->recv.len == 3 && memcmp(event->recv.ptr, "bye", 3) == 0) {
                closed = 1;
                break;
            }
            /* Straight from the receive buffer. */
            OK(cci_send(event->recv.connection, event->recv.ptr, event->recv.len, NULL, CCI_FLAG_SILENT));
            break;
        default:
            CHECK(!"an event that the server expects");
        }
        OK(cci_return_event(event));
    }
    close(set);
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

/* ------------------------------------------------------------------------------------------ the client --- */

static cci_endpoint_t *endpoint;
static int endpoint_fd;
static unsigned char sent[16384];

static cci_connection_t *connect_to(const char *uri, cci_conn_attribute_t attribute)
{
    OK(cci_connect(endpoint, uri, "hello", 5, attribute, (void *)42, 0, NULL));
    cci_event_t *event = expect_event(endpoint, endpoint_fd, CCI_EVENT_CONNECT);
    OK(event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    CHECK(connection->context == (void *)42 && connection->max_send_size <= sizeof(sent));
    OK(cci_return_event(event));
    return connection;
}

/* The echo of what is in `sent`, and the completion with the context, in either order. */
static void expect_echo(cci_connection_t *connection, uint32_t len, uintptr_t context)
{
    int echoed = 0, completed = context == 0;
    while (!echoed || !completed) {
        cci_event_t *event = next_event(endpoint, endpoint_fd);
        if (event->type == CCI_EVENT_SEND) {
            OK(event->send.status);
            CHECK(!completed && event->send.context == (void *)context && event->send.connection == connection);
            completed = 1;
        } else {
            CHECK(event->type == CCI_EVENT_RECV && !echoed);
            CHECK(event->recv.connection == connection && event->recv.len == len);
            CHECK(memcmp(event->recv.ptr, sent, len) == 0);
            echoed = 1;
        }
        OK(cci_return_event(event));
    }
}

static void plain(cci_connection_t *connection)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t len = round < 20 ? round : (round * 97) % (connection->max_send_size + 1);
        pattern(sent, len, round);
        OK(cci_send(connection, len ? sent : NULL, len, (void *)(uintptr_t)(round + 1), 0));
        expect_echo(connection, len, round + 1);
    }
    uint32_t most = connection->max_send_size;
    pattern(sent, most, 1);
    OK(cci_send(connection, sent, most, (void *)1, 0));
    expect_echo(connection, most, 1);
    CHECK_STATUS(cci_send(connection, sent, most + 1, NULL, 0), CCI_EMSGSIZE);
    CHECK(strstr(cci_last_error(), "takes"));
    CHECK_STATUS(cci_send(connection, NULL, 1, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_send(connection, sent, 1, NULL, 1 << 20), CCI_EINVAL);
}

/* Straight from a send to sleep on the descriptor, without asking for events in between: it must wake all the same. */
static void sleeping_first(cci_connection_t *connection)
{
    pattern(sent, 64, 5);
    for (uint32_t round = 1; round <= 200; round++) {
        int echoed = 0, completed = 0;
        OK(cci_send(connection, sent, 64, (void *)(uintptr_t)round, 0));
        while (!echoed || !completed) {
            struct pollfd wait = {endpoint_fd, POLLIN, 0};
            CHECK(poll(&wait, 1, PATIENCE_MS) == 1);
            cci_event_t *event;
            while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
                echoed += event->type == CCI_EVENT_RECV;
                completed += event->type == CCI_EVENT_SEND;
                OK(cci_return_event(event));
                /* Level-triggered: it stays readable until the program has seen that nothing is left. */
                CHECK(poll(&wait, 1, 0) == 1);
            }
        }
        CHECK(echoed == 1 && completed == 1);
    }
}

static void flags(cci_connection_t *connection)
{
    pattern(sent, 100, 3);
    OK(cci_send(connection, sent, 100, (void *)5, CCI_FLAG_SILENT));
    expect_echo(connection, 100, 0);
    OK(cci_send(connection, sent, 100, (void *)6, CCI_FLAG_NO_COPY));
    expect_echo(connection, 100, 6);
    int both = CCI_FLAG_SILENT | CCI_FLAG_NO_COPY;
    if (connection->attribute == CCI_CONN_ATTR_RO) {
        OK(cci_send(connection, sent, 100, (void *)7, both));
        expect_echo(connection, 100, 0);
    } else {
        CHECK_STATUS(cci_send(connection, sent, 100, (void *)7, both), CCI_EINVAL);
    }
    for (int round = 0; round < 50; round++) {
        OK(cci_send(connection, sent, 100, (void *)8, CCI_FLAG_BLOCKING));
        expect_echo(connection, 100, 0);
    }
}

static void gathered(cci_connection_t *connection)
{
    pattern(sent, 2000, 9);
    struct iovec segments[40];
    for (int at = 0; at < 40; at++) {
        segments[at].iov_base = sent + at * 50;
        segments[at].iov_len = 50;
    }
    static const uint32_t counts[] = {1, 2, 3, 16, 17, 40};
    uint32_t limit = connection->max_send_size / 50;
    for (unsigned at = 0; at < sizeof(counts) / sizeof(counts[0]); at++) {
        uint32_t count = counts[at] < limit ? counts[at] : limit;
        OK(cci_sendv(connection, segments, count, (void *)1, 0));
        expect_echo(connection, count * 50, 1);
    }
    OK(cci_sendv(connection, NULL, 0, (void *)1, 0));
    expect_echo(connection, 0, 1);
    CHECK_STATUS(cci_sendv(connection, NULL, 1, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_sendv(connection, segments, 1025, NULL, 0), CCI_EINVAL);
    segments[1].iov_len = (size_t)-1;
    CHECK_STATUS(cci_sendv(connection, segments, 2, NULL, 0), CCI_EMSGSIZE);
    segments[1].iov_len = 50;
    segments[1].iov_base = NULL;
    CHECK_STATUS(cci_sendv(connection, segments, 2, NULL, 0), CCI_EINVAL);

    OK(cci_send2(connection, sent, 16, sent + 16, 84, (void *)2, 0));
    expect_echo(connection, 100, 2);
    OK(cci_send2(connection, sent, 16, NULL, 0, (void *)3, CCI_FLAG_BLOCKING));
    expect_echo(connection, 16, 0);
    CHECK_STATUS(cci_send2(connection, sent, connection->max_send_size, sent, 1, NULL, 0), CCI_EMSGSIZE);
}

static void connection_options(cci_connection_t *connection)
{
    uint32_t value = 7654000;
    OK(cci_set_opt(connection, CCI_OPT_CONN_SEND_TIMEOUT, &value));
    value = 0;
    OK(cci_get_opt(connection, CCI_OPT_CONN_SEND_TIMEOUT, &value));
    CHECK(value == 7654000);
    value = 60000000;
    OK(cci_set_opt(connection, CCI_OPT_CONN_KEEPALIVE_TIMEOUT, &value));
    value = 0;
    OK(cci_get_opt(connection, CCI_OPT_CONN_KEEPALIVE_TIMEOUT, &value));
    CHECK(value == 60000000);
    value = 0;
    CHECK_STATUS(cci_set_opt(connection, CCI_OPT_CONN_SEND_TIMEOUT, &value), CCI_ERANGE);
    OK(cci_set_opt(connection, CCI_OPT_CONN_KEEPALIVE_TIMEOUT, &value));

    char *text = NULL;
    OK(cci_explain(connection, &text));
    CHECK(strstr(text, connection->endpoint->device->transport));
    free(text);
    OK(cci_get_counters(NULL, connection, &text));
    CHECK(text[0] == '{' && strstr(text, "\"messages_sent\":"));
    free(text);
    OK(cci_get_counters(endpoint, NULL, &text));
    CHECK(text[0] == '{' && strstr(text, "\"memory_total_bytes\":") && strstr(text, "\"drops\":{"));
    free(text);
}

static void be_client(const char *transport, const char *uri)
{
    uint32_t caps;
    cci_connection_t *connections[3];
    OK(cci_init(CCI_ABI_VERSION, init_flags, &caps));
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, &endpoint_fd));
    for (int attribute = CCI_CONN_ATTR_RO; attribute <= CCI_CONN_ATTR_UU; attribute++) {
        connections[attribute] = connect_to(uri, (cci_conn_attribute_t)attribute);
        plain(connections[attribute]);
        sleeping_first(connections[attribute]);
        flags(connections[attribute]);
        gathered(connections[attribute]);
    }
    connection_options(connections[CCI_CONN_ATTR_RO]);
    OK(cci_disconnect(connections[CCI_CONN_ATTR_UU]));
    OK(cci_disconnect(connections[CCI_CONN_ATTR_RU]));
    /* The server ends once it has this: every send afterwards fails, and each is reported once. */
    cci_connection_t *last = connections[CCI_CONN_ATTR_RO];
    OK(cci_send(last, "bye", 3, NULL, CCI_FLAG_BLOCKING));
    uint32_t started = 0, ended = 0, failed = 0;
    long long until = now_ms() + PATIENCE_MS;
    for (;;) {
        int status = cci_send(last, "still there?", 12, NULL, 0);
        if (status == CCI_ERR_DISCONNECTED)
            break;
        CHECK(status == CCI_SUCCESS || status == CCI_ENOBUFS);
        started += status == CCI_SUCCESS;
        cci_event_t *event;
        while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
            if (event->type == CCI_EVENT_SEND) {
                ended++;
                failed += event->send.status != CCI_SUCCESS;
            }
            OK(cci_return_event(event));
        }
        CHECK(now_ms() < until);
    }
    while (ended < started) {
        cci_event_t *event = next_event(endpoint, endpoint_fd);
        if (event->type == CCI_EVENT_SEND) {
            ended++;
            failed += event->send.status != CCI_SUCCESS;
            CHECK(event->send.connection == last);
        }
        OK(cci_return_event(event));
    }
    CHECK(failed <= ended);
    OK(cci_disconnect(last));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

int main(int argc, char **argv)
{
    int uri_pipe[2], status;
    char uri[256] = "";
    CHECK(argc >= 2 && pipe(uri_pipe) == 0);
    init_flags = argc > 2 ? CCI_INIT_SINGLE_THREADED : 0;
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        alarm(LIFE_MAX_S);
        serve(argv[1], uri_pipe[1]);
        _exit(0);
    }
    CHECK(read(uri_pipe[0], uri, sizeof(uri) - 1) > 0);
    be_client(argv[1], uri);
    CHECK(waitpid(server, &status, 0) == server);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("exchange: all well\n");
    return 0;
}
