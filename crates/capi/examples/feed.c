/*
 * A feed: quotes sent in bursts, and received by a handler.
 *
 *   feed listen [DEVICE]       prints its URI, and at the end what came
 *   feed send URI [COUNT]      sends some
 *
 * The example feed.rs of the Rust interface speaks the same: a symbol of 4 bytes and a price in cents, little-endian.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { SYMBOLS = 4, BURST = 32, POLL_MAX = 64 };

static const char symbols[SYMBOLS][5] = {"AAAA", "BBBB", "CCCC", "DDDD"};

struct quote {
    char symbol[4];
    unsigned char price[4];
};

/* What came: how many quotes, and the last price of each symbol. */
struct quotes {
    unsigned long count;
    unsigned last[SYMBOLS];
    /* A client that asks, kept for after the call, and whether the client has gone. */
    cci_event_t *request;
    int is_over;
};

static cci_endpoint_t *endpoint;

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

static cci_device_t *find_device(const char *name)
{
    cci_device_t *const *devices;
    must("cci_get_devices", cci_get_devices(&devices));
    for (; *devices; devices++)
        if (name && strcmp((*devices)->name, name) == 0)
            return *devices;
    return NULL;
}

static void take(struct quotes *quotes, const void *bytes, uint32_t len)
{
    struct quote quote;
    if (len != sizeof(quote))
        return;
    memcpy(&quote, bytes, sizeof(quote));
    for (int which = 0; which < SYMBOLS; which++)
        if (memcmp(quote.symbol, symbols[which], 4) == 0) {
            quotes->last[which] =
                quote.price[0] | quote.price[1] << 8 | quote.price[2] << 16 | (unsigned)quote.price[3] << 24;
            quotes->count++;
        }
}

/* Gets what came, one by one. It can't use the endpoint, so it keeps what is to be answered. */
static void handle(cci_event_t *event, void *arg)
{
    struct quotes *quotes = arg;
    switch ((int)event->type) {
    case CCI_EVENT_RECV:
        take(quotes, event->recv.ptr, event->recv.len);
        break;
    case CCI_EVENT_CONNECT_REQUEST:
        must("cci_keep_event", cci_keep_event(event, &quotes->request));
        break;
    case CCI_EVENT_EXT_DISCONNECTED:
        quotes->is_over = 1;
        break;
    default:
        break;
    }
}

static void listen_(void)
{
    struct quotes quotes = {0, {0}, NULL, 0};
    uint32_t on = 1;
    must("cci_set_opt", cci_set_opt(endpoint, CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS, &on));
    const char *uri;
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    while (!quotes.is_over) {
        int status = cci_poll(endpoint, POLL_MAX, handle, &quotes, NULL);
        if (status == CCI_EAGAIN) {
            /* Nothing is there. Whatever comes next ends the sleep. */
            cci_event_t *event;
            must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
            if (event->type == CCI_EVENT_CONNECT_REQUEST) {
                quotes.request = event;
            } else {
                if (event->type == CCI_EVENT_RECV)
                    take(&quotes, event->recv.ptr, event->recv.len);
                quotes.is_over |= (int)event->type == CCI_EVENT_EXT_DISCONNECTED;
                must("cci_return_event", cci_return_event(event));
            }
        } else {
            must("cci_poll", status);
        }
        if (quotes.request) {
            must("cci_accept", cci_accept(quotes.request, NULL));
            must("cci_return_event", cci_return_event(quotes.request));
            quotes.request = NULL;
        }
    }
    for (int which = 0; which < SYMBOLS; which++)
        printf("%s %u.%02u\n", symbols[which], quotes.last[which] / 100, quotes.last[which] % 100);
    printf("%lu quotes\n", quotes.count);
}

/* Waits for an event, which also makes space. Returns 1 if it is the end of a burst. */
static int has_ended(void)
{
    cci_event_t *event;
    must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
    int is_end = event->type == CCI_EVENT_SEND;
    if (is_end)
        must("a burst", event->send.status);
    must("cci_return_event", cci_return_event(event));
    return is_end;
}

/* Sends so many prices of each symbol. */
static void send_(const char *uri, unsigned count)
{
    must("cci_connect", cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    cci_event_t *event;
    must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
    must("connecting", event->connect.status);
    cci_connection_t *to = event->connect.connection;
    must("cci_return_event", cci_return_event(event));

    unsigned all = count * SYMBOLS, next = 0, sent = 0, ended = 0;
    while (next < all) {
        struct quote quotes[BURST];
        struct iovec messages[BURST];
        uint32_t in_burst = 0, taken = 0;
        for (; in_burst < BURST && next + in_burst < all; in_burst++) {
            unsigned which = (next + in_burst) % SYMBOLS;
            unsigned cents = 10000 * (which + 1) + (next + in_burst) / SYMBOLS;
            memcpy(quotes[in_burst].symbol, symbols[which], 4);
            for (int byte = 0; byte < 4; byte++)
                quotes[in_burst].price[byte] = (unsigned char)(cents >> (8 * byte));
            messages[in_burst].iov_base = &quotes[in_burst];
            messages[in_burst].iov_len = sizeof(quotes[in_burst]);
        }
        /* As many are taken as there is space for, and all of these end in one event. */
        int status = cci_send_burst(to, messages, in_burst, NULL, 0, &taken);
        if (status == CCI_ENOBUFS) {
            ended += has_ended();
        } else {
            must("cci_send_burst", status);
            next += taken;
            sent++;
        }
    }
    while (ended < sent)
        ended += has_ended();
    must("cci_disconnect", cci_disconnect(to));
    printf("%u quotes sent\n", all);
}

int main(int argc, char **argv)
{
    uint32_t caps;
    int listens = argc > 1 && strcmp(argv[1], "listen") == 0;
    if (!listens && (argc < 3 || strcmp(argv[1], "send") != 0)) {
        fprintf(stderr, "usage: feed listen [DEVICE] | feed send URI [COUNT]\n");
        return 2;
    }
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(find_device(listens && argc > 2 ? argv[2] : NULL), 0, &endpoint, NULL));
    if (listens)
        listen_();
    else
        send_(argv[2], argc > 3 ? (unsigned)atoi(argv[3]) : 1000);
    must("cci_destroy_endpoint", cci_destroy_endpoint(endpoint));
    must("cci_finalize", cci_finalize());
    return 0;
}
