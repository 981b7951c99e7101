/* The data library of acp.h, by the ranks of a job: what one process does alone, and what all do to the same containers. */
#include <acp.h>
#include <cci.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: rank %d: %s (%s)\n", __FILE__, __LINE__, acp_rank(), #condition, cci_last_error());          \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

#define PAGE 4096

static int rank, procs;
/* Registered: what containers take from and give to. */
static char page[PAGE], answer[PAGE];
static acp_ga_t page_at, answer_at;

static acp_element_t bytes(const char *text)
{
    acp_element_t element = {page_at, strlen(text)};
    memcpy(page, text, element.size);
    return element;
}

/* What is in global memory, as a string. */
static const char *text(acp_element_t element)
{
    check(element.ga != ACP_GA_NULL && element.size < PAGE);
    acp_complete(acp_copy(answer_at, element.ga, element.size, ACP_HANDLE_NULL));
    answer[element.size] = 0;
    return answer;
}

static const char *at(acp_ga_t ga, size_t size)
{
    acp_element_t element = {ga, size};
    return text(element);
}

/* The handle that rank 0 has made, at all ranks. */
static void share(void *handle, size_t size)
{
    acp_sync();
    if (rank == 0)
        memcpy(acp_query_address(acp_query_starter_ga(0)), handle, size);
    acp_sync();
    acp_complete(acp_copy(answer_at, acp_query_starter_ga(0), size, ACP_HANDLE_NULL));
    memcpy(handle, answer, size);
    acp_sync();
}

static void heap(void)
{
    int other = (rank + 1) % procs;
    acp_ga_t one = acp_malloc(100, other), two = acp_malloc(0, other);
    check(one != ACP_GA_NULL && two != ACP_GA_NULL && acp_query_rank(one) == other && one % 16 == 0);
    acp_complete(acp_copy(one, bytes("here").ga, 4, ACP_HANDLE_NULL));
    check(strcmp(at(one, 4), "here") == 0);
    acp_free(one);
    acp_free(two);
    acp_free(two);
    acp_free(ACP_GA_NULL);
    acp_free(12345);
    check(acp_malloc(1, procs) == ACP_GA_NULL && acp_malloc(1, -1) == ACP_GA_NULL && acp_malloc((size_t)1 << 40, 0) == ACP_GA_NULL);
}

static void vectors(void)
{
    int other = (rank + 1) % procs;
    acp_vector_t one = acp_create_vector(3, other), two = acp_create(vector, 0, rank);
    check(one.ga != ACP_GA_NULL && acp_size_vector(one) == 3 && acp_empty_vector(two) == 1);
    check(memcmp(at(acp_at_vector(one, 0), 3), "\0\0", 3) == 0);
    acp_clear_vector(one);
    acp_push_back_vector(one, bytes("hello").ga, 5);
    acp_vector_it_t it = acp_insert_vector(acp_advance_vector_it(acp_begin_vector(one), 2), bytes("--").ga, 2);
    check(it.index == 2 && strcmp(at(acp_at_vector(one, 0), 7), "he--llo") == 0);
    check(strcmp(at(acp_dereference_vector_it(it), 1), "-") == 0);
    it = acp_erase_vector(it, 1);
    check(it.index == 2 && acp_size(vector, one) == 6);
    acp_insert_range_vector(acp_end_vector(two), it, acp_end_vector(one));
    check(strcmp(at(acp_at_vector(two, 0), 4), "-llo") == 0 && acp_distance_vector_it(it, acp_end_vector(one)) == 4);
    it = acp_erase_range_vector(acp_begin_vector(one), it);
    check(acp_size_vector(one) == 4 && it.index == 0);
    acp_pop_back_vector(one, 1);
    acp_swap_vector(one, two);
    check(acp_size_vector(one) == 4 && acp_size_vector(two) == 3);
    acp_assign_vector(one, two);
    acp_assign_range_vector(two, acp_begin_vector(one), acp_advance_vector_it(acp_begin_vector(one), 2));
    check(strcmp(at(acp_at_vector(one, 0), 3), "-ll") == 0 && strcmp(at(acp_at_vector(two, 0), 2), "-l") == 0);
    acp_reserve_vector(two, 1000);
    check(acp_capacity_vector(two) >= 1000 && acp_size_vector(two) == 2);
    check(acp_at_vector(two, 2) == ACP_GA_NULL && acp_at_vector(two, -1) == ACP_GA_NULL);
    it = acp_insert_vector(acp_advance_vector_it(acp_end_vector(two), 1), page_at, 1);
    check(it.vector.ga == ACP_GA_NULL && acp_size_vector(two) == 2);
    check(acp_insert_vector(acp_end_vector(two), ACP_GA_NULL, 1).vector.ga == ACP_GA_NULL);
    check(acp_erase_range_vector(acp_begin_vector(one), acp_end_vector(two)).vector.ga == ACP_GA_NULL && acp_size_vector(one) == 3);
    acp_destroy_vector(one);
    acp_destroy_vector(two);
    check(acp_create_vector(8, procs).ga == ACP_GA_NULL && acp_size_vector((acp_vector_t){ACP_GA_NULL}) == 0);
}

