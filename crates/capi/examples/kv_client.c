/*
 * A remote key-value table, a client: updates and looks up keys in the memory of kv_server, at the same time as other
 * clients, without the server's program taking part.
 *
 *   kv_client URI [DEVICE [UPDATES]]
 */
#include "kv.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Few, so that clients meet. */
#define KEYS 40

/* What the server's memory is read to, and values are written from: registered with our endpoint. */
struct scratch {
    uint64_t result, seq_before, seq_after;
    struct kv_value value;
};

static cci_endpoint_t *endpoint;
static cci_connection_t *connection;
static struct kv_offer offer;
static struct scratch *scratch;
static cci_rma_handle_t *scratch_handle;
static uint64_t retries;

static void must(const char *what, int status)
{
    if (status != CCI_SUCCESS) {
        fprintf(stderr, "%s: %s (%s)\n", what, cci_strerror(NULL, (enum cci_status)status), cci_last_error());
        exit(1);
    }
}

static void fail(const char *what, uint64_t key)
{
    fprintf(stderr, "%s, key %llu\n", what, (unsigned long long)key);
    exit(1);
}

/* ------------------------------------------------------------------------------------- one step at a time --- */

/* Changes a word of the table and waits; gives what was there before. */
static uint64_t change(cci_atomic_op_t op, size_t offset, uint64_t operand, uint64_t compare)
{
    must("cci_atomic",
         cci_atomic(connection, op, 8, operand, compare, &offer.table, offset, scratch_handle,
                    offsetof(struct scratch, result), NULL, CCI_FLAG_BLOCKING));
    return scratch->result;
}

/* Moves bytes between the scratch and the table. */
static void move(size_t ours, size_t table, size_t length, int flags)
{
    int status;
    do
        status = cci_rma(connection, NULL, 0, scratch_handle, ours, &offer.table, table, length, NULL, flags);
    while (status == CCI_ENOBUFS);
    must("cci_rma", status);
}

static size_t slot_at(uint64_t index)
{
    return offsetof(struct kv_table, slots) + index % KV_SLOTS * sizeof(struct kv_slot);
}

/* -------------------------------------------------------------------------------------------- the table --- */

/* Where the slot of a key is; claims one if there is none and that is wanted. 0: there is none. */
static size_t find(uint64_t key, int claim)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u >> 32;
    for (uint64_t probe = 0; probe < KV_SLOTS; probe++) {
        size_t slot = slot_at(hash + probe);
        uint64_t before = change(CCI_ATOMIC_COMPARE_SWAP, slot + offsetof(struct kv_slot, key), claim ? key : 0, 0);
        if (before == 0 && claim)
            change(CCI_ATOMIC_FETCH_ADD, offsetof(struct kv_table, keys), 1, 0);
        if (before == key || (before == 0 && claim))
            return slot;
        if (before == 0)
            return 0;
    }
    fail("the table is full", key);
    return 0;
}

/* Puts scratch->value into the table. */
static void put(uint64_t key)
{
    size_t slot = find(key, 1), seq = slot + offsetof(struct kv_slot, seq);
    time_t start = time(NULL);
    uint64_t guess = 0, before;
    /* Take the slot: from even to odd. A wrong guess shows what is there. */
    while ((before = change(CCI_ATOMIC_COMPARE_SWAP, seq, guess + 1, guess)) != guess) {
        guess = before & ~(uint64_t)1;
        retries += before != guess;
        if (before != guess && time(NULL) > start + 20)
            fail("a client died while it held the slot", key);
    }
    /* Value, release, count: all under way at once. The fence keeps the release behind the value. */
    move(offsetof(struct scratch, value), slot + offsetof(struct kv_slot, value), sizeof(scratch->value),
         CCI_FLAG_WRITE | CCI_FLAG_SILENT);
    must("cci_atomic", cci_atomic(connection, CCI_ATOMIC_ADD, 8, 1, 0, &offer.table, seq, NULL, 0, NULL,
                                  CCI_FLAG_SILENT | CCI_FLAG_FENCE));
    change(CCI_ATOMIC_FETCH_ADD, offsetof(struct kv_table, updates), 1, 0);
}

