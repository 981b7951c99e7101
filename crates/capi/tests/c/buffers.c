/* Events that the program keeps: out of order, from another thread, all of them, after the endpoint. */
#include "check.h"
#include <pthread.h>

#define BUFFERS 16

static cci_endpoint_t *client, *server;
static int server_fd;
static cci_connection_t *to_server, *to_client;

static void send_number(uint32_t number)
{
    OK(cci_send(to_server, &number, sizeof(number), NULL, CCI_FLAG_SILENT));
}

static uint32_t number_in(cci_event_t *event)
{
    uint32_t number;
    CHECK(event->type == CCI_EVENT_RECV && event->recv.len == sizeof(number));
    CHECK((uintptr_t)event->recv.ptr % 8 == 0);
    CHECK(event->recv.connection == to_client);
    memcpy(&number, event->recv.ptr, sizeof(number));
    return number;
}

static void *return_all(void *events)
{
    cci_event_t **event = events;
    for (int at = 0; at < BUFFERS; at++)
        OK(cci_return_event(event[(at * 5) % BUFFERS]));
    return NULL;
}

/* Takes every buffer; says so; gives them back in a strange order, here or on another thread; loses nothing. */
static void all_out(int elsewhere)
{
    cci_event_t *kept[BUFFERS], *none;
    for (uint32_t number = 0; number < BUFFERS + 5; number++)
        send_number(number);
    for (uint32_t number = 0; number < BUFFERS; number++) {
        kept[number] = expect_while(server, client, CCI_EVENT_RECV);
        CHECK(number_in(kept[number]) == number);
    }
    for (int round = 0; round < 100; round++) {
        CHECK_STATUS(cci_get_event(server, &none), CCI_ENOBUFS);
        CHECK_STATUS(cci_get_event(client, &none), CCI_EAGAIN);
    }
    for (uint32_t number = 0; number < BUFFERS; number++)
        CHECK(number_in(kept[number]) == number);
    if (elsewhere) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, return_all, kept) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        return_all(kept);
    }
    /* Nobody has asked for an event since: the descriptor has to say by itself that there are more. */
    struct pollfd wait = {server_fd, POLLIN, 0};
    CHECK(poll(&wait, 1, PATIENCE_MS) == 1);
    for (uint32_t number = BUFFERS; number < BUFFERS + 5; number++) {
        cci_event_t *event = expect_while(server, client, CCI_EVENT_RECV);
        CHECK(number_in(event) == number);
        OK(cci_return_event(event));
    }
    CHECK_STATUS(cci_get_event(server, &none), CCI_EAGAIN);
}

/* More buffers than before, while connected. */
static void raised(void)
{
    cci_event_t *kept[3 * BUFFERS], *none;
    uint32_t count = 3 * BUFFERS;
    OK(cci_set_opt(server, CCI_OPT_ENDPT_RECV_BUF_COUNT, &count));
    for (uint32_t number = 0; number < count; number++)
        send_number(number);
    for (uint32_t number = 0; number < count; number++) {
        kept[number] = expect_while(server, client, CCI_EVENT_RECV);
        CHECK(number_in(kept[number]) == number);
    }
    CHECK_STATUS(cci_get_event(server, &none), CCI_ENOBUFS);
    for (uint32_t number = count; number > 0; number--)
        OK(cci_return_event(kept[number - 1]));
    CHECK_STATUS(cci_get_event(server, &none), CCI_EAGAIN);
}

/* What was received stays readable when its endpoint is gone, and goes back all the same. */
static void outliving(void)
{
    cci_event_t *kept[3];
    for (uint32_t number = 0; number < 3; number++)
        send_number(1000 + number);
    for (uint32_t number = 0; number < 3; number++)
        kept[number] = expect_while(server, client, CCI_EVENT_RECV);
    OK(cci_destroy_endpoint(server));
    for (uint32_t number = 0; number < 3; number++) {
        uint32_t found;
        memcpy(&found, kept[number]->recv.ptr, sizeof(found));
        CHECK(found == 1000 + number);
    }
    OK(cci_return_event(kept[1]));
    OK(cci_return_event(kept[0]));
    OK(cci_destroy_endpoint(client));
    OK(cci_finalize());
    OK(cci_return_event(kept[2]));
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_options_t options = {0};
    options.size = sizeof(options);
    options.recv_buf_count = BUFFERS;
    CHECK(argc == 2);
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &client, NULL));
    OK(cci_create_endpoint_with(device_of(argv[1]), NULL, &options, 0, &server, &server_fd));
    connect_pair(client, server, CCI_CONN_ATTR_RO, &to_server, &to_client);
    for (int round = 0; round < 20; round++)
        all_out(round % 2);
    raised();
    outliving();
    printf("buffers: all well\n");
    return 0;
}
