/* The program of the paper's figure 1, with its dots filled: each process announces a buffer, and its neighbour reads it. */
#include <ccs.h>
#include <stdio.h>
#include <stdlib.h>

/* The paper does not use all parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static CCS_context_t context;
static char *buf;
static int buflen = 5000;
static int other_node;
static int gets_completed;

/* The paper's program begins. */
void get_callback (void *arg) {
    ++gets_completed;
}
#define NEW_MSG_HANDLER_ID 0
void new_msg_handler (CCS_token_t token, void *buffer, unsigned buf_len,
                     void *remote_buf, int remote_buflen) {
    int sender;
    CCS_sender_rank (token, &sender);
    CCS_get (sender, remote_buf, remote_buflen, CCS_DATA8, buf, buflen,
            CCS_DATA8, get_callback, 0 /* callback argument */);
}
int main (int argc, char **argv) {
    CCS_init();
    CCS_new_context (&context);
    CCS_register_handler (context, NEW_MSG_HANDLER_ID, new_msg_handler);
    buf = malloc (buflen);
    CCS_register_mem (buf, buflen);
    CCS_barrier();
    /* The first dots. */
    int rank, size;
    CCS_rank (&rank);
    CCS_nprocs (&size);
    other_node = (rank + 1) % size;
    for (int at = 0; at < buflen; at++)
        buf[at] = (char) (rank == 0 ? at * 7 : 0);
    CCS_barrier();
    if (rank == 0)
    CCS_amrequest (context, other_node, NULL, 0, CCS_DATA_NULL,
                  NEW_MSG_HANDLER_ID, 2, buf, buflen);
    /* The second dots. */
    if (rank == 1 % size) {
        CCS_block_until (gets_completed == 1);
        for (int at = 0; at < buflen; at++)
            if (buf[at] != (char) (at * 7))
                return 1;
        printf ("rank %d has read rank 0's buffer\n", rank);
    }
    (void) argc, (void) argv;
    CCS_finalize();
}
