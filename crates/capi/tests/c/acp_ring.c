/* The paper's example of channels: processes in a ring pass on what they get from the one before. */
#include <acp.h>
#include <stdio.h>
#include <stdlib.h>

#define TURNS 100
#define LEN 5000

int main(int argc, char **argv)
{
    static int sent[LEN], received[LEN];
    if (acp_init(&argc, &argv) != 0)
        return 1;
    int rank = acp_rank(), procs = acp_procs();
    acp_ch_t to = acp_create_ch(rank, (rank + 1) % procs);
    acp_ch_t from = acp_create_ch((rank + procs - 1) % procs, rank);
    for (int at = 0; at < LEN; at++)
        sent[at] = rank + at;
    for (int turn = 0; turn < TURNS; turn++) {
        acp_request_t receive = acp_nbrecv_ch(from, received, sizeof received);
        acp_request_t send = acp_nbsend_ch(to, sent, sizeof sent);
        if (acp_wait_ch(receive) != sizeof received || acp_wait_ch(send) != 0)
            return 2;
        for (int at = 0; at < LEN; at++)
            sent[at] = received[at];
    }
    acp_request_t freed[] = {acp_nbfree_ch(to), acp_nbfree_ch(from)};
    acp_wait_ch(freed[0]);
    acp_wait_ch(freed[1]);
    int expected = (rank + TURNS * (procs - 1)) % procs;
    for (int at = 0; at < LEN; at++)
        if (received[at] != expected + at)
            return 3;
    printf("rank %d of %d: what began at rank %d is here\n", rank, procs, expected);
    return acp_finalize() != 0;
}
