/*
 * What is wrong gives the failure value, changes nothing, and prints nothing: all calls before acp_init() and after acp_finalize(), handles that are none,
 * and ranks, sizes and addresses that can't be. `acp_misuse abort`: only acp_abort() prints and ends the processes.
 */
#include <acp.h>
#include <cci.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define check(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, cci_last_error());                               \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

/* No memory is so long. The last two are no lengths of an object either. */
static const size_t too_long[] = {(size_t)1 << 45, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX};
#define LENGTHS (sizeof too_long / sizeof too_long[0])

static char page[64];
static acp_ga_t page_at = 1 << 20;

static acp_element_t some(void)
{
    return (acp_element_t){page_at, 8};
}

static int by_nothing(acp_element_t one, acp_element_t other)
{
    (void)one, (void)other;
    return 0;
}

/* All calls of a kind of row, whose handle names no container. */
#define NO_ROW(type)                                                                                                             \
    static void no_##type(acp_ga_t ga)                                                                                           \
    {                                                                                                                            \
        acp_##type##_t none = {ga};                                                                                              \
        acp_##type##_it_t it = {none, 0}, later = {none, 5};                                                                     \
        check(acp_size(type, none) == 0 && acp_capacity(type, none) == 0 && acp_empty(type, none) == 1);                         \
        check(acp_at(type, none, 0) == ACP_GA_NULL);                                                                             \
        check(acp_begin(type, none).type.ga == ACP_GA_NULL || acp_begin(type, none).type.ga == ga);                              \
        check(acp_insert(type, it, page_at, 8).type.ga == ACP_GA_NULL);                                                          \
        check(acp_insert_range(type, it, it, later).type.ga == ACP_GA_NULL);                                                     \
        check(acp_erase(type, it, 8).type.ga == ACP_GA_NULL && acp_erase_range(type, it, later).type.ga == ACP_GA_NULL);         \
        acp_reserve(type, none, 100);                                                                                            \
        acp_push_back(type, none, page_at, 8);                                                                                   \
        acp_pop_back(type, none, 8);                                                                                             \
        acp_clear(type, none);                                                                                                   \
        acp_assign(type, none, none);                                                                                            \
        acp_assign_range(type, none, it, later);                                                                                 \
        acp_swap(type, none, none);                                                                                              \
        acp_destroy(type, none);                                                                                                 \
    }

NO_ROW(vector)
NO_ROW(deque)

/* All calls of a kind of table. */
#define NO_TABLE(type, member, entered)                                                                                          \
    static void no_##type(acp_ga_t ga)                                                                                           \
    {                                                                                                                            \
        acp_##type##_t none = {ga, 1, 1};                                                                                        \
        acp_##type##_it_t it = {none, 0, 0, page_at};                                                                            \
        check(acp_size(type, none) == 0 && acp_size_local(type, none) == 0);                                                     \
        check(acp_empty(type, none) == 1 && acp_empty_local(type, none) == 1);                                                   \
        check(acp_begin(type, none).elem == ACP_GA_NULL && acp_begin_local(type, none).elem == ACP_GA_NULL);                     \
        check(acp_end(type, none).elem == ACP_GA_NULL && acp_end_local(type, none).elem == ACP_GA_NULL);                         \
        check(acp_increment(type, it).elem == ACP_GA_NULL && acp_find(type, none, some()).elem == ACP_GA_NULL);                  \
        check(acp_dereference(type, it) member == ACP_GA_NULL && acp_insert(type, none, entered) == 0);                          \
        acp_remove(type, none, some());                                                                                          \
        acp_clear(type, none);                                                                                                   \
        acp_clear_local(type, none);                                                                                             \
        acp_assign(type, none, none);                                                                                            \
        acp_assign_local(type, none, none);                                                                                      \
        acp_merge(type, none, none);                                                                                             \
        acp_merge_local(type, none, none);                                                                                       \
        acp_move(type, none, none);                                                                                              \
        acp_move_local(type, none, none);                                                                                        \
        acp_swap(type, none, none);                                                                                              \
        acp_destroy(type, none);                                                                                                 \
    }

NO_TABLE(set, .ga, some())
NO_TABLE(multiset, .ga, some())
NO_TABLE(map, .first.ga, ((acp_pair_t){some(), some()}))

