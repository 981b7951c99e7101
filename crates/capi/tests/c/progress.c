/*
 * A program that computes and calls nothing: with a progress thread its peers' RMA is served meanwhile. Argument: the
 * transport.
 */
#include "check.h"
#include <sys/wait.h>

#define LENGTH 100000
#define COMPUTES_MS 1500

static cci_endpoint_t *open_endpoint(const char *transport, uint32_t progress_thread)
{
    cci_endpoint_t *endpoint;
    cci_endpoint_options_t options = {.size = sizeof(options), .progress_thread = progress_thread};
    OK(cci_create_endpoint_with(device_of(transport), NULL, &options, 0, &endpoint, NULL));
    return endpoint;
}

static cci_event_t *wait_for(cci_endpoint_t *endpoint, cci_event_type_t type)
{
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    cci_event_t *event;
    OK(cci_wait_event(endpoint, &patience, &event));
    CHECK(event->type == type);
    return event;
}

static void serve(const char *transport, int uri_pipe)
{
    uint32_t caps;
    static unsigned char memory[LENGTH];
    cci_rma_handle_t *handle;
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    cci_endpoint_t *endpoint = open_endpoint(transport, 1);
    OK(cci_rma_register(endpoint, memory, LENGTH, CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_ATOMIC, &handle));
    char *uri = uri_of(endpoint);
    CHECK(write(uri_pipe, uri, strlen(uri) + 1) > 0);
    free(uri);
    cci_event_t *event = wait_for(endpoint, CCI_EVENT_CONNECT_REQUEST);
    OK(cci_accept(event, NULL));
    OK(cci_return_event(event));
    event = wait_for(endpoint, CCI_EVENT_ACCEPT);
    OK(cci_send(event->accept.connection, handle, sizeof(*handle), NULL, CCI_FLAG_BLOCKING));
    OK(cci_return_event(event));

    /* It computes. */
    long long until = now_ms() + COMPUTES_MS;
    for (volatile uint64_t sum = 0; now_ms() < until;)
        sum++;

    event = wait_for(endpoint, CCI_EVENT_RECV);
    CHECK(event->recv.len == 4);
    OK(cci_return_event(event));
    CHECK(memory[0] == 0x5a && memory[LENGTH - 1] == 0x5a && memory[8] == 0x5b);
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

static void be_client(const char *transport, const char *uri)
{
    uint32_t caps;
    static unsigned char memory[LENGTH];
    struct cci_rma_handle remote;
    cci_rma_handle_t *local;
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    cci_endpoint_t *endpoint = open_endpoint(transport, 0);
    OK(cci_rma_register(endpoint, memory, LENGTH, 0, &local));
    OK(cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    cci_event_t *event = wait_for(endpoint, CCI_EVENT_CONNECT);
    OK(event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    OK(cci_return_event(event));
    event = wait_for(endpoint, CCI_EVENT_RECV);
    memcpy(&remote, event->recv.ptr, sizeof(remote));
    OK(cci_return_event(event));

    usleep(50000);
    memset(memory, 0x5a, LENGTH);
    long long start = now_ms();
    OK(cci_rma(connection, NULL, 0, local, 0, &remote, 0, LENGTH, NULL, CCI_FLAG_WRITE | CCI_FLAG_BLOCKING));
    OK(cci_atomic(connection, CCI_ATOMIC_ADD, 4, 1, 0, &remote, 8, NULL, 0, NULL, CCI_FLAG_BLOCKING));
    OK(cci_rma(connection, "done", 4, local, 0, &remote, 0, 16, NULL, CCI_FLAG_READ | CCI_FLAG_BLOCKING));
    long long took = now_ms() - start;
    printf("served within %lld ms\n", took);
    CHECK(memory[7] == 0x5a && memory[8] == 0x5b);
    CHECK(took < COMPUTES_MS - 500);
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
}

int main(int argc, char **argv)
{
    int uri_pipe[2], status;
    char uri[256] = "";
    CHECK(argc == 2 && pipe(uri_pipe) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    alarm(LIFE_MAX_S);
    if (server == 0) {
        serve(argv[1], uri_pipe[1]);
        _exit(0);
    }
    CHECK(read(uri_pipe[0], uri, sizeof(uri) - 1) > 0);
    be_client(argv[1], uri);
    CHECK(waitpid(server, &status, 0) == server);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("progress: all well\n");
    return 0;
}
