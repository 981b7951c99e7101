/*
 * Prices to everybody who listens: a multicast group.
 *
 *   ticker watch [DEVICE [GROUP]]              prints the group and then the prices, until the end
 *   ticker publish [DEVICE [GROUP [COUNT]]]    sends some
 *
 * Any number of each, in any order; the example ticker.rs of the Rust interface speaks the same: a symbol of 4 bytes and a
 * price in cents, little-endian.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP "udp://239.192.77.1:4792"

static const char symbols[4][5] = {"AAAA", "BBBB", "CCCC", "DDDD"};

struct tick {
    char symbol[4];
    unsigned char price[4];
};

static cci_endpoint_t *endpoint;

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

/* The device of that name, or the first one that is UDP. */
static cci_device_t *find_device(const char *name)
{
    cci_device_t *const *devices;
    must("cci_get_devices", cci_get_devices(&devices));
    for (; *devices; devices++)
        if (name ? strcmp((*devices)->name, name) == 0 : strcmp((*devices)->transport, "udp") == 0)
            return *devices;
    fprintf(stderr, "no such device\n");
    exit(1);
}

/* A connection to or from a group is there at once: nobody is asked. */
static cci_connection_t *join(const char *group, cci_conn_attribute_t attribute)
{
    cci_event_t *event;
    must("cci_connect", cci_connect(endpoint, group, NULL, 0, attribute, NULL, 0, NULL));
    must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
    must("joining", event->connect.status);
    cci_connection_t *connection = event->connect.connection;
    cci_return_event(event);
    return connection;
}

static void send_tick(cci_connection_t *to, const char *symbol, unsigned price_cents)
{
    struct tick tick;
    memcpy(tick.symbol, symbol, sizeof(tick.symbol));
    for (int byte = 0; byte < 4; byte++)
        tick.price[byte] = (unsigned char)(price_cents >> (8 * byte));
    must("cci_send", cci_send(to, &tick, sizeof(tick), NULL, CCI_FLAG_SILENT));
}

static void publish(const char *group, unsigned count)
{
    cci_connection_t *to = join(group, CCI_CONN_ATTR_UU_MC_TX);
    for (unsigned number = 0; number < count; number++) {
        for (unsigned which = 0; which < 4; which++)
            send_tick(to, symbols[which], 10000 * (which + 1) + number);
        /* Nothing slows a publisher down: what listeners can't take is lost. */
        cci_event_t *event;
        struct timeval pause = {0, 200};
        if (cci_wait_event(endpoint, &pause, &event) == CCI_SUCCESS)
            cci_return_event(event);
    }
    send_tick(to, "....", 0);
    printf("%u ticks published\n", 4 * count);
}

static void watch(const char *group)
{
    join(group, CCI_CONN_ATTR_UU_MC_RX);
    printf("%s\n", group);
    fflush(stdout);
    unsigned ticks = 0, last[4] = {0, 0, 0, 0};
    for (;;) {
        cci_event_t *event;
        must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
        struct tick tick = {"....", {0, 0, 0, 0}};
        if (event->type == CCI_EVENT_RECV && event->recv.len == sizeof(tick))
            memcpy(&tick, event->recv.ptr, sizeof(tick));
        cci_return_event(event);
        if (memcmp(tick.symbol, "....", 4) == 0)
            break;
        ticks++;
        for (int which = 0; which < 4; which++)
            if (memcmp(tick.symbol, symbols[which], 4) == 0)
                last[which] = tick.price[0] | tick.price[1] << 8 | tick.price[2] << 16 | (unsigned)tick.price[3] << 24;
    }
    for (int which = 0; which < 4; which++)
        if (last[which])
            printf("%s %u.%02u\n", symbols[which], last[which] / 100, last[which] % 100);
    printf("%u ticks\n", ticks);
}

int main(int argc, char **argv)
{
    uint32_t caps;
    const char *group = argc > 3 ? argv[3] : GROUP;
    if (argc < 2 || (strcmp(argv[1], "watch") != 0 && strcmp(argv[1], "publish") != 0)) {
        fprintf(stderr, "usage: ticker watch|publish [DEVICE [GROUP [COUNT]]]\n");
        return 2;
    }
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(find_device(argc > 2 ? argv[2] : NULL), 0, &endpoint, NULL));
    if (strcmp(argv[1], "watch") == 0)
        watch(group);
    else
        publish(group, argc > 4 ? (unsigned)atoi(argv[4]) : 1000);
    must("cci_destroy_endpoint", cci_destroy_endpoint(endpoint));
    must("cci_finalize", cci_finalize());
    return 0;
}
