/* Messages of any length through the C interface: lengths, order, offers, refusals, cancellations, and what is done wrong. */
#include "messenger.h"

/* Each length arrives whole, in order, copied, gathered and from memory that is lent. */
static void lengths_and_order(const char *transport)
{
    static const size_t lengths[] = {0, 1, 7, 1000, 8000, 8184, 8185, 60000, 300000, 1 << 20};
    const size_t count = sizeof lengths / sizeof *lengths;
    for (int attribute = CCI_CONN_ATTR_RO; attribute <= CCI_CONN_ATTR_RU; attribute++) {
        open_pair(transport, attribute, NULL);
        for (size_t at = 0; at < 3 * count; at++) {
            size_t len = lengths[at % count];
            unsigned char *bytes = contents(len, at);
            void *context = (void *)(at + 1);
            uint64_t send = 77;
            if (at < count) {
                OK(cci_messenger_send(client.messenger, client.peer, bytes, len, context, 0, &send));
                memset(bytes, 0xee, len);
            } else if (at < 2 * count) {
                struct iovec parts[3] = {{bytes, len / 3}, {bytes + len / 3, len / 2}, {bytes + len / 3 + len / 2, 0}};
                parts[2].iov_len = len - parts[0].iov_len - parts[1].iov_len;
                OK(cci_messenger_sendv(client.messenger, client.peer, parts, 3, context, at % 2 ? CCI_FLAG_NO_COPY : 0, &send));
            } else {
                OK(cci_messenger_send(client.messenger, client.peer, bytes, len, context, CCI_FLAG_NO_COPY, &send));
            }
            CHECK((send == 0) == (len <= 8184) || len > 1000);
            int has_sent = 0, has_come = 0;
            long long until = now_ms() + PATIENCE_MS;
            while (!has_sent || !has_come) {
                cci_messenger_event_t *event;
                if (cci_messenger_get_event(client.messenger, &event) == CCI_SUCCESS) {
                    CHECK(event->type == CCI_MESSENGER_SENT && event->context == context && !has_sent++);
                    OK(event->status);
                    return_event(event);
                }
                if (cci_messenger_get_event(server.messenger, &event) == CCI_SUCCESS) {
                    CHECK(event->type == CCI_MESSENGER_MESSAGE && event->len == len && !has_come++);
                    CHECK(event->connection == server.peer && event->context == (void *)2);
                    CHECK((uintptr_t)event->ptr % 8 == 0 && is_contents(event->ptr, len, at));
                    return_event(event);
                }
                CHECK(now_ms() < until);
            }
            free(bytes);
        }
        close_pair();
    }
    /* Short ones behind a long one wait for it, and can be kept until the messenger is closed. */
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    unsigned char *bytes = contents(500000, 1);
    cci_messenger_event_t *kept[6];
    for (int at = 0; at < 6; at++)
        OK(cci_messenger_send(client.messenger, client.peer, bytes, at % 3 ? 20 + at : 500000, NULL, CCI_FLAG_SILENT, NULL));
    for (int at = 0; at < 6; at++) {
        kept[at] = expect(&server, CCI_MESSENGER_MESSAGE);
        CHECK(kept[at]->len == (uint64_t)(at % 3 ? 20 + at : 500000));
    }
    close_pair();
    for (int at = 0; at < 6; at++) {
        CHECK(memcmp(kept[at]->ptr, bytes, kept[at]->len) == 0);
        return_event(kept[at]);
    }
    free(bytes);
}

static const cci_messenger_limits_t offers_all = {sizeof(cci_messenger_limits_t), 0, 1, 4 << 20, 2 << 20, 0};

