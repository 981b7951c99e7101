/* A process dies: the others learn which, each operation on it ends, and they go on; without an error handler the job ends. */
#include "ccs_check.h"
#include <unistd.h>

static int rank, size, reports, ended, status;
static char memory[64], mine[64];
static void *there;
static int addresses;

static void lost(int code, int who, const char *what, void *arg)
{
    CHECK(code == CCS_ERR_PEER && who == 1 && strlen(what) > 5 && arg == &reports);
    reports++;
}

static void done(void *arg)
{
    OK(CCS_callback_status(&status));
    CHECK(arg == &ended);
    ended++;
}

static void address(CCS_token_t token, void *buffer, unsigned len, void *base)
{
    (void)token, (void)buffer, (void)len;
    there = base;
    addresses++;
}

int main(int argc, char **argv)
{
    CCS_context_t context;
    CHECK(argc > 1);
    int leaves = strcmp(argv[1], "leave") == 0, unmet = strcmp(argv[1], "unmet") == 0;
    int survives = leaves || unmet || strcmp(argv[1], "survive") == 0;
    OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    if (survives)
        OK(CCS_set_error_handler(lost, &reports));
    if (unmet) {
        /* Rank 1 dies before anybody is connected with it, and the others wait for what it should begin. */
        if (rank == 1)
            _exit(3);
        CODE(CCS_broadcast(CCS_TEAM_WORLD, 1, memory, sizeof memory, CCS_DATA8), CCS_ERR_PEER);
        CCS_block_until(reports == 1);
        OK(CCS_finalize());
        puts("ccs_deaths: all well");
        return 0;
    }
    OK(CCS_new_context(&context));
    OK(CCS_register_handler(context, 0, address));
    OK(CCS_register_mem(memory, sizeof memory));
    OK(CCS_barrier());
    if (rank == 1) {
        for (int to = 0; to < size; to++)
            OK(CCS_amrequest(context, to, NULL, 0, CCS_DATA_NULL, 0, 1, memory));
        /* Dies when the others may be in anything. */
        for (int round = 0; round < 200; round++)
            CCS_wait(100000);
        _exit(3);
    }
    CCS_block_until(addresses == 1);
    if (leaves) {
        /* Rank 1 never leaves: its death ends the wait for it. Whoever leaves first has seen it, and the other one may have it from there. */
        OK(CCS_finalize());
        CHECK(reports <= 1);
        printf("ccs_deaths: all well, %d lost\n", reports);
        return 0;
    }
    int started = 0, code = CCS_SUCCESS;
    /* Until one fails: what was started before ends, too. */
    for (; started < 10000000 && code == CCS_SUCCESS && (ended == 0 || status == CCS_SUCCESS); started++) {
        code = CCS_put(1, there, 64, CCS_DATA8, mine, 64, CCS_DATA8, done, &ended);
        if (started % 16 == 0)
            OK(CCS_fence(1));
    }
    CHECK(code == CCS_SUCCESS || code == CCS_ERR_PEER);
    if (code != CCS_SUCCESS)
        started--;
    OK(CCS_fence_all());
    CCS_block_until(ended == started && reports == 1);
    CHECK(survives);
    CODE(CCS_barrier(), CCS_ERR_PEER);
    CODE(CCS_team_barrier(CCS_TEAM_WORLD), CCS_ERR_PEER);
    code = CCS_amrequest(context, 1, NULL, 0, CCS_DATA_NULL, 0, 0);
    CHECK(code == CCS_ERR_PEER);
    /* With all others it goes on. */
    for (int to = 0; to < size; to++)
        if (to != 1)
            OK(CCS_amrequest(context, to, NULL, 0, CCS_DATA_NULL, 0, 1, memory));
    CCS_block_until(addresses >= size);
    OK(CCS_finalize());
    puts("ccs_deaths: all well");
    return 0;
}