static void deques(void)
{
    int other = (rank + 1) % procs;
    acp_deque_t one = acp_create_deque(64, other), two = acp_create_deque(0, rank);
    check(acp_empty_deque(one) == 1 && acp_capacity_deque(one) >= 64);
    acp_push_back_deque(one, bytes("world").ga, 5);
    acp_push_front_deque(one, bytes("hello ").ga, 6);
    acp_pair_t pair = acp_dereference_deque_it(acp_begin_deque(one), 11);
    char all[12] = "";
    memcpy(all, text(pair.first), pair.first.size);
    if (pair.second.size > 0)
        memcpy(all + pair.first.size, text(pair.second), pair.second.size);
    check(pair.first.size + pair.second.size == 11 && strcmp(all, "hello world") == 0);
    check(strcmp(at(acp_at_deque(one, 6), 1), "w") == 0 && acp_at_deque(one, 11) == ACP_GA_NULL);
    acp_pop_front_deque(one, 3);
    acp_pop_back_deque(one, 3);
    check(acp_size_deque(one) == 5);
    acp_assign_deque(two, one);
    acp_erase_deque(acp_advance_deque_it(acp_begin_deque(two), 2), 2);
    acp_insert_deque(acp_end_deque(two), bytes("!").ga, 1);
    acp_insert_range_deque(acp_begin_deque(two), acp_begin_deque(one), acp_advance_deque_it(acp_begin_deque(one), 2));
    check(acp_size_deque(two) == 6 && acp_distance_deque_it(acp_begin_deque(two), acp_end_deque(two)) == 6);
    acp_swap_deque(one, two);
    check(acp_size_deque(one) == 6 && acp_size_deque(two) == 5);
    acp_assign_range_deque(two, acp_advance_deque_it(acp_begin_deque(one), 5), acp_end_deque(one));
    check(acp_size_deque(two) == 1 && strcmp(at(acp_at_deque(two, 0), 1), "!") == 0);
    acp_erase_range_deque(acp_begin_deque(one), acp_end_deque(one));
    check(acp_empty(deque, one) == 1);
    acp_reserve_deque(one, 500);
    acp_clear_deque(two);
    check(acp_capacity_deque(one) >= 500 && acp_size_deque(two) == 0);
    acp_destroy_deque(one);
    acp_destroy_deque(two);
}

/* By the bytes, wherever they are. Calls the library. */
static int by_text(acp_element_t one, acp_element_t other)
{
    char first[PAGE];
    strcpy(first, text(one));
    return strcmp(first, text(other));
}

static void says(acp_list_t list, const char *expected)
{
    char all[PAGE] = "";
    size_t count = 0;
    for (acp_list_it_t it = acp_begin_list(list); it.elem != acp_end_list(list).elem; it = acp_increment_list_it(it), count++)
        strcat(all, text(acp_dereference_list_it(it)));
    if (strcmp(all, expected) != 0)
        fprintf(stderr, "%s, not %s\n", all, expected);
    check(strcmp(all, expected) == 0 && acp_size_list(list) == count);
}

