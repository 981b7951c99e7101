/* Initialising, devices, wrong arguments, words for errors, options. Argument: the transport. */
#include "check.h"

static uint32_t caps;

static void initialising(void)
{
    cci_device_t *const *devices;
    cci_endpoint_t *endpoint;
    CHECK(strcmp(cci_last_error(), "") == 0);
    CHECK_STATUS(cci_finalize(), CCI_ERROR);
    CHECK_STATUS(cci_get_devices(&devices), CCI_ERROR);
    CHECK_STATUS(cci_create_endpoint(NULL, 0, &endpoint, NULL), CCI_ERROR);
    CHECK(strstr(cci_last_error(), "cci_init"));
    CHECK_STATUS(cci_init(CCI_ABI_VERSION, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_init(CCI_ABI_VERSION + 1, 0, &caps), CCI_EINVAL);
    CHECK_STATUS(cci_init(CCI_ABI_VERSION, 1u << 31, &caps), CCI_EINVAL);

    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    CHECK(caps == CCI_CAP_THREAD_SAFE);
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    CHECK_STATUS(cci_init(CCI_ABI_VERSION, CCI_INIT_SINGLE_THREADED, &caps), CCI_EINVAL);
    OK(cci_finalize());
    OK(cci_get_devices(&devices));
    OK(cci_finalize());
    CHECK_STATUS(cci_finalize(), CCI_ERROR);

    /* Endpoints that are still open go with the last one. */
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    OK(cci_create_endpoint(NULL, 0, &endpoint, NULL));
    OK(cci_finalize());
    CHECK_STATUS(cci_destroy_endpoint(endpoint), CCI_EINVAL);
}

static void configurations(void)
{
    const char *path = getenv("CCI_CONFIG");
    char *kept = strdup(path ? path : "");
    char bad[] = "/tmp/cci-bad-config-XXXXXX";
    int fd = mkstemp(bad);
    const char text[] = "[one]\ntransport = shm\n[two]\ntransport = carrier-pigeon\n";
    CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(fd);

    setenv("CCI_CONFIG", bad, 1);
    CHECK_STATUS(cci_init(CCI_ABI_VERSION, 0, &caps), CCI_ERROR);
    CHECK(strstr(cci_last_error(), bad) && strstr(cci_last_error(), ":4"));
    unlink(bad);
    CHECK_STATUS(cci_init(CCI_ABI_VERSION, 0, &caps), CCI_ERROR);
    CHECK(strstr(cci_last_error(), bad));

    /* Without a file: the devices of the machine. */
    unsetenv("CCI_CONFIG");
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    CHECK(device_of("shm")->up);
    CHECK(device_of("udp")->max_send_size > 0);
    OK(cci_finalize());
    setenv("CCI_CONFIG", kept, 1);
    free(kept);
}

static void devices(const char *transport)
{
    cci_device_t *const *devices, *const *again;
    int count = 0;
    CHECK_STATUS(cci_get_devices(NULL), CCI_EINVAL);
    OK(cci_get_devices(&devices));
    OK(cci_get_devices(&again));
    CHECK(devices == again);
    for (; devices[count]; count++) {
        cci_device_t *device = devices[count];
        CHECK(device->name[0] && device->transport[0] && device->info[0]);
        CHECK(device->max_send_size >= 512);
        CHECK(device->conf_argv[0] && strchr(device->conf_argv[0], '='));
    }
    CHECK(count == 2);
    cci_device_t *shm = device_of("shm");
    CHECK(shm->pci.domain == (uint32_t)-1 && shm->pci.bus == (uint32_t)-1);
    CHECK(shm->pci.dev == (uint32_t)-1 && shm->pci.func == (uint32_t)-1);
    CHECK(strcmp(device_of(transport)->name, transport) == 0);
}

static void words(void)
{
    /* Programs look for the enumerator's name at the beginning. */
    CHECK(strcmp(cci_strerror(NULL, CCI_SUCCESS), "CCI_SUCCESS: success") == 0);
    for (int status = CCI_SUCCESS; status <= CCI_ERR_NOT_FOUND; status++) {
        const char *text = cci_strerror(NULL, (enum cci_status)status);
        CHECK(text && strncmp(text, "CCI_", 4) == 0 && strstr(text, ": "));
    }
    CHECK(strncmp(cci_strerror(NULL, CCI_EINVAL), "CCI_EINVAL: ", 12) == 0);
    CHECK(strncmp(cci_strerror(NULL, CCI_ECONNREFUSED), "CCI_ECONNREFUSED: ", 18) == 0);
    CHECK(cci_strerror(NULL, (enum cci_status)9999) == NULL);
    CHECK(cci_strerror(NULL, (enum cci_status)9) == NULL);
    CHECK(strcmp(cci_event_type_str(CCI_EVENT_KEEPALIVE_TIMEDOUT), "CCI_EVENT_KEEPALIVE_TIMEDOUT") == 0);
    CHECK(cci_event_type_str((cci_event_type_t)77));
}

static void nulls(void)
{
    cci_endpoint_t *endpoint = NULL;
    cci_event_t *event = NULL;
    cci_rma_handle_t *handle = NULL;
    uint32_t value = 1;
    char *text = NULL;
    CHECK_STATUS(cci_create_endpoint(NULL, 0, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_create_endpoint((cci_device_t *)&value, 0, &endpoint, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_create_endpoint_at(NULL, NULL, 0, &endpoint, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_create_endpoint_with(NULL, NULL, NULL, 0, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_destroy_endpoint(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_destroy_endpoint((cci_endpoint_t *)&value), CCI_EINVAL);
    CHECK_STATUS(cci_connect(NULL, "shm://x", NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_accept(NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_accept_on(NULL, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_reject(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_disconnect(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_get_event(NULL, &event), CCI_EINVAL);
    CHECK_STATUS(cci_wait_event(NULL, NULL, &event), CCI_EINVAL);
    CHECK_STATUS(cci_return_event(NULL), CCI_EINVAL);
    CHECK_STATUS(cci_arm_os_handle(NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_set_opt(NULL, CCI_OPT_ENDPT_SEND_TIMEOUT, &value), CCI_EINVAL);
    CHECK_STATUS(cci_get_opt(NULL, CCI_OPT_ENDPT_SEND_TIMEOUT, &value), CCI_EINVAL);
    CHECK_STATUS(cci_send(NULL, "x", 1, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_sendv(NULL, NULL, 0, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_send2(NULL, "x", 1, "y", 1, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register(NULL, &value, 4, 0, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_register_conn(NULL, &value, 4, 0, &handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma_deregister(NULL, handle), CCI_EINVAL);
    CHECK_STATUS(cci_rma(NULL, NULL, 0, handle, 0, handle, 0, 1, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_rmav(NULL, NULL, 0, NULL, 0, NULL, 0, NULL, CCI_FLAG_READ), CCI_EINVAL);
    CHECK_STATUS(cci_atomic(NULL, CCI_ATOMIC_ADD, 8, 1, 0, handle, 0, NULL, 0, NULL, 0), CCI_EINVAL);
    CHECK_STATUS(cci_rma_alloc(NULL, 4096, (void **)&text), CCI_EINVAL);
    CHECK_STATUS(cci_rma_free(NULL, &value), CCI_EINVAL);
    CHECK_STATUS(cci_explain(NULL, &text), CCI_EINVAL);
    CHECK_STATUS(cci_get_counters(NULL, NULL, &text), CCI_EINVAL);
    CHECK_STATUS(cci_get_counters(NULL, NULL, NULL), CCI_EINVAL);
}

/* Published programs pass a name or an address of this host as the service: any port will do for them, again and again. */
static void services_of_this_host(const char *transport)
{
    char name[256] = "";
    CHECK(gethostname(name, sizeof(name) - 1) == 0);
    const char *services[] = {"localhost", "LOCALHOST", "127.0.0.1", "::1", name};
    for (int each = 0; each < 5; each++) {
        cci_endpoint_t *one = NULL, *other = NULL;
        OK(cci_create_endpoint_at(device_of(transport), services[each], 0, &one, NULL));
        OK(cci_create_endpoint_at(device_of(transport), services[each], 0, &other, NULL));
        OK(cci_destroy_endpoint(one));
        OK(cci_destroy_endpoint(other));
    }
    cci_endpoint_t *none = NULL;
    CHECK_STATUS(cci_create_endpoint_at(device_of("udp"), "somewhere-else", 0, &none, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_create_endpoint_at(device_of("udp"), "192.0.2.1", 0, &none, NULL), CCI_EINVAL);
    CHECK(none == NULL);
}

static void endpoint_calls(const char *transport)
{
    cci_endpoint_t *endpoint = NULL;
    cci_event_t *event = (cci_event_t *)&caps;
    int fd = -1;
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, &fd));
    CHECK(endpoint->device == device_of(transport) && fd >= 0);
    CHECK_STATUS(cci_get_event(endpoint, NULL), CCI_EINVAL);
    /* Published programs look at the pointer alone. */
    CHECK_STATUS(cci_get_event(endpoint, &event), CCI_EAGAIN);
    CHECK(event == NULL);
    OK(cci_arm_os_handle(endpoint, 0));
    struct timeval no_time = {0, 1000}, bad_time = {-1, 0}, bad_micros = {0, 1000000};
    event = (cci_event_t *)&caps;
    CHECK_STATUS(cci_wait_event(endpoint, &no_time, &event), CCI_EAGAIN);
    CHECK(event == NULL);
    event = (cci_event_t *)&caps;
    CHECK_STATUS(cci_wait_event(endpoint, &bad_time, &event), CCI_EINVAL);
    CHECK(event == NULL);

    char *uri = uri_of(endpoint);
    CHECK(strncmp(uri, transport, strlen(transport)) == 0);
    CHECK_STATUS(cci_connect(endpoint, NULL, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, "nonsense", NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, "\xff\xfe", NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, uri, NULL, 1, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, uri, NULL, 0, (cci_conn_attribute_t)9, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, &bad_micros), CCI_EINVAL);
    /* Groups are for UDP, and the endpoint's own address is none. */
    CHECK_STATUS(cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_UU_MC_TX, NULL, 0, NULL),
                 strcmp(transport, "udp") == 0 ? CCI_EINVAL : CCI_ERR_NOT_IMPLEMENTED);
    static char payload[CCI_CONN_REQ_LEN + 1];
    CHECK_STATUS(cci_connect(endpoint, uri, payload, sizeof(payload), CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_get_event(endpoint, &event), CCI_EAGAIN);
    free(uri);

    OK(cci_destroy_endpoint(endpoint));
    CHECK_STATUS(cci_destroy_endpoint(endpoint), CCI_EINVAL);
}

static void numbers(cci_endpoint_t *endpoint)
{
    uint32_t value = 0;
    uint64_t cap = 0, used = 0;
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, &value));
    CHECK(value == 10000000);
    value = 1234567;
    OK(cci_set_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, &value));
    value = 0;
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, &value));
    CHECK(value == 1234567);
    value = 0;
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, &value), CCI_ERANGE);
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT, &value));
    CHECK(value == 0);
    value = 500000;
    OK(cci_set_opt(endpoint, CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT, &value));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT, &value));
    CHECK(value == 500000);

    OK(cci_get_opt(endpoint, CCI_OPT_EXT_ENDPT_MEMORY_CAP, &cap));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    CHECK(value == 1024);
    value = 512;
    OK(cci_set_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    CHECK(value == 1024);
    value = 4096;
    OK(cci_set_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    CHECK(value == 4096);
    value = 0;
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value), CCI_ERANGE);
    OK(cci_get_opt(endpoint, CCI_OPT_EXT_ENDPT_MEMORY_USED, &used));
    CHECK(used > 4096ull * endpoint->device->max_send_size);
    uint64_t before = cap;
    OK(cci_get_opt(endpoint, CCI_OPT_EXT_ENDPT_MEMORY_CAP, &cap));
    CHECK(cap > before && used < cap);

    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_BUF_COUNT, &value));
    uint32_t there = value;
    value = 1000;
    OK(cci_set_opt(endpoint, CCI_OPT_ENDPT_SEND_BUF_COUNT, &value));
    value = there + 1;
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_SEND_BUF_COUNT, &value), CCI_ERR_NOT_IMPLEMENTED);
}

static void options(const char *transport)
{
    cci_endpoint_t *endpoint = NULL;
    uint32_t value = 0;
    OK(cci_create_endpoint(device_of(transport), 0, &endpoint, NULL));
    numbers(endpoint);
    cci_alignment_t alignment;
    memset(&alignment, 0xff, sizeof(alignment));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_RMA_ALIGN, &alignment));
    static const cci_alignment_t none;
    CHECK(memcmp(&alignment, &none, sizeof(none)) == 0);
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_URI, "shm://mine"), CCI_EINVAL);
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_RMA_ALIGN, &alignment), CCI_EINVAL);
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_EXT_ENDPT_MEMORY_CAP, &value), CCI_EINVAL);
    CHECK_STATUS(cci_set_opt(endpoint, (cci_opt_name_t)99, &value), CCI_EINVAL);
    CHECK_STATUS(cci_get_opt(endpoint, (cci_opt_name_t)99, &value), CCI_EINVAL);
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, NULL), CCI_EINVAL);
    OK(cci_destroy_endpoint(endpoint));

    cci_endpoint_options_t wanted = {0};
    CHECK_STATUS(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL), CCI_EINVAL);
    wanted.size = sizeof(wanted);
    wanted.recv_buf_count = 77;
    wanted.send_buf_count = 55;
    wanted.send_timeout_us = 33000000;
    wanted.keepalive_timeout_us = 22000000;
    wanted.rma_op_count = 99;
    wanted.memory_cap_bytes = 64 << 20;
    OK(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL));
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_RECV_BUF_COUNT, &value));
    CHECK(value == 77);
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_BUF_COUNT, &value));
    CHECK(value == 55);
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_SEND_TIMEOUT, &value));
    CHECK(value == 33000000);
    OK(cci_get_opt(endpoint, CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT, &value));
    CHECK(value == 22000000);
    uint64_t cap = 0;
    OK(cci_get_opt(endpoint, CCI_OPT_EXT_ENDPT_MEMORY_CAP, &cap));
    CHECK(cap == 64 << 20);
    OK(cci_destroy_endpoint(endpoint));
    wanted.reserved = 1;
    CHECK_STATUS(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL), CCI_EINVAL);
    wanted.reserved = 0;
    /* Programs built before the last fields came. */
    wanted.size = 32;
    wanted.progress_thread = 1;
    OK(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL));
    OK(cci_destroy_endpoint(endpoint));
    wanted.size = sizeof(wanted);
    OK(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL));
    OK(cci_destroy_endpoint(endpoint));
    wanted.progress_thread = 0;
    wanted.recv_buf_count = 1 << 20;
    CHECK_STATUS(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL), CCI_ENOMEM);
    wanted.recv_buf_count = 0xffffffffu;
    CHECK_STATUS(cci_create_endpoint_with(device_of(transport), NULL, &wanted, 0, &endpoint, NULL), CCI_EINVAL);
}

