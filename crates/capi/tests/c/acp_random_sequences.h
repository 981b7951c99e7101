/* Vectors, deques and lists beside their models: two of each kind, so that there is another one to take from. */
#ifndef ACP_RANDOM_SEQUENCES_H
#define ACP_RANDOM_SEQUENCES_H

#include "acp_random.h"

/* Longer ones are cleared; a step appends BYTES_MAX bytes at most, or as many as another one has. */
enum { BYTES_MAX = 90, LEN_MAX = 600, ELEMENTS_MAX = 12, ELEMENT_MAX = 4 };

typedef struct {
    size_t len;
    char bytes[2 * LEN_MAX + 2 * BYTES_MAX];
} sequence_t;

static void put_in(sequence_t *model, size_t at, const char *bytes, size_t len)
{
    memmove(model->bytes + at + len, model->bytes + at, model->len - at);
    memcpy(model->bytes + at, bytes, len);
    model->len += len;
}

static void take_out(sequence_t *model, size_t at, size_t len)
{
    len = len < model->len - at ? len : model->len - at;
    memmove(model->bytes + at, model->bytes + at + len, model->len - at - len);
    model->len -= len;
}

/* What only one of the two has. */
static int step_of_vector(acp_vector_t one, sequence_t *model, draw_t *draw, int acts)
{
    size_t len = (size_t)below(draw, LEN_MAX);
    if (acts) {
        acp_reserve_vector(one, len);
        check(acp_capacity_vector(one) >= len && acp_capacity_vector(one) >= model->len);
    }
    return 0;
}

static int step_of_deque(acp_deque_t one, sequence_t *model, draw_t *draw, int acts)
{
    size_t len = (size_t)below(draw, BYTES_MAX);
    if (below(draw, 2) == 0) {
        char bytes[BYTES_MAX];
        for (size_t byte = 0; byte < len; byte++)
            bytes[byte] = (char)below(draw, 256);
        if (acts)
            acp_push_front_deque(one, taken(bytes, len).ga, len);
        put_in(model, 0, bytes, len);
    } else {
        if (acts)
            acp_pop_front_deque(one, len);
        take_out(model, 0, len);
    }
    return 0;
}

static void is_vector(acp_vector_t one, const sequence_t *model)
{
    check(acp_size_vector(one) == model->len && acp_empty_vector(one) == (model->len == 0));
    check(memcmp(given(acp_at_vector(one, 0), model->len), model->bytes, model->len) == 0);
}

static void is_deque(acp_deque_t one, const sequence_t *model)
{
    check(acp_size_deque(one) == model->len && acp_empty_deque(one) == (model->len == 0));
    acp_pair_t pieces = acp_dereference_deque_it(acp_begin_deque(one), model->len);
    size_t len = pieces.first.size;
    check(len + pieces.second.size == model->len);
    check(memcmp(given(pieces.first.ga, len), model->bytes, len) == 0);
    check(memcmp(given(pieces.second.ga, pieces.second.size), model->bytes + len, pieces.second.size) == 0);
}