static void no_list(acp_ga_t ga)
{
    acp_list_t none = {ga};
    acp_list_it_t it = {none, page_at};
    check(acp_size_list(none) == 0 && acp_empty_list(none) == 1 && acp_begin_list(none).elem == ACP_GA_NULL);
    check(acp_insert_list(it, some(), 0).elem == ACP_GA_NULL && acp_insert_range_list(it, it, it).elem == ACP_GA_NULL);
    check(acp_erase_list(it).elem == ACP_GA_NULL && acp_erase_range_list(it, it).elem == ACP_GA_NULL);
    check(acp_increment_list_it(it).elem == ACP_GA_NULL && acp_decrement_list_it(it).elem == ACP_GA_NULL);
    check(acp_dereference_list_it(it).ga == ACP_GA_NULL && acp_distance_list_it(acp_begin_list(none), acp_end_list(none)) == 0);
    acp_push_back_list(none, some(), 0);
    acp_push_front_list(none, some(), 0);
    acp_pop_back_list(none);
    acp_pop_front_list(none);
    acp_remove_list(none, some());
    acp_unique_list(none);
    acp_reverse_list(none);
    acp_sort_list(none, by_nothing);
    acp_merge_list(none, none, by_nothing);
    acp_splice_list(it, it);
    acp_splice_range_list(it, it, it);
    acp_assign_list(none, none);
    acp_assign_range_list(none, it, it);
    acp_swap_list(none, none);
    acp_clear_list(none);
    acp_destroy_list(none);
}

/* All calls of the data library, with an address where no container is. */
static void no_container(acp_ga_t ga)
{
    no_vector(ga);
    no_deque(ga);
    acp_push_front_deque((acp_deque_t){ga}, page_at, 8);
    acp_pop_front_deque((acp_deque_t){ga}, 8);
    check(acp_dereference_vector_it((acp_vector_it_t){{ga}, 0}) == ACP_GA_NULL);
    check(acp_dereference_deque_it((acp_deque_it_t){{ga}, 0}, 8).first.ga == ACP_GA_NULL);
    no_list(ga);
    no_set(ga);
    no_multiset(ga);
    no_map(ga);
    check(acp_retrieve_multiset((acp_multiset_t){ga, 1, 1}, some()) == 0);
    check(acp_retrieve_map((acp_map_t){ga, 1, 1}, (acp_pair_t){some(), some()}) == 0);
    acp_remove_all_multiset((acp_multiset_t){ga, 1, 1}, some());
    check(acp_read_ws(ga, page_at, 8, 0) == -1 && acp_write_ws(ga, page_at, 8, 0) == -1);
    acp_free(ga);
}

/* All calls but acp_init(), where there is no job. */
static void no_job(void)
{
    int ranks[] = {0};
    check(acp_finalize() == -1 && acp_reset(0) == -1 && acp_sync() == -1 && acp_rank() == -1 && acp_procs() == -1);
    check(acp_query_starter_ga(0) == ACP_GA_NULL && acp_register_memory(page, sizeof page, 0) == ACP_ATKEY_NULL);
    check(acp_unregister_memory(1) == -1 && acp_query_ga(1, page) == ACP_GA_NULL && acp_query_address(page_at) == NULL);
    check(acp_copy(page_at, page_at, 8, ACP_HANDLE_NULL) == ACP_HANDLE_NULL && acp_inquire(1) == 0 && acp_inquire(ACP_HANDLE_ALL) == 0);
    check(acp_add8(page_at, page_at, 1, ACP_HANDLE_ALL) == ACP_HANDLE_NULL && acp_cas4(page_at, page_at, 1, 1, 1) == ACP_HANDLE_NULL);
    acp_complete(1);
    acp_complete(ACP_HANDLE_ALL);
    check(acp_create_ch(0, 1) == ACP_CH_NULL && acp_nbsend_ch(NULL, page, 8) == ACP_REQUEST_NULL && acp_nbrecv_ch(NULL, page, 8) == ACP_REQUEST_NULL);
    check(acp_nbfree_ch(NULL) == ACP_REQUEST_NULL && acp_free_ch(NULL) == -1 && acp_wait_ch(NULL) == (size_t)-1 && acp_waitall_ch(NULL, 1, NULL) == -1);
    check(acp_create_src_segbuf(1, page, 8, 2) == ACP_SEGBUF_NULL && acp_create_dst_segbuf(1, page, 8, 2) == ACP_SEGBUF_NULL);
    check(acp_malloc(8, 0) == ACP_GA_NULL && acp_create_vector(8, 0).ga == ACP_GA_NULL && acp_create_deque(8, 0).ga == ACP_GA_NULL);
    check(acp_create_list(0).ga == ACP_GA_NULL && acp_create_set(1, ranks, 1, 0).ga == ACP_GA_NULL && acp_create_map(1, ranks, 1, 0).ga == ACP_GA_NULL);
    check(acp_create_multiset(1, ranks, 1, 0).ga == ACP_GA_NULL && acp_setparams_ws(0, 8) == -1 && acp_create_ws(8) == ACP_WSD_NULL);
    no_container(ACP_GA_NULL);
    no_container(page_at);
}

