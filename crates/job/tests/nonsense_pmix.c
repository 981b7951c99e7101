/* libpmix.so.2 of a server that answers something else than it should in one call, which NONSENSE names. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define NOT_FOUND (-46)
#define UNREACHABLE (-25)
enum { TYPE_STRING = 3, TYPE_UINT32 = 14, TYPE_BYTES = 27 };

struct proc {
    char namespace[256];
    uint32_t rank;
};

struct value {
    uint16_t type;
    union {
        uint32_t uint32;
        struct {
            char *bytes;
            size_t size;
        } bytes;
        uint64_t words[3];
    } data;
};

static struct {
    char *bytes;
    size_t size;
} put;

static int is(const char *what)
{
    const char *nonsense = getenv("NONSENSE");
    return nonsense != NULL && strcmp(nonsense, what) == 0;
}

static void give_bytes(struct value *value, const char *bytes, size_t size)
{
    value->type = TYPE_BYTES;
    value->data.bytes.bytes = malloc(size + 1);
    memcpy(value->data.bytes.bytes, bytes, size);
    value->data.bytes.size = size;
}

int PMIx_Init(struct proc *own, void *infos, size_t count)
{
    (void)infos;
    (void)count;
    memset(own, 0, sizeof *own);
    strcpy(own->namespace, "job");
    own->rank = is("rank") ? 7 : 0;
    return is("init") ? UNREACHABLE : SUCCESS;
}

int PMIx_Put(uint8_t scope, const char *key, const struct value *value)
{
    (void)scope;
    (void)key;
    put.size = value->data.bytes.size;
    put.bytes = malloc(put.size);
    memcpy(put.bytes, value->data.bytes.bytes, put.size);
    return is("put") ? -1 : SUCCESS;
}

int PMIx_Commit(void)
{
    return is("commit") ? -1 : SUCCESS;
}

int PMIx_Fence(const struct proc *procs, size_t count, const void *infos, size_t info_count)
{
    (void)procs;
    (void)count;
    (void)infos;
    (void)info_count;
    return is("fence") ? -1 : SUCCESS;
}

int PMIx_Get(const struct proc *of, const char *key, const void *infos, size_t count, struct value **found)
{
    (void)of;
    (void)infos;
    (void)count;
    int is_size = strcmp(key, "pmix.job.size") == 0;
    *found = NULL;
    if (is(is_size ? "no size" : "no value"))
        return NOT_FOUND;
    if (is(is_size ? "size nowhere" : "value nowhere"))
        return SUCCESS;
    struct value *value = calloc(1, sizeof *value);
    *found = value;
    if (is_size) {
        value->type = is("size is text") ? TYPE_STRING : TYPE_UINT32;
        value->data.uint32 = is("no ranks") ? 0 : is("two ranks") ? 2 : 1;
    } else if (is("value is a number")) {
        value->type = TYPE_UINT32;
    } else if (is("value has no bytes")) {
        value->type = TYPE_BYTES;
        value->data.bytes.size = 10;
    } else if (is("value is too long")) {
        give_bytes(value, put.bytes, put.size);
        value->data.bytes.size = SIZE_MAX;
    } else if (is("value is empty")) {
        give_bytes(value, "", 0);
    } else if (is("no rank of CCI")) {
        give_bytes(value, "\0hello\n", 7);
    } else if (is("another version")) {
        give_bytes(value, "\0CCI 0.0.1\nhost\n\n", 17);
    } else {
        give_bytes(value, put.bytes, put.size);
    }
    return SUCCESS;
}

int PMIx_Finalize(const void *infos, size_t count)
{
    (void)infos;
    (void)count;
    return SUCCESS;
}

#ifndef LACKS_A_CALL
int PMIx_Abort(int status, const char *reason, const struct proc *procs, size_t count)
{
    (void)status;
    (void)reason;
    (void)procs;
    (void)count;
    return SUCCESS;
}
#endif
