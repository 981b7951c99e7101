/*
 * A remote key-value table, the server: owns the memory, lets clients in, and otherwise leaves all to the library.
 *
 *   kv_server [DEVICE]
 *
 * Prints its URI. Ends with its standard input; then it looks at the whole table, and says whether all of it is
 * consistent.
 */
#include "kv.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    for (; name && *devices; devices++)
        if (strcmp((*devices)->name, name) == 0)
            return *devices;
    return NULL;
}

/* Accepts clients, and sends them the handle. They do everything else without us. */
static void serve_what_is_there(cci_endpoint_t *endpoint, const struct kv_offer *offer)
{
    cci_event_t *event;
    while (cci_get_event(endpoint, &event) == CCI_SUCCESS) {
        if (event->type == CCI_EVENT_CONNECT_REQUEST)
            cci_accept(event, NULL);
        else if (event->type == CCI_EVENT_ACCEPT && event->accept.status == CCI_SUCCESS)
            cci_send(event->accept.connection, offer, sizeof(*offer), NULL, CCI_FLAG_SILENT);
        cci_return_event(event);
    }
}

/* Nobody writes any more: every value must be whole, and the counters must agree. */
static int verify(const struct kv_table *table)
{
    uint64_t keys = 0, updates = 0, wrong = 0;
    for (int i = 0; i < KV_SLOTS; i++) {
        const struct kv_slot *slot = &table->slots[i];
        if (slot->key == 0)
            continue;
        keys++;
        updates += slot->seq / 2;
        if (slot->seq % 2 || slot->value.key != slot->key || slot->value.check != kv_check(&slot->value))
            wrong++;
    }
    int consistent = wrong == 0 && keys == table->keys && updates == table->updates;
    printf("%llu clients, %llu keys, %llu updates: %s\n", (unsigned long long)table->clients,
           (unsigned long long)keys, (unsigned long long)updates, consistent ? "consistent" : "NOT CONSISTENT");
    return consistent;
}

int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_t *endpoint;
    cci_rma_handle_t *handle;
    void *table;
    char *uri, input[256];
    int fd;

    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_create_endpoint", cci_create_endpoint(find_device(argc > 1 ? argv[1] : NULL), 0, &endpoint, &fd));
    /* The library's own memory: zeroed, and clients on this host map it. */
    must("cci_rma_alloc", cci_rma_alloc(endpoint, sizeof(struct kv_table), &table));
    must("cci_rma_register", cci_rma_register(endpoint, table, sizeof(struct kv_table),
                                              CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_ATOMIC, &handle));
    struct kv_offer offer;
    memcpy(&offer.table, handle, sizeof(offer.table));
    must("cci_get_opt", cci_get_opt(endpoint, CCI_OPT_ENDPT_URI, &uri));
    printf("%s\n", uri);
    fflush(stdout);
    free(uri);

    struct pollfd wait[2] = {{fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    do {
        serve_what_is_there(endpoint, &offer);
        poll(wait, 2, -1);
    } while (!wait[1].revents || read(STDIN_FILENO, input, sizeof(input)) > 0);

    /* From here on no client changes the table any more. */
    must("cci_rma_deregister", cci_rma_deregister(endpoint, handle));
    int consistent = verify(table);
    must("cci_rma_free", cci_rma_free(endpoint, table));
    cci_destroy_endpoint(endpoint);
    return cci_finalize() == CCI_SUCCESS && consistent ? 0 : 1;
}
