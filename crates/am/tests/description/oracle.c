/* Builds MPI data types from recipes on standard input, one a line, and prints what MPI makes of each:
 * size, lower bound, extent, true lower bound, true extent, and the packed bytes of COUNT elements in hexadecimal.
 *
 * A line is COUNT and a recipe in prefix form:
 *   b LEN | v|V COUNT BLOCK STRIDE of | i|I N (LEN AT)* of | k|K LEN N AT* of | s N (LEN AT of)* | r LOWER EXTENT of
 * Capital letters count displacements in bytes. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long number(void)
{
    long n;
    if (scanf("%ld", &n) != 1)
        exit(2);
    return n;
}

static MPI_Datatype recipe(void)
{
    char kind;
    if (scanf(" %c", &kind) != 1)
        exit(2);
    MPI_Datatype type, of;
    switch (kind) {
    case 'b':
        MPI_Type_contiguous((int)number(), MPI_BYTE, &type);
        return type;
    case 'v':
    case 'V': {
        long count = number(), block = number(), stride = number();
        of = recipe();
        if (kind == 'v')
            MPI_Type_vector((int)count, (int)block, (int)stride, of, &type);
        else
            MPI_Type_create_hvector((int)count, (int)block, stride, of, &type);
        break;
    }
    case 'i':
    case 'I': {
        int n = (int)number(), lens[64], at[64];
        MPI_Aint at_bytes[64];
        for (int i = 0; i < n; i++) {
            lens[i] = (int)number();
            at_bytes[i] = at[i] = (int)number();
        }
        of = recipe();
        if (kind == 'i')
            MPI_Type_indexed(n, lens, at, of, &type);
        else
            MPI_Type_create_hindexed(n, lens, at_bytes, of, &type);
        break;
    }
    case 'k':
    case 'K': {
        int len = (int)number(), n = (int)number(), at[64];
        MPI_Aint at_bytes[64];
        for (int i = 0; i < n; i++)
            at_bytes[i] = at[i] = (int)number();
        of = recipe();
        if (kind == 'k')
            MPI_Type_create_indexed_block(n, len, at, of, &type);
        else
            MPI_Type_create_hindexed_block(n, len, at_bytes, of, &type);
        break;
    }
    case 's': {
        int n = (int)number(), lens[64];
        MPI_Aint at[64];
        MPI_Datatype types[64];
        for (int i = 0; i < n; i++) {
            lens[i] = (int)number();
            at[i] = number();
            types[i] = recipe();
        }
        MPI_Type_create_struct(n, lens, at, types, &type);
        for (int i = 0; i < n; i++)
            MPI_Type_free(&types[i]);
        return type;
    }
    case 'r': {
        long lower = number(), extent = number();
        of = recipe();
        MPI_Type_create_resized(of, lower, extent, &type);
        break;
    }
    default:
        exit(2);
    }
    MPI_Type_free(&of);
    return type;
}

enum { MEMORY = 1 << 22 };

/* Unpacks into zeros, and answers a hash (FNV-1a) of all bytes from the first one that is used to the last one. */
static unsigned long long unpacked(const unsigned char *packed, int length, int count, MPI_Datatype type)
{
    static unsigned char memory[MEMORY];
    MPI_Aint lower, extent, first, used, last;
    int position = 0;
    unsigned long long hash = 0xcbf29ce484222325ULL;
    if (length == 0)
        return hash;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &first, &used);
    last = first + used + (extent > 0 ? (count - 1) * extent : 0);
    first += extent < 0 ? (count - 1) * extent : 0;
    memset(memory + MEMORY / 2 + first, 0, (size_t)(last - first));
    MPI_Unpack(packed, length, &position, memory + MEMORY / 2, count, type, MPI_COMM_SELF);
    for (MPI_Aint at = first; at < last; at++)
        hash = (hash ^ memory[MEMORY / 2 + at]) * 0x100000001b3ULL;
    return hash;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    /* Elements lie around the middle. Their bytes say where they are. */
    static unsigned char memory[MEMORY], packed[MEMORY];
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (unsigned char)(i * 31 + i / 253);
    int count;
    while (scanf("%d", &count) == 1) {
        MPI_Datatype type = recipe();
        MPI_Type_commit(&type);
        int size, position = 0;
        MPI_Aint lower, extent, true_lower, true_extent;
        MPI_Type_size(type, &size);
        MPI_Type_get_extent(type, &lower, &extent);
        MPI_Type_get_true_extent(type, &true_lower, &true_extent);
        MPI_Pack(memory + MEMORY / 2, count, type, packed, MEMORY, &position, MPI_COMM_SELF);
        printf("%d %ld %ld %ld %ld ", size, (long)lower, (long)extent, (long)true_lower, (long)true_extent);
        for (int i = 0; i < position; i++)
            printf("%02x", packed[i]);
        printf(" %016llx.\n", unpacked(packed, position, count, type));
        MPI_Type_free(&type);
    }
    MPI_Finalize();
    return 0;
}
