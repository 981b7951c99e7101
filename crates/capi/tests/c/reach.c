/* An endpoint on the device NULL: which sockets it has before and after it connects to each URI. */
#include "check.h"
#include <netinet/in.h>
#include <sys/socket.h>

struct sockets {
    int udp, streams, listeners, packets;
    unsigned port;
};

/* The network sockets of this process. */
static struct sockets sockets_now(void)
{
    struct sockets found = {0, 0, 0, 0, 0};
    for (int fd = 0; fd < 1024; fd++) {
        int family = 0, type = 0, listens = 0;
        socklen_t length = sizeof family;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family == AF_UNIX)
            continue;
        length = sizeof type;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0);
        if (family != AF_INET && family != AF_INET6) {
            found.packets += family == AF_PACKET || family == AF_XDP;
            continue;
        }
        if (type == SOCK_DGRAM) {
            struct sockaddr_in at;
            length = sizeof at;
            CHECK(getsockname(fd, (struct sockaddr *)&at, &length) == 0);
            found.port = ntohs(at.sin_port);
            found.udp++;
            continue;
        }
        length = sizeof listens;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0);
        found.listeners += listens != 0;
        found.streams += listens == 0;
    }
    return found;
}

static cci_event_t *wait_for(cci_endpoint_t *endpoint, cci_event_type_t type)
{
    struct timeval patience = {20, 0};
    for (;;) {
        cci_event_t *event;
        OK(cci_wait_event(endpoint, &patience, &event));
        CHECK(event->type != CCI_EVENT_CONNECT_REQUEST);
        if (event->type == type)
            return event;
        OK(cci_return_event(event));
    }
}

static cci_connection_t *connect_to(cci_endpoint_t *endpoint, const char *uri)
{
    OK(cci_connect(endpoint, uri, "hello", 5, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    cci_event_t *event = wait_for(endpoint, CCI_EVENT_CONNECT);
    CHECK_STATUS(event->connect.status, CCI_SUCCESS);
    cci_connection_t *connection = event->connect.connection;
    OK(cci_return_event(event));
    return connection;
}

static void ping(cci_endpoint_t *endpoint, cci_connection_t *connection)
{
    OK(cci_send(connection, "ping", 4, NULL, CCI_FLAG_SILENT));
    cci_event_t *event = wait_for(endpoint, CCI_EVENT_RECV);
    CHECK(event->recv.connection == connection);
    CHECK(event->recv.len == 4 && memcmp(event->recv.ptr, "pong", 4) == 0);
    OK(cci_return_event(event));
}

/* Says its port, and polls until its standard input ends. */
static int stay(cci_endpoint_t *endpoint, const char *uri)
{
    cci_connection_t *connection = connect_to(endpoint, uri);
    printf("%u\n", sockets_now().port);
    fflush(stdout);
    struct pollfd input = {0, POLLIN, 0};
    while (poll(&input, 1, 1) == 0) {
        cci_event_t *event = NULL;
        if (cci_get_event(endpoint, &event) != CCI_SUCCESS)
            continue;
        CHECK(event->type != CCI_EVENT_CONNECT_REQUEST);
        OK(cci_return_event(event));
    }
    OK(cci_disconnect(connection));
    OK(cci_destroy_endpoint(endpoint));
    return cci_finalize() == CCI_SUCCESS ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_t *endpoint;
    CHECK(argc >= 3);
    OK(cci_init(CCI_ABI_VERSION, strcmp(argv[1], "single") == 0 ? CCI_INIT_SINGLE_THREADED : 0, &caps));
    cci_endpoint_options_t options = {.size = sizeof options, .progress_thread = strcmp(argv[1], "thread") == 0};
    OK(cci_create_endpoint_with(NULL, NULL, &options, 0, &endpoint, NULL));
    char *uri = uri_of(endpoint);
    CHECK(strncmp(uri, "shm://", 6) == 0);
    free(uri);
    struct sockets now = sockets_now();
    CHECK(now.udp == 0 && now.streams == 0 && now.listeners == 0 && now.packets == 0);
    if (strcmp(argv[1], "stay") == 0)
        return stay(endpoint, argv[2]);

    cci_connection_t *connections[8];
    CHECK(argc <= 10);
    for (int at = 2; at < argc; at++) {
        struct sockets before = sockets_now();
        connections[at - 2] = connect_to(endpoint, argv[at]);
        now = sockets_now();
        CHECK(now.listeners == 0 && now.packets == 0);
        if (strncmp(argv[at], "udp://", 6) == 0)
            CHECK(now.udp > before.udp && now.streams == before.streams);
        else if (strncmp(argv[at], "tcp://", 6) == 0)
            CHECK(now.udp == before.udp && now.streams > before.streams);
        else
            CHECK(now.udp == before.udp && now.streams == before.streams);
    }
    /* Each carries messages, whichever were opened after it. */
    for (int round = 0; round < 3; round++)
        for (int at = 2; at < argc; at++)
            ping(endpoint, connections[at - 2]);
    /* What leads nowhere is refused with the reason, and nothing is opened. */
    CHECK_STATUS(cci_connect(endpoint, "http://127.0.0.1:9", NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, "udp://localhost:9", NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "cci_resolve"));

    char *resolved = NULL;
    OK(cci_resolve("udp://localhost:7811", &resolved));
    CHECK(strcmp(resolved, "udp://127.0.0.1:7811") == 0 || strcmp(resolved, "udp://[::1]:7811") == 0);
    free(resolved);
    OK(cci_resolve("shm://bench", &resolved));
    CHECK(strcmp(resolved, "shm://bench") == 0);
    free(resolved);
    CHECK_STATUS(cci_resolve("udp://no-such-host.invalid:1", &resolved), CCI_ERR_NOT_FOUND);
    CHECK(resolved == NULL && strstr(cci_last_error(), "no-such-host.invalid"));
    CHECK_STATUS(cci_resolve("localhost:1", &resolved), CCI_EINVAL);
    CHECK_STATUS(cci_resolve(NULL, &resolved), CCI_EINVAL);
    CHECK_STATUS(cci_resolve("shm://bench", NULL), CCI_EINVAL);

    for (int at = 2; at < argc; at++)
        OK(cci_disconnect(connections[at - 2]));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
    printf("reach: all well\n");
    return 0;
}
