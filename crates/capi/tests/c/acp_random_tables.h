/*
 * Sets, multisets and maps beside their models, which have a number for each key: 1, how often it is there, or what its value is made of; 0: it is not
 * there. Of the first table of a kind, each key is changed by another rank at the same time. One rank changes the other two as a whole, or all ranks do, each its local part.
 */
#ifndef ACP_RANDOM_TABLES_H
#define ACP_RANDOM_TABLES_H

#include "acp_random.h"

enum { KEYS = 9, BUCKETS = 2, VALUE_MAX = 90 };

typedef struct {
    uint64_t of[KEYS];
} numbers_t;

/* The key with a number, of a length of its own. */
static acp_element_t key_of(int key)
{
    char name[20];
    int len = sprintf(name, "%.*s%d", key % 3 * 4, "key key key ", key);
    return taken(name, (size_t)len);
}

/* The value that is made of a number, beside the key on the page. */
static acp_element_t value_of(uint64_t number)
{
    acp_element_t value = {page_at + 100, sizeof number + number % VALUE_MAX};
    memset(page + 100, (int)number, value.size);
    memcpy(page + 100, &number, sizeof number);
    return value;
}

static uint64_t number_in_set(acp_set_t set, int key)
{
    acp_set_it_t it = acp_find_set(set, key_of(key));
    return it.elem != ACP_GA_NULL;
}

static uint64_t number_in_multiset(acp_multiset_t set, int key)
{
    return acp_retrieve_multiset(set, key_of(key));
}

/* The value is whole, whoever changes it meanwhile. */
static uint64_t number_in_map(acp_map_t map, int key)
{
    uint64_t number;
    acp_pair_t pair = {key_of(key), {answer_at, sizeof number + VALUE_MAX}};
    size_t size = acp_retrieve_map(map, pair);
    if (size == 0)
        return 0;
    memcpy(&number, answer, sizeof number);
    check(size == sizeof number + number % VALUE_MAX);
    for (size_t byte = sizeof number; byte < size; byte++)
        check(answer[byte] == (char)number);
    return number;
}

/* One step with a key, which has a number, and then the one that is returned. */
static uint64_t step_in_set(acp_set_t set, int key, uint64_t number, draw_t *draw, int acts)
{
    if (below(draw, 2) == 0) {
        check(!acts || acp_insert_set(set, key_of(key)) == (number == 0));
        return 1;
    }
    if (acts)
        acp_remove_set(set, key_of(key));
    return 0;
}

static uint64_t step_in_multiset(acp_multiset_t set, int key, uint64_t number, draw_t *draw, int acts)
{
    switch (below(draw, 5)) {
    case 0:
        if (acts)
            acp_remove_multiset(set, key_of(key));
        return number - (number > 0);
    case 1:
        if (acts)
            acp_remove_all_multiset(set, key_of(key));
        return 0;
    default:
        check(!acts || acp_insert_multiset(set, key_of(key)) == 1);
        return number + 1;
    }
}

static uint64_t step_in_map(acp_map_t map, int key, uint64_t number, draw_t *draw, int acts)
{
    uint64_t value = 1 + (uint64_t)below(draw, 10000);
    switch (below(draw, 4)) {
    case 0:
        if (acts)
            acp_remove_map(map, key_of(key));
        return 0;
    case 1:
        check(!acts || acp_insert_map(map, (acp_pair_t){key_of(key), {page_at, 0}}) == 0);
        return 0;
    default:
        check(!acts || acp_insert_map(map, (acp_pair_t){key_of(key), value_of(value)}) == (number == 0));
        return number > 0 ? number : value;
    }
}

static int number_of_key(acp_element_t key)
{
    check(key.size > 0 && key.size < 20);
    return given(key.ga, key.size)[key.size - 1] - '0';
}

static int key_at_set(acp_set_it_t it)
{
    return number_of_key(acp_dereference_set_it(it));
}

static int key_at_multiset(acp_multiset_it_t it)
{
    return number_of_key(acp_dereference_multiset_it(it));
}

static int key_at_map(acp_map_it_t it)
{
    return number_of_key(acp_dereference_map_it(it).first);
}

/* The number of a key that is in both tables. */
#define both_in_set(one, other) ((void)(other), (one))
#define both_in_multiset(one, other) ((one) + (other))
#define both_in_map(one, other) ((void)(other), (one))

