/*
 * libfabric: reliable datagram endpoints (FI_EP_RDM) that poll their completion queues. Transports are its names of providers: shm,
 * "tcp;ofi_rxm" (tcp), "udp;ofi_rxd" (udp).
 *
 * Small messages are injected (no completion to fetch). Rate: the receiver keeps a window of receives posted and fetches completions in
 * batches. Put: up to WINDOW writes under way, each complete when it is done at the target (FI_DELIVERY_COMPLETE).
 */
#include "peer.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define RECEIVES 256
#define SENDS 64
#define PUTS 4
#define BATCH 32
#define ADDRESS_BYTES 256

static struct fi_info *info;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *sent_cq, *received_cq;
static fi_addr_t other;
static char *out, *in;
static void *out_desc, *in_desc;
static size_t slot_bytes;
/* Messages a window: over UDP more are lost than the provider mends in time; the others push back by themselves. */
static uint64_t word_every;
/* Sends and writes that were posted and have not completed. */
static unsigned under_way;
/* Where the peer's memory is, as it says. */
static struct { uint64_t address, key; } target;

static void must(const char *what, ssize_t status)
{
    if (status != 0)
        fail(what, fi_strerror((int)-status));
}

static int fetch(struct fid_cq *cq)
{
    struct fi_cq_entry entries[BATCH];
    ssize_t got = fi_cq_read(cq, entries, BATCH);
    if (got == -FI_EAGAIN)
        return 0;
    if (got < 0)
        fail("fi_cq_read", fi_strerror((int)-got));
    return (int)got;
}

static void reap(void)
{
    under_way -= (unsigned)fetch(sent_cq);
}

static void post_receive(unsigned slot)
{
    ssize_t status;
    while ((status = fi_recv(ep, in + slot * slot_bytes, slot_bytes, in_desc, FI_ADDR_UNSPEC, NULL)) == -FI_EAGAIN)
        reap();
    must("fi_recv", status);
}

static void send_one(size_t len_bytes)
{
    ssize_t status;
    if (len_bytes <= info->tx_attr->inject_size) {
        while ((status = fi_inject(ep, out, len_bytes, other)) == -FI_EAGAIN)
            reap();
    } else {
        while (under_way >= SENDS)
            reap();
        while ((status = fi_send(ep, out, len_bytes, out_desc, other, NULL)) == -FI_EAGAIN)
            reap();
        under_way++;
    }
    must("a send", status);
}

/* Waits for at least one message; its receive must be posted again. */
static unsigned receive_some(void)
{
    static unsigned idle;
    unsigned got;
    while ((got = (unsigned)fetch(received_cq)) == 0)
        /* Some providers move sends only when their queue is read. */
        if (under_way > 0 || (++idle & 1023) == 0)
            reap();
    return got;
}

static void trips(bool first, size_t len_bytes, uint64_t count)
{
    for (uint64_t trip = 0; trip < count; trip++) {
        if (first)
            send_one(len_bytes);
        receive_some();
        if (!first)
            send_one(len_bytes);
        post_receive(trip % RECEIVES);
    }
}

/* Takes words of the receiver's until there were so many. */
static void hear_words(uint64_t *heard, uint64_t wanted)
{
    while (*heard < wanted) {
        unsigned got = receive_some();
        *heard += got;
        for (; got > 0; got--)
            post_receive(0);
    }
}

/* The receiver tells of every WORD_EVERY messages, and the sender is at most two words ahead. */
static void stream(bool first, size_t len_bytes, uint64_t count)
{
    static unsigned slot;
    uint64_t heard = 0, received = 0;
    if (first) {
        for (uint64_t sent = 0; sent < count; sent++) {
            if (sent % word_every == 0 && sent >= 2 * word_every)
                hear_words(&heard, sent / word_every - 1);
            send_one(len_bytes);
        }
        hear_words(&heard, (count + word_every - 1) / word_every);
        return;
    }
    while (received < count) {
        unsigned got = receive_some();
        for (; got > 0; got--) {
            post_receive(slot++ % RECEIVES);
            if (++received % word_every == 0 || received == count)
                send_one(1);
        }
    }
}

static void drain(void)
{
    while (under_way > 0)
        reap();
}

