/*
 * One endpoint that everybody connects to, and workers, each with an endpoint and a thread of its own, that take the
 * connections in turn. A connection belongs to its worker from the start: no message passes through the broker.
 *
 *   broker [WORKERS]
 *
 * Prints its URI and serves until it is killed; echo_client is a client for it. Each worker answers what it gets.
 */
#include <cci.h>
#include <pthread.h>
#include <stdlib.h>

#define WORKERS_MAX 64

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

static void *work(void *argument)
{
    cci_endpoint_t *endpoint = *(cci_endpoint_t **)argument;
    for (;;) {
        cci_event_t *event;
        must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
        if (event->type == CCI_EVENT_ACCEPT) {
            fprintf(stderr, "worker %ld has a client\n", (long)(intptr_t)event->accept.context);
        } else if (event->type == CCI_EVENT_RECV) {
            cci_connection_t *client = event->recv.connection;
            if (cci_send(client, event->recv.ptr, event->recv.len, NULL, CCI_FLAG_SILENT) == CCI_ERR_DISCONNECTED)
                cci_disconnect(client);
        }
        cci_return_event(event);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static cci_endpoint_t *workers[WORKERS_MAX];
    cci_endpoint_t *broker;
    uint32_t caps;
    char *uri;
    long count = argc > 1 ? atol(argv[1]) : 2;
    if (count < 1 || count > WORKERS_MAX) {
        fprintf(stderr, "usage: broker [WORKERS], 1 to %d\n", WORKERS_MAX);
        return 2;
    }

    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(NULL, 0, &broker, NULL));
    for (long at = 0; at < count; at++) {
        pthread_t thread;
        must("cci_create_endpoint", cci_create_endpoint(broker->device, 0, &workers[at], NULL));
        if (pthread_create(&thread, NULL, work, &workers[at]) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    must("cci_get_opt", cci_get_opt(broker, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    free(uri);

    for (long next = 0;; next = (next + 1) % count) {
        cci_event_t *event;
        must("cci_wait_event", cci_wait_event(broker, NULL, &event));
        if (event->type == CCI_EVENT_CONNECT_REQUEST) {
            /* The accept's event comes to the worker. If this fails, the client learns that it was refused. */
            int status = cci_accept_on(event, workers[next], (void *)(intptr_t)next);
            if (status != CCI_SUCCESS)
                fprintf(stderr, "a client could not be taken: %s\n", cci_last_error());
        }
        cci_return_event(event);
    }
}
