/* Calls through the C interface: lengths, any order, errors, deadlines, and what is done wrong. */
#include "messenger.h"

/* Requests and replies of any length that may be asked for. */
static void lengths(const char *transport)
{
    static const size_t asked[] = {0, 8, 9000, 300000, 1 << 20}, answered[] = {8, 0, 5 << 20, 8192, 100};
    for (int attribute = CCI_CONN_ATTR_RO; attribute <= CCI_CONN_ATTR_RU; attribute++) {
        open_pair(transport, attribute, NULL);
        for (size_t at = 0; at < sizeof asked / sizeof *asked; at++) {
            unsigned char *request = contents(asked[at], at), *reply = contents(answered[at], at + 50);
            uint64_t call = 0;
            OK(cci_messenger_call(client.messenger, client.peer, request, asked[at], NULL, (void *)(at + 1), &call));
            CHECK(call != 0);
            cci_messenger_event_t *event = expect(&server, CCI_MESSENGER_REQUEST);
            CHECK(event->len == asked[at] && is_contents(event->ptr, event->len, at));
            CHECK(event->connection == server.peer && event->context == (void *)2);
            OK(cci_messenger_reply(server.messenger, event, reply, answered[at]));
            /* It was answered, and can still be read. */
            CHECK_STATUS(cci_messenger_reply(server.messenger, event, reply, answered[at]), CCI_EINVAL);
            CHECK_STATUS(cci_messenger_reply_error(server.messenger, event, 1, NULL, 0), CCI_EINVAL);
            CHECK(is_contents(event->ptr, event->len, at));
            return_event(event);
            event = expect(&client, CCI_MESSENGER_REPLY);
            OK(event->status);
            CHECK(event->context == (void *)(at + 1) && event->connection == client.peer && !event->not_sent);
            CHECK(event->len == answered[at] && is_contents(event->ptr, event->len, at + 50));
            return_event(event);
            CHECK_STATUS(cci_messenger_cancel_call(client.messenger, call), CCI_EINVAL);
            free(request);
            free(reply);
        }
        idle();
        close_pair();
    }
}

/* Requests and replies that are gathered, short and long; requests also from memory that is lent. */
static void gathered(const char *transport)
{
    static const size_t lengths[] = {0, 30, 8184, 9000, 600000};
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    void *loan = NULL;
    OK(cci_messenger_alloc(client.messenger, 600000, &loan));
    for (size_t at = 0; at < 3 * (sizeof lengths / sizeof *lengths); at++) {
        const size_t len = lengths[at / 3], third = len / 3;
        unsigned char *bytes = contents(len, at);
        struct iovec parts[4] = {{bytes, third}, {bytes + third, 0}, {bytes + third, third}, {bytes + 2 * third, len - 2 * third}};
        const int flags = at % 3 == 0 ? 0 : CCI_FLAG_NO_COPY;
        uint64_t call = 0;
        if (at % 3 == 2) {
            memcpy(loan, bytes, third);
            parts[0].iov_base = loan;
        }
        OK(cci_messenger_callv(client.messenger, client.peer, parts, 4, NULL, (void *)(at + 1), flags, &call));
        CHECK(call != 0);
        cci_messenger_event_t *request = expect(&server, CCI_MESSENGER_REQUEST), *reply;
        CHECK(request->len == len && is_contents(request->ptr, len, at));
        CHECK_STATUS(cci_messenger_replyv(server.messenger, request, NULL, 1), CCI_EINVAL);
        CHECK_STATUS(cci_messenger_replyv(server.messenger, request, parts, 1025), CCI_EINVAL);
        CHECK_STATUS(cci_messenger_replyv(server.messenger, request, &(struct iovec){NULL, 1}, 1), CCI_EINVAL);
        /* The reply is what was asked, with its last part first. */
        struct iovec back[2] = {{(char *)request->ptr + third, len - third}, {(void *)request->ptr, third}};
        if (!request->ptr)
            back[0] = back[1] = (struct iovec){NULL, 0};
        OK(cci_messenger_replyv(server.messenger, request, back, 2));
        CHECK_STATUS(cci_messenger_replyv(server.messenger, request, back, 2), CCI_EINVAL);
        return_event(request);
        reply = expect(&client, CCI_MESSENGER_REPLY);
        OK(reply->status);
        CHECK(reply->len == len && reply->context == (void *)(at + 1));
        CHECK(len == 0 || (memcmp(reply->ptr, bytes + third, len - third) == 0 &&
                           memcmp((const char *)reply->ptr + len - third, bytes, third) == 0));
        return_event(reply);
        free(bytes);
    }
    const struct iovec one = {(void *)"a", 1};
    const struct timeval negative = {-1, 0};
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, NULL, 1, NULL, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, &one, 1025, NULL, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, &(struct iovec){NULL, 1}, 1, NULL, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, &one, 1, &negative, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, &one, 1, NULL, NULL, CCI_FLAG_SILENT, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, client.peer, &(struct iovec){(void *)4096, 100000}, 1, NULL, NULL,
                                     CCI_FLAG_NO_COPY, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_callv(client.messenger, 0, &one, 1, NULL, NULL, 0, NULL), CCI_ERR_DISCONNECTED);
    CHECK_STATUS(cci_messenger_callv(NULL, client.peer, &one, 1, NULL, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_replyv(server.messenger, NULL, &one, 1), CCI_EINVAL);
    idle();
    OK(cci_messenger_free(client.messenger, loan));
    close_pair();
}

