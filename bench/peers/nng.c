/*
 * nng: PAIR1 sockets, ipc or tcp (without Nagle's delay, its default).
 *
 * Its own threads do the input and output, on the same core as ours. Both sides ask without sleeping (NNG_FLAG_NONBLOCK) and
 * offer the core to those threads in between: half the latency of sleeping in nng_recvmsg. Messages are handed over without a
 * copy, and the one received goes back as the answer.
 */
#include "peer.h"
#include <nng/nng.h>
#include <nng/protocol/pair1/pair.h>

#define QUEUE_MESSAGES 1024

static nng_socket pair;

static void must(const char *what, int status)
{
    if (status != 0)
        fail(what, nng_strerror(status));
}

static nng_msg *message(size_t len_bytes)
{
    nng_msg *made;
    must("nng_msg_alloc", nng_msg_alloc(&made, len_bytes));
    memset(nng_msg_body(made), 1, len_bytes);
    return made;
}

static nng_msg *receive_one(size_t len_bytes)
{
    nng_msg *got;
    int status;
    while ((status = nng_recvmsg(pair, &got, NNG_FLAG_NONBLOCK)) == NNG_EAGAIN)
        sched_yield();
    must("nng_recvmsg", status);
    if (nng_msg_len(got) != len_bytes)
        fail("nng_recvmsg", "a message of another length");
    return got;
}

static void trips(bool first, size_t len_bytes, uint64_t count)
{
    nng_msg *ball = first ? message(len_bytes) : NULL;
    for (uint64_t trip = 0; trip < count; trip++) {
        if (first)
            must("nng_sendmsg", nng_sendmsg(pair, ball, 0));
        ball = receive_one(len_bytes);
        if (!first)
            must("nng_sendmsg", nng_sendmsg(pair, ball, 0));
    }
    if (first)
        nng_msg_free(ball);
}

static void stream(bool first, size_t len_bytes, uint64_t count)
{
    for (uint64_t done = 0; done < count; done++) {
        if (first)
            must("nng_sendmsg", nng_sendmsg(pair, message(len_bytes), 0));
        else
            nng_msg_free(receive_one(len_bytes));
    }
    if (first)
        nng_msg_free(receive_one(1));
    else
        must("nng_sendmsg", nng_sendmsg(pair, message(1), 0));
}

/* The first side listens, and tells the other the port or the name. */
static void start(const struct job *job, bool first)
{
    char url[128];
    nng_listener listener;
    must("nng_pair1_open", nng_pair1_open(&pair));
    must("NNG_OPT_SENDBUF", nng_socket_set_int(pair, NNG_OPT_SENDBUF, QUEUE_MESSAGES));
    must("NNG_OPT_RECVBUF", nng_socket_set_int(pair, NNG_OPT_RECVBUF, QUEUE_MESSAGES));
    if (!first) {
        hear(url, sizeof url);
        must("nng_dial", nng_dial(pair, url, NULL, 0));
    } else if (strcmp(job->transport, "tcp") == 0) {
        nng_sockaddr address;
        must("nng_listen", nng_listen(pair, "tcp://127.0.0.1:0", &listener, 0));
        must("NNG_OPT_LOCADDR", nng_listener_get_addr(listener, NNG_OPT_LOCADDR, &address));
        unsigned port = __builtin_bswap16(address.s_in.sa_port);
        snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
        tell(url, sizeof url);
    } else if (strcmp(job->transport, "ipc") == 0) {
        snprintf(url, sizeof url, "abstract://cci-bench-nng-%d", (int)getpid());
        must("nng_listen", nng_listen(pair, url, &listener, 0));
        tell(url, sizeof url);
    } else {
        fail(job->transport, "ipc or tcp is expected");
    }
}

int main(int argc, char **argv)
{
    struct job job = parse_job(argc, argv);
    if (job.work == PUT)
        fail("nng", "it has no remote memory access");
    bool first = split();
    pin(first ? 0 : 1);
    start(&job, first);

    void (*work)(bool, size_t, uint64_t) = job.work == RATE ? stream : trips;
    work(first, job.len_bytes, job.warm_up);
    double start_s = now_s();
    work(first, job.len_bytes, job.count);
    double took_s = now_s() - start_s;
    meet();
    if (first)
        tell_result(&job, took_s);
    nng_close(pair);
    part(first);
    return 0;
}
