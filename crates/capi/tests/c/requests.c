/* Connection requests in one process: payloads, accept, reject, accept elsewhere, once and only once. */
#include "check.h"

static cci_endpoint_t *client, *server, *worker;
static char *uri;

/* Connects, and gives the request that comes of it. */
static cci_event_t *request(const void *data, uint32_t len, cci_conn_attribute_t attribute, void *context)
{
    OK(cci_connect(client, uri, data, len, attribute, context, 0, NULL));
    return expect_while(server, client, CCI_EVENT_CONNECT_REQUEST);
}

static void payloads(void)
{
    static const uint32_t lengths[] = {0, 1, 7, 100, CCI_CONN_REQ_LEN};
    for (unsigned at = 0; at < sizeof(lengths) / sizeof(lengths[0]); at++) {
        char data[CCI_CONN_REQ_LEN];
        for (unsigned byte = 0; byte < sizeof(data); byte++)
            data[byte] = (char)(byte * 7 + at);
        cci_conn_attribute_t attribute = (cci_conn_attribute_t)(at % 3);
        cci_event_t *asked = request(data, lengths[at], attribute, (void *)(uintptr_t)(at + 1));
        CHECK(asked->request.data_len == lengths[at] && asked->request.attribute == attribute);
        CHECK((asked->request.data_ptr == NULL) == (lengths[at] == 0));
        OK(cci_accept(asked, (void *)(uintptr_t)(at + 100)));
        /* What it shows stays until it is returned. */
        CHECK(lengths[at] == 0 || memcmp(asked->request.data_ptr, data, lengths[at]) == 0);
        CHECK_STATUS(cci_accept(asked, NULL), CCI_EINVAL);
        CHECK_STATUS(cci_reject(asked), CCI_EINVAL);
        cci_connection_t *ours = NULL, *theirs = NULL;
        while (!ours || !theirs) {
            cci_event_t *event = next_of_two(client, server);
            CHECK(event->type == CCI_EVENT_CONNECT || event->type == CCI_EVENT_ACCEPT);
            if (event->type == CCI_EVENT_CONNECT) {
                OK(event->connect.status);
                CHECK(event->connect.context == (void *)(uintptr_t)(at + 1));
                ours = event->connect.connection;
            } else {
                OK(event->accept.status);
                CHECK(event->accept.context == (void *)(uintptr_t)(at + 100));
                theirs = event->accept.connection;
            }
            OK(cci_return_event(event));
        }
        CHECK(memcmp(asked->request.data_ptr ? asked->request.data_ptr : "", data, lengths[at]) == 0);
        OK(cci_return_event(asked));
        CHECK_STATUS(cci_return_event(asked), CCI_EINVAL);
        CHECK(ours->attribute == attribute && theirs->attribute == attribute);
        OK(cci_disconnect(ours));
        OK(cci_disconnect(theirs));
    }
}

