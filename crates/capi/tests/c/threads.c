/* One endpoint, many threads: some send and wait for the end of each send, some take events. Argument: the transport. */
#include "check.h"
#include <pthread.h>

#define SENDERS 4
#define TAKERS 2
#define MESSAGES 400

static cci_endpoint_t *client, *server;
static int client_fd, server_fd;
static cci_connection_t *to_server, *to_client;
static int received, completed, stop;

/* Blocking and not, by turns. */
static void *sender(void *seed)
{
    for (uint32_t number = 0; number < MESSAGES; number++) {
        uint32_t message[2] = {(uint32_t)(uintptr_t)seed, number};
        if (number % 2) {
            OK(cci_send(to_server, message, sizeof(message), NULL, CCI_FLAG_BLOCKING));
        } else {
            OK(cci_send(to_server, message, sizeof(message), (void *)1, 0));
        }
    }
    return NULL;
}

/* Takes events of either endpoint, waiting in a manner of its own, until it is stopped. */
static void *taker(void *which)
{
    cci_endpoint_t *endpoint = which ? server : client;
    struct timeval nap = {0, 20000};
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        cci_event_t *event;
        int status = cci_wait_event(endpoint, &nap, &event);
        if (status != CCI_SUCCESS) {
            CHECK_STATUS(status, CCI_EAGAIN);
            continue;
        }
        if (event->type == CCI_EVENT_RECV) {
            CHECK(event->recv.len == 8);
            __atomic_fetch_add(&received, 1, __ATOMIC_SEQ_CST);
        } else {
            CHECK(event->type == CCI_EVENT_SEND && event->send.context == (void *)1);
            OK(event->send.status);
            __atomic_fetch_add(&completed, 1, __ATOMIC_SEQ_CST);
        }
        OK(cci_return_event(event));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uint32_t caps;
    pthread_t senders[SENDERS], takers[2 * TAKERS];
    CHECK(argc == 2);
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &client, &client_fd));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &server, &server_fd));
    connect_pair(client, server, CCI_CONN_ATTR_RO, &to_server, &to_client);
    for (intptr_t at = 0; at < 2 * TAKERS; at++)
        CHECK(pthread_create(&takers[at], NULL, taker, at % 2 ? &server : NULL) == 0);
    for (intptr_t at = 0; at < SENDERS; at++)
        CHECK(pthread_create(&senders[at], NULL, sender, (void *)at) == 0);
    for (int at = 0; at < SENDERS; at++)
        CHECK(pthread_join(senders[at], NULL) == 0);
    long long until = now_ms() + PATIENCE_MS;
    while (__atomic_load_n(&received, __ATOMIC_SEQ_CST) < SENDERS * MESSAGES ||
           __atomic_load_n(&completed, __ATOMIC_SEQ_CST) < SENDERS * MESSAGES / 2) {
        CHECK(now_ms() < until);
        usleep(1000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int at = 0; at < 2 * TAKERS; at++)
        CHECK(pthread_join(takers[at], NULL) == 0);
    CHECK(received == SENDERS * MESSAGES && completed == SENDERS * MESSAGES / 2);
    OK(cci_disconnect(to_server));
    OK(cci_disconnect(to_client));
    OK(cci_destroy_endpoint(client));
    OK(cci_destroy_endpoint(server));
    OK(cci_finalize());
    printf("threads: all well\n");
    return 0;
}