static void segmented_buffers(void)
{
    acp_segbuf_t freed = acp_create_src_segbuf(1 - acp_rank(), page, 8, 2);
    check(freed != ACP_SEGBUF_NULL && acp_free_segbuf(freed) == 0);
    acp_segbuf_t none[] = {ACP_SEGBUF_NULL, freed, (acp_segbuf_t)page};
    for (int each = 0; each < 3; each++) {
        acp_segbuf_t buffer = none[each];
        check(acp_connect_segbuf(buffer) == -1 && acp_isconnected_segbuf(buffer) == -1 && acp_disconnect_segbuf(buffer) == -1);
        check(acp_isready_segbuf(buffer) == -1 && acp_ack_segbuf(buffer) == -1 && acp_isacked_segbuf(buffer) == -1);
        check(acp_ready_segbuf(buffer) == -1 && acp_free_segbuf(buffer) == -1 && acp_query_segbuf_head(buffer) == -1);
        check(acp_query_segbuf_tail(buffer) == -1 && acp_query_segbuf_sent(buffer) == -1);
    }
    for (size_t each = 0; each < LENGTHS; each++) {
        check(acp_create_src_segbuf(1 - acp_rank(), page, too_long[each], 1 + too_long[each]) == ACP_SEGBUF_NULL);
        check(acp_create_dst_segbuf(1 - acp_rank(), page, 2, too_long[each] / 2 + 1 + (size_t)PTRDIFF_MAX / 2) == ACP_SEGBUF_NULL);
    }
}

static void channels(void)
{
    int rank = acp_rank();
    acp_ch_t channel = acp_create_ch(0, 1), freed = acp_create_ch(1, 0);
    acp_request_t end = acp_nbfree_ch(freed);
    check(end != ACP_REQUEST_NULL && acp_nbfree_ch(freed) == ACP_REQUEST_NULL && acp_free_ch(freed) == -1);
    check(acp_wait_ch(end) == 0 && acp_wait_ch(end) == (size_t)-1 && acp_waitall_ch(&end, 1, NULL) == -1);
    acp_ch_t none[] = {ACP_CH_NULL, freed, (acp_ch_t)page};
    for (int each = 0; each < 3; each++) {
        check(acp_nbsend_ch(none[each], page, 8) == ACP_REQUEST_NULL && acp_nbrecv_ch(none[each], page, 8) == ACP_REQUEST_NULL);
        check(acp_nbfree_ch(none[each]) == ACP_REQUEST_NULL && acp_free_ch(none[each]) == -1 && acp_query_ch_bytes(none[each]) == 0);
    }
    for (size_t each = 2; each < LENGTHS; each++)
        check(rank == 0 ? acp_nbsend_ch(channel, page, too_long[each]) == ACP_REQUEST_NULL : acp_nbrecv_ch(channel, page, too_long[each]) == ACP_REQUEST_NULL);
    check(acp_wait_ch((acp_request_t)page) == (size_t)-1 && acp_waitall_ch(NULL, 0, NULL) <= 0);
    acp_request_t request = rank == 0 ? acp_nbsend_ch(channel, "x", 1) : acp_nbrecv_ch(channel, page, 1);
    check(acp_wait_ch(request) == (size_t)rank && acp_free_ch(channel) == 0 && (rank == 0 || page[0] == 'x'));
}