static void writes(size_t len_bytes, uint64_t count)
{
    struct iovec from = {.iov_base = out, .iov_len = len_bytes};
    struct fi_rma_iov to = {.addr = target.address, .len = len_bytes, .key = target.key};
    struct fi_msg_rma write = {
        .msg_iov = &from, .desc = &out_desc, .iov_count = 1, .addr = other, .rma_iov = &to, .rma_iov_count = 1,
    };
    for (uint64_t at = 0; at < count; at++) {
        ssize_t status;
        while (under_way >= PUTS)
            reap();
        while ((status = fi_writemsg(ep, &write, FI_DELIVERY_COMPLETE | FI_COMPLETION)) == -FI_EAGAIN)
            reap();
        must("fi_writemsg", status);
        under_way++;
    }
    drain();
}

/* The target polls until it is told that all is done: its provider may need it. */
static void puts_to(bool first, size_t len_bytes, uint64_t count)
{
    if (first) {
        writes(len_bytes, count);
        send_one(1);
    }
    receive_some();
    post_receive(0);
    if (!first)
        send_one(1);
}

static void open_fabric(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    struct fid_fabric *fabric;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
    struct fid_av *av;
    bool shm = strcmp(provider, "shm") == 0;
    word_every = strcmp(provider, "udp;ofi_rxd") == 0 ? 64 : UINT32_MAX;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    must("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), shm ? NULL : "127.0.0.1", NULL, shm ? 0 : FI_SOURCE, hints, &info));
    fi_freeinfo(hints);
    must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    must("fi_domain", fi_domain(fabric, info, &domain, NULL));
    must("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &sent_cq, NULL));
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &received_cq, NULL));
    must("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
    must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(ep, &sent_cq->fid, FI_TRANSMIT));
    must("fi_ep_bind", fi_ep_bind(ep, &received_cq->fid, FI_RECV));
    must("fi_enable", fi_enable(ep));

    char address[ADDRESS_BYTES] = {0};
    size_t address_bytes = sizeof address;
    must("fi_getname", fi_getname(&ep->fid, address, &address_bytes));
    tell(address, sizeof address);
    hear(address, sizeof address);
    if (fi_av_insert(av, address, 1, &other, 0, NULL) != 1)
        fail("fi_av_insert", "failed");
}

static struct fid_mr *registered(void *memory, size_t len_bytes, uint64_t access, uint64_t key)
{
    struct fid_mr *mr;
    must("fi_mr_reg", fi_mr_reg(domain, memory, len_bytes, access, 0, key, 0, &mr, NULL));
    return mr;
}

static void share_memory(const struct job *job)
{
    bool local = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    slot_bytes = job->work == PUT ? 64 : (job->len_bytes + 63) / 64 * 64;
    out = pages(job->len_bytes);
    in = pages(slot_bytes * RECEIVES);
    char *open = pages(job->len_bytes);
    struct fid_mr *out_mr = registered(out, job->len_bytes, FI_SEND | FI_WRITE, 1);
    struct fid_mr *in_mr = registered(in, slot_bytes * RECEIVES, FI_RECV, 2);
    struct fid_mr *open_mr = registered(open, job->len_bytes, FI_REMOTE_WRITE, 3);
    out_desc = local ? fi_mr_desc(out_mr) : NULL;
    in_desc = local ? fi_mr_desc(in_mr) : NULL;
    target.address = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)open : 0;
    target.key = fi_mr_key(open_mr);
    tell(&target, sizeof target);
    hear(&target, sizeof target);
}

int main(int argc, char **argv)
{
    struct job job = parse_job(argc, argv);
    bool first = split();
    pin(first ? 0 : 1);
    open_fabric(job.transport);
    share_memory(&job);
    for (unsigned slot = 0; slot < RECEIVES; slot++)
        post_receive(slot);
    meet();

    void (*const works[])(bool, size_t, uint64_t) = {trips, stream, puts_to};
    works[job.work](first, job.len_bytes, job.warm_up);
    double start_s = now_s();
    works[job.work](first, job.len_bytes, job.count);
    double took_s = now_s() - start_s;
    drain();
    meet();
    if (first)
        tell_result(&job, took_s);
    fi_close(&ep->fid);
    part(first);
    return 0;
}