/* As many calls as may be, answered in another order, some by errors, and some not at all. */
static void out_of_order(const char *transport)
{
    enum { COUNT = 256 };
    cci_messenger_event_t *requests[COUNT];
    int ended[COUNT] = {0};
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    for (uint32_t at = 0; at < COUNT; at++) {
        OK(cci_messenger_call(client.messenger, client.peer, &at, sizeof at, NULL, (void *)(uintptr_t)at, NULL));
        requests[at] = expect(&server, CCI_MESSENGER_REQUEST);
    }
    CHECK_STATUS(cci_messenger_call(client.messenger, client.peer, "", 0, NULL, NULL, NULL), CCI_ENOBUFS);
    for (uint32_t turn = 0; turn < COUNT; turn++) {
        uint32_t at = (turn * 77 + 5) % COUNT, number = at * 3;
        CHECK(memcmp(requests[at]->ptr, &at, sizeof at) == 0);
        if (at % 3 == 0)
            OK(cci_messenger_reply(server.messenger, requests[at], &number, sizeof number));
        else if (at % 3 == 1)
            OK(cci_messenger_reply_error(server.messenger, requests[at], at, "no such key", 11));
        return_event(requests[at]);
    }
    for (int turn = 0; turn < COUNT; turn++) {
        cci_messenger_event_t *event = expect(&client, CCI_MESSENGER_REPLY);
        uint32_t at = (uint32_t)(uintptr_t)event->context, number = at * 3;
        CHECK(at < COUNT && !ended[at]++);
        if (at % 3 == 0) {
            OK(event->status);
            CHECK(event->len == sizeof number && memcmp(event->ptr, &number, sizeof number) == 0);
        } else if (at % 3 == 1) {
            CHECK_STATUS(event->status, CCI_EXT_REPLY_ERROR);
            CHECK(event->code == at && event->len == 11 && memcmp(event->ptr, "no such key", 11) == 0);
        } else {
            CHECK_STATUS(event->status, CCI_EXT_DROPPED);
            CHECK(event->len == 0 && event->ptr == NULL);
        }
        return_event(event);
    }
    idle();
    close_pair();
}