/* The program decides on what is offered. */
static void offers(const char *transport)
{
    const uint64_t len = 600000;
    unsigned char *bytes = contents(len, 5), *into = calloc(1, len + 8);
    cci_messenger_progress_t progress;
    open_pair(transport, CCI_CONN_ATTR_RO, &offers_all);
    /* Into memory of the program. */
    uint64_t send = 0;
    OK(cci_messenger_send(client.messenger, client.peer, bytes, len, (void *)10, CCI_FLAG_NO_COPY, &send));
    cci_messenger_event_t *event = expect(&server, CCI_MESSENGER_OFFER);
    CHECK(event->len == len && event->id && send && event->connection == server.peer);
    uint64_t offer = event->id;
    return_event(event);
    OK(cci_messenger_receive_progress(server.messenger, offer, &progress));
    CHECK(progress.moved_bytes == 0 && progress.total_bytes == len);
    OK(cci_messenger_send_progress(client.messenger, send, &progress));
    CHECK(progress.total_bytes == len);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, into, len - 1, NULL), CCI_EMSGSIZE);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, NULL, len, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, (void *)4096, len, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, into, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, into, UINT64_MAX, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer + 1, into, len, NULL), CCI_EINVAL);
    OK(cci_messenger_receive_into(server.messenger, offer, into, len + 8, (void *)20));
    CHECK_STATUS(cci_messenger_receive_into(server.messenger, offer, into, len + 8, (void *)20), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive(server.messenger, offer), CCI_EINVAL);
    int done = 0;
    for (long long until = now_ms() + PATIENCE_MS; done != 3;) {
        CHECK(now_ms() < until);
        if (cci_messenger_get_event(server.messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_RECEIVED && event->id == offer && event->context == (void *)20);
            OK(event->status);
            CHECK(memcmp(into, bytes, len) == 0);
            return_event(event);
            done |= 1;
        }
        if (cci_messenger_get_event(client.messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_SENT && event->context == (void *)10);
            OK(event->status);
            return_event(event);
            done |= 2;
        }
    }
    CHECK_STATUS(cci_messenger_refuse(server.messenger, offer, 1), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_cancel(client.messenger, send), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send_progress(client.messenger, send, &progress), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_progress(server.messenger, offer, &progress), CCI_EINVAL);
    /* Into memory that is lent, after it was left for a while, with a short message behind it. */
    OK(cci_messenger_send(client.messenger, client.peer, bytes, len, (void *)11, CCI_FLAG_SILENT, NULL));
    OK(cci_messenger_send(client.messenger, client.peer, "behind", 6, NULL, CCI_FLAG_SILENT, NULL));
    event = expect(&server, CCI_MESSENGER_OFFER);
    idle();
    OK(cci_messenger_receive(server.messenger, event->id));
    return_event(event);
    event = expect(&server, CCI_MESSENGER_MESSAGE);
    CHECK(event->len == len && memcmp(event->ptr, bytes, len) == 0);
    return_event(event);
    event = expect(&server, CCI_MESSENGER_MESSAGE);
    CHECK(event->len == 6 && memcmp(event->ptr, "behind", 6) == 0);
    return_event(event);
    /* Refused, with a code. */
    OK(cci_messenger_send(client.messenger, client.peer, bytes, len, (void *)12, 0, NULL));
    event = expect(&server, CCI_MESSENGER_OFFER);
    OK(cci_messenger_refuse(server.messenger, event->id, 4711));
    CHECK_STATUS(cci_messenger_refuse(server.messenger, event->id, 4711), CCI_EINVAL);
    return_event(event);
    event = expect(&client, CCI_MESSENGER_SENT);
    CHECK_STATUS(event->status, CCI_EXT_REFUSED);
    CHECK(event->code == 4711 && event->context == (void *)12);
    return_event(event);
    /* Cancelled by the sender. */
    OK(cci_messenger_send(client.messenger, client.peer, bytes, len, (void *)13, CCI_FLAG_NO_COPY, &send));
    event = expect(&server, CCI_MESSENGER_OFFER);
    offer = event->id;
    return_event(event);
    OK(cci_messenger_cancel(client.messenger, send));
    CHECK_STATUS(cci_messenger_cancel(client.messenger, send), CCI_EINVAL);
    event = expect(&server, CCI_MESSENGER_RECEIVED);
    CHECK_STATUS(event->status, CCI_EXT_CANCELLED);
    CHECK(event->id == offer);
    return_event(event);
    expect_sent(&client, (void *)13, CCI_EXT_CANCELLED);
    /* Longer than what may be lent, and longer than what is taken. */
    free(bytes);
    bytes = contents(5 << 20, 6);
    OK(cci_messenger_send(client.messenger, client.peer, bytes, 3 << 20, (void *)14, 0, NULL));
    event = expect(&server, CCI_MESSENGER_OFFER);
    CHECK_STATUS(cci_messenger_receive(server.messenger, event->id), CCI_EMSGSIZE);
    OK(cci_messenger_refuse(server.messenger, event->id, 0));
    return_event(event);
    expect_sent(&client, (void *)14, CCI_EXT_REFUSED);
    OK(cci_messenger_send(client.messenger, client.peer, bytes, 5 << 20, (void *)15, 0, NULL));
    event = expect(&client, CCI_MESSENGER_SENT);
    CHECK_STATUS(event->status, CCI_EMSGSIZE);
    CHECK(event->len == 4 << 20);
    return_event(event);
    close_pair();
    free(bytes);
    free(into);
}