static void lists(void)
{
    int other = (rank + 1) % procs;
    acp_list_t one = acp_create_list(other), two = acp_create_list(rank);
    const char *words[] = {"d", "b", "e", "b", "a"};
    for (int word = 0; word < 5; word++)
        acp_push_back_list(one, bytes(words[word]), word % procs);
    acp_push_front(list, one, bytes("c"), other);
    says(one, "cdbeba");
    acp_assign_list(two, one);
    acp_sort_list(one, by_text);
    says(one, "abbcde");
    acp_unique_list(one);
    says(one, "abcde");
    acp_remove_list(two, bytes("b"));
    acp_sort_list(two, by_text);
    says(two, "acde");
    acp_merge_list(one, two, by_text);
    says(one, "aabccddee");
    says(two, "acde");
    acp_unique_list(one);
    acp_reverse_list(one);
    says(one, "edcba");
    acp_list_it_t second = acp_advance_list_it(acp_begin_list(one), 1), last = acp_decrement_list_it(acp_end_list(one));
    check(strcmp(text(acp_dereference_list_it(last)), "a") == 0 && acp_distance_list_it(second, last) == 3);
    check(acp_advance_list_it(last, 2).list.ga == ACP_GA_NULL && acp_advance_list_it(last, 1).elem == ACP_GA_NULL);
    acp_splice_list(acp_begin_list(two), last);
    says(two, "aacde");
    acp_splice_range_list(acp_end_list(two), second, acp_end_list(one));
    says(one, "e");
    says(two, "aacdedcb");
    acp_swap_list(one, two);
    says(one, "aacdedcb");
    says(two, "e");
    acp_list_it_t made = acp_insert_list(acp_begin_list(two), bytes("f"), other);
    check(made.elem != ACP_GA_NULL && acp_query_rank(made.elem) == other);
    acp_list_it_t first = acp_insert_range_list(acp_end_list(two), acp_begin_list(one), acp_advance_list_it(acp_begin_list(one), 3));
    says(two, "feaac");
    check(strcmp(text(acp_dereference_list_it(first)), "a") == 0);
    check(strcmp(text(acp_dereference_list_it(acp_erase_list(made))), "e") == 0);
    check(acp_erase_list(made).list.ga == ACP_GA_NULL && acp_dereference_list_it(made).ga == ACP_GA_NULL);
    check(acp_erase_range_list(acp_begin_list(two), acp_end_list(two)).elem == ACP_GA_NULL && acp_empty_list(two) == 1);
    acp_assign_range_list(two, acp_begin_list(one), acp_advance_list_it(acp_begin_list(one), 4));
    says(two, "aacd");
    acp_pop_back_list(two);
    acp_pop_front_list(two);
    says(two, "ac");
    acp_clear_list(one);
    check(acp_size_list(one) == 0 && acp_insert_list(acp_end_list(one), bytes("x"), procs).list.ga == ACP_GA_NULL);
    acp_sort_list(two, NULL);
    acp_destroy_list(one);
    acp_destroy_list(two);
}

static int *all_ranks(void)
{
    static int ranks[64];
    for (int each = 0; each < procs; each++)
        ranks[each] = each;
    return ranks;
}

