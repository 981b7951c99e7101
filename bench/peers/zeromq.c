/*
 * ZeroMQ: PAIR sockets, ipc or tcp.
 *
 * Its own thread does the input and output, on the same core as ours. Both sides ask without sleeping (ZMQ_DONTWAIT) and offer
 * the core to that thread in between: half the latency of sleeping in zmq_recv, a third of polling without the offer; the rate is
 * the same. The queue holds 10,000 messages (the default is 1,000), and the library batches what is in it.
 */
#include "peer.h"
#include <zmq.h>

#define QUEUE_MESSAGES 10000

static void *socket_of_pair;
static char *buffer;

static void must(const char *what, int status)
{
    if (status < 0)
        fail(what, zmq_strerror(zmq_errno()));
}

static void send_one(size_t len_bytes)
{
    must("zmq_send", zmq_send(socket_of_pair, buffer, len_bytes, 0));
}

static void receive_one(size_t len_bytes)
{
    int got;
    while ((got = zmq_recv(socket_of_pair, buffer, len_bytes, ZMQ_DONTWAIT)) < 0 && zmq_errno() == EAGAIN)
        sched_yield();
    must("zmq_recv", got);
    if ((size_t)got != len_bytes)
        fail("zmq_recv", "a message of another length");
}

static void trips(bool first, size_t len_bytes, uint64_t count)
{
    for (uint64_t trip = 0; trip < count; trip++) {
        if (first)
            send_one(len_bytes);
        receive_one(len_bytes);
        if (!first)
            send_one(len_bytes);
    }
}

static void stream(bool first, size_t len_bytes, uint64_t count)
{
    for (uint64_t sent = 0; sent < count; sent++) {
        if (first)
            send_one(len_bytes);
        else
            receive_one(len_bytes);
    }
    if (first)
        receive_one(1);
    else
        send_one(1);
}

static void start(const struct job *job, bool first, void *context)
{
    int messages = QUEUE_MESSAGES;
    char endpoint[256];
    size_t endpoint_bytes = sizeof endpoint;
    socket_of_pair = zmq_socket(context, ZMQ_PAIR);
    must("ZMQ_SNDHWM", zmq_setsockopt(socket_of_pair, ZMQ_SNDHWM, &messages, sizeof messages));
    must("ZMQ_RCVHWM", zmq_setsockopt(socket_of_pair, ZMQ_RCVHWM, &messages, sizeof messages));
    if (first) {
        bool tcp = strcmp(job->transport, "tcp") == 0;
        if (!tcp && strcmp(job->transport, "ipc") != 0)
            fail(job->transport, "ipc or tcp is expected");
        must("zmq_bind", zmq_bind(socket_of_pair, tcp ? "tcp://127.0.0.1:*" : "ipc://*"));
        must("ZMQ_LAST_ENDPOINT", zmq_getsockopt(socket_of_pair, ZMQ_LAST_ENDPOINT, endpoint, &endpoint_bytes));
        tell(endpoint, sizeof endpoint);
    } else {
        hear(endpoint, sizeof endpoint);
        must("zmq_connect", zmq_connect(socket_of_pair, endpoint));
    }
}

int main(int argc, char **argv)
{
    struct job job = parse_job(argc, argv);
    if (job.work == PUT)
        fail("zeromq", "it has no remote memory access");
    bool first = split();
    pin(first ? 0 : 1);
    void *context = zmq_ctx_new();
    buffer = pages(job.len_bytes);
    start(&job, first, context);

    void (*work)(bool, size_t, uint64_t) = job.work == RATE ? stream : trips;
    work(first, job.len_bytes, job.warm_up);
    double start_s = now_s();
    work(first, job.len_bytes, job.count);
    double took_s = now_s() - start_s;
    meet();
    if (first)
        tell_result(&job, took_s);
    zmq_close(socket_of_pair);
    zmq_ctx_term(context);
    part(first);
    return 0;
}
