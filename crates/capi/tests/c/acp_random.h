/* What the parts of acp_random.c share: draws from the seed, checks that name it, and memory that containers take from and give to. */
#ifndef ACP_RANDOM_H
#define ACP_RANDOM_H

#include <acp.h>
#include <cci.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d of %d, seed %llu, round %d: %s (%s)\n", __FILE__, __LINE__, rank, procs, seed,       \
                    round_number, #condition, cci_last_error());                                                                 \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

enum { PAGE = 4096 };

static int rank, procs, round_number;
static unsigned long long seed;
static char page[PAGE], answer[PAGE];
static acp_ga_t page_at, answer_at;

/* Numbers from a seed (splitmix64). */
typedef struct {
    uint64_t state;
} draw_t;

static int below(draw_t *draw, size_t end)
{
    uint64_t word = draw->state += 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return (int)((word ^ word >> 31) % end);
}

/* The draws for an object in this round: the same at all ranks. */
static draw_t draws_of(int object)
{
    draw_t draw = {seed << 32 ^ (uint64_t)round_number << 16 ^ (uint64_t)object};
    below(&draw, 2);
    return draw;
}

/* Some bytes, which calls take. */
static acp_element_t taken(const void *bytes, size_t len)
{
    memcpy(page, bytes, len);
    return (acp_element_t){page_at, len};
}

/* What is in global memory. */
static const char *given(acp_ga_t ga, size_t len)
{
    check(len <= PAGE && (len == 0 || ga != ACP_GA_NULL));
    if (len > 0)
        acp_complete(acp_copy(answer_at, ga, len, ACP_HANDLE_NULL));
    return answer;
}

#endif
