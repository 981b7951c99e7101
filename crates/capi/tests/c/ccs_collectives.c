/* Collectives of teams: what each member gets, that reductions give all members the same bits, and what is refused. */
#include "ccs_check.h"

enum { MOST = 64, LONG = 40000 };

static int rank, size, callbacks;

static void ended(void *arg)
{
    int status;
    OK(CCS_callback_status(&status));
    CHECK(status == CCS_SUCCESS && arg == &callbacks);
    CODE(CCS_barrier_nb(NULL, NULL), CCS_ERR_STATE);
    callbacks++;
}

/* All collectives in a team whose members are these ranks, in this order. */
static void all(CCS_team_t team, const int *ranks, int count)
{
    int me = -1, members = -1;
    OK(CCS_team_rank(team, &me));
    OK(CCS_team_size(team, &members));
    CHECK(members == count && ranks[me] == rank);
    OK(CCS_team_barrier(team));

    static int32_t row[LONG], got[LONG];
    static int64_t mine[MOST * 3], theirs[MOST * 3];
    for (int root = 0; root < count; root++) {
        /* Every second number is sent, and stored backwards. */
        CCS_datadesc_t every, back;
        OK(CCS_datadesc_vector(100, 1, 2, CCS_DATA32, &every));
        OK(CCS_datadesc_vector(100, 1, -2, CCS_DATA32, &back));
        for (int at = 0; at < LONG; at++)
            row[at] = me == root ? at + root : -1;
        if (me == root)
            OK(CCS_broadcast(team, root, row, 1, every));
        else
            OK(CCS_broadcast(team, root, row + 198, 1, back));
        for (int at = 0; at < 200; at++)
            CHECK(row[at] == (me == root ? at + root : at % 2 ? -1 : 198 - at + root));
        OK(CCS_datadesc_free(&every));
        OK(CCS_datadesc_free(&back));
        OK(CCS_broadcast(team, root, row, LONG, CCS_DATA32));
        for (int at = 0; at < LONG; at++)
            CHECK(row[at] == at + root);

        for (int at = 0; at < 3; at++)
            mine[at] = rank * 10 + at;
        OK(CCS_gather(team, root, mine, me == root ? theirs : NULL, 24));
        for (int at = 0; me == root && at < 3 * count; at++)
            CHECK(theirs[at] == ranks[at / 3] * 10 + at % 3);
        memset(mine, 0, sizeof mine);
        OK(CCS_scatter(team, root, me == root ? theirs : NULL, mine, 24));
        CHECK(mine[0] == rank * 10 && mine[2] == rank * 10 + 2);
        double product = 1, value = 1.0 + ranks[me];
        OK(CCS_reduce(team, root, &value, me == root ? &value : NULL, 1, CCS_TYPE_F64, CCS_OP_PROD));
        for (int at = 0; at < count; at++)
            product *= 1.0 + ranks[at];
        CHECK(value == (me == root ? product : 1.0 + rank));
    }

    for (int at = 0; at < 3; at++)
        mine[at] = rank * 10 + at;
    OK(CCS_allgather(team, mine, theirs, 24));
    for (int at = 0; at < 3 * count; at++)
        CHECK(theirs[at] == ranks[at / 3] * 10 + at % 3);
    for (int at = 0; at < count; at++)
        mine[at] = rank * 1000 + at;
    OK(CCS_alltoall(team, mine, mine, 8));
    for (int at = 0; at < count; at++)
        CHECK(mine[at] == ranks[at] * 1000 + me);

    /* As many bytes as the receiver's number, with holes that stay as they are. */
    size_t out[MOST], out_at[MOST], in[MOST], in_at[MOST];
    char letters[MOST * MOST], holes[MOST * MOST];
    memset(letters, 'a' + me % 26, sizeof letters);
    memset(holes, '-', sizeof holes);
    for (int at = 0; at < count; at++) {
        out[at] = (size_t)at;
        out_at[at] = (size_t)(count - at);
        in[at] = (size_t)me;
        in_at[at] = (size_t)at * (size_t)(me + 1);
    }
    OK(CCS_alltoallv(team, letters, out, out_at, holes, in, in_at));
    for (int at = 0; at < count * (me + 1); at++)
        CHECK(holes[at] == (at % (me + 1) < me ? 'a' + at / (me + 1) % 26 : '-'));

    /* Sums of floats: whatever they are, they are the same everywhere. */
    static float floats[LONG], sums[LONG];
    for (int round = 0; round < 2; round++) {
        size_t many = round ? LONG : 5;
        for (size_t at = 0; at < many; at++)
            floats[at] = (float)(1.0 / (1.0 + (double)at + rank));
        OK(CCS_allreduce(team, floats, sums, many, CCS_TYPE_F32, CCS_OP_ADD));
        memcpy(row, sums, many * 4);
        OK(CCS_broadcast(team, 0, row, many, CCS_DATA32));
        CHECK(memcmp(row, sums, many * 4) == 0);
    }
    uint32_t one = 1U << (me % 32), before = 0;
    OK(CCS_scan(team, &one, &one, 1, CCS_TYPE_U32, CCS_OP_OR));
    for (int at = 0; at <= me; at++)
        before |= 1U << (at % 32);
    CHECK(one == before);

    /* Several at once. */
    int64_t sum = 0, least = rank;
    callbacks = 0;
    OK(CCS_allreduce_nb(team, &least, &least, 1, CCS_TYPE_I64, CCS_OP_MIN, ended, &callbacks));
    sum = rank;
    OK(CCS_allreduce_nb(team, &sum, &sum, 1, CCS_TYPE_I64, CCS_OP_ADD, ended, &callbacks));
    OK(CCS_team_barrier_nb(team, ended, &callbacks));
    OK(CCS_broadcast_nb(team, 0, got, LONG, CCS_DATA32, ended, &callbacks));
    OK(CCS_gather_nb(team, 0, &rank, got, 4, NULL, NULL));
    CCS_block_until(callbacks == 4);
    for (int at = 0; at < count; at++) {
        sum -= ranks[at];
        CHECK(least <= ranks[at]);
    }
    CHECK(sum == 0);
    OK(CCS_team_barrier(team));
}

