/*
 * A key-value table in one process's memory that others look up and change by remote memory access alone: how it
 * lies in memory, for kv_server and kv_client.
 *
 * A slot is claimed once, by a compare-and-swap of its key from 0. Its value is guarded by seq, which is odd while
 * somebody writes: a writer makes it odd by compare-and-swap, writes the value, and makes it even again. A reader reads
 * seq, the value, and seq again; if both are the same even number, the value is whole.
 */
#ifndef KV_H
#define KV_H

#include <cci.h>
#include <stddef.h>

#define KV_SLOTS 1024

struct kv_value {
    uint64_t key, client, number, noise, check;
};

struct kv_slot {
    uint64_t key; /* 0: free. */
    uint64_t seq; /* Odd: being written. Half of it: updates so far. */
    struct kv_value value;
    uint64_t unused;
};

struct kv_table {
    uint64_t clients, keys, updates; /* Counted by fetch-and-add. */
    uint64_t unused[5];
    struct kv_slot slots[KV_SLOTS];
};

/* What the server sends to every client. */
struct kv_offer {
    struct cci_rma_handle table;
};

/* What check must be: a value that two writers mixed does not pass. */
static inline uint64_t kv_check(const struct kv_value *value)
{
    uint64_t sum = value->key * 3 + value->client * 5 + value->number * 7 + value->noise * 11;
    return (sum ^ sum >> 29) * 0x9e3779b97f4a7c15u;
}

#endif
