/*
 * Groups between processes: two senders, three receivers of which two are processes of their own, two groups on one port;
 * and what is refused. Arguments: the transport, and "single" for the library without locks.
 */
#include "check.h"
#include <sys/wait.h>

#define MESSAGES 300
#define RECEIVERS 2

static uint32_t init_flags;
static const char *transport;
static char group_uri[2][64];

static cci_endpoint_t *open_endpoint(int *fd)
{
    cci_endpoint_t *endpoint = NULL;
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, fd));
    return endpoint;
}

static cci_connection_t *join(cci_endpoint_t *endpoint, int fd, int group, cci_conn_attribute_t attribute)
{
    OK(cci_connect(endpoint, group_uri[group], NULL, 0, attribute, (void *)42, 0, NULL));
    cci_event_t *event = expect_event(endpoint, fd, CCI_EVENT_CONNECT);
    OK(event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    CHECK(connection->attribute == attribute && connection->context == (void *)42);
    CHECK(connection->endpoint == endpoint && connection->max_send_size > 1000);
    OK(cci_return_event(event));
    return connection;
}

struct message {
    uint32_t sender, group, number;
};

/* Every message of both senders to group 0, each once; nothing of group 1. Asleep where there is none. */
static void receive_all(cci_endpoint_t *endpoint, int fd, cci_connection_t *from)
{
    uint32_t next[2] = {0, 0};
    while (next[0] < MESSAGES || next[1] < MESSAGES) {
        cci_event_t *event = expect_event(endpoint, fd, CCI_EVENT_RECV);
        struct message message;
        CHECK(event->recv.connection == from && event->recv.len == sizeof(message));
        memcpy(&message, event->recv.ptr, sizeof(message));
        CHECK(message.group == 0 && message.sender < 2);
        CHECK(message.number == next[message.sender]);
        next[message.sender]++;
        OK(cci_return_event(event));
    }
}

static void start(void)
{
    uint32_t caps;
    OK(cci_init(CCI_ABI_VERSION, init_flags, &caps));
}

static void receiver(int ready)
{
    int fd;
    start();
    cci_endpoint_t *endpoint = open_endpoint(&fd);
    cci_connection_t *from = join(endpoint, fd, 0, CCI_CONN_ATTR_UU_MC_RX);
    CHECK(write(ready, "r", 1) == 1);
    receive_all(endpoint, fd, from);
    CHECK_STATUS(cci_send(from, "x", 1, NULL, 0), CCI_EINVAL);
    OK(cci_disconnect(from));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

static void refusals(cci_endpoint_t *endpoint, cci_connection_t *to)
{
    const char *group = group_uri[0];
    CHECK_STATUS(cci_connect(endpoint, group, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "CCI_CONN_ATTR_UU_MC_TX"));
    CHECK_STATUS(cci_connect(endpoint, group, NULL, 0, CCI_CONN_ATTR_UU, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, group, "hello", 5, CCI_CONN_ATTR_UU_MC_TX, NULL, 0, NULL), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "nobody answers"));
    const char *one = "udp://127.0.0.1:4791";
    CHECK_STATUS(cci_connect(endpoint, one, NULL, 0, CCI_CONN_ATTR_UU_MC_RX, NULL, 0, NULL), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "no multicast group"));
    static char memory[64];
    cci_rma_handle_t *handle;
    OK(cci_rma_register(endpoint, memory, sizeof(memory), CCI_FLAG_WRITE, &handle));
    CHECK_STATUS(cci_rma(to, NULL, 0, handle, 0, handle, 32, 8, NULL, CCI_FLAG_WRITE), CCI_EINVAL);
    OK(cci_rma_deregister(endpoint, handle));
}

static void complete(cci_endpoint_t *endpoint, int fd, uintptr_t context)
{
    cci_event_t *event = expect_event(endpoint, fd, CCI_EVENT_SEND);
    OK(event->send.status);
    CHECK(event->send.context == (void *)context);
    OK(cci_return_event(event));
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    transport = argv[1];
    if (argc > 2 && strcmp(argv[2], "single") == 0)
        init_flags = CCI_INIT_SINGLE_THREADED;
    for (int group = 0; group < 2; group++)
        snprintf(group_uri[group], sizeof(group_uri[group]), "udp://239.%d.%d.%d:47710", 100 + group,
                 (getpid() >> 8) & 255, getpid() & 255);
    int ready[2];
    pid_t children[RECEIVERS];
    CHECK(pipe(ready) == 0);
    for (int at = 0; at < RECEIVERS; at++) {
        children[at] = fork();
        CHECK(children[at] >= 0);
        if (children[at] == 0) {
            receiver(ready[1]);
            _exit(0);
        }
    }
    start();
    int fd[2], own_fd;
    cci_endpoint_t *senders[2] = {open_endpoint(&fd[0]), open_endpoint(&fd[1])};
    cci_endpoint_t *own = open_endpoint(&own_fd);
    cci_connection_t *from = join(own, own_fd, 0, CCI_CONN_ATTR_UU_MC_RX);
    cci_connection_t *to[2][2];
    for (int sender = 0; sender < 2; sender++)
        for (int group = 0; group < 2; group++)
            to[sender][group] = join(senders[sender], fd[sender], group, CCI_CONN_ATTR_UU_MC_TX);
    /* A sender that listens, too, does not hear itself. */
    cci_connection_t *deaf = join(senders[0], fd[0], 1, CCI_CONN_ATTR_UU_MC_RX);
    refusals(senders[0], to[0][0]);
    char byte;
    for (int at = 0; at < RECEIVERS; at++)
        CHECK(read(ready[0], &byte, 1) == 1);

    for (uint32_t number = 0; number < MESSAGES; number++)
        for (uint32_t sender = 0; sender < 2; sender++) {
            struct message message = {sender, 1, number};
            if (sender == 0)
                OK(cci_send(to[0][1], &message, sizeof(message), NULL, CCI_FLAG_SILENT));
            message.group = 0;
            if (number % 2)
                OK(cci_send(to[sender][0], &message, sizeof(message), NULL, CCI_FLAG_BLOCKING));
            else {
                OK(cci_send(to[sender][0], &message, sizeof(message), (void *)(uintptr_t)(number + 1), 0));
                complete(senders[sender], fd[sender], number + 1);
            }
        }
    receive_all(own, own_fd, from);
    for (int at = 0; at < RECEIVERS; at++) {
        int status;
        CHECK(waitpid(children[at], &status, 0) == children[at]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cci_event_t *event;
    CHECK_STATUS(cci_get_event(senders[0], &event), CCI_EAGAIN);
    OK(cci_disconnect(deaf));
    OK(cci_disconnect(from));
    for (int sender = 0; sender < 2; sender++) {
        OK(cci_disconnect(to[sender][0]));
        OK(cci_destroy_endpoint(senders[sender]));
    }
    OK(cci_destroy_endpoint(own));
    OK(cci_finalize());
    puts("multicast: all well");
    return 0;
}