static void access_of_memory(acp_ga_t own, acp_ga_t other)
{
    acp_ga_t none[] = {ACP_GA_NULL, UINT64_MAX, own + sizeof page, other + 2};
    for (int each = 0; each < 3; each++) {
        check(acp_copy(own, none[each], 8, ACP_HANDLE_NULL) == ACP_HANDLE_NULL && acp_copy(none[each], own, 8, ACP_HANDLE_ALL) == ACP_HANDLE_NULL);
        check(acp_query_address(none[each]) == NULL);
    }
#define REFUSED(width)                                                                                                           \
    for (int each = 0; each < 4; each++) {                                                                                       \
        check(acp_cas##width(own, none[each], 1, 1, 0) == 0 && acp_cas##width(none[each], own, 1, 1, 0) == 0);                   \
        check(acp_swap##width(own, none[each], 1, 0) == 0 && acp_swap##width(none[each], own, 1, 0) == 0);                       \
        check(acp_add##width(own, none[each], 1, 0) == 0 && acp_add##width(none[each], own, 1, 0) == 0);                         \
        check(acp_xor##width(own, none[each], 1, 0) == 0 && acp_xor##width(none[each], own, 1, 0) == 0);                         \
        check(acp_or##width(own, none[each], 1, 0) == 0 && acp_or##width(none[each], own, 1, 0) == 0);                           \
        check(acp_and##width(own, none[each], 1, 0) == 0 && acp_and##width(none[each], own, 1, 0) == 0);                         \
    }
    REFUSED(4)
    REFUSED(8)
    for (size_t each = 0; each < LENGTHS; each++)
        check(acp_copy(own, other, too_long[each], ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
    for (size_t each = 2; each < LENGTHS; each++)
        check(acp_register_memory(page, too_long[each], 0) == ACP_ATKEY_NULL);
    check(acp_copy(own, own, 8, -3) == ACP_HANDLE_NULL && acp_copy(own, own, 8, INT64_MIN) == ACP_HANDLE_NULL);
    acp_complete(INT64_MAX);
    acp_complete(INT64_MIN);
    check(acp_inquire(INT64_MAX) == 0 && acp_inquire(INT64_MIN) == 0);
}

/* Lengths that no heap has, and bytes from where there is nothing. The containers stay as they were. */
static void containers(void)
{
    int self = acp_rank(), wrong[] = {-1, 2, INT_MAX, INT_MIN}, owners[] = {0, 1, 7};
    acp_vector_t vector = acp_create_vector(3, self);
    acp_deque_t deque = acp_create_deque(3, self);
    acp_list_t list = acp_create_list(self);
    acp_map_t map = acp_create_map(2, owners, 2, self);
    acp_set_t set = acp_create_set(2, owners, 2, self);
    acp_multiset_t bag = acp_create_multiset(2, owners, 2, self);
    acp_push_back_deque(deque, page_at, 3);
    for (int each = 0; each < 4; each++) {
        check(acp_malloc(8, wrong[each]) == ACP_GA_NULL && acp_create_vector(8, wrong[each]).ga == ACP_GA_NULL);
        check(acp_create_deque(8, wrong[each]).ga == ACP_GA_NULL && acp_create_list(wrong[each]).ga == ACP_GA_NULL);
        check(acp_create_map(1, &wrong[each], 1, 0).ga == ACP_GA_NULL && acp_create_set(1, owners, 1, wrong[each]).ga == ACP_GA_NULL);
        check(acp_create_multiset(1, &wrong[each], 1, 0).ga == ACP_GA_NULL && acp_query_starter_ga(wrong[each]) == ACP_GA_NULL);
        check(acp_insert_list(acp_end_list(list), some(), wrong[each]).elem == ACP_GA_NULL && acp_setparams_ws(wrong[each], 8) == -1);
        check(acp_create_ch(self, wrong[each]) == ACP_CH_NULL && acp_create_src_segbuf(wrong[each], page, 8, 1) == ACP_SEGBUF_NULL);
        check(acp_at_vector(vector, wrong[each] | 4) == ACP_GA_NULL && acp_advance_vector_it(acp_begin_vector(vector), wrong[each]).vector.ga != 1);
    }
    check(acp_create_map(3, owners, 1, 0).ga == ACP_GA_NULL && acp_create_set(-1, owners, 1, 0).ga == ACP_GA_NULL);
    check(acp_create_set(2, owners, 0, 0).ga == ACP_GA_NULL && acp_create_multiset(2, owners, INT_MAX, 0).ga == ACP_GA_NULL);
    for (size_t each = 0; each < LENGTHS; each++) {
        size_t len = too_long[each];
        acp_element_t element = {page_at, len};
        acp_pair_t key = {element, some()}, value = {some(), element};
        check(acp_malloc(len, self) == ACP_GA_NULL && acp_create_vector(len, self).ga == ACP_GA_NULL && acp_create_deque(len, self).ga == ACP_GA_NULL);
        acp_reserve_vector(vector, len);
        acp_reserve_deque(deque, len);
        acp_push_back_vector(vector, page_at, len);
        acp_push_back_deque(deque, page_at, len);
        acp_push_front_deque(deque, page_at, len);
        check(acp_insert_vector(acp_begin_vector(vector), page_at, len).vector.ga == ACP_GA_NULL);
        check(acp_insert_deque(acp_begin_deque(deque), page_at, len).deque.ga == ACP_GA_NULL);
        check(acp_dereference_deque_it(acp_begin_deque(deque), len).first.ga == ACP_GA_NULL);
        check(acp_insert_list(acp_end_list(list), element, self).elem == ACP_GA_NULL);
        acp_remove_list(list, element);
        check(acp_insert_map(map, key) == 0 && acp_insert_map(map, value) == 0 && acp_retrieve_map(map, key) == 0);
        check(acp_insert_set(set, element) == 0 && acp_find_set(set, element).elem == ACP_GA_NULL && acp_insert_multiset(bag, element) == 0);
        check(acp_retrieve_multiset(bag, element) == 0);
        acp_remove_set(set, element);
        acp_remove_all_multiset(bag, element);
        check(acp_create_ws(len) == ACP_WSD_NULL);
    }
    acp_element_t nowhere[] = {{ACP_GA_NULL, 8}, {UINT64_MAX, 8}, {page_at + sizeof page, 8}};
    for (int each = 0; each < 3; each++) {
        acp_push_back_vector(vector, nowhere[each].ga, 8);
        acp_push_front_deque(deque, nowhere[each].ga, 8);
        acp_push_back_list(list, nowhere[each], self);
        check(acp_insert_map(map, (acp_pair_t){some(), nowhere[each]}) == 0 && acp_insert_set(set, nowhere[each]) == 0);
        check(acp_insert_multiset(bag, nowhere[each]) == 0);
    }
    check(acp_size_vector(vector) == 3 && acp_size_deque(deque) == 3 && acp_size_list(list) == 0);
    check(acp_size_map(map) == 0 && acp_size_set(set) == 0 && acp_size_multiset(bag) == 0);
    acp_destroy_vector(vector);
    acp_destroy_deque(deque);
    acp_destroy_list(list);
    acp_destroy_map(map);
    acp_destroy_set(set);
    acp_destroy_multiset(bag);
    /* Handles of what was freed. Each kind in turn, as a handle of another kind may name memory that is in use again. */
    no_vector(vector.ga);
    no_deque(deque.ga);
    no_list(list.ga);
    no_set(set.ga);
    no_multiset(bag.ga);
    no_map(map.ga);
}

int main(int argc, char **argv)
{
    int aborts = argc > 1 && strcmp(argv[1], "abort") == 0;
    no_job();
    check(acp_init(&argc, &argv) == 0 && acp_procs() == 2);
    if (aborts) {
        acp_sync();
        if (acp_rank() == 1) {
            errno = EDOM;
            acp_abort("as the program wants");
        }
        /* Nothing but the launcher ends this one. */
        for (;;)
            pause();
    }
    memset(page, 0x55, sizeof page);
    acp_atkey_t key = acp_register_memory(page, sizeof page, 0);
    page_at = acp_query_ga(key, page);
    access_of_memory(page_at, acp_query_starter_ga(1 - acp_rank()));
    for (size_t byte = 0; byte < sizeof page; byte++)
        check(page[byte] == 0x55);
    containers();
    no_container(ACP_GA_NULL);
    no_container(UINT64_MAX);
    /* Where no process has anything. */
    no_container(acp_query_starter_ga(1 - acp_rank()) + ((acp_ga_t)1 << 40));
    channels();
    segmented_buffers();
    check(acp_unregister_memory(key) == 0 && acp_unregister_memory(key) == -1 && acp_query_ga(key, page) == ACP_GA_NULL);
    check(acp_finalize() == 0);
    no_job();
    puts("acp_misuse: all well");
    return 0;
}
