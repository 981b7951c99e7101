/*
 * A server of keys and values, and its clients, with epoll. "key=value" sets a value of any length, "key" asks for one.
 *
 *   messenger_kv                          the server: prints its URI, and ends with its standard input
 *   messenger_kv URI key=value key ...    a client: asks all at once, and prints each answer
 */
#include <cci_messenger.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void check(int status, const char *what)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, cci_strerror(NULL, (cci_status_t)status), cci_last_error());
        exit(1);
    }
}

struct entry {
    struct entry *next;
    char *key, *value;
    size_t key_len, value_len;
};

static struct entry *table;

static struct entry *find(const char *key, size_t len)
{
    struct entry *entry = table;
    while (entry && (entry->key_len != len || memcmp(entry->key, key, len) != 0))
        entry = entry->next;
    return entry;
}

static char *copy(const char *bytes, size_t len)
{
    char *copied = malloc(len + 1);
    if (!copied)
        abort();
    memcpy(copied, bytes, len);
    copied[len] = '\0';
    return copied;
}

static void answer(cci_messenger_t *messenger, cci_messenger_event_t *request)
{
    const char *text = request->len ? request->ptr : "", *equals = memchr(text, '=', request->len);
    size_t key_len = equals ? (size_t)(equals - text) : request->len;
    struct entry *entry = find(text, key_len);
    if (equals) {
        if (!entry) {
            entry = calloc(1, sizeof *entry);
            if (!entry)
                abort();
            entry->next = table;
            entry->key = copy(text, key_len);
            entry->key_len = key_len;
            table = entry;
        }
        free(entry->value);
        entry->value_len = request->len - key_len - 1;
        entry->value = copy(equals + 1, entry->value_len);
    }
    int status = entry ? cci_messenger_reply(messenger, request, entry->value, entry->value_len)
                       : cci_messenger_reply_error(messenger, request, 404, "no such key", 11);
    /* A client that is gone needs no answer. Where there is no space, the client learns that its request was dropped, and asks again. */
    if (status != CCI_ERR_DISCONNECTED && status != CCI_ENOBUFS)
        check(status, "reply");
}

static int unanswered;

/* Returns 0 when a client has all its answers, or when nothing more will come. */
static int on_event(cci_messenger_t *messenger, cci_messenger_event_t *event, char **keys)
{
    const struct timeval timeout = {10, 0};
    switch (event->type) {
    case CCI_MESSENGER_CONNECT_REQUEST:
        check(cci_messenger_accept(messenger, event, NULL), "accept");
        break;
    case CCI_MESSENGER_REQUEST:
        answer(messenger, event);
        break;
    case CCI_MESSENGER_CONNECT:
        check(event->status, "connect");
        for (; keys[unanswered]; unanswered++)
            check(cci_messenger_call(messenger, event->connection, keys[unanswered], strlen(keys[unanswered]), &timeout,
                                     keys[unanswered], NULL),
                  "call");
        break;
    case CCI_MESSENGER_REPLY:
        if (event->status != CCI_SUCCESS && event->status != CCI_EXT_REPLY_ERROR)
            check(event->status, "reply");
        printf("%.20s: %.*s%s\n", (char *)event->context, (int)(event->len < 40 ? event->len : 40),
               event->len ? (const char *)event->ptr : "", event->len > 40 ? "..." : "");
        unanswered--;
        break;
    default:
        break;
    }
    return !keys || unanswered > 0;
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_messenger_t *messenger;
    cci_messenger_event_t *event;
    int fd, is_client = argc > 1, goes_on = 1;
    check(cci_init(CCI_ABI_VERSION, 0, &caps), "cci_init");
    check(cci_messenger_open(NULL, NULL, NULL, NULL, &messenger, &fd), "open");
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event watched = {EPOLLIN, {.fd = fd}};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &watched);
    if (is_client) {
        check(cci_messenger_connect(messenger, argv[1], NULL, 0, CCI_CONN_ATTR_RO, NULL, &(struct timeval){10, 0}),
              "connect");
    } else {
        char *uri;
        check(cci_messenger_uri(messenger, &uri), "uri");
        printf("%s\n", uri);
        fflush(stdout);
        free(uri);
        watched.data.fd = STDIN_FILENO;
        epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &watched);
    }
    while (goes_on) {
        struct epoll_event ready;
        if (epoll_wait(poller, &ready, 1, -1) == 1 && ready.data.fd == STDIN_FILENO && !is_client) {
            char byte;
            goes_on = read(STDIN_FILENO, &byte, 1) > 0;
        }
        while (goes_on && cci_messenger_get_event(messenger, &event) == CCI_SUCCESS) {
            goes_on = on_event(messenger, event, is_client ? argv + 2 : NULL);
            check(cci_messenger_return_event(event), "return_event");
        }
    }
    check(cci_messenger_close(messenger), "close");
    while (table) {
        struct entry *next = table->next;
        free(table->key);
        free(table->value);
        free(table);
        table = next;
    }
    close(poller);
    check(cci_finalize(), "cci_finalize");
    return 0;
}