/* One step, which the model follows, and this rank takes if it acts. */
#define SEQUENCES(type)                                                                                                          \
    static void step_##type(acp_##type##_t *both, sequence_t *models, draw_t *draw, int acts)                                    \
    {                                                                                                                            \
        int which = below(draw, 2), what = below(draw, 11);                                                                      \
        acp_##type##_t one = both[which], other = both[1 - which];                                                               \
        sequence_t *model = &models[which], *others = &models[1 - which], was = *model;                                          \
        size_t at = (size_t)below(draw, model->len + 1), len = (size_t)below(draw, BYTES_MAX);                                   \
        size_t from = (size_t)below(draw, others->len + 1), to = from + (size_t)below(draw, others->len - from + 1);             \
        char bytes[BYTES_MAX];                                                                                                   \
        for (size_t byte = 0; byte < len; byte++)                                                                                \
            bytes[byte] = (char)below(draw, 256);                                                                                \
        acp_ga_t ga = acts ? taken(bytes, len).ga : ACP_GA_NULL;                                                                 \
        acp_##type##_it_t place = {one, (int)at}, start = {other, (int)from}, end = {other, (int)to};                            \
        if (model->len + others->len > LEN_MAX)                                                                                  \
            what = 10;                                                                                                           \
        switch (what) {                                                                                                          \
        case 0:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_push_back(type, one, ga, len);                                                                               \
            put_in(model, model->len, bytes, len);                                                                               \
            break;                                                                                                               \
        case 1:                                                                                                                  \
            check(!acts || acp_insert(type, place, ga, len).index == (int)at);                                                   \
            put_in(model, at, bytes, len);                                                                                       \
            break;                                                                                                               \
        case 2:                                                                                                                  \
            check(!acts || acp_erase(type, place, len).index == (int)at);                                                        \
            take_out(model, at, len);                                                                                            \
            break;                                                                                                               \
        case 3:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_pop_back(type, one, len);                                                                                    \
            model->len -= len < model->len ? len : model->len;                                                                   \
            break;                                                                                                               \
        case 4:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_assign(type, one, other);                                                                                    \
            *model = *others;                                                                                                    \
            break;                                                                                                               \
        case 5:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_assign_range(type, one, start, end);                                                                         \
            model->len = 0;                                                                                                      \
            put_in(model, 0, others->bytes + from, to - from);                                                                   \
            break;                                                                                                               \
        case 6:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_swap(type, one, other);                                                                                      \
            *model = *others;                                                                                                    \
            *others = was;                                                                                                       \
            break;                                                                                                               \
        case 7:                                                                                                                  \
            check(!acts || acp_insert_range(type, place, start, end).index == (int)at);                                          \
            put_in(model, at, others->bytes + from, to - from);                                                                  \
            break;                                                                                                               \
        case 8:                                                                                                                  \
            check(!acts || acp_erase_range(type, start, end).index == (int)from);                                                \
            take_out(others, from, to - from);                                                                                   \
            break;                                                                                                               \
        case 9:                                                                                                                  \
            step_of_##type(one, model, draw, acts);                                                                              \
            break;                                                                                                               \
        default:                                                                                                                 \
            if (acts)                                                                                                            \
                acp_clear(type, one);                                                                                            \
            model->len = 0;                                                                                                      \
        }                                                                                                                        \
        if (acts) {                                                                                                              \
            is_##type(one, model);                                                                                               \
            is_##type(other, others);                                                                                            \
        }                                                                                                                        \
    }

SEQUENCES(vector)
SEQUENCES(deque)

typedef struct {
    int count;
    char elements[2 * ELEMENTS_MAX + 2][ELEMENT_MAX + 1];
} row_t;

/* Elements are short strings of few letters, so that some are equal; some have no bytes. */
static void draw_element(draw_t *draw, char *element)
{
    int len = below(draw, ELEMENT_MAX);
    memset(element, 0, ELEMENT_MAX + 1);
    for (int byte = 0; byte < len; byte++)
        element[byte] = (char)('a' + below(draw, 2));
}

static void put_elements(row_t *row, int at, const row_t *from, int start, int count)
{
    memmove(row->elements[at + count], row->elements[at], (size_t)(row->count - at) * sizeof row->elements[0]);
    memcpy(row->elements[at], from->elements[start], (size_t)count * sizeof row->elements[0]);
    row->count += count;
}

static void take_elements(row_t *row, int at, int count)
{
    memmove(row->elements[at], row->elements[at + count], (size_t)(row->count - at - count) * sizeof row->elements[0]);
    row->count -= count;
}

static int by_string(const void *one, const void *other)
{
    return strcmp(one, other);
}

static void sort_row(row_t *row)
{
    qsort(row->elements, (size_t)row->count, sizeof row->elements[0], by_string);
}

/* Calls the library. */
static int by_bytes(acp_element_t one, acp_element_t other)
{
    char first[ELEMENT_MAX + 1] = "", second[ELEMENT_MAX + 1] = "";
    memcpy(first, given(one.ga, one.size), one.size);
    memcpy(second, given(other.ga, other.size), other.size);
    return strcmp(first, second);
}

static acp_list_it_t position(acp_list_t list, int at)
{
    return acp_advance_list_it(acp_begin_list(list), at);
}

static void is_element(acp_list_it_t it, const char *expected)
{
    acp_element_t element = acp_dereference_list_it(it);
    check(element.ga != ACP_GA_NULL && element.size == strlen(expected));
    check(memcmp(given(element.ga, element.size), expected, element.size) == 0);
}

static void is_list(acp_list_t list, const row_t *row)
{
    check(acp_size_list(list) == (size_t)row->count && acp_empty_list(list) == (row->count == 0));
    acp_list_it_t it = acp_begin_list(list), back = acp_end_list(list);
    for (int at = 0; at < row->count; at++, it = acp_increment_list_it(it)) {
        is_element(it, row->elements[at]);
        back = acp_decrement_list_it(back);
        is_element(back, row->elements[row->count - 1 - at]);
    }
    check(it.elem == ACP_GA_NULL);
}

