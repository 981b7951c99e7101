/* Registering memory, and the library's own memory: every call and every error. Argument: the transport. */
#include "check.h"
#include <sys/mman.h>

static const int ALL = CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_ATOMIC;

static long long counter(cci_endpoint_t *endpoint, const char *name)
{
    char *json, quoted[64];
    OK(cci_get_counters(endpoint, NULL, &json));
    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    const char *found = strstr(json, quoted);
    CHECK(found);
    long long value = atoll(found + strlen(quoted));
    free(json);
    return value;
}

static void errors(cci_endpoint_t *endpoint)
{
    cci_rma_handle_t *handle = NULL;
    char memory[64];
    CHECK_STATUS(cci_rma_register(endpoint, NULL, 4, 0, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, memory, 0, 0, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, memory, 4, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, memory, 4, CCI_FLAG_FENCE, &handle), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "CCI_FLAG_ATOMIC"));
    CHECK_STATUS(cci_rma_register(endpoint, memory, UINT64_MAX, 0, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_deregister(endpoint, NULL), CCI_EINVAL);
    struct cci_rma_handle made_up = {{1, 2, 3, 4}};
    CHECK_STATUS(cci_rma_deregister(endpoint, &made_up), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "no region"));
    CHECK(handle == NULL);
}

/* Handles stay where they are, however many there are, and any copy of one will do. */
static void handles(cci_endpoint_t *endpoint, cci_endpoint_t *other)
{
    enum { COUNT = 1000 };
    static char memory[COUNT];
    static cci_rma_handle_t *handles[COUNT];
    static struct cci_rma_handle copies[COUNT];
    for (int i = 0; i < COUNT; i++) {
        /* All overlap. */
        OK(cci_rma_register(endpoint, memory, 1 + (uint64_t)i, i % 2 ? ALL : 0, &handles[i]));
        memcpy(&copies[i], handles[i], sizeof(copies[i]));
    }
    CHECK(counter(endpoint, "regions") == COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK(memcmp(&copies[i], handles[i], sizeof(copies[i])) == 0);
        for (int j = 0; j < i; j++)
            CHECK(memcmp(&copies[i], &copies[j], sizeof(copies[i])) != 0);
    }
    CHECK_STATUS(cci_rma_deregister(other, handles[0]), CCI_EINVAL);
    for (int i = 0; i < COUNT; i += 2)
        OK(cci_rma_deregister(endpoint, handles[i]));
    for (int i = 1; i < COUNT; i += 2) {
        char anywhere[sizeof(copies[i]) + 1];
        memcpy(anywhere + 1, &copies[i], sizeof(copies[i]));
        CHECK(memcmp(&copies[i], handles[i], sizeof(copies[i])) == 0);
        OK(cci_rma_deregister(endpoint, (cci_rma_handle_t *)(void *)(anywhere + 1)));
        CHECK_STATUS(cci_rma_deregister(endpoint, &copies[i]), CCI_EINVAL);
    }
    CHECK(counter(endpoint, "regions") == 0);
}

static void library_memory(cci_endpoint_t *endpoint, cci_endpoint_t *other)
{
    void *start = NULL, *second = NULL;
    cci_rma_handle_t *whole, *part, *elsewhere, *crossing = NULL;
    uint64_t length = 100000;
    CHECK_STATUS(cci_rma_alloc(endpoint, 0, &start), CCI_EINVAL);
    CHECK_STATUS(cci_rma_alloc(endpoint, length, NULL), CCI_EINVAL);
    CHECK(cci_rma_alloc(endpoint, UINT64_MAX, &start) != CCI_SUCCESS && start == NULL);
    OK(cci_rma_alloc(endpoint, length, &start));
    OK(cci_rma_alloc(endpoint, 1, &second));
    CHECK(start && second && start != second && (uintptr_t)start % 4096 == 0);
    const char *bytes = start;
    for (uint64_t i = 0; i < length; i++)
        CHECK(bytes[i] == 0);
    memset(start, 0xab, length);
    CHECK(counter(endpoint, "memory_total_bytes") > (long long)length);

    CHECK_STATUS(cci_rma_free(other, start), CCI_EINVAL);
    CHECK_STATUS(cci_rma_free(endpoint, (char *)start + 1), CCI_EINVAL);
    CHECK_STATUS(cci_rma_free(endpoint, NULL), CCI_EINVAL);
    OK(cci_rma_register(endpoint, start, length, ALL, &whole));
    OK(cci_rma_register(endpoint, (char *)start + 5, 10, CCI_FLAG_READ, &part));
    OK(cci_rma_register(other, (char *)start + 4096, 4096, CCI_FLAG_READ, &elsewhere));
    /* Beyond its end, or before its start. */
    CHECK_STATUS(cci_rma_register(endpoint, (char *)start + 1, length, 0, &crossing), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, (char *)start - 1, 2, 0, &crossing), CCI_EINVAL);
    CHECK(crossing == NULL && strstr(cci_last_error(), "partly"));

    CHECK_STATUS(cci_rma_free(endpoint, start), CCI_EBUSY);
    OK(cci_rma_deregister(endpoint, whole));
    CHECK_STATUS(cci_rma_free(endpoint, start), CCI_EBUSY);
    OK(cci_rma_deregister(endpoint, part));
    CHECK_STATUS(cci_rma_free(endpoint, start), CCI_EBUSY);
    OK(cci_rma_deregister(other, elsewhere));
    CHECK(((char *)start)[length - 1] == (char)0xab);
    OK(cci_rma_free(endpoint, start));
    CHECK_STATUS(cci_rma_free(endpoint, start), CCI_EINVAL);
    /* The other one goes with the endpoint. */
    CHECK(*(char *)second == 0);
}