/* The ends of a send and of the message that it sent, in any order. */
static void expect_exchange(struct side *from, struct side *to, void *context, const void *bytes, uint64_t len)
{
    int done = 0;
    for (long long until = now_ms() + PATIENCE_MS; done != 3;) {
        cci_messenger_event_t *event;
        CHECK(now_ms() < until);
        if (cci_messenger_get_event(from->messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_SENT && event->context == context && !(done & 1));
            OK(event->status);
            return_event(event);
            done |= 1;
        }
        if (cci_messenger_get_event(to->messenger, &event) == CCI_SUCCESS) {
            CHECK(event->type == CCI_MESSENGER_MESSAGE && event->len == len && !(done & 2));
            CHECK(memcmp(event->ptr, bytes, len) == 0);
            return_event(event);
            done |= 2;
        }
    }
}

/* Messages from memory of the library, whole and in parts, which may be freed once they were sent; and what is done wrong with it. */
static void loans(const char *transport)
{
    const uint64_t len = 700000;
    unsigned char *bytes = contents(len, 9);
    void *loan = NULL, *other = NULL;
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    CHECK_STATUS(cci_messenger_alloc(client.messenger, 0, &loan), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_alloc(client.messenger, len, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_alloc(NULL, len, &loan), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_alloc(client.messenger, UINT64_MAX, &loan), CCI_ENOMEM);
    CHECK(loan == NULL);
    OK(cci_messenger_alloc(client.messenger, len, &loan));
    OK(cci_messenger_alloc(client.messenger, 100, &other));
    CHECK((uintptr_t)loan % 4096 == 0 && *(unsigned char *)loan == 0 && other != loan);
    memcpy(loan, bytes, len);
    for (uintptr_t round = 0; round < 3; round++) {
        OK(cci_messenger_send(client.messenger, client.peer, loan, len, (void *)(round + 1), CCI_FLAG_NO_COPY, NULL));
        expect_exchange(&client, &server, (void *)(round + 1), bytes, len);
    }
    /* Parts of it, and memory of the program. */
    struct iovec parts[3] = {{loan, 100000}, {bytes + 100000, 200000}, {(char *)loan + 300000, 400000}};
    OK(cci_messenger_sendv(client.messenger, client.peer, parts, 3, (void *)4, CCI_FLAG_NO_COPY, NULL));
    expect_exchange(&client, &server, (void *)4, bytes, len);
    /* Beyond its end. */
    CHECK_STATUS(cci_messenger_send(client.messenger, client.peer, loan, 1 << 20, NULL, CCI_FLAG_NO_COPY, NULL), CCI_EINVAL);
    /* It is the first messenger's to free, once, and from its start. */
    CHECK_STATUS(cci_messenger_free(server.messenger, loan), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_free(client.messenger, (char *)loan + 4096), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_free(client.messenger, bytes), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_free(client.messenger, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_free(NULL, loan), CCI_EINVAL);
    /* What is being sent from it arrives, although it was freed. */
    OK(cci_messenger_send(client.messenger, client.peer, loan, len, (void *)5, CCI_FLAG_NO_COPY, NULL));
    OK(cci_messenger_free(client.messenger, loan));
    CHECK_STATUS(cci_messenger_free(client.messenger, loan), CCI_EINVAL);
    expect_exchange(&client, &server, (void *)5, bytes, len);
    idle();
    /* Another messenger may send from it. */
    memcpy(other, bytes, 100);
    OK(cci_messenger_send(server.messenger, server.peer, other, 100, (void *)6, CCI_FLAG_NO_COPY, NULL));
    expect_exchange(&server, &client, (void *)6, bytes, 100);
    /* The other loan ends with its messenger. */
    close_pair();
    free(bytes);
}

/* A peer that leaves ends everything once. */
static void peers_that_leave(const char *transport)
{
    unsigned char *bytes = contents(600000, 7);
    uint64_t send;
    open_pair(transport, CCI_CONN_ATTR_RO, &offers_all);
    OK(cci_messenger_send(client.messenger, client.peer, bytes, 600000, (void *)30, CCI_FLAG_NO_COPY, &send));
    cci_messenger_event_t *event = expect(&server, CCI_MESSENGER_OFFER);
    uint64_t offer = event->id;
    return_event(event);
    OK(cci_messenger_disconnect(server.messenger, server.peer));
    CHECK_STATUS(cci_messenger_disconnect(server.messenger, server.peer), CCI_EINVAL);
    event = expect(&server, CCI_MESSENGER_RECEIVED);
    CHECK_STATUS(event->status, CCI_ERR_DISCONNECTED);
    return_event(event);
    CHECK_STATUS(cci_messenger_receive(server.messenger, offer), CCI_EINVAL);
    expect_sent(&client, (void *)30, CCI_ERR_DISCONNECTED);
    event = expect(&client, CCI_MESSENGER_DISCONNECTED);
    CHECK(event->code == CCI_EXT_DISCONNECT_CLOSED && event->connection == client.peer && event->context == (void *)1);
    return_event(event);
    CHECK_STATUS(cci_messenger_send(client.messenger, client.peer, bytes, 5, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_send(server.messenger, server.peer, bytes, 5, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    idle();
    close_pair();
    free(bytes);
}

/* Unreliable connections take what fits one message of the endpoint. */
static void unreliable(const char *transport)
{
    unsigned char *bytes = contents(100000, 8);
    open_pair(transport, CCI_CONN_ATTR_UU, NULL);
    CHECK_STATUS(cci_messenger_send(client.messenger, client.peer, bytes, 100000, NULL, 0, NULL), CCI_EMSGSIZE);
    CHECK_STATUS(cci_messenger_call(client.messenger, client.peer, bytes, 10, NULL, NULL, NULL), CCI_EINVAL);
    idle();
    close_pair();
    free(bytes);
}

/* What is done wrong gets its code, and changes nothing. */
static void misuse(const char *transport)
{
    cci_device_t *device = device_of(transport);
    cci_messenger_t *messenger = NULL;
    cci_messenger_event_t *event;
    cci_messenger_progress_t progress;
    char *uri;
    CHECK_STATUS(cci_messenger_open(device, NULL, NULL, NULL, NULL, NULL), CCI_EINVAL);
    cci_messenger_limits_t limits = {0};
    CHECK_STATUS(cci_messenger_open(device, NULL, NULL, &limits, &messenger, NULL), CCI_EINVAL);
    limits.size = sizeof limits;
    limits.reserved = 1;
    CHECK_STATUS(cci_messenger_open(device, NULL, NULL, &limits, &messenger, NULL), CCI_EINVAL);
    limits.reserved = 0;
    limits.whole_bytes_max = 2000;
    limits.lent_bytes_max = 1000;
    CHECK_STATUS(cci_messenger_open(device, NULL, NULL, &limits, &messenger, NULL), CCI_EINVAL);
    cci_endpoint_options_t options = {.size = sizeof options, .progress_thread = 1};
    CHECK_STATUS(cci_messenger_open(device, NULL, &options, NULL, &messenger, NULL), CCI_EINVAL);
    CHECK(messenger == NULL);

    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    messenger = client.messenger;
    const cci_messenger_connection_t to = client.peer;
    const struct timeval negative = {-1, 0}, too_many = {0, 1000000}, soon = {0, 1000};
    CHECK_STATUS(cci_messenger_uri(messenger, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_uri(NULL, &uri), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_get_event(messenger, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_get_event(NULL, &event), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_wait_event(messenger, &negative, &event), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_wait_event(messenger, &soon, &event), CCI_EAGAIN);
    CHECK(event == NULL);
    CHECK_STATUS(cci_messenger_return_event(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_connect(messenger, NULL, NULL, 0, CCI_CONN_ATTR_RO, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_connect(messenger, "nothing", NULL, 0, CCI_CONN_ATTR_RO, NULL, NULL), CCI_EINVAL);
    OK(cci_messenger_uri(server.messenger, &uri));
    char payload[1024] = {0};
    CHECK_STATUS(cci_messenger_connect(messenger, uri, payload, 1017, CCI_CONN_ATTR_RO, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_connect(messenger, uri, NULL, 9, CCI_CONN_ATTR_RO, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_connect(messenger, uri, NULL, 0, (cci_conn_attribute_t)99, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_connect(messenger, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, &negative), CCI_EINVAL);
    free(uri);
    CHECK_STATUS(cci_messenger_disconnect(messenger, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_disconnect(messenger, UINT64_MAX), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(NULL, to, "a", 1, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(messenger, 0, "a", 1, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_send(messenger, to + 1, "a", 1, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_send(messenger, UINT64_MAX, "a", 1, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_send(messenger, to, NULL, 1, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(messenger, to, "a", UINT64_MAX, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(messenger, to, (void *)4096, 100000, NULL, CCI_FLAG_NO_COPY, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(messenger, to, "a", 1, NULL, CCI_FLAG_BLOCKING, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send(messenger, to, "a", 1, NULL, CCI_FLAG_SILENT | CCI_FLAG_NO_COPY, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_sendv(messenger, to, NULL, 1, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_sendv(messenger, to, &(struct iovec){NULL, 4}, 1, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_sendv(messenger, to, &(struct iovec){(void *)"a", 1}, 1025, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_cancel(messenger, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_cancel(messenger, 12345), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_send_progress(messenger, 12345, &progress), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive(messenger, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_refuse(messenger, UINT64_MAX, 1), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_receive_progress(messenger, 1, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_call(messenger, to, "a", 1, &negative, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_call(messenger, to, "a", 1, &too_many, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_call(messenger, to, NULL, 1, NULL, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_call(messenger, 0, "a", 1, NULL, NULL, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_cancel_call(messenger, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_reply(messenger, NULL, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_close(NULL), CCI_EINVAL);
    /* Nothing of that went anywhere. */
    idle();
    OK(cci_messenger_send(messenger, to, "well", 4, (void *)9, 0, NULL));
    event = expect(&server, CCI_MESSENGER_MESSAGE);
    CHECK(event->len == 4 && memcmp(event->ptr, "well", 4) == 0);
    CHECK_STATUS(cci_messenger_accept(server.messenger, event, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_reply(server.messenger, event, NULL, 0), CCI_EINVAL);
    return_event(event);
    CHECK_STATUS(cci_messenger_return_event(event), CCI_EINVAL);
    expect_sent(&client, (void *)9, CCI_SUCCESS);
    cci_messenger_t *closed = client.messenger;
    close_pair();
    CHECK_STATUS(cci_messenger_close(closed), CCI_EINVAL);
}

/* Who is rejected, or returned unanswered, learns it. */
static void rejected(const char *transport)
{
    open_side(&server, transport, NULL);
    open_side(&client, transport, NULL);
    char *uri = NULL;
    OK(cci_messenger_uri(server.messenger, &uri));
    for (int round = 0; round < 2; round++) {
        OK(cci_messenger_connect(client.messenger, uri, NULL, 0, CCI_CONN_ATTR_RO, (void *)3, NULL));
        cci_messenger_event_t *event = expect(&server, CCI_MESSENGER_CONNECT_REQUEST);
        CHECK(event->ptr == NULL && event->len == 0);
        if (round == 0)
            OK(cci_messenger_reject(server.messenger, event));
        return_event(event);
        event = expect(&client, CCI_MESSENGER_CONNECT);
        CHECK_STATUS(event->status, CCI_ECONNREFUSED);
        CHECK(event->connection == 0 && event->context == (void *)3);
        return_event(event);
    }
    free(uri);
    close_pair();
}

/* Whether the counters of a messenger, or of a connection of its, contain a text. */
static int counts(struct side *side, cci_messenger_connection_t connection, const char *expected)
{
    char *json = NULL;
    OK(cci_messenger_get_counters(side->messenger, connection, &json));
    CHECK(json[0] == '{' && json[strlen(json) - 1] == '}');
    int is_there = strstr(json, expected) != NULL;
    if (!is_there)
        fprintf(stderr, "%s is not in %s\n", expected, json);
    free(json);
    return is_there;
}

/* What a messenger and its connections have counted, and what it explains of them. */
static void looking_in(const char *transport)
{
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    char *text = NULL;
    OK(cci_messenger_explain(client.messenger, client.peer, &text));
    CHECK(strlen(text) > 20);
    free(text);
    CHECK(counts(&client, 0, "\"messenger\":{\"long_sent\":0,") && counts(&client, 0, "\"connections_open\":1,"));
    unsigned char *bytes = contents(300000, 1);
    OK(cci_messenger_send(client.messenger, client.peer, bytes, 300000, (void *)3, 0, NULL));
    CHECK(counts(&client, 0, "\"staged_bytes\":"));
    cci_messenger_event_t *message = expect(&server, CCI_MESSENGER_MESSAGE);
    CHECK(is_contents(message->ptr, message->len, 1));
    expect_sent(&client, (void *)3, CCI_SUCCESS);
    CHECK(counts(&client, 0, "\"messenger\":{\"long_sent\":1,\"long_received\":0,\"long_failed\":0,"));
    CHECK(counts(&server, 0, "\"messenger\":{\"long_sent\":0,\"long_received\":1,\"long_failed\":0,"));
    /* Whole pages. */
    CHECK(counts(&server, 0, "\"lent_bytes\":30"));
    return_event(message);
    CHECK(counts(&server, 0, "\"lent_bytes\":0,"));
    CHECK(counts(&client, client.peer, "\"bytes_sent\":") && counts(&client, client.peer, "\"sends_in_progress\":"));
    free(bytes);
    text = NULL;
    CHECK_STATUS(cci_messenger_explain(NULL, client.peer, &text), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_explain(client.messenger, client.peer, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_explain(client.messenger, 0, &text), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_get_counters(NULL, 0, &text), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_get_counters(client.messenger, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_get_counters(client.messenger, UINT64_MAX, &text), CCI_ERR_DISCONNECTED);
    CHECK(text == NULL);
    close_pair();
}

CASES("messenger_messages", lengths_and_order, offers, loans, peers_that_leave, unreliable, misuse, rejected, looking_in)
