/* Words of all ranks, which copies and atomic operations change, beside their model. */
#ifndef ACP_RANDOM_WORDS_H
#define ACP_RANDOM_WORDS_H

#include "acp_random.h"

/*
 * Each rank has words that one rank changes in a round; words that all change, by operations of a kind for which their order is nothing; words that nobody
 * changes; and results. Those with an odd number are words of 4 bytes.
 */
enum { RANKS_MAX = 8, OWNED = 12, COMMON = 12, FIXED = 8, RESULTS = 64 };

typedef struct {
    uint64_t owned[OWNED], common[COMMON], fixed[FIXED], results[RESULTS];
} words_t;

static words_t words, model_words[RANKS_MAX];
static acp_ga_t words_at[RANKS_MAX];

enum { ADD, XOR, OR, AND, SWAP, CAS };

static uint64_t changed(int what, uint64_t was, uint64_t value, uint64_t compared)
{
    switch (what) {
    case ADD:
        return was + value;
    case XOR:
        return was ^ value;
    case OR:
        return was | value;
    case AND:
        return was & value;
    case SWAP:
        return value;
    default:
        return was == compared ? value : was;
    }
}

static acp_handle_t change(int is_short, int what, acp_ga_t dst, acp_ga_t src, uint64_t value, uint64_t compared, acp_handle_t order)
{
    uint32_t value4 = (uint32_t)value;
    switch (what) {
    case ADD:
        return is_short ? acp_add4(dst, src, value4, order) : acp_add8(dst, src, value, order);
    case XOR:
        return is_short ? acp_xor4(dst, src, value4, order) : acp_xor8(dst, src, value, order);
    case OR:
        return is_short ? acp_or4(dst, src, value4, order) : acp_or8(dst, src, value, order);
    case AND:
        return is_short ? acp_and4(dst, src, value4, order) : acp_and8(dst, src, value, order);
    case SWAP:
        return is_short ? acp_swap4(dst, src, value4, order) : acp_swap8(dst, src, value, order);
    default:
        return is_short ? acp_cas4(dst, src, (uint32_t)compared, value4, order) : acp_cas8(dst, src, compared, value, order);
    }
}

/* A word of 4 bytes is the first half of its place; the other half stays as it is. */
static uint64_t word_of(int is_short, uint64_t place)
{
    uint32_t half;
    memcpy(&half, &place, sizeof half);
    return is_short ? half : place;
}

static void set_word(int is_short, uint64_t *place, uint64_t word)
{
    uint32_t half = (uint32_t)word;
    if (is_short)
        memcpy(place, &half, sizeof half);
    else
        *place = word;
}

static uint64_t draw_word(draw_t *draw)
{
    return (uint64_t)below(draw, 1u << 31) << 40 ^ (uint64_t)below(draw, 1u << 31) << 16 ^ (uint64_t)below(draw, 256);
}

#define PLACE(of_rank, name, at) (words_at[of_rank] + offsetof(words_t, name) + 8 * (size_t)(at))

/* The owned words of a rank, by the one that acts: what each operation finds is what the one before has left there. */
static void step_words(int owner, draw_t *draw, int acts)
{
    acp_handle_t last[OWNED] = {0}, newest = ACP_HANDLE_NULL;
    uint64_t found[RESULTS];
    int is_short_at[RESULTS], count = 20 + below(draw, RESULTS - 20);
    for (int step = 0; step < count; step++) {
        int at = below(draw, OWNED), what = below(draw, 8), is_short = at % 2, from = below(draw, (size_t)procs), fixed = below(draw, FIXED);
        uint64_t *place = &model_words[owner].owned[at], was = word_of(is_short, *place), value = draw_word(draw);
        uint64_t compared = below(draw, 2) ? was : value ^ 1;
        /* Behind what changes the same word, or behind anything. */
        acp_handle_t orders[] = {ACP_HANDLE_NULL, newest, ACP_HANDLE_CONT, ACP_HANDLE_ALL};
        acp_handle_t order = last[at] != ACP_HANDLE_NULL && below(draw, 2) ? last[at] : orders[below(draw, 4)];
        if (last[at] != ACP_HANDLE_NULL && (order == ACP_HANDLE_NULL || order == ACP_HANDLE_CONT))
            order = ACP_HANDLE_ALL;
        /* Copies are of 8 bytes, from a word of any rank that nobody changes. */
        int copies = what > CAS && !is_short;
        what = what > CAS ? ADD : what;
        is_short_at[step] = copies ? -1 : is_short;
        found[step] = was;
        if (acts && copies)
            newest = acp_copy(PLACE(owner, owned, at), PLACE(from, fixed, fixed), 8, order);
        else if (acts)
            newest = change(is_short, what, PLACE(rank, results, step), PLACE(owner, owned, at), value, compared, order);
        check(!acts || newest > 0);
        last[at] = acts ? newest : 1;
        if (copies)
            *place = model_words[from].fixed[fixed];
        else
            set_word(is_short, place, changed(what, was, is_short ? (uint32_t)value : value, is_short ? (uint32_t)compared : compared));
    }
    if (!acts)
        return;
    acp_complete(ACP_HANDLE_ALL);
    for (int step = 0; step < count; step++)
        check(is_short_at[step] < 0 || word_of(is_short_at[step], words.results[step]) == found[step]);
}

/* The common words of a rank, by all ranks at once: additions, bits that go over, that are set, or that are cleared. */
static void change_common(int owner, draw_t *draw)
{
    for (int at = 0; at < COMMON; at++) {
        int what = below(draw, 4), is_short = at % 2;
        uint64_t *place = &model_words[owner].common[at];
        for (int by = 0; by < procs; by++)
            for (int count = below(draw, 4); count > 0; count--) {
                uint64_t value = draw_word(draw);
                if (by == rank)
                    check(change(is_short, what, PLACE(rank, results, at), PLACE(owner, common, at), value, 0, ACP_HANDLE_NULL) > 0);
                set_word(is_short, place, changed(what, word_of(is_short, *place), is_short ? (uint32_t)value : value, 0));
            }
    }
}

/* All ranks raise a word of rank 0 by compare-and-swap, each so often, and pass numbers through another one by swaps: none is lost. */
static void contend(acp_ga_t raised, acp_ga_t passed, acp_ga_t sum, int times)
{
    for (int count = 0; count < times; count++) {
        uint64_t was = 0;
        for (;;) {
            acp_complete(acp_cas8(PLACE(rank, results, 0), raised, was, was + 1, ACP_HANDLE_NULL));
            if (words.results[0] == was)
                break;
            was = words.results[0];
        }
        uint64_t own = ((uint64_t)rank + 1) << 32 | (uint64_t)count;
        acp_complete(acp_swap8(PLACE(rank, results, 1), passed, own, ACP_HANDLE_ALL));
        acp_complete(acp_add8(PLACE(rank, results, 2), sum, own - words.results[1], ACP_HANDLE_ALL));
    }
}

#endif