#define TABLES(type)                                                                                                             \
    static void merge_##type##_model(numbers_t *one, const numbers_t *other)                                                     \
    {                                                                                                                            \
        for (int key = 0; key < KEYS; key++)                                                                                     \
            if (one->of[key] == 0)                                                                                               \
                one->of[key] = other->of[key];                                                                                   \
            else if (other->of[key] > 0)                                                                                         \
                one->of[key] = both_in_##type(one->of[key], other->of[key]);                                                     \
    }                                                                                                                            \
                                                                                                                                 \
    static void is_##type(acp_##type##_t table, const numbers_t *model)                                                          \
    {                                                                                                                            \
        size_t count = 0;                                                                                                        \
        int seen[KEYS] = {0};                                                                                                    \
        for (int key = 0; key < KEYS; key++) {                                                                                   \
            check(number_in_##type(table, key) == model->of[key]);                                                               \
            count += model->of[key] > 0;                                                                                         \
        }                                                                                                                        \
        check(acp_size(type, table) == count && acp_empty(type, table) == (count == 0));                                         \
        acp_##type##_it_t end = acp_end(type, table);                                                                            \
        for (acp_##type##_it_t it = acp_begin(type, table); it.elem != end.elem; it = acp_increment(type, it)) {                 \
            int key = key_at_##type(it);                                                                                         \
            check(key >= 0 && key < KEYS && model->of[key] > 0 && seen[key]++ == 0 && count-- > 0);                              \
        }                                                                                                                        \
        check(count == 0);                                                                                                       \
    }                                                                                                                            \
                                                                                                                                 \
    static void step_##type(acp_##type##_t *both, numbers_t *models, draw_t *draw, int acts)                                     \
    {                                                                                                                            \
        int which = below(draw, 2), what = below(draw, 12), key = below(draw, KEYS);                                             \
        acp_##type##_t one = both[which], other = both[1 - which];                                                               \
        numbers_t *model = &models[which], *others = &models[1 - which], was = *model;                                           \
        switch (what) {                                                                                                          \
        case 0:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_assign(type, one, other);                                                                                    \
            *model = *others;                                                                                                    \
            break;                                                                                                               \
        case 1:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_merge(type, one, other);                                                                                     \
            merge_##type##_model(model, others);                                                                                 \
            break;                                                                                                               \
        case 2:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_move(type, one, other);                                                                                      \
            merge_##type##_model(model, others);                                                                                 \
            memset(others, 0, sizeof *others);                                                                                   \
            break;                                                                                                               \
        case 3:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_swap(type, one, other);                                                                                      \
            *model = *others;                                                                                                    \
            *others = was;                                                                                                       \
            break;                                                                                                               \
        case 4:                                                                                                                  \
            if (acts)                                                                                                            \
                acp_clear(type, one);                                                                                            \
            memset(model, 0, sizeof *model);                                                                                     \
            break;                                                                                                               \
        default:                                                                                                                 \
            model->of[key] = step_in_##type(one, key, model->of[key], draw, acts);                                               \
        }                                                                                                                        \
    }                                                                                                                            \
                                                                                                                                 \
    /* By all ranks at once: together they do the same as one that does the whole. */                                            \
    static void local_##type(acp_##type##_t *both, numbers_t *models, draw_t *draw)                                              \
    {                                                                                                                            \
        switch (below(draw, 5)) {                                                                                                \
        case 0:                                                                                                                  \
            acp_assign_local(type, both[0], both[1]);                                                                            \
            models[0] = models[1];                                                                                               \
            break;                                                                                                               \
        case 1:                                                                                                                  \
            acp_merge_local(type, both[0], both[1]);                                                                             \
            merge_##type##_model(&models[0], &models[1]);                                                                        \
            break;                                                                                                               \
        case 2:                                                                                                                  \
            acp_move_local(type, both[0], both[1]);                                                                              \
            merge_##type##_model(&models[0], &models[1]);                                                                        \
            memset(&models[1], 0, sizeof models[1]);                                                                             \
            break;                                                                                                               \
        case 3:                                                                                                                  \
            acp_clear_local(type, both[0]);                                                                                      \
            memset(&models[0], 0, sizeof models[0]);                                                                             \
        }                                                                                                                        \
    }

TABLES(set)
TABLES(multiset)
TABLES(map)

#endif