/* All ranks enter keys into the same containers. */
static void tables(void)
{
    acp_map_t map = {0}, other_map = {0};
    acp_set_t set = {0}, other_set = {0};
    acp_multiset_t bag = {0}, other_bag = {0};
    if (rank == 0) {
        map = acp_create_map(procs, all_ranks(), 7, procs - 1);
        other_map = acp_create(map, procs, all_ranks(), 100, 0);
        set = acp_create_set(procs, all_ranks(), 7, 0);
        other_set = acp_create_set(procs, all_ranks(), 7, 0);
        bag = acp_create_multiset(procs, all_ranks(), 7, 0);
        other_bag = acp_create_multiset(procs, all_ranks(), 7, 0);
        check(map.ga != ACP_GA_NULL && map.num_ranks == (uint64_t)procs && map.num_slots == 7);
        check(set.ga != ACP_GA_NULL && bag.ga != ACP_GA_NULL && other_bag.ga != ACP_GA_NULL);
    }
    share(&map, sizeof map);
    share(&other_map, sizeof other_map);
    share(&set, sizeof set);
    share(&other_set, sizeof other_set);
    share(&bag, sizeof bag);
    share(&other_bag, sizeof other_bag);
    enum { KEYS = 30 };
    int entered = 0;
    for (int key = 0; key < KEYS; key++) {
        char name[20];
        sprintf(name, "key %d", key);
        acp_element_t element = bytes(name);
        memcpy(page + 100, &rank, sizeof rank);
        acp_pair_t pair = {element, {page_at + 100, sizeof rank}};
        entered += acp_insert_map(map, pair);
        check(acp_insert_map(map, pair) == 0);
        acp_insert_set(set, element);
        check(acp_insert_multiset(bag, element) == 1);
    }
    acp_sync();
    check(acp_size_map(map) == KEYS && acp_size_set(set) == KEYS && acp_size_multiset(bag) == KEYS);
    check(acp_retrieve_multiset(bag, bytes("key 7")) == (uint64_t)procs && acp_retrieve_multiset(bag, bytes("none")) == 0);
    /* Each key has the value of one rank, and each rank has entered those that have its number. */
    int seen = 0, mine = 0;
    for (acp_map_it_t it = acp_begin_map(map); it.elem != acp_end_map(map).elem; it = acp_increment_map_it(it), seen++) {
        acp_pair_t pair = acp_dereference_map_it(it);
        int value;
        memcpy(&value, text(pair.second), sizeof value);
        check(pair.second.size == sizeof value && value >= 0 && value < procs && strncmp(text(pair.first), "key ", 4) == 0);
        mine += value == rank;
    }
    check(seen == KEYS && mine == entered);
    /* What is in this rank's memory, by all ranks together, is all. */
    size_t local = 0;
    for (acp_set_it_t it = acp_begin_local_set(set); it.elem != acp_end_local_set(set).elem; it = acp_increment_set_it(it), local++)
        check(it.rank < 0 && acp_query_rank(acp_dereference_set_it(it).ga) == rank);
    check(local == acp_size_local_set(set) && acp_empty_local_set(set) == (local == 0) && (procs > 1 || local == KEYS));
    /* Looking a value up: all of it, a part, and one that is not there. */
    acp_pair_t found = {bytes("key 3"), {answer_at, 2}};
    memset(answer, 0x55, sizeof answer);
    check(acp_retrieve_map(map, found) == sizeof(int) && answer[2] == 0x55);
    acp_pair_t missing = {bytes("none"), {answer_at, 8}};
    check(acp_retrieve_map(map, missing) == 0);
    acp_map_it_t it = acp_find_map(map, bytes("none"));
    check(it.elem == ACP_GA_NULL && it.rank == procs);
    it = acp_find_map(map, bytes("key 3"));
    check(it.elem != ACP_GA_NULL && strcmp(text(acp_dereference_map_it(it).first), "key 3") == 0);
    acp_sync();
    if (rank == procs - 1) {
        acp_assign_map(other_map, map);
        acp_remove_map(other_map, bytes("key 3"));
        check(acp_size_map(other_map) == KEYS - 1 && acp_dereference_map_it(it).first.ga != ACP_GA_NULL);
        acp_pair_t empty = {bytes("key 4"), {page_at, 0}};
        check(acp_insert_map(other_map, empty) == 0 && acp_size_map(other_map) == KEYS - 2);
        acp_merge_map(other_map, map);
        check(acp_size_map(other_map) == KEYS);
        acp_clear_map(map);
        check(acp_empty_map(map) == 1);
        acp_swap_map(map, other_map);
        check(acp_size_map(map) == KEYS && acp_size_map(other_map) == 0);
        acp_move_map(other_map, map);
        check(acp_size_map(map) == 0 && acp_size_map(other_map) == KEYS);
        acp_insert_set(other_set, bytes("more"));
        acp_merge_set(other_set, set);
        check(acp_size_set(other_set) == KEYS + 1);
        acp_remove_set(other_set, bytes("more"));
        acp_remove_set(other_set, bytes("more"));
        check(acp_size_set(other_set) == KEYS && acp_find_set(other_set, bytes("more")).elem == ACP_GA_NULL);
        acp_remove_multiset(bag, bytes("key 1"));
        check(acp_retrieve_multiset(bag, bytes("key 1")) == (uint64_t)procs - 1);
        acp_remove_all_multiset(bag, bytes("key 2"));
        check(acp_retrieve_multiset(bag, bytes("key 2")) == 0);
        acp_merge_multiset(other_bag, bag);
        acp_merge_multiset(other_bag, bag);
        check(acp_retrieve_multiset(other_bag, bytes("key 7")) == 2 * (uint64_t)procs);
        acp_swap_set(set, other_set);
        acp_move_set(set, other_set);
        check(acp_size_set(set) == KEYS && acp_empty_set(other_set) == 1);
    }
    acp_sync();
    /* Local ones, by all ranks at once: together they do as much. Sets with as many slots have the same keys on each rank. */
    acp_merge_local_set(other_set, set);
    acp_move_local_map(map, other_map);
    acp_sync();
    check(acp_size_set(other_set) == KEYS && acp_size_map(map) == KEYS && acp_size_map(other_map) == 0);
    acp_sync();
    acp_clear_local_set(set);
    acp_clear_local_multiset(bag);
    acp_clear_local_map(map);
    acp_sync();
    check(acp_empty_set(set) == 1 && acp_empty_multiset(bag) == 1 && acp_empty_map(map) == 1);
    acp_sync();
    acp_assign_local_set(set, other_set);
    acp_assign_local_multiset(bag, other_bag);
    if (rank == 0) {
        acp_assign_local_map(map, other_map);
        acp_merge_local_map(map, other_map);
    }
    acp_merge_local_multiset(bag, other_bag);
    acp_move_local_multiset(bag, other_bag);
    acp_move_local_set(other_set, set);
    acp_sync();
    check(acp_size_set(other_set) == KEYS && acp_size_set(set) == 0 && acp_empty_multiset(other_bag) == 1);
    check(acp_empty_local_multiset(other_bag) == 1 && acp_empty_local_map(map) == 1 && acp_size_local_map(map) == 0);
    check(acp_size_local_multiset(other_bag) == 0 && acp_begin_local_map(map).elem == acp_end_local_map(map).elem);
    check(acp_begin_local_multiset(other_bag).elem == ACP_GA_NULL && acp_end_local_multiset(other_bag).elem == ACP_GA_NULL);
    acp_sync();
    if (rank == 0) {
        acp_multiset_it_t one = acp_begin_multiset(bag);
        check(acp_find_multiset(bag, bytes("key 9")).elem != ACP_GA_NULL && strncmp(text(acp_dereference_multiset_it(one)), "key ", 4) == 0);
        check(acp_increment_multiset_it(one).elem != one.elem && acp_end_multiset(bag).elem == ACP_GA_NULL);
        acp_assign_multiset(other_bag, bag);
        acp_move_multiset(bag, other_bag);
        acp_swap_multiset(bag, other_bag);
        acp_clear_multiset(bag);
        check(acp_begin_set(set).elem == ACP_GA_NULL && acp_end_set(set).elem == ACP_GA_NULL);
        acp_assign_set(set, other_set);
        acp_clear_set(other_set);
        acp_destroy_map(map);
        acp_destroy_map(other_map);
        acp_destroy_set(set);
        acp_destroy_set(other_set);
        acp_destroy_multiset(bag);
        acp_destroy(multiset, other_bag);
        check(acp_size_map(map) == 0 && acp_insert_set(set, bytes("x")) == 0);
        int none = procs;
        check(acp_create_map(1, &none, 4, 0).ga == ACP_GA_NULL && acp_create_map(0, &none, 4, 0).ga == ACP_GA_NULL);
        check(acp_create_set(1, NULL, 4, 0).ga == ACP_GA_NULL && acp_create_multiset(procs, all_ranks(), -1, 0).ga == ACP_GA_NULL);
    }
    acp_sync();
}

