/* A program with messengers that forks without exec: the child's every call is refused, whatever it gives back, and its parent goes
 * on where it was. Argument: the transport. */
#include "messenger.h"
#include <sys/uio.h>
#include <sys/wait.h>

#define LONG_BYTES (2 << 20)

/* What is under way when the program forks. */
static cci_messenger_event_t *message, *offer, *request;
static uint64_t long_send, call;
static unsigned char *bytes, *into;

static void begin(void)
{
    OK(cci_messenger_send(client.messenger, client.peer, "short", 5, NULL, CCI_FLAG_SILENT, NULL));
    message = expect(&server, CCI_MESSENGER_MESSAGE);
    OK(cci_messenger_call(client.messenger, client.peer, "key", 3, NULL, (void *)7, &call));
    request = expect(&server, CCI_MESSENGER_REQUEST);
    OK(cci_messenger_send(client.messenger, client.peer, bytes, LONG_BYTES, (void *)8, CCI_FLAG_NO_COPY, &long_send));
    offer = expect(&server, CCI_MESSENGER_OFFER);
}

static void finish(void)
{
    CHECK(message->len == 5 && memcmp(message->ptr, "short", 5) == 0);
    return_event(message);
    CHECK(request->len == 3 && memcmp(request->ptr, "key", 3) == 0);
    OK(cci_messenger_reply(server.messenger, request, "value", 5));
    return_event(request);
    cci_messenger_event_t *event = expect(&client, CCI_MESSENGER_REPLY);
    OK(event->status);
    CHECK(event->context == (void *)7 && event->len == 5 && memcmp(event->ptr, "value", 5) == 0);
    return_event(event);
    memset(into, 0, LONG_BYTES);
    OK(cci_messenger_receive_into(server.messenger, offer->id, into, LONG_BYTES, (void *)9));
    return_event(offer);
    int is_received = 0, is_sent = 0;
    long long until = now_ms() + PATIENCE_MS;
    while (!is_received || !is_sent) {
        if (cci_messenger_get_event(server.messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_RECEIVED && event->context == (void *)9 && !is_received++);
            OK(event->status);
            return_event(event);
        }
        if (cci_messenger_get_event(client.messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_SENT && event->context == (void *)8 && !is_sent++);
            OK(event->status);
            return_event(event);
        }
        CHECK(now_ms() < until);
    }
    CHECK(memcmp(into, bytes, LONG_BYTES) == 0);
}

/* Each call of the parent's messengers. */
static void calls_are_refused(const char *transport)
{
    cci_messenger_t *const near = client.messenger, *const far = server.messenger;
    const cci_messenger_connection_t peer = client.peer;
    const struct iovec part = {"x", 1};
    cci_messenger_progress_t progress;
    cci_messenger_event_t *event;
    char *text = NULL;
    (void)transport;
    CHECK_STATUS(cci_messenger_get_event(near, &event), CCI_ERROR);
    CHECK(event == NULL);
    CHECK_STATUS(cci_messenger_wait_event(near, NULL, &event), CCI_ERROR);
    CHECK_STATUS(cci_messenger_connect(near, "udp://127.0.0.1:9", NULL, 0, CCI_CONN_ATTR_RO, NULL, NULL), CCI_ERROR);
    void *start = NULL;
    CHECK_STATUS(cci_messenger_alloc(near, 4096, &start), CCI_ERROR);
    CHECK(start == NULL);
    CHECK_STATUS(cci_messenger_free(near, bytes), CCI_ERROR);
    CHECK_STATUS(cci_messenger_send(near, peer, "x", 1, NULL, 0, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_send(near, peer, bytes, LONG_BYTES, NULL, CCI_FLAG_NO_COPY, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_sendv(near, peer, &part, 1, NULL, 0, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_send_progress(near, long_send, &progress), CCI_ERROR);
    CHECK_STATUS(cci_messenger_cancel(near, long_send), CCI_ERROR);
    CHECK_STATUS(cci_messenger_call(near, peer, "x", 1, NULL, NULL, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_callv(near, peer, &part, 1, NULL, NULL, 0, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_cancel_call(near, call), CCI_ERROR);
    CHECK_STATUS(cci_messenger_disconnect(near, peer), CCI_ERROR);
    CHECK_STATUS(cci_messenger_explain(near, peer, &text), CCI_ERROR);
    CHECK_STATUS(cci_messenger_get_counters(near, 0, &text), CCI_ERROR);
    CHECK_STATUS(cci_messenger_get_counters(near, peer, &text), CCI_ERROR);
    CHECK(text == NULL);
    CHECK_STATUS(cci_messenger_receive(far, offer->id), CCI_ERROR);
    CHECK_STATUS(cci_messenger_receive_into(far, offer->id, into, LONG_BYTES, NULL), CCI_ERROR);
    CHECK_STATUS(cci_messenger_receive_progress(far, offer->id, &progress), CCI_ERROR);
    CHECK_STATUS(cci_messenger_refuse(far, offer->id, 1), CCI_ERROR);
    CHECK_STATUS(cci_messenger_reply(far, request, "x", 1), CCI_ERROR);
    CHECK_STATUS(cci_messenger_replyv(far, request, &part, 1), CCI_ERROR);
    CHECK_STATUS(cci_messenger_reply_error(far, request, 1, "x", 1), CCI_ERROR);
}

/* Gives back and closes all that the parent had, and opens messengers of its own. */
static void opens_its_own(const char *transport)
{
    return_event(message);
    return_event(request);
    return_event(offer);
    close_pair();
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    begin();
    finish();
    close_pair();
    OK(cci_finalize());
}

/* Closes first, and gives back what outlives that. */
static void closes_first(const char *transport)
{
    (void)transport;
    close_pair();
    return_event(request);
    return_event(message);
    return_event(offer);
}

static void forks(const char *transport)
{
    void (*const acts[])(const char *) = {calls_are_refused, opens_its_own, closes_first};
    bytes = contents(LONG_BYTES, 3);
    into = malloc(LONG_BYTES);
    CHECK(into);
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    for (int round = 0; round < 6; round++) {
        begin();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(LIFE_MAX_S);
            acts[round % 3](transport);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        finish();
    }
    idle();
    close_pair();
    free(bytes);
    free(into);
}

CASES("messenger_fork", forks)
