/* Connections by rank: `job_ranks TRANSPORT locking|single`, as the ranks of a job. */
#include "cci_job.h"
#include "check.h"
#include <stdio.h>

#define RANKS_MAX 8

static cci_job_t *job;
static cci_endpoint_t *endpoint;
/* With each rank. */
static cci_connection_t *ordered[RANKS_MAX], *unordered[RANKS_MAX];
/* Whether a rank connects to itself: a sealed endpoint can't shake hands with itself. */
static int knows_itself;

static int is_peer(uint32_t rank)
{
    return rank != job->rank || knows_itself;
}

static uint32_t peers(void)
{
    return knows_itself ? job->size : job->size - 1;
}

/* The context of this rank's connections. */
static void *context_of(uint32_t rank, cci_conn_attribute_t attribute)
{
    return (void *)(uintptr_t)(100 * (1 + attribute) + rank);
}

static uint32_t rank_of(cci_connection_t *connection)
{
    uint32_t rank = RANKS_MAX;
    OK(cci_job_rank_of(connection, &rank));
    CHECK(rank < job->size);
    return rank;
}

static cci_event_t *wait_for(cci_event_type_t type)
{
    const struct timeval patience = {PATIENCE_MS / 1000, 0};
    cci_event_t *event;
    OK(cci_wait_event(endpoint, &patience, &event));
    if (event->type != type) {
        fprintf(stderr, "rank %u got %s\n", job->rank, cci_event_type_str(event->type));
        abort();
    }
    return event;
}

static void ask(uint32_t rank, cci_conn_attribute_t attribute)
{
    const struct timeval patience = {PATIENCE_MS / 1000, 0};
    cci_connection_t *connection = (cci_connection_t *)0x11;
    OK(cci_job_connect(endpoint, rank, attribute, context_of(rank, attribute), &patience, &connection));
    CHECK(connection == NULL);
    /* Asked once, whatever the second context is. */
    OK(cci_job_connect(endpoint, rank, attribute, (void *)0x22, NULL, &connection));
    CHECK(connection == NULL);
}

static void misuse(cci_device_t *device)
{
    cci_endpoint_t *other = (cci_endpoint_t *)0x11;
    cci_connection_t *connection = (cci_connection_t *)0x11;
    uint32_t rank = 77, off = 0;
    CHECK_STATUS(cci_job_create_endpoint(NULL, device, NULL, &other, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_create_endpoint(job, device, NULL, NULL, NULL), CCI_EINVAL);
    CHECK(other == (cci_endpoint_t *)0x11);
    CHECK_STATUS(cci_job_connect(NULL, 0, CCI_CONN_ATTR_RO, NULL, NULL, &connection), CCI_EINVAL);
    CHECK_STATUS(cci_job_connect(endpoint, 0, CCI_CONN_ATTR_RO, NULL, NULL, NULL), CCI_EINVAL);
    CHECK_STATUS(cci_job_connect(endpoint, 0, CCI_CONN_ATTR_UU_MC_TX, NULL, NULL, &connection), CCI_EINVAL);
    CHECK_STATUS(cci_job_connect(endpoint, job->size, CCI_CONN_ATTR_RO, NULL, NULL, &connection), CCI_ERANGE);
    CHECK(strstr(cci_last_error(), "there is no rank"));
    CHECK_STATUS(cci_job_connect(endpoint, UINT32_MAX, CCI_CONN_ATTR_RO, NULL, NULL, &connection), CCI_ERANGE);
    CHECK_STATUS(cci_job_rank_of(NULL, &rank), CCI_EINVAL);
    /* What ranks do in another way. */
    char *uri = uri_of(endpoint);
    CHECK_STATUS(cci_connect(endpoint, uri, NULL, 0, CCI_CONN_ATTR_RO, NULL, 0, NULL), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "cci_job_connect()"));
    CHECK_STATUS(cci_set_opt(endpoint, CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS, &off), CCI_EINVAL);
    /* An endpoint that is none of the job has no ranks, and is not admitted to one. */
    OK(cci_create_endpoint(device, 0, &other, NULL));
    CHECK_STATUS(cci_job_connect(other, 0, CCI_CONN_ATTR_RO, NULL, NULL, &connection), CCI_EINVAL);
    CHECK(strstr(cci_last_error(), "cci_job_create_endpoint()"));
    OK(cci_destroy_endpoint(other));
    free(uri);
    CHECK(connection == (cci_connection_t *)0x11 && rank == 77);
}