static void workspaces(void)
{
    check(acp_setparams_ws(procs, 10) == -1 && acp_setparams_ws(0, 0) == -1 && acp_setparams_ws(procs - 1, 10) == 0);
    acp_wsd_t space = acp_create_ws(1000);
    check(space != ACP_WSD_NULL && acp_create_ws(0) == ACP_WSD_NULL);
    memset(page, rank + 1, 100);
    check(acp_write_ws(space, page_at, 100, (size_t)rank * 100) == 100);
    acp_sync();
    for (int other = 0; other < procs; other++) {
        check(acp_read_ws(space, answer_at, 100, (size_t)other * 100) == 100);
        for (int byte = 0; byte < 100; byte++)
            check(answer[byte] == other + 1);
    }
    check(acp_read_ws(space, answer_at, 100, 950) == 50 && answer[49] == 0 && acp_read_ws(space, answer_at, 100, 2000) == 0);
    check(acp_write_ws(space, page_at, 100, 1000) == 0 && acp_read_ws(space, ACP_GA_NULL, 100, 0) == -1);
    check(acp_read_ws(ACP_WSD_NULL, answer_at, 1, 0) == -1);
    acp_sync();
    check(acp_destroy_ws(space) == 0 && acp_destroy_ws(space) == -1 && acp_read_ws(space, answer_at, 1, 0) == -1);
    acp_sync();
}

int main(int argc, char **argv)
{
    check(acp_malloc(8, 0) == ACP_GA_NULL && acp_create_map(0, NULL, 0, 0).ga == ACP_GA_NULL);
    char *given[] = {argv[0], "--acp-size-smem-dl", "2000000", NULL};
    char **given_argv = given;
    int given_argc = 3;
    (void)argc;
    check(acp_init(&given_argc, &given_argv) == 0 && given_argc == 1);
    rank = acp_rank();
    procs = acp_procs();
    acp_atkey_t page_key = acp_register_memory(page, sizeof page, 0), answer_key = acp_register_memory(answer, sizeof answer, 0);
    page_at = acp_query_ga(page_key, page);
    answer_at = acp_query_ga(answer_key, answer);
    heap();
    vectors();
    deques();
    lists();
    tables();
    workspaces();
    /* All that was allocated was freed: a heap has one piece again. */
    acp_sync();
    check(rank != 0 || acp_malloc(1900000, procs - 1) != ACP_GA_NULL);
    check(acp_finalize() == 0);
    puts("acp_data: all well");
    return 0;
}