static void misuse(void)
{
    CCS_team_t none = NULL, team;
    int number = 7;
    char byte = 1;
    CODE(CCS_team_rank(NULL, &number), CCS_ERR_ARG);
    CODE(CCS_team_size(CCS_TEAM_WORLD, NULL), CCS_ERR_ARG);
    CODE(CCS_team_barrier(none), CCS_ERR_ARG);
    CODE(CCS_team_split(none, 0, 0, &team), CCS_ERR_ARG);
    CODE(CCS_team_split(CCS_TEAM_WORLD, 0, 0, NULL), CCS_ERR_ARG);
    team = CCS_TEAM_NODE;
    CODE(CCS_team_free(&team), CCS_ERR_ARG);
    CODE(CCS_team_free(NULL), CCS_ERR_ARG);
    CODE(CCS_broadcast(CCS_TEAM_WORLD, size, &byte, 1, CCS_DATA8), CCS_ERR_RANGE);
    CODE(CCS_broadcast(CCS_TEAM_WORLD, -1, &byte, 1, CCS_DATA8), CCS_ERR_RANGE);
    CODE(CCS_broadcast(CCS_TEAM_WORLD, 0, NULL, 1, CCS_DATA8), CCS_ERR_ARG);
    CODE(CCS_broadcast(CCS_TEAM_WORLD, 0, &byte, 1, NULL), CCS_ERR_ARG);
    CODE(CCS_gather(CCS_TEAM_WORLD, rank, &byte, NULL, 1), CCS_ERR_ARG);
    CODE(CCS_gather(CCS_TEAM_WORLD, 0, NULL, &byte, 1), CCS_ERR_ARG);
    CODE(CCS_scatter(CCS_TEAM_WORLD, rank, NULL, &byte, 1), CCS_ERR_ARG);
    CODE(CCS_scatter(CCS_TEAM_WORLD, rank, &byte, NULL, 1), CCS_ERR_ARG);
    CODE(CCS_allgather(CCS_TEAM_WORLD, &byte, NULL, 1), CCS_ERR_ARG);
    CODE(CCS_alltoall(CCS_TEAM_WORLD, NULL, &byte, 1), CCS_ERR_ARG);
    CODE(CCS_alltoall(CCS_TEAM_WORLD, &byte, &byte, SIZE_MAX), CCS_ERR_ARG);
    CODE(CCS_alltoallv(CCS_TEAM_WORLD, &byte, NULL, NULL, &byte, NULL, NULL), CCS_ERR_ARG);
    CODE(CCS_reduce(CCS_TEAM_WORLD, rank, &byte, NULL, 1, CCS_TYPE_I32, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_allreduce(CCS_TEAM_WORLD, &byte, &byte, 1, CCS_TYPE_F32, CCS_OP_AND), CCS_ERR_ARG);
    CODE(CCS_allreduce(CCS_TEAM_WORLD, &byte, &byte, 1, CCS_TYPE_I32, CCS_OP_CAS), CCS_ERR_ARG);
    CODE(CCS_allreduce(CCS_TEAM_WORLD, &byte, &byte, 1, 77, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_allreduce(CCS_TEAM_WORLD, &byte, &byte, SIZE_MAX, CCS_TYPE_I64, CCS_OP_ADD), CCS_ERR_ARG);
    CODE(CCS_scan(CCS_TEAM_WORLD, &byte, NULL, 1, CCS_TYPE_I32, CCS_OP_ADD), CCS_ERR_ARG);
    CHECK(byte == 1 && number == 7);
}

int main(void)
{
    int ranks[MOST], halves[2][MOST], counts[2] = {0, 0};
    CCS_team_t half, again, freed;
    CODE(CCS_team_barrier(CCS_TEAM_WORLD), CCS_ERR_STATE);
    CODE(CCS_allreduce(CCS_TEAM_WORLD, ranks, ranks, 1, CCS_TYPE_I32, CCS_OP_ADD), CCS_ERR_STATE);
    OK(CCS_init());
    OK(CCS_rank(&rank));
    OK(CCS_nprocs(&size));
    CHECK(size <= MOST);
    misuse();
    for (int at = 0; at < size; at++)
        ranks[at] = at;
    all(CCS_TEAM_WORLD, ranks, size);
    /* After some of them, those of one host go through memory that all ranks map. */
    for (int round = 0; round < 60; round++) {
        int64_t sum = rank + round;
        OK(CCS_allreduce(CCS_TEAM_WORLD, &sum, &sum, 1, CCS_TYPE_I64, CCS_OP_ADD));
        CHECK(sum == (int64_t)size * (size - 1) / 2 + (int64_t)size * round);
    }
    all(CCS_TEAM_WORLD, ranks, size);
    all(CCS_TEAM_NODE, ranks, size);
    /* Odd and even ones, backwards. */
    for (int at = size - 1; at >= 0; at--)
        halves[at % 2][counts[at % 2]++] = at;
    OK(CCS_team_split(CCS_TEAM_WORLD, rank % 2, -rank, &half));
    CHECK(half != CCS_TEAM_WORLD && half != CCS_TEAM_NODE);
    all(half, halves[rank % 2], counts[rank % 2]);
    OK(CCS_team_split(half, 5, 0, &again));
    CHECK(again != half);
    all(again, halves[rank % 2], counts[rank % 2]);
    freed = half;
    OK(CCS_team_free(&half));
    CHECK(half == NULL);
    CODE(CCS_team_barrier(freed), CCS_ERR_ARG);
    CODE(CCS_team_free(&freed), CCS_ERR_ARG);
    all(CCS_TEAM_WORLD, ranks, size);
    OK(CCS_team_free(&again));
    callbacks = 0;
    OK(CCS_barrier_nb(ended, &callbacks));
    OK(CCS_finalize());
    CHECK(callbacks == 1);
    CODE(CCS_team_barrier(CCS_TEAM_WORLD), CCS_ERR_STATE);
    puts("ccs_collectives: all well");
    return 0;
}