static void rejection(void)
{
    cci_event_t *asked = request("no", 2, CCI_CONN_ATTR_RO, (void *)7);
    CHECK_STATUS(cci_return_event(asked), CCI_EINVAL);
    OK(cci_reject(asked));
    CHECK_STATUS(cci_reject(asked), CCI_EINVAL);
    CHECK_STATUS(cci_accept(asked, NULL), CCI_EINVAL);
    OK(cci_return_event(asked));
    cci_event_t *refused = expect_while(client, server, CCI_EVENT_CONNECT);
    CHECK(refused->connect.status == CCI_ECONNREFUSED);
    CHECK(refused->connect.context == (void *)7 && refused->connect.connection == NULL);
    /* The thread that took the event can ask why. */
    CHECK(strstr(cci_last_error(), "refused"));
    CHECK_STATUS(cci_accept(refused, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_reject(refused), CCI_EINVAL);
    OK(cci_return_event(refused));
}

/* Nobody answers: one event, at the time that was given. */
static void timing_out(void)
{
    struct timeval timeout = {0, 200000};
    long long before = now_ms();
    OK(cci_connect(client, uri, NULL, 0, CCI_CONN_ATTR_RO, (void *)9, 0, &timeout));
    cci_event_t *asked = expect_while(server, client, CCI_EVENT_CONNECT_REQUEST);
    cci_event_t *failed = expect_while(client, server, CCI_EVENT_CONNECT);
    CHECK(failed->connect.status == CCI_ETIMEDOUT && failed->connect.connection == NULL);
    CHECK(now_ms() - before >= 190);
    OK(cci_return_event(failed));
    OK(cci_reject(asked));
    OK(cci_return_event(asked));
}

/* A broker takes the request, a worker the connection. */
static void elsewhere(void)
{
    cci_event_t *asked = request("work", 4, CCI_CONN_ATTR_RO, (void *)1);
    CHECK_STATUS(cci_accept_on(asked, NULL, NULL), CCI_EINVAL);
    OK(cci_accept_on(asked, worker, (void *)2));
    CHECK_STATUS(cci_accept(asked, NULL), CCI_EINVAL);
    OK(cci_return_event(asked));
    cci_connection_t *ours = NULL, *theirs = NULL;
    while (!ours || !theirs) {
        cci_event_t *event = next_of_two(client, worker), *none;
        CHECK(cci_get_event(server, &none) == CCI_EAGAIN);
        if (event->type == CCI_EVENT_CONNECT) {
            OK(event->connect.status);
            ours = event->connect.connection;
        } else {
            CHECK(event->type == CCI_EVENT_ACCEPT && event->accept.context == (void *)2);
            OK(event->accept.status);
            theirs = event->accept.connection;
        }
        OK(cci_return_event(event));
    }
    CHECK(theirs->endpoint == worker);
    OK(cci_send(ours, "to the worker", 13, NULL, CCI_FLAG_SILENT));
    cci_event_t *got = expect_while(worker, client, CCI_EVENT_RECV);
    CHECK(got->recv.len == 13 && memcmp(got->recv.ptr, "to the worker", 13) == 0);
    CHECK(got->recv.connection == theirs);
    OK(cci_send(theirs, got->recv.ptr, got->recv.len, NULL, CCI_FLAG_SILENT));
    OK(cci_return_event(got));
    got = expect_while(client, worker, CCI_EVENT_RECV);
    CHECK(got->recv.connection == ours);
    OK(cci_return_event(got));
    OK(cci_disconnect(ours));
    OK(cci_disconnect(theirs));
}

/* Events outlive their endpoint: they can be read and returned, not answered. */
static void outliving(void)
{
    struct timeval timeout = {0, 300000};
    OK(cci_connect(client, uri, "late", 4, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
    cci_event_t *asked = expect_while(server, client, CCI_EVENT_CONNECT_REQUEST);
    OK(cci_destroy_endpoint(server));
    CHECK(memcmp(asked->request.data_ptr, "late", 4) == 0);
    CHECK_STATUS(cci_accept(asked, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_accept_on(asked, worker, NULL), CCI_EINVAL);
    OK(cci_return_event(asked));
    cci_event_t *failed = expect_while(client, worker, CCI_EVENT_CONNECT);
    CHECK(failed->connect.status != CCI_SUCCESS);
    OK(cci_destroy_endpoint(client));
    CHECK(failed->connect.connection == NULL);
    OK(cci_return_event(failed));
}

int main(int argc, char **argv)
{
    uint32_t caps;
    uint32_t flags = argc > 2 ? CCI_INIT_SINGLE_THREADED : 0;
    CHECK(argc >= 2);
    OK(cci_init(CCI_ABI_VERSION, flags, &caps));
    CHECK(caps == (flags ? 0 : CCI_CAP_THREAD_SAFE));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &client, NULL));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &server, NULL));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &worker, NULL));
    uri = uri_of(server);
    payloads();
    rejection();
    timing_out();
    elsewhere();
    outliving();
    free(uri);
    OK(cci_finalize());
    printf("requests: all well\n");
    return 0;
}
