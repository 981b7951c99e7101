/*
 * Random operations of all ranks through acp.h beside plain models: `acp_random SEED ROUNDS RAISES`.
 *
 * All ranks draw the same plan from the seed, in rounds between barriers. In a round, two containers of a kind, a key of a table or the words of a rank are
 * changed by one rank, which is another one in each round, and all objects at the same time, each rank beginning with another one. Behind it every rank finds
 * at every object what the model has. What all ranks change at once has operations for which their order is nothing: so they raise a key of
 * a multiset, so often each.
 */
#include "acp_random_sequences.h"
#include "acp_random_tables.h"
#include "acp_random_words.h"

enum { STEPS = 10, HEAP_BYTES = 1 << 20 };
enum { VECTORS, DEQUES, LISTS, SETS, MULTISETS, MAPS, FIRST_KEY, FIRST_WORDS = FIRST_KEY + 3 * KEYS, OBJECTS_MAX = FIRST_WORDS + RANKS_MAX };

/* The handles that rank 0 has made. Of tables, the first one is for keys that each are an object. */
static struct {
    acp_vector_t vectors[2];
    acp_deque_t deques[2];
    acp_list_t lists[2];
    acp_set_t sets[3];
    acp_multiset_t multisets[3];
    acp_map_t maps[3];
    acp_ga_t contended;
} all;

static struct {
    sequence_t vectors[2], deques[2];
    row_t lists[2];
    numbers_t sets[3], multisets[3], maps[3];
} models;

static void make_all(void)
{
    int ranks[RANKS_MAX];
    for (int each = 0; each < procs; each++)
        ranks[each] = each;
    for (int number = 0; number < 2; number++) {
        all.vectors[number] = acp_create_vector(0, number % procs);
        all.deques[number] = acp_create_deque(8, (number + 1) % procs);
        all.lists[number] = acp_create_list((number + 2) % procs);
        check(all.vectors[number].ga && all.deques[number].ga && all.lists[number].ga);
    }
    for (int number = 0; number < 3; number++) {
        /* All ranks meet in the only bucket of the first ones. */
        int owners = number == 0 ? 1 : procs, buckets = number == 0 ? 1 : BUCKETS;
        all.sets[number] = acp_create_set(owners, ranks, buckets, number % procs);
        all.multisets[number] = acp_create_multiset(owners, ranks, buckets, (number + 1) % procs);
        all.maps[number] = acp_create_map(owners, ranks, buckets, (number + 2) % procs);
        check(all.sets[number].ga && all.multisets[number].ga && all.maps[number].ga);
    }
    all.contended = acp_malloc(3 * 8, procs - 1);
    memset(page, 0, 3 * 8);
    acp_complete(acp_copy(all.contended, page_at, 3 * 8, ACP_HANDLE_NULL));
}

static void destroy_all(void)
{
    for (int number = 0; number < 2; number++) {
        acp_destroy_vector(all.vectors[number]);
        acp_destroy_deque(all.deques[number]);
        acp_destroy_list(all.lists[number]);
    }
    for (int number = 0; number < 3; number++) {
        acp_destroy_set(all.sets[number]);
        acp_destroy_multiset(all.multisets[number]);
        acp_destroy_map(all.maps[number]);
    }
    acp_free(all.contended);
}

/* Makes the handles of rank 0, and where the words of each rank are, known to all. */
static void exchange(acp_ga_t own)
{
    char *starter = acp_query_address(acp_query_starter_ga(rank));
    memcpy(starter, &own, sizeof own);
    if (rank == 0) {
        make_all();
        memcpy(starter + sizeof own, &all, sizeof all);
    }
    acp_sync();
    memcpy(&all, given(acp_query_starter_ga(0) + sizeof own, sizeof all), sizeof all);
    for (int other = 0; other < procs; other++)
        memcpy(&words_at[other], given(acp_query_starter_ga(other), sizeof own), sizeof own);
}

/* A look at a key that another rank may be changing: of a map, all that is found must be whole. */
static void look(int key)
{
    number_in_map(all.maps[0], key);
    number_in_multiset(all.multisets[0], key);
}

