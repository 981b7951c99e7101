/*
 * An echo server: takes every client and sends back what comes.
 *
 *   echo_server [DEVICE [SERVICE]]
 *
 * Prints its URI and serves until it is killed.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

/* NULL, the default device, without a name. */
static cci_device_t *find_device(const char *name)
{
    cci_device_t *const *devices;
    must("cci_get_devices", cci_get_devices(&devices));
    for (; name && *devices; devices++)
        if (strcmp((*devices)->name, name) == 0)
            return *devices;
    if (name)
        fprintf(stderr, "no device %s: taking the default one\n", name);
    return NULL;
}

static void echo(cci_event_recv_t *received)
{
    /* Straight from the receive buffer; no event at completion, unless it fails. */
    int status = cci_send(received->connection, received->ptr, received->len, NULL, CCI_FLAG_SILENT);
    if (status == CCI_ERR_DISCONNECTED)
        cci_disconnect(received->connection);
    else if (status == CCI_ENOBUFS) /* The client does not take its answers: wait for room. */
        cci_send(received->connection, received->ptr, received->len, NULL, CCI_FLAG_BLOCKING);
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_t *endpoint;
    char *uri;

    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    cci_device_t *device = find_device(argc > 1 ? argv[1] : NULL);
    if (argc > 2)
        must("cci_create_endpoint_at", cci_create_endpoint_at(device, argv[2], 0, &endpoint, NULL));
    else
        must("cci_create_endpoint", cci_create_endpoint(device, 0, &endpoint, NULL));
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    free(uri);

    for (;;) {
        cci_event_t *event;
        must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
        switch (event->type) {
        case CCI_EVENT_CONNECT_REQUEST:
            cci_accept(event, NULL);
            break;
        case CCI_EVENT_RECV:
            echo(&event->recv);
            break;
        default: /* An accept that ended: its first message says as much. */
            break;
        }
        cci_return_event(event);
    }
}
