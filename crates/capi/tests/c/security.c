/* Peers that are known by pre-shared keys. Arguments: the transport; "single": without locks. */
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

#define LENGTH 4096

static char folder[] = "/tmp/cci-security-XXXXXX";
static char shared_keys[64], server_keys[64], client_keys[64], other_keys[64], open_keys[64];

static void write_file(char path[64], const char *name, const char *text, int mode)
{
    snprintf(path, 64, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "f0e1d2c3b4a5968778695a4b3c2d1e0ff0e1d2c3b4a59687706152433425160f"

static void make_files(void)
{
    CHECK(mkdtemp(folder));
    write_file(client_keys, "client", "node1 = " KEY_A "\n", 0600);
    write_file(server_keys, "server", "server = " KEY_B " # ours\nnode1 = " KEY_A "\n", 0600);
    write_file(other_keys, "other", "server = " KEY_B "\n", 0600);
    write_file(open_keys, "open", "node1 = " KEY_A "\n", 0644);
    write_file(shared_keys, "bad", "node1 = 00\n", 0600);
}

static void remove_files(void)
{
    unlink(client_keys), unlink(server_keys), unlink(other_keys), unlink(open_keys), unlink(shared_keys);
    CHECK(rmdir(folder) == 0);
}

static int open_with(const char *transport, const cci_security_t *security, cci_endpoint_t **endpoint)
{
    cci_endpoint_options_t options = {.size = sizeof(options), .security = security};
    return cci_create_endpoint_with(device_of(transport), NULL, &options, 0, endpoint, NULL);
}

static void refused(const char *transport, cci_security_t security, const char *words)
{
    cci_endpoint_t *endpoint = NULL;
    CHECK_STATUS(open_with(transport, &security, &endpoint), CCI_EINVAL);
    if (!strstr(cci_last_error(), words))
        fprintf(stderr, "no %s in: %s\n", words, cci_last_error());
    CHECK(strstr(cci_last_error(), words) && !endpoint);
}

/* What can't be is refused with words. */
static void mistakes(const char *transport)
{
    const uint32_t size = sizeof(cci_security_t);
    refused(transport, (cci_security_t){.size = 8}, "sizeof(cci_security_t)");
    refused(transport, (cci_security_t){.size = size}, "no credentials");
    refused(transport, (cci_security_t){.size = size, .psk_file = "/nosuch/file"}, "/nosuch/file");
    refused(transport, (cci_security_t){.size = size, .psk_file = open_keys}, "chmod 600");
    refused(transport, (cci_security_t){.size = size, .psk_file = shared_keys}, "line 1");
    refused(transport, (cci_security_t){.size = size, .psk_file = client_keys, .authorities = "x"}, "one of the two");
    refused(transport, (cci_security_t){.size = size, .certificate = "x"}, "all three");
    refused(transport, (cci_security_t){.size = size, .psk_file = client_keys, .allow_connect = "a*"}, "'a*'");
    refused(transport, (cci_security_t){.size = size, .psk_file = client_keys, .plain_peers = 3}, "there is no 3");
    refused("shm", (cci_security_t){.size = size, .psk_file = client_keys}, "nothing to seal");
}

/* Both ends know each other, and the server's memory can be read but not written by that name. */
static void names_and_rights(const char *transport)
{
    cci_security_t client_goes_by = {.size = sizeof(client_goes_by), .psk_file = client_keys};
    cci_security_t server_goes_by = {.size = sizeof(server_goes_by), .psk_file = server_keys};
    server_goes_by.allow_connect = "node1, node2";
    server_goes_by.allow_rma_write = "node2";
    cci_endpoint_t *client, *server;
    OK(open_with(transport, &client_goes_by, &client));
    OK(open_with(transport, &server_goes_by, &server));

    char *uri = uri_of(server), *names = NULL;
    OK(cci_connect(client, uri, "hello", 5, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    cci_event_t *event = expect_while(server, client, CCI_EVENT_CONNECT_REQUEST);
    OK(cci_conn_req_names(event, &names));
    CHECK(strcmp(names, "node1") == 0);
    free(names);
    CHECK_STATUS(cci_conn_req_names(event, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_conn_req_names(NULL, &names), CCI_EINVAL);
    OK(cci_accept(event, NULL));
    CHECK_STATUS(cci_conn_req_names(event, &names), CCI_EINVAL);
    OK(cci_return_event(event));
    cci_connection_t *to_server = NULL, *to_client = NULL;
    while (!to_server || !to_client) {
        event = next_of_two(client, server);
        if (event->type == CCI_EVENT_CONNECT) {
            OK(event->connect.status);
            to_server = event->connect.connection;
        } else {
            CHECK(event->type == CCI_EVENT_ACCEPT);
            OK(event->accept.status);
            to_client = event->accept.connection;
            CHECK_STATUS(cci_conn_req_names(event, &names), CCI_EINVAL);
        }
        OK(cci_return_event(event));
    }
    OK(cci_peer_names(to_client, &names));
    CHECK(strcmp(names, "node1") == 0);
    free(names);
    OK(cci_peer_names(to_server, &names));
    CHECK(strcmp(names, "node1") == 0);
    free(names);
    OK(cci_explain(to_client, &names));
    CHECK(strstr(names, "sealed by AES-256-GCM, peer node1"));
    free(names);

    char *ours, *theirs;
    CHECK((ours = calloc(1, LENGTH)) && (theirs = calloc(1, LENGTH)));
    memset(theirs, 7, LENGTH);
    cci_rma_handle_t *local, *remote;
    const int both = CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_ATOMIC;
    OK(cci_rma_register(client, ours, LENGTH, CCI_FLAG_READ | CCI_FLAG_WRITE, &local));
    OK(cci_rma_register(server, theirs, LENGTH, both, &remote));
    struct { int flags; cci_status_t status; } tries[] = {
        {CCI_FLAG_READ, CCI_SUCCESS}, {CCI_FLAG_WRITE, CCI_ERR_RMA_HANDLE}};
    for (int at = 0; at < 2; at++) {
        OK(cci_rma(to_server, NULL, 0, local, 0, remote, 0, LENGTH, NULL, tries[at].flags));
        event = expect_while(client, server, CCI_EVENT_SEND);
        CHECK_STATUS(event->send.status, tries[at].status);
        OK(cci_return_event(event));
    }
    OK(cci_atomic(to_server, CCI_ATOMIC_FETCH_ADD, 8, 1, 0, remote, 0, NULL, 0, NULL, 0));
    event = expect_while(client, server, CCI_EVENT_SEND);
    CHECK_STATUS(event->send.status, CCI_ERR_RMA_HANDLE);
    OK(cci_return_event(event));
    CHECK(ours[0] == 7 && ours[LENGTH - 1] == 7 && theirs[0] == 7);
    OK(cci_get_counters(server, NULL, &names));
    CHECK(strstr(names, "\"rma_refused_by_name\":2"));
    free(names);

    OK(cci_rma_deregister(client, local));
    OK(cci_rma_deregister(server, remote));
    OK(cci_destroy_endpoint(client));
    free(ours), free(theirs);

    /* Nobody but who is expected gets anything; with keys that is whoever has the one of that name. */
    struct timeval brief = {0, 300000};
    OK(open_with(transport, &client_goes_by, &client));
    CHECK_STATUS(cci_connect_expecting(client, "nobody", uri, "x", 1, CCI_CONN_ATTR_RO, NULL, 0, &brief), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "no key of that name"));
    CHECK_STATUS(cci_connect_expecting(client, NULL, uri, "x", 1, CCI_CONN_ATTR_RO, NULL, 0, &brief), CCI_EINVAL);
    OK(cci_connect_expecting(client, "node1", uri, "x", 1, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    event = expect_while(server, client, CCI_EVENT_CONNECT_REQUEST);
    OK(cci_conn_req_names(event, &names));
    CHECK(strcmp(names, "node1") == 0);
    free(names);
    OK(cci_reject(event));
    OK(cci_return_event(event));
    event = expect_while(client, server, CCI_EVENT_CONNECT);
    CHECK_STATUS(event->connect.status, CCI_ECONNREFUSED);
    OK(cci_return_event(event));
    OK(cci_destroy_endpoint(client));

    /* Who has a key but no right to connect, and who has no security at all, is heard by nobody. */
    struct timeval timeout = {0, 300000};
    cci_security_t other_goes_by = {.size = sizeof(other_goes_by), .psk_file = other_keys};
    const cci_security_t *strangers[] = {&other_goes_by, NULL};
    for (int at = 0; at < 2; at++) {
        OK(open_with(transport, strangers[at], &client));
        OK(cci_connect(client, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
        event = expect_while(client, server, CCI_EVENT_CONNECT);
        CHECK_STATUS(event->connect.status, CCI_ETIMEDOUT);
        OK(cci_return_event(event));
        OK(cci_destroy_endpoint(client));
    }
    free(uri);
    OK(cci_destroy_endpoint(server));
}

int main(int argc, char **argv)
{
    uint32_t caps;
    OK(cci_init(CCI_ABI_VERSION, argc > 2 ? CCI_INIT_SINGLE_THREADED : 0, &caps));
    make_files();
    mistakes(argv[1]);
    names_and_rights(argv[1]);
    remove_files();
    OK(cci_finalize());
    puts("security: all well");
    return 0;
}