/* The iterator of element `at`, or the end. */
static void is_at(acp_list_it_t it, const row_t *row, int at)
{
    if (at < row->count)
        is_element(it, row->elements[at]);
    else
        check(it.elem == ACP_GA_NULL);
}

static void step_list(acp_list_t *both, row_t *rows, draw_t *draw, int acts)
{
    int which = below(draw, 2), what = below(draw, 17), where = below(draw, (size_t)procs);
    acp_list_t one = both[which], other = both[1 - which];
    row_t *row = &rows[which], *others = &rows[1 - which], was = *row, new = {.count = 1};
    draw_element(draw, new.elements[0]);
    acp_element_t element = acts ? taken(new.elements[0], strlen(new.elements[0])) : (acp_element_t){0};
    int at = below(draw, (size_t)row->count + 1), from = below(draw, (size_t)others->count + 1);
    int to = from + below(draw, (size_t)(others->count - from) + 1), kept = 0;
    if (row->count + others->count > ELEMENTS_MAX)
        what = 16;
    switch (what) {
    case 0:
        if (acts)
            acp_push_back_list(one, element, where);
        put_elements(row, row->count, &new, 0, 1);
        break;
    case 1:
        if (acts)
            acp_push_front_list(one, element, where);
        put_elements(row, 0, &new, 0, 1);
        break;
    case 2:
    case 3:
        check(!acts || acp_query_rank(acp_insert_list(position(one, at), element, where).elem) == where);
        put_elements(row, at, &new, 0, 1);
        break;
    case 4:
        if (at == row->count)
            break;
        take_elements(row, at, 1);
        if (acts)
            is_at(acp_erase_list(position(one, at)), row, at);
        break;
    case 5:
        if (acts)
            acp_pop_back_list(one);
        row->count -= row->count > 0;
        break;
    case 6:
        if (acts)
            acp_pop_front_list(one);
        take_elements(row, 0, row->count > 0);
        break;
    case 7:
        if (acts)
            acp_reverse_list(one);
        for (int each = 0; each < row->count; each++)
            memcpy(row->elements[each], was.elements[row->count - 1 - each], sizeof row->elements[0]);
        break;
    case 8:
        if (acts)
            acp_sort_list(one, by_bytes);
        sort_row(row);
        break;
    case 9:
        if (acts)
            acp_unique_list(one);
        for (int each = 0; each < was.count; each++)
            if (each == 0 || strcmp(was.elements[each], was.elements[each - 1]) != 0)
                memcpy(row->elements[kept++], was.elements[each], sizeof row->elements[0]);
        row->count = kept;
        break;
    case 10:
        if (acts)
            acp_remove_list(one, element);
        for (int each = 0; each < was.count; each++)
            if (strcmp(was.elements[each], new.elements[0]) != 0)
                memcpy(row->elements[kept++], was.elements[each], sizeof row->elements[0]);
        row->count = kept;
        break;
    case 11:
        if (from == others->count)
            break;
        if (acts)
            acp_splice_list(position(one, at), position(other, from));
        put_elements(row, at, others, from, 1);
        take_elements(others, from, 1);
        break;
    case 12:
        if (acts)
            acp_splice_range_list(position(one, at), position(other, from), position(other, to));
        put_elements(row, at, others, from, to - from);
        take_elements(others, from, to - from);
        break;
    case 13:
        put_elements(row, at, others, from, to - from);
        if (acts)
            is_at(acp_insert_range_list(position(one, at), position(other, from), position(other, to)), row, at);
        break;
    case 14:
        if (acts) {
            acp_sort_list(one, by_bytes);
            acp_sort_list(other, by_bytes);
            acp_merge_list(one, other, by_bytes);
        }
        sort_row(others);
        put_elements(row, 0, others, 0, others->count);
        sort_row(row);
        break;
    case 15:
        if (acts)
            acp_swap_list(one, other);
        *row = *others;
        *others = was;
        break;
    default:
        if (acts)
            acp_assign_range_list(one, position(other, from), position(other, to));
        row->count = 0;
        put_elements(row, 0, others, from, to - from);
    }
    if (acts) {
        is_list(one, row);
        is_list(other, others);
    }
}

#endif