/* Calls end at their deadlines, when they are given up, and with the connection. */
static void ends(const char *transport)
{
    const struct timeval soon = {0, 20000};
    uint64_t call = 0;
    open_pair(transport, CCI_CONN_ATTR_RO, NULL);
    /* The deadline passes while the program sleeps. */
    OK(cci_messenger_call(client.messenger, client.peer, "late", 4, &soon, (void *)1, NULL));
    cci_messenger_event_t *request = expect(&server, CCI_MESSENGER_REQUEST), *event;
    const uint64_t id = request->id;
    OK(cci_messenger_wait_event(client.messenger, &(struct timeval){20, 0}, &event));
    CHECK(event->type == CCI_MESSENGER_REPLY && event->context == (void *)1);
    CHECK_STATUS(event->status, CCI_ETIMEDOUT);
    return_event(event);
    event = expect(&server, CCI_MESSENGER_REQUEST_CANCELLED);
    CHECK(event->id == id && event->connection == server.peer);
    return_event(event);
    CHECK_STATUS(cci_messenger_reply(server.messenger, request, "?", 1), CCI_ERR_DISCONNECTED);
    return_event(request);
    /* Given up. */
    OK(cci_messenger_call(client.messenger, client.peer, "never", 5, NULL, (void *)2, &call));
    request = expect(&server, CCI_MESSENGER_REQUEST);
    OK(cci_messenger_cancel_call(client.messenger, call));
    CHECK_STATUS(cci_messenger_cancel_call(client.messenger, call), CCI_EINVAL);
    event = expect(&client, CCI_MESSENGER_REPLY);
    CHECK_STATUS(event->status, CCI_EXT_CANCELLED);
    return_event(event);
    return_event(expect(&server, CCI_MESSENGER_REQUEST_CANCELLED));
    return_event(request);
    /* A request that is longer than the server takes whole was never seen by it. */
    unsigned char *bytes = contents((1 << 20) + 1, 3);
    OK(cci_messenger_call(client.messenger, client.peer, bytes, (1 << 20) + 1, NULL, (void *)3, NULL));
    event = expect(&client, CCI_MESSENGER_REPLY);
    CHECK_STATUS(event->status, CCI_EMSGSIZE);
    CHECK(event->not_sent == 1 && event->len == 1 << 20 && event->context == (void *)3);
    return_event(event);
    free(bytes);
    /* A request is answered by the messenger that it came to. */
    OK(cci_messenger_call(client.messenger, client.peer, "whose", 5, NULL, (void *)4, NULL));
    request = expect(&server, CCI_MESSENGER_REQUEST);
    CHECK_STATUS(cci_messenger_reply(client.messenger, request, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_reply(NULL, request, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_reply(server.messenger, request, NULL, 1), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_reply(server.messenger, request, "", UINT64_MAX), CCI_EINVAL);
    CHECK_STATUS(cci_messenger_accept(server.messenger, request, NULL), CCI_EINVAL);
    OK(cci_messenger_reply(server.messenger, request, "mine", 4));
    event = expect(&client, CCI_MESSENGER_REPLY);
    OK(event->status);
    CHECK(event->len == 4 && memcmp(event->ptr, "mine", 4) == 0);
    return_event(event);
    return_event(request);
    /* The server leaves; its request outlives it. */
    OK(cci_messenger_call(client.messenger, client.peer, "alone", 5, NULL, (void *)5, NULL));
    request = expect(&server, CCI_MESSENGER_REQUEST);
    OK(cci_messenger_close(server.messenger));
    server.messenger = NULL;
    event = expect(&client, CCI_MESSENGER_REPLY);
    CHECK_STATUS(event->status, CCI_ERR_DISCONNECTED);
    CHECK(event->context == (void *)5);
    return_event(event);
    return_event(expect(&client, CCI_MESSENGER_DISCONNECTED));
    CHECK(memcmp(request->ptr, "alone", 5) == 0);
    CHECK_STATUS(cci_messenger_reply(client.messenger, request, "x", 1), CCI_EINVAL);
    return_event(request);
    CHECK_STATUS(cci_messenger_get_event(client.messenger, &event), CCI_EAGAIN);
    OK(cci_messenger_close(client.messenger));
}

CASES("messenger_calls", lengths, gathered, out_of_order, ends)