/* What is not there, or can't be written. */
static void unmapped(cci_endpoint_t *endpoint)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    cci_rma_handle_t *handle = NULL;
    char *three = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(three != MAP_FAILED);
    memset(three, 1, 3 * page);
    CHECK(mprotect(three, page, PROT_READ) == 0 && munmap(three + 2 * page, page) == 0);
    OK(cci_rma_register(endpoint, three, 2 * page, CCI_FLAG_READ, &handle));
    OK(cci_rma_deregister(endpoint, handle));
    handle = NULL;
    CHECK_STATUS(cci_rma_register(endpoint, three, 2 * page, CCI_FLAG_WRITE, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, three, 1, CCI_FLAG_ATOMIC, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(endpoint, three + page, page + 1, CCI_FLAG_READ, &handle), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "not there") && handle == NULL);
    /* Known now, and not checked again, until the program says that it changed something. */
    OK(cci_rma_register(endpoint, three + page, page, CCI_FLAG_WRITE, &handle));
    OK(cci_rma_deregister(endpoint, handle));
    long long hits = counter(endpoint, "registration_hits"), misses = counter(endpoint, "registration_misses");
    OK(cci_rma_register(endpoint, three + page, page, CCI_FLAG_WRITE, &handle));
    OK(cci_rma_deregister(endpoint, handle));
    CHECK(counter(endpoint, "registration_hits") == hits + 1);
    CHECK(counter(endpoint, "registration_misses") == misses);
    munmap(three, 2 * page);
    handle = NULL;
    OK(cci_rma_invalidate(endpoint, three, 3 * page));
    CHECK_STATUS(cci_rma_register(endpoint, three + page, page, CCI_FLAG_WRITE, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_invalidate(NULL, three, page), CCI_EINVAL);
    OK(cci_rma_invalidate(endpoint, NULL, UINT64_MAX));
}
int main(int argc, char **argv)
{
    uint32_t caps;
    cci_endpoint_t *endpoint, *other;
    CHECK(argc >= 2);
    OK(cci_init(CCI_ABI_VERSION, argc > 2 ? CCI_INIT_SINGLE_THREADED : 0, &caps));
    cci_endpoint_options_t threaded = {.size = sizeof(threaded), .progress_thread = 1};
    if (argc > 2)
        CHECK_STATUS(cci_create_endpoint_with(device_of(argv[1]), NULL, &threaded, 0, &endpoint, NULL), CCI_EINVAL);
    OK(cci_create_endpoint(device_of(argv[1]), 0, &endpoint, NULL));
    OK(cci_create_endpoint(device_of(argv[1]), 0, &other, NULL));
    errors(endpoint);
    handles(endpoint, other);
    library_memory(endpoint, other);
    unmapped(endpoint);
    /* What is still registered goes with the endpoint, and keeps nothing busy. */
    void *start;
    cci_rma_handle_t *handle;
    OK(cci_rma_alloc(endpoint, 4096, &start));
    OK(cci_rma_register(other, start, 4096, ALL, &handle));
    CHECK_STATUS(cci_rma_free(endpoint, start), CCI_EBUSY);
    OK(cci_destroy_endpoint(other));
    OK(cci_rma_free(endpoint, start));
    OK(cci_rma_register(endpoint, &caps, sizeof(caps), ALL, &handle));
    OK(cci_destroy_endpoint(endpoint));
    OK(cci_finalize());
    printf("regions: all well\n");
    return 0;
}
