/*
 * Open MPI and MPICH: two ranks, or more that share two cores for collectives, started by mpirun with `--bind-to none`; each pins itself, as both libraries poll.
 *
 * Rate: windows of non-blocking sends and receives, as in the OSU benchmarks. Put: MPI_Put into memory of MPI_Win_allocate,
 * passive target; `put-fence-heap` into memory of MPI_Win_create. Which path is taken (shared memory or TCP) is up to mpirun's options: the transport's name is not used.
 */
#include "peer.h"
#include <mpi.h>

#define WINDOW 64
/* The buffers of a window take no more than this. */
#define WINDOW_BYTES ((size_t)64 << 20)

enum { DATA = 1, DONE = 2 };

static char *buffer;

static void must(const char *what, int status)
{
    if (status != MPI_SUCCESS)
        fail(what, "failed");
}

static void send_to(int rank, size_t len_bytes, int tag)
{
    must("MPI_Send", MPI_Send(buffer, (int)len_bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD));
}

static void receive_from(int rank, size_t len_bytes, int tag)
{
    must("MPI_Recv", MPI_Recv(buffer, (int)len_bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void trips(bool first, size_t len_bytes, uint64_t count)
{
    for (uint64_t trip = 0; trip < count; trip++) {
        if (first)
            send_to(1, len_bytes, DATA);
        receive_from(first ? 1 : 0, len_bytes, DATA);
        if (!first)
            send_to(0, len_bytes, DATA);
    }
}

static size_t window_of(size_t len_bytes)
{
    size_t fits = WINDOW_BYTES / len_bytes;
    return fits > WINDOW ? WINDOW : fits < 2 ? 2 : fits;
}

static void stream(bool first, size_t len_bytes, uint64_t count)
{
    static MPI_Request requests[WINDOW];
    for (uint64_t done = 0; done < count;) {
        uint64_t most = window_of(len_bytes);
        int window = (int)(count - done < most ? count - done : most);
        for (int at = 0; at < window; at++) {
            if (first)
                MPI_Isend(buffer, (int)len_bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &requests[at]);
            else
                MPI_Irecv(buffer + (size_t)at * len_bytes, (int)len_bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[at]);
        }
        must("MPI_Waitall", MPI_Waitall(window, requests, MPI_STATUSES_IGNORE));
        done += (uint64_t)window;
    }
    if (first)
        receive_from(1, 1, DONE);
    else
        send_to(0, 1, DONE);
}

static void writes(MPI_Win window, size_t len_bytes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++)
        MPI_Put(buffer, (int)len_bytes, MPI_BYTE, 1, 0, (int)len_bytes, MPI_BYTE, window);
    must("MPI_Win_flush", MPI_Win_flush(1, window));
}

static void writes_and_flushes(MPI_Win window, size_t len_bytes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++)
        writes(window, len_bytes, 1);
}

static void reads_and_flushes(MPI_Win window, size_t len_bytes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++) {
        MPI_Get(buffer, (int)len_bytes, MPI_BYTE, 1, 0, (int)len_bytes, MPI_BYTE, window);
        must("MPI_Win_flush", MPI_Win_flush(1, window));
    }
}

static void add(MPI_Win window, int rank, uint64_t count)
{
    int64_t one = 1, found;
    for (uint64_t at = 0; at < count; at++) {
        MPI_Fetch_and_op(&one, &found, MPI_INT64_T, rank, 0, MPI_SUM, window);
        must("MPI_Win_flush", MPI_Win_flush(rank, window));
    }
}

static void additions(MPI_Win window, size_t len_bytes, uint64_t count)
{
    (void)len_bytes;
    add(window, 1, count);
}

