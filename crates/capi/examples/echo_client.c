/*
 * A client of echo_server: sends messages one by one, checks what comes back, and prints the mean half round trip.
 *
 *   echo_client URI [DEVICE [COUNT]]
 *
 * Polls, which is the fastest way to wait.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Waits for an event of one type; others are returned. */
static cci_event_t *next(cci_endpoint_t *endpoint, cci_event_type_t type)
{
    for (;;) {
        cci_event_t *event;
        int status = cci_get_event(endpoint, &event);
        if (status == CCI_EAGAIN)
            continue;
        must("cci_get_event", status);
        if (event->type == type)
            return event;
        if (event->type == CCI_EVENT_SEND && event->send.status != CCI_SUCCESS)
            must("a send", event->send.status);
        cci_return_event(event);
    }
}

static cci_device_t *find_device(const char *name)
{
    cci_device_t *const *devices;
    must("cci_get_devices", cci_get_devices(&devices));
    for (; name && *devices; devices++)
        if (strcmp((*devices)->name, name) == 0)
            return *devices;
    return NULL;
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_t *endpoint;
    struct timeval timeout = {10, 0};
    int count = argc > 3 ? atoi(argv[3]) : 10000;
    char message[64];

    if (argc < 2 || count < 1) {
        fprintf(stderr, "usage: echo_client URI [DEVICE [COUNT]]\n");
        return 2;
    }
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint",
         cci_create_endpoint(find_device(argc > 2 ? argv[2] : NULL), 0, &endpoint, NULL));
    must("cci_connect", cci_connect(endpoint, argv[1], NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
    cci_event_t *event = next(endpoint, CCI_EVENT_CONNECT);
    must("connecting", event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    cci_return_event(event);

    double start = now_us();
    for (int number = 0; number < count; number++) {
        uint32_t len = (uint32_t)snprintf(message, sizeof(message), "message %d", number);
        must("cci_send", cci_send(connection, message, len, NULL, CCI_FLAG_SILENT));
        event = next(endpoint, CCI_EVENT_RECV);
        if (event->recv.len != len || memcmp(event->recv.ptr, message, len) != 0) {
            fprintf(stderr, "message %d came back changed\n", number);
            return 1;
        }
        cci_return_event(event);
    }
    printf("%d messages echoed, half round trip %.2f us\n", count, (now_us() - start) / count / 2);

    cci_disconnect(connection);
    cci_destroy_endpoint(endpoint);
    return cci_finalize() == CCI_SUCCESS ? 0 : 1;
}
