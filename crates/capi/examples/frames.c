/*
 * Frames of a camera, handed to another process without a copy: each is written to memory that the library lends.
 *
 *   frames watch [DEVICE]         prints its URI, and at the end what came
 *   frames produce URI [COUNT]    makes some
 *
 * The example frames.rs of the Rust interface speaks the same: a frame begins with its number, 8 bytes, little-endian, and all
 * bytes behind that are the number's lowest one.
 */
#include <cci.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 8, ON_THEIR_WAY_MAX = 16 };

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

static void check(const unsigned char *frame, uint32_t len, unsigned long expected)
{
    unsigned long long number = 0;
    if (len <= NUMBER_BYTES) {
        fprintf(stderr, "a frame is too short\n");
        exit(1);
    }
    for (int byte = 0; byte < NUMBER_BYTES; byte++)
        number |= (unsigned long long)frame[byte] << (8 * byte);
    for (uint32_t at = NUMBER_BYTES; at < len; at++)
        if (number != expected || frame[at] != (unsigned char)number) {
            fprintf(stderr, "frame %llu came damaged, as number %lu\n", number, expected);
            exit(1);
        }
}

static void watch(void)
{
    unsigned long frames = 0;
    uint32_t on = 1;
    must("cci_set_opt", cci_set_opt(endpoint, CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS, &on));
    const char *uri;
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    for (int is_over = 0; !is_over;) {
        cci_event_t *event;
        must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
        switch ((int)event->type) {
        case CCI_EVENT_CONNECT_REQUEST:
            must("cci_accept", cci_accept(event, NULL));
            break;
        case CCI_EVENT_ACCEPT:
            must("accepting", event->accept.status);
            /* Frames stay where the producer wrote them, if the processes share memory. This one trusts the producer to leave
             * a frame alone until it is returned. */
            must("cci_set_opt", cci_set_opt(event->accept.connection, CCI_OPT_EXT_CONN_LOANS, &on));
            break;
        case CCI_EVENT_RECV:
            check(event->recv.ptr, event->recv.len, frames++);
            break;
        case CCI_EVENT_EXT_DISCONNECTED:
            is_over = 1;
            break;
        default:
            break;
        }
        /* This gives a frame back to the producer. */
        must("cci_return_event", cci_return_event(event));
    }
    printf("%lu frames\n", frames);
}

/* Makes a frame in memory of the library's, and sends it from there. Returns 0 if all such memory is on its way. */
static int make(cci_connection_t *to, unsigned long number)
{
    void *memory;
    uint32_t len = to->max_send_size;
    int status = cci_loan(to, len, &memory);
    if (status == CCI_ENOBUFS)
        return 0;
    must("cci_loan", status);
    memset(memory, (int)(number & 255), len);
    for (int byte = 0; byte < NUMBER_BYTES; byte++)
        ((unsigned char *)memory)[byte] = (unsigned char)((unsigned long long)number >> (8 * byte));
    status = cci_send_loan(to, memory, len, NULL, 0);
    if (status == CCI_ENOBUFS) {
        must("cci_return_loan", cci_return_loan(to, memory));
        return 0;
    }
    must("cci_send_loan", status);
    return 1;
}

static void produce(const char *uri, unsigned long count)
{
    cci_event_t *event;
    must("cci_connect", cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL));
    must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
    must("connecting", event->connect.status);
    cci_connection_t *to = event->connect.connection;
    must("cci_return_event", cci_return_event(event));
    for (unsigned long made = 0, returned = 0; returned < count;) {
        if (made < count && made - returned < ON_THEIR_WAY_MAX && make(to, made)) {
            made++;
            continue;
        }
        must("cci_wait_event", cci_wait_event(endpoint, NULL, &event));
        if (event->type == CCI_EVENT_SEND) {
            must("a frame", event->send.status);
            returned++;
        }
        must("cci_return_event", cci_return_event(event));
    }
    must("cci_disconnect", cci_disconnect(to));
    printf("%lu frames made\n", count);
}

int main(int argc, char **argv)
{
    uint32_t caps;
    int watches = argc > 1 && strcmp(argv[1], "watch") == 0;
    if (!watches && (argc < 3 || strcmp(argv[1], "produce") != 0)) {
        fprintf(stderr, "usage: frames watch [DEVICE] | frames produce URI [COUNT]\n");
        return 2;
    }
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(find_device(watches && argc > 2 ? argv[2] : NULL), 0, &endpoint, NULL));
    if (watches)
        watch();
    else
        produce(argv[2], argc > 3 ? strtoul(argv[3], NULL, 10) : 1000);
    must("cci_destroy_endpoint", cci_destroy_endpoint(endpoint));
    must("cci_finalize", cci_finalize());
    return 0;
}