/* Reads a key's value into scratch->value; 0: there is none. */
static int get(uint64_t key)
{
    size_t slot = find(key, 0), seq = slot + offsetof(struct kv_slot, seq);
    time_t start = time(NULL);
    if (slot == 0)
        return 0;
    for (;;) {
        move(offsetof(struct scratch, seq_before), seq, 8, CCI_FLAG_READ | CCI_FLAG_SILENT);
        move(offsetof(struct scratch, value), slot + offsetof(struct kv_slot, value), sizeof(scratch->value),
             CCI_FLAG_READ | CCI_FLAG_SILENT | CCI_FLAG_FENCE);
        move(offsetof(struct scratch, seq_after), seq, 8, CCI_FLAG_READ | CCI_FLAG_BLOCKING | CCI_FLAG_FENCE);
        if (scratch->seq_before == scratch->seq_after && scratch->seq_after % 2 == 0)
            return scratch->seq_after > 0;
        retries++;
        if (time(NULL) > start + 20)
            fail("a client died while it held the slot", key);
    }
}

/* ------------------------------------------------------------------------------------------- the program --- */

static cci_event_t *next(cci_event_type_t type)
{
    struct timeval patience = {10, 0};
    cci_event_t *event;
    must("cci_wait_event", cci_wait_event(endpoint, &patience, &event));
    if (event->type != type)
        fail(cci_event_type_str(event->type), 0);
    return event;
}

static void connect_to(const char *uri, const char *device)
{
    uint32_t caps;
    cci_device_t *const *devices;
    struct timeval timeout = {10, 0};
    void *memory;
    must("cci_init", cci_init(CCI_ABI_VERSION, 0, &caps));
    must("cci_get_devices", cci_get_devices(&devices));
    while (device && *devices && strcmp((*devices)->name, device) != 0)
        devices++;
    must("cci_create_endpoint", cci_create_endpoint(device ? *devices : NULL, 0, &endpoint, NULL));
    must("cci_rma_alloc", cci_rma_alloc(endpoint, sizeof(*scratch), &memory));
    scratch = memory;
    must("cci_rma_register", cci_rma_register(endpoint, scratch, sizeof(*scratch), 0, &scratch_handle));
    must("cci_connect", cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &timeout));
    cci_event_t *event = next(CCI_EVENT_CONNECT);
    must("connecting", event->connect.status);
    connection = event->connect.connection;
    cci_return_event(event);
    event = next(CCI_EVENT_RECV);
    if (event->recv.len != sizeof(offer))
        fail("not a kv_server", 0);
    memcpy(&offer, event->recv.ptr, sizeof(offer));
    cci_return_event(event);
}

int main(int argc, char **argv)
{
    uint64_t updates = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000, found = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: kv_client URI [DEVICE [UPDATES]]\n");
        return 2;
    }
    connect_to(argv[1], argc > 2 ? argv[2] : NULL);
    uint64_t client = 1 + change(CCI_ATOMIC_FETCH_ADD, offsetof(struct kv_table, clients), 1, 0);
    uint64_t random = client * 0x2545f4914f6cdd1du;
    for (uint64_t number = 0; number < updates; number++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = 1 + (random >> 33) % KEYS;
        scratch->value = (struct kv_value){key, client, number, random, 0};
        scratch->value.check = kv_check(&scratch->value);
        put(key);

        /* Another key, which may never have been there, or be written right now. */
        key = 1 + (random >> 40) % (KEYS + 5);
        if (get(key)) {
            if (scratch->value.key != key || scratch->value.check != kv_check(&scratch->value))
                fail("a value is not whole", key);
            found++;
        }
    }
    printf("client %llu: %llu updates, %llu values looked up, met others %llu times\n", (unsigned long long)client,
           (unsigned long long)updates, (unsigned long long)found, (unsigned long long)retries);
    cci_disconnect(connection);
    cci_destroy_endpoint(endpoint);
    return cci_finalize() == CCI_SUCCESS ? 0 : 1;
}