/* Of each pair the lower rank asks, so that the other has it as accepted. */
static void one_of_each_pair_asks(void)
{
    for (uint32_t rank = job->rank; rank < job->size; rank++)
        if (is_peer(rank))
            ask(rank, CCI_CONN_ATTR_RO);
    for (uint32_t count = 0; count < peers(); count++) {
        const struct timeval patience = {PATIENCE_MS / 1000, 0};
        cci_event_t *event;
        cci_connection_t *open;
        OK(cci_wait_event(endpoint, &patience, &event));
        int is_asked = event->type == CCI_EVENT_CONNECT;
        CHECK(is_asked || event->type == CCI_EVENT_ACCEPT);
        OK(is_asked ? event->connect.status : event->accept.status);
        cci_connection_t *connection = is_asked ? event->connect.connection : event->accept.connection;
        void *context = is_asked ? event->connect.context : event->accept.context;
        uint32_t rank = rank_of(connection);
        CHECK(is_asked == (rank >= job->rank) && ordered[rank] == NULL);
        CHECK(context == (is_asked ? context_of(rank, CCI_CONN_ATTR_RO) : NULL));
        CHECK(connection->context == context && connection->attribute == CCI_CONN_ATTR_RO);
        ordered[rank] = connection;
        OK(cci_return_event(event));
        OK(cci_job_connect(endpoint, rank, CCI_CONN_ATTR_RO, (void *)0x22, NULL, &open));
        CHECK(open == connection && open->context == context);
    }
}

/* All ask all before anybody has taken an event. */
static void all_ask_all(void)
{
    for (uint32_t rank = 0; rank < job->size; rank++)
        if (is_peer(rank))
            ask(rank, CCI_CONN_ATTR_RU);
    OK(cci_job_barrier(job));
    for (uint32_t count = 0; count < peers(); count++) {
        cci_event_t *event = wait_for(CCI_EVENT_CONNECT);
        OK(event->connect.status);
        uint32_t rank = rank_of(event->connect.connection);
        CHECK(event->connect.context == context_of(rank, CCI_CONN_ATTR_RU) && unordered[rank] == NULL);
        CHECK(event->connect.connection->context == event->connect.context);
        unordered[rank] = event->connect.connection;
        OK(cci_return_event(event));
    }
    /* No message comes before the last connection. */
    OK(cci_job_barrier(job));
}

/* Says what was received, from whom. */
static void take(cci_event_t *event, void *arg)
{
    uint32_t *from = arg, said[2];
    CHECK(event->type == CCI_EVENT_RECV && event->recv.len == sizeof said);
    memcpy(said, event->recv.ptr, sizeof said);
    CHECK(said[1] == job->rank && said[0] < job->size);
    from[said[0]]++;
}

static void all_speak_with_all(void)
{
    uint32_t received[RANKS_MAX] = {0}, handled[RANKS_MAX] = {0}, count = 0;
    long long until = now_ms() + PATIENCE_MS;
    for (uint32_t rank = 0; rank < job->size; rank++) {
        const uint32_t said[2] = {job->rank, rank};
        if (is_peer(rank))
            OK(cci_send(ordered[rank], said, sizeof said, NULL, CCI_FLAG_SILENT));
    }
    for (uint32_t at = 0; at < peers(); at++) {
        cci_event_t *event = wait_for(CCI_EVENT_RECV);
        uint32_t from;
        memcpy(&from, event->recv.ptr, sizeof from);
        CHECK(rank_of(event->recv.connection) == from);
        take(event, received);
        OK(cci_return_event(event));
    }
    OK(cci_job_barrier(job));
    for (uint32_t rank = 0; rank < job->size; rank++) {
        const uint32_t said[2] = {job->rank, rank};
        if (is_peer(rank))
            OK(cci_send(unordered[rank], said, sizeof said, NULL, CCI_FLAG_SILENT));
    }
    while (count < peers()) {
        uint32_t now = 0;
        int status = cci_poll(endpoint, job->size, take, handled, &now);
        CHECK(status == CCI_SUCCESS || status == CCI_EAGAIN);
        CHECK(now_ms() < until);
        count += now;
    }
    for (uint32_t rank = 0; rank < job->size; rank++)
        CHECK(received[rank] == (uint32_t)is_peer(rank) && handled[rank] == received[rank]);
    OK(cci_job_barrier(job));
}