/* What becomes of an object in this round. */
static void turn(int object)
{
    draw_t draw = draws_of(object);
    int acts = below(&draw, (size_t)procs) == rank, key = (object - FIRST_KEY) % KEYS;
    if (object >= FIRST_WORDS) {
        step_words(object - FIRST_WORDS, &draw, acts);
        return;
    }
    for (int steps = below(&draw, STEPS); steps > 0; steps--) {
        switch (object) {
        case VECTORS:
            step_vector(all.vectors, models.vectors, &draw, acts);
            break;
        case DEQUES:
            step_deque(all.deques, models.deques, &draw, acts);
            break;
        case LISTS:
            step_list(all.lists, models.lists, &draw, acts);
            break;
        case SETS:
            step_set(all.sets + 1, models.sets + 1, &draw, acts);
            break;
        case MULTISETS:
            step_multiset(all.multisets + 1, models.multisets + 1, &draw, acts);
            break;
        case MAPS:
            step_map(all.maps + 1, models.maps + 1, &draw, acts);
            break;
        default:
            if (object < FIRST_KEY + KEYS)
                models.sets[0].of[key] = step_in_set(all.sets[0], key, models.sets[0].of[key], &draw, acts);
            else if (object < FIRST_KEY + 2 * KEYS)
                models.multisets[0].of[key] = step_in_multiset(all.multisets[0], key, models.multisets[0].of[key], &draw, acts);
            else
                models.maps[0].of[key] = step_in_map(all.maps[0], key, models.maps[0].of[key], &draw, acts);
        }
    }
    if (object >= FIRST_KEY && !acts)
        look(key);
}

static void compare(void)
{
    for (int number = 0; number < 2; number++) {
        is_vector(all.vectors[number], &models.vectors[number]);
        is_deque(all.deques[number], &models.deques[number]);
        is_list(all.lists[number], &models.lists[number]);
    }
    for (int number = 0; number < 3; number++) {
        is_set(all.sets[number], &models.sets[number]);
        is_multiset(all.multisets[number], &models.multisets[number]);
        is_map(all.maps[number], &models.maps[number]);
    }
    check(memcmp(words.owned, model_words[rank].owned, sizeof words.owned) == 0);
    check(memcmp(words.common, model_words[rank].common, sizeof words.common) == 0);
    check(memcmp(words.fixed, model_words[rank].fixed, sizeof words.fixed) == 0);
}

/* All ranks at once: local parts of tables; an entry that one of them makes, and all count; words. */
static void by_all(int raises)
{
    draw_t draw = draws_of(OBJECTS_MAX);
    local_set(all.sets + 1, models.sets + 1, &draw);
    local_multiset(all.multisets + 1, models.multisets + 1, &draw);
    local_map(all.maps + 1, models.maps + 1, &draw);
    for (int owner = 0; owner < procs; owner++)
        change_common(owner, &draw);
    acp_complete(ACP_HANDLE_ALL);
    int key = below(&draw, KEYS), times = below(&draw, 6);
    uint64_t was = models.sets[0].of[key], wins = (uint64_t)acp_insert_set(all.sets[0], key_of(key));
    check(wins <= 1 && (was == 0 || wins == 0));
    for (int count = 0; count < raises; count++)
        check(acp_insert_multiset(all.multisets[0], key_of(key)) == 1);
    models.sets[0].of[key] = 1;
    models.multisets[0].of[key] += (uint64_t)(raises * procs);
    contend(all.contended, all.contended + 8, all.contended + 16, times);
    /* Who has entered the key counts as one more turn of compare-and-swap. */
    contend(all.contended, all.contended + 8, all.contended + 16, (int)wins);
    static uint64_t raised;
    raised += (uint64_t)(times * procs) + (was == 0);
    acp_sync();
    uint64_t now[3];
    memcpy(now, given(all.contended, sizeof now), sizeof now);
    check(now[0] == raised && now[1] == now[2]);
}

int main(int argc, char **argv)
{
    char *options[] = {argv[0], "--acp-size-smem-dl", "1048576", NULL}, **given_argv = options;
    int given_argc = 3;
    if (argc != 4)
        return 2;
    seed = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]), raises = atoi(argv[3]);
    check(acp_init(&given_argc, &given_argv) == 0);
    rank = acp_rank();
    procs = acp_procs();
    check(procs <= RANKS_MAX);
    acp_atkey_t page_key = acp_register_memory(page, sizeof page, 0), answer_key = acp_register_memory(answer, sizeof answer, 0);
    acp_atkey_t words_key = acp_register_memory(&words, sizeof words, (int)(seed % (unsigned)acp_colors()));
    page_at = acp_query_ga(page_key, page);
    answer_at = acp_query_ga(answer_key, answer);
    for (int owner = 0; owner < procs; owner++)
        for (int at = 0; at < FIXED; at++)
            model_words[owner].fixed[at] = (uint64_t)(owner + 1) << 40 | (uint64_t)at;
    words = model_words[rank];
    exchange(acp_query_ga(words_key, &words));
    int objects = FIRST_WORDS + procs;
    for (round_number = 0; round_number < rounds; round_number++) {
        acp_sync();
        for (int each = 0; each < objects; each++)
            turn((each + rank * objects / procs) % objects);
        acp_sync();
        compare();
        acp_sync();
        by_all(raises);
        compare();
    }
    acp_sync();
    if (rank == 0)
        destroy_all();
    acp_sync();
    /* What they took is free again, and in one piece. */
    check(acp_malloc(HEAP_BYTES / 4 * 3, rank) != ACP_GA_NULL);
    check(acp_finalize() == 0);
    puts("acp_random: all well");
    return 0;
}