/* By all ranks, which begin and end together. */
static void additions_of_all(MPI_Win window, size_t len_bytes, uint64_t count)
{
    (void)len_bytes;
    add(window, 0, count);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void barriers(bool first, size_t len_bytes, uint64_t count)
{
    (void)first;
    (void)len_bytes;
    for (uint64_t at = 0; at < count; at++)
        must("MPI_Barrier", MPI_Barrier(MPI_COMM_WORLD));
}

static void allreduces(bool first, size_t len_bytes, uint64_t count)
{
    static double *sums;
    int numbers = (int)(len_bytes / sizeof *sums);
    (void)first;
    if (sums == NULL)
        sums = pages(len_bytes);
    for (uint64_t at = 0; at < count; at++)
        must("MPI_Allreduce", MPI_Allreduce(buffer, sums, numbers, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

static double since_start_s(void)
{
    const char *started_ns = getenv("CCI_BENCH_STARTED_NS");
    if (started_ns == NULL)
        fail("CCI_BENCH_STARTED_NS", "is not set");
    return now_s() - (double)number(started_ns) / 1e9;
}

/* As in `src/shape.rs`. */
enum { VECTOR, FACE, INDEXED, STRUCT, CONTIGUOUS };
enum { VECTOR_BLOCKS = 8192, BOX_SIDE = 64, FACE_SIDE = BOX_SIDE - 2, FACE_DEPTH = 2, INDEXED_BLOCKS = 2048, STRUCTS = 4096 };

static MPI_Datatype described(int shape, size_t len_bytes, int *count)
{
    static int lens[INDEXED_BLOCKS], at[INDEXED_BLOCKS];
    MPI_Datatype rows, type;
    *count = 1;
    switch (shape) {
    case VECTOR:
        MPI_Type_vector(VECTOR_BLOCKS, 1, 2, MPI_DOUBLE, &type);
        break;
    case FACE:
        MPI_Type_vector(FACE_SIDE, FACE_DEPTH, BOX_SIDE, MPI_DOUBLE, &rows);
        MPI_Type_create_hvector(FACE_SIDE, 1, (MPI_Aint)sizeof(double) * BOX_SIDE * BOX_SIDE, rows, &type);
        MPI_Type_free(&rows);
        break;
    case INDEXED:
        for (int block = 0, end = 0; block < INDEXED_BLOCKS; block++) {
            lens[block] = 1 + block % 7;
            at[block] = end;
            end += lens[block] + 1 + block % 3;
        }
        MPI_Type_indexed(INDEXED_BLOCKS, lens, at, MPI_DOUBLE, &type);
        break;
    case STRUCT:
        MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type);
        *count = STRUCTS;
        break;
    default:
        MPI_Type_contiguous(1, MPI_BYTE, &type);
        *count = (int)len_bytes;
    }
    must("MPI_Type_commit", MPI_Type_commit(&type));
    return type;
}

/* By the first rank; the other one waits for it. Returns how long it took. */
static double packing(const struct job *job)
{
    bool unpacks = job->work >= UNPACK;
    int count, size, packed_bytes = (int)job->len_bytes;
    MPI_Aint lower, extent;
    MPI_Datatype type = described((int)job->work - (unpacks ? (int)UNPACK : (int)PACK), job->len_bytes, &count);
    MPI_Type_size(type, &size);
    if ((size_t)size * (size_t)count != job->len_bytes)
        fail("described data", "have another length");
    MPI_Type_get_extent(type, &lower, &extent);
    char *memory = pages((size_t)extent * (size_t)count), *packed = pages(job->len_bytes);
    double start = 0;
    for (uint64_t at = 0; at < job->warm_up + job->count; at++) {
        int place = 0;
        if (at == job->warm_up)
            start = now_s();
        if (unpacks)
            MPI_Unpack(packed, packed_bytes, &place, memory, count, type, MPI_COMM_WORLD);
        else
            MPI_Pack(memory, count, type, packed, packed_bytes, &place, MPI_COMM_WORLD);
        if (place != packed_bytes)
            fail("packing", "another length");
    }
    double took_s = now_s() - start;
    MPI_Type_free(&type);
    return took_s;
}

/* Where the first rank alone works, the other one stays in MPI, so that a target that has to help does so. */
static double one_sided(const struct job *job, bool first, void (*work)(MPI_Win, size_t, uint64_t))
{
    void *target;
    MPI_Win window;
    MPI_Request over;
    bool all = job->work == FETCH_ADD_ALL;
    double start = 0, end = 0;
    if (job->work == PUT_FENCE_HEAP) {
        target = pages(job->len_bytes);
        must("MPI_Win_create", MPI_Win_create(target, (MPI_Aint)job->len_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    } else {
        must("MPI_Win_allocate", MPI_Win_allocate((MPI_Aint)job->len_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &target, &window));
        memset(target, 1, job->len_bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (first || all) {
        MPI_Win_lock(MPI_LOCK_SHARED, all ? 0 : 1, 0, window);
        work(window, job->len_bytes, job->warm_up);
        start = now_s();
        work(window, job->len_bytes, job->count);
        end = now_s();
        MPI_Win_unlock(all ? 0 : 1, window);
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &over);
    MPI_Wait(&over, MPI_STATUS_IGNORE);
    MPI_Win_free(&window);
    return end - start;
}

int main(int argc, char **argv)
{
    struct job job = parse_job(argc, argv);
    int rank, ranks;
    /* What MPI starts may look at the whole machine; the pinned main thread does the polling. */
    must("MPI_Init", MPI_Init(NULL, NULL));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || (ranks > 2 && job.work < FETCH_ADD_ALL))
        fail(argv[0], "start two ranks with mpirun -n 2");
    if (job.work == START) {
        must("MPI_Barrier", MPI_Barrier(MPI_COMM_WORLD));
        job.count = 1;
        if (rank == 0)
            tell_result(&job, since_start_s());
        MPI_Finalize();
        return 0;
    }
    pin(rank % 2);
    buffer = pages(job.len_bytes * (job.work == RATE ? window_of(job.len_bytes) : 1));

    bool first = rank == 0;
    double took_s;
    if (job.work >= PUT && job.work <= FETCH_ADD_ALL) {
        void (*const one_sided_works[])(MPI_Win, size_t, uint64_t) = {
            [PUT] = writes, [PUT_FENCE] = writes_and_flushes, [PUT_FENCE_HEAP] = writes_and_flushes,
            [GET_FENCE] = reads_and_flushes, [FETCH_ADD] = additions, [FETCH_ADD_ALL] = additions_of_all};
        took_s = one_sided(&job, first, one_sided_works[job.work]);
        if (job.work == FETCH_ADD_ALL)
            job.count *= (uint64_t)ranks;
    } else if (job.work >= PACK) {
        took_s = first ? packing(&job) : 0;
    } else {
        void (*const works[])(bool, size_t, uint64_t) = {[RATE] = stream, [HALF_TRIP] = trips, [BARRIER] = barriers, [ALLREDUCE] = allreduces};
        void (*work)(bool, size_t, uint64_t) = works[job.work];
        work(first, job.len_bytes, job.warm_up);
        double start = now_s();
        work(first, job.len_bytes, job.count);
        took_s = now_s() - start;
    }
    if (first)
        tell_result(&job, took_s);
    MPI_Barrier(MPI_COMM_WORLD);
#ifdef MPICH
    /* MPICH 4.0.2 over the TCP of UCX 1.13.1 now and then does not come back from MPI_Finalize (2 times of 10). */
    if (strcmp(job.transport, "tcp") == 0)
        _exit(0);
#endif
    MPI_Finalize();
    return 0;
}