/* The last rank closes its connection with rank 0, which asks again. */
static void closing(void)
{
    uint32_t last = job->size - 1;
    if (job->rank == last)
        OK(cci_disconnect(ordered[0]));
    if (job->rank == 0) {
        cci_event_t *event = wait_for((cci_event_type_t)CCI_EVENT_EXT_DISCONNECTED);
        CHECK(event->ext_disconnected.connection == ordered[last] && rank_of(ordered[last]) == last);
        OK(cci_return_event(event));
        ask(last, CCI_CONN_ATTR_RO);
        event = wait_for(CCI_EVENT_CONNECT);
        OK(event->connect.status);
        CHECK(event->connect.context == context_of(last, CCI_CONN_ATTR_RO));
        CHECK(rank_of(event->connect.connection) == last);
        OK(cci_return_event(event));
    }
    if (job->rank == last) {
        cci_event_t *event = wait_for(CCI_EVENT_ACCEPT);
        OK(event->accept.status);
        CHECK(event->accept.context == NULL && rank_of(event->accept.connection) == 0);
        OK(cci_return_event(event));
    }
    OK(cci_job_barrier(job));
}

/* The last rank closes its endpoint. The others see both connections end, and get no new one. */
static void leaving(void)
{
    uint32_t last = job->size - 1;
    if (job->rank == last)
        OK(cci_destroy_endpoint(endpoint));
    OK(cci_job_barrier(job));
    if (job->rank == last)
        return;
    for (int count = 0; count < 2; count++) {
        cci_event_t *event = wait_for((cci_event_type_t)CCI_EVENT_EXT_DISCONNECTED);
        CHECK(rank_of(event->ext_disconnected.connection) == last);
        OK(cci_return_event(event));
    }
    const struct timeval soon = {0, 300000};
    cci_connection_t *connection;
    OK(cci_job_connect(endpoint, last, CCI_CONN_ATTR_UU, context_of(last, CCI_CONN_ATTR_UU), &soon, &connection));
    CHECK(connection == NULL);
    cci_event_t *event = wait_for(CCI_EVENT_CONNECT);
    CHECK(event->connect.status != CCI_SUCCESS && event->connect.connection == NULL);
    CHECK(event->connect.context == context_of(last, CCI_CONN_ATTR_UU));
    OK(cci_return_event(event));
}

int main(int argc, char **argv)
{
    uint32_t capabilities;
    CHECK(argc == 3);
    OK(cci_init(CCI_ABI_VERSION, strcmp(argv[2], "single") == 0 ? CCI_INIT_SINGLE_THREADED : 0, &capabilities));
    OK(cci_job_join(&job));
    CHECK(job->size <= RANKS_MAX);
    knows_itself = strcmp(argv[1], "shm") == 0;
    cci_device_t *device = device_of(argv[1]);
    OK(cci_job_create_endpoint(job, device, NULL, &endpoint, NULL));
    misuse(device);
    one_of_each_pair_asks();
    OK(cci_job_barrier(job));
    all_ask_all();
    all_speak_with_all();
    if (job->size > 1) {
        closing();
        leaving();
    }
    /* Nobody is still in need of this rank's endpoint. */
    OK(cci_job_barrier(job));
    if (job->size == 1 || job->rank < job->size - 1)
        OK(cci_destroy_endpoint(endpoint));
    OK(cci_job_leave(job));
    OK(cci_finalize());
    puts("job: all well");
    return 0;
}