/* A service can be had once. */
static void services(const char *transport)
{
    cci_endpoint_t *one = NULL, *two = NULL;
    char service[64];
    if (strcmp(transport, "shm") == 0) {
        snprintf(service, sizeof(service), "cci-test-calls-%d", (int)getpid());
    } else {
        OK(cci_create_endpoint(device_of(transport), 0, &one, NULL));
        char *uri = uri_of(one);
        snprintf(service, sizeof(service), "%s", strrchr(uri, ':') + 1);
        free(uri);
        OK(cci_destroy_endpoint(one));
        CHECK_STATUS(cci_create_endpoint_at(device_of(transport), "http", 0, &one, NULL), CCI_EINVAL);
    }
    OK(cci_create_endpoint_at(device_of(transport), service, 0, &one, NULL));
    char *uri = uri_of(one);
    CHECK(strstr(uri, service));
    free(uri);
    CHECK_STATUS(cci_create_endpoint_at(device_of(transport), service, 0, &two, NULL), CCI_EADDRNOTAVAIL);
    CHECK(two == NULL);
    OK(cci_destroy_endpoint(one));
    OK(cci_create_endpoint_at(device_of(transport), service, 0, &two, NULL));
    OK(cci_destroy_endpoint(two));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    initialising();
    configurations();
    OK(cci_init(CCI_ABI_VERSION, 0, &caps));
    devices(argv[1]);
    words();
    nulls();
    endpoint_calls(argv[1]);
    services_of_this_host(argv[1]);
    options(argv[1]);
    services(argv[1]);
    OK(cci_finalize());
    printf("calls: all well\n");
    return 0;
}
