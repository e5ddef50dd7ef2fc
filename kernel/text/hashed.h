/* Rows of text, categories and numbers as sparse rows of 2^bits features: the hashing trick (Weinberger et al. 2009).
 *
 * A column gives a row items, each a hash and a value: for text the n-grams of its words, n of them with value
 * 1/sqrt(n); for a category its text, with value 1; for a number itself. A term is some of the columns: each
 * combination of one item per column is a feature, whose value is the product of theirs. The hash determines its index
 * and its sign; features with the same index are added. Indices and signs of one column of ASCII text equal those of
 * scikit-learn's HashingVectorizer. */
#pragma once

#include "text/words.h"

#include <math.h>

#ifndef CP_INTERRUPTED /* hosts define it to interrupt a row: products of texts can take very long */
#define CP_INTERRUPTED() 0
#endif

#define CP_MAX_HASH_BITS 30
#define CP_MAX_CROSSED 4
#define CP_MAX_HASHED_COLUMNS 32 /* columns */

/* MurmurHash3_x86_32 of Austin Appleby. */
static inline uint32_t cp_murmur(const uint8_t *bytes, int64_t length, uint32_t seed)
{
    const uint32_t c1 = 0xCC9E2D51u, c2 = 0x1B873593u;
    uint32_t h = seed, k;
    int64_t at = 0;
    for (; at + 4 <= length; at += 4) {
        k = (uint32_t)bytes[at] | (uint32_t)bytes[at + 1] << 8 | (uint32_t)bytes[at + 2] << 16 |
            (uint32_t)bytes[at + 3] << 24;
        k *= c1;
        k = k << 15 | k >> 17;
        h ^= k * c2;
        h = h << 13 | h >> 19;
        h = h * 5 + 0xE6546B64u;
    }
    k = 0;
    for (int64_t i = length - 1; i >= at; i--)
        k = k << 8 | bytes[i];
    k *= c1;
    k = k << 15 | k >> 17;
    h ^= k * c2;
    h ^= (uint32_t)length;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

enum cp_hashed_kind { CP_HASHED_WORDS, CP_HASHED_CATEGORY, CP_HASHED_NUMBER };

typedef struct {
    enum cp_hashed_kind kind;
    uint32_t seed;          /* of text and categories; for a number its hash */
    const uint8_t *bytes;   /* of text and categories: the values, and their offsets */
    const int64_t *offsets; /* [rows + 1] */
    const double *numbers;  /* [rows] */
} cp_hashed_column;

typedef struct {
    int count, columns[CP_MAX_CROSSED];
} cp_hashed_term;

/* An item or a feature: its hash or its index, and its value. */
typedef struct {
    uint32_t key;
    float value;
} cp_item;

typedef struct {
    cp_item *at;
    int64_t count, room;
} cp_items;

typedef struct {
    /* in */
    int bits, ngrams;
    int columns_count, terms_count;
    const cp_hashed_column *columns;
    const cp_hashed_term *terms;
    const uint8_t *missing; /* [rows] or NULL: rows with a missing value, which get a NaN feature */
    const float *beside;    /* [rows, beside_count]: numbers with their own indices after the hashed ones */
    int64_t beside_count;
    /* out; freed by `cp_hashed_free` */
    int32_t *indices;
    float *values;
    int64_t entries, room;
    /* internal */
    cp_items features, spare, items[CP_MAX_HASHED_COLUMNS]; /* of a row, and of each column in it */
    uint8_t crossed[CP_MAX_HASHED_COLUMNS];
    cp_words words;
} cp_hashed;

/* Make space for `count` items; returns -1 if out of memory. */
static inline int cp_items_room(cp_items *s, int64_t count)
{
    if (count <= s->room)
        return 0;
    int64_t room = count < 64 ? 64 : count * 2;
    cp_item *at = realloc(s->at, (size_t)room * sizeof *at);
    if (!at)
        return -1;
    s->at = at;
    s->room = room;
    return 0;
}

/* Sort by key; equal keys keep their order. */
static inline int cp_items_sort(cp_items *s, cp_items *spare, int bits)
{
    int64_t sorted = 1;
    while (sorted < s->count && s->at[sorted - 1].key <= s->at[sorted].key)
        sorted++;
    if (sorted >= s->count)
        return 0;
    if (s->count <= 32) {
        for (int64_t i = 1; i < s->count; i++) {
            cp_item item = s->at[i];
            int64_t j = i;
            for (; j > 0 && s->at[j - 1].key > item.key; j--)
                s->at[j] = s->at[j - 1];
            s->at[j] = item;
        }
        return 0;
    }
    if (cp_items_room(spare, s->count) < 0)
        return -1;
    for (int shift = 0; shift < bits; shift += 8) {
        int64_t place[256] = {0}, sum = 0;
        for (int64_t i = 0; i < s->count; i++)
            place[s->at[i].key >> shift & 255]++;
        for (int d = 0; d < 256; d++) {
            int64_t here = place[d];
            place[d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < s->count; i++)
            spare->at[place[s->at[i].key >> shift & 255]++] = s->at[i];
        cp_item *other = s->at;
        int64_t room = s->room;
        s->at = spare->at;
        s->room = spare->room;
        spare->at = other;
        spare->room = room;
    }
    return 0;
}

/* Sort, and add items with equal keys. */
static inline int cp_items_merge(cp_items *s, cp_items *spare, int bits)
{
    int64_t last = -1;
    if (cp_items_sort(s, spare, bits) < 0)
        return -1;
    for (int64_t i = 0; i < s->count; i++)
        if (last >= 0 && s->at[last].key == s->at[i].key)
            s->at[last].value += s->at[i].value;
        else
            s->at[++last] = s->at[i];
    s->count = last + 1;
    return 0;
}

#define CP_MERGE_ITEMS ((int64_t)1 << 16) /* items from which equal keys are merged before more are added */

static inline int cp_items_push(cp_items *s, cp_items *spare, int bits, uint32_t key, float value)
{
    if (s->count == s->room && s->room >= CP_MERGE_ITEMS) {
        if (CP_INTERRUPTED() || cp_items_merge(s, spare, bits) < 0)
            return -1;
        if (s->count * 2 < s->room)
            goto there;
    }
    if (cp_items_room(s, s->count + 1) < 0)
        return -1;
there:
    s->at[s->count++] = (cp_item){key, value};
    return 0;
}

/* Return the index and the sign of a hash. */
static inline cp_item cp_hashed_place(const cp_hashed *s, uint32_t hash)
{
    int negative = hash >> 31;
    return (cp_item){(negative ? 0u - hash : hash) & ((1u << s->bits) - 1), negative ? -1 : 1};
}

/* Add a feature by its hash. */
static inline int cp_hashed_add(cp_hashed *s, uint32_t hash, float value)
{
    cp_item item = cp_hashed_place(s, hash);
    return cp_items_push(&s->features, &s->spare, s->bits, item.key, item.value * value);
}

/* Add the n-grams of a text as items, by their hash or, outside of crosses, by their index. They are counted exactly
 * before they are scaled, so the sum does not depend on when items are merged. */
static inline int cp_hashed_words(cp_hashed *s, cp_items *items, const uint8_t *text, int64_t length, uint32_t seed,
                                  int crossed)
{
    cp_words *w = &s->words;
    int bits = crossed ? 32 : s->bits, more;
    int64_t count = 0;
    cp_words_begin(w, text, length);
    while ((more = cp_words_next(w)) > 0)
        for (int k = 0; k < w->count; k++, count++) {
            uint32_t hash = cp_murmur(w->bytes + w->begins[k], w->used - w->begins[k], seed);
            cp_item item = crossed ? (cp_item){hash, 1} : cp_hashed_place(s, hash);
            if (cp_items_push(items, &s->spare, bits, item.key, item.value) < 0)
                return -1;
        }
    if (more < 0 || cp_items_merge(items, &s->spare, bits) < 0)
        return -1;
    const float by = count ? (float)(1 / sqrt((double)count)) : 1;
    for (int64_t i = 0; i < items->count; i++)
        items->at[i].value *= by;
    return 0;
}

/* Compute the items of a column in a row. */
static inline int cp_hashed_items(cp_hashed *s, int column, int64_t row, int crossed)
{
    const cp_hashed_column *c = &s->columns[column];
    cp_items *items = &s->items[column];
    items->count = 0;
    if (c->kind == CP_HASHED_NUMBER) {
        float value = (float)c->numbers[row];
        return value == 0 ? 0 : cp_items_push(items, &s->spare, 32, c->seed, value);
    }
    const uint8_t *text = c->bytes + c->offsets[row];
    int64_t length = c->offsets[row + 1] - c->offsets[row];
    if (c->kind == CP_HASHED_WORDS)
        return cp_hashed_words(s, items, text, length, c->seed, crossed);
    return cp_items_push(items, &s->spare, 32, cp_murmur(text, length, c->seed), 1);
}

/* Add the features of a term of several columns, whose items are computed. The hash of two is that of the second's four
 * bytes, least significant first, with the first as its seed. */
static inline int cp_hashed_cross(cp_hashed *s, const cp_hashed_term *t, int depth, uint32_t hash, float value)
{
    const cp_items *items = &s->items[t->columns[depth]];
    for (int64_t i = 0; i < items->count; i++) {
        uint32_t key = items->at[i].key, both = key;
        uint8_t bytes[4] = {(uint8_t)key, (uint8_t)(key >> 8), (uint8_t)(key >> 16), (uint8_t)(key >> 24)};
        if (depth)
            both = cp_murmur(bytes, 4, hash);
        float product = value * items->at[i].value;
        int last = depth + 1 >= t->count || depth + 1 >= CP_MAX_CROSSED;
        if ((last ? cp_hashed_add(s, both, product) : cp_hashed_cross(s, t, depth + 1, both, product)) < 0)
            return -1;
    }
    return 0;
}

static inline int cp_hashed_entry(cp_hashed *s, int64_t index, float value)
{
    if (s->entries == s->room) {
        int64_t room = s->room ? s->room * 2 : 1024;
        int32_t *indices = realloc(s->indices, (size_t)room * sizeof *indices);
        s->indices = indices ? indices : s->indices;
        float *values = indices ? realloc(s->values, (size_t)room * sizeof *values) : NULL;
        if (!values)
            return -1;
        s->values = values;
        s->room = room;
    }
    s->indices[s->entries] = (int32_t)index;
    s->values[s->entries++] = value;
    return 0;
}

/* Return whether a column is in a term with others. */
static inline int cp_hashed_crossed(const cp_hashed *s, int column)
{
    for (int t = 0; t < s->terms_count; t++)
        for (int i = 0; s->terms[t].count > 1 && i < s->terms[t].count; i++)
            if (s->terms[t].columns[i] == column)
                return 1;
    return 0;
}

/* Compute the features of a row. */
static inline int cp_hashed_features(cp_hashed *s, int64_t row)
{
    for (int c = 0; c < s->columns_count; c++)
        if (cp_hashed_items(s, c, row, s->crossed[c]) < 0)
            return -1;
    for (int t = 0; t < s->terms_count; t++) {
        const cp_hashed_term *term = &s->terms[t];
        const int c = term->columns[0];
        const cp_items *items = &s->items[c];
        if (term->count > 1 || s->crossed[c] || s->columns[c].kind != CP_HASHED_WORDS) {
            if (cp_hashed_cross(s, term, 0, 0, 1) < 0)
                return -1;
            continue;
        }
        if (cp_items_room(&s->features, s->features.count + items->count) < 0)
            return -1;
        if (items->count)
            memcpy(s->features.at + s->features.count, items->at, (size_t)items->count * sizeof *items->at);
        s->features.count += items->count;
    }
    return 0;
}

/* Append a row; returns -1 if out of memory or if the host interrupts. */
static inline int cp_hashed_row(cp_hashed *s, int64_t row)
{
    if (s->missing && s->missing[row])
        return cp_hashed_entry(s, 0, NAN);
    s->features.count = 0;
    if (cp_hashed_features(s, row) < 0 || cp_items_merge(&s->features, &s->spare, s->bits) < 0)
        return -1;
    for (int64_t i = 0; i < s->features.count; i++) {
        cp_item item = s->features.at[i];
        if (item.value != 0 && cp_hashed_entry(s, item.key, item.value) < 0)
            return -1;
    }
    for (int64_t i = 0; i < s->beside_count; i++) {
        float value = s->beside[row * s->beside_count + i];
        if (value != 0 && cp_hashed_entry(s, ((int64_t)1 << s->bits) + i, value) < 0)
            return -1;
    }
    return 0;
}

/* Append rows, and set the number of entries up to each; returns -1 if out of memory or if the host interrupts. */
static inline int cp_hashed_rows(cp_hashed *s, int64_t rows, int32_t *ends)
{
    s->words.ngrams = s->ngrams;
    for (int c = 0; c < s->columns_count; c++)
        s->crossed[c] = (uint8_t)cp_hashed_crossed(s, c);
    for (int64_t row = 0; row < rows; row++) {
        if (cp_hashed_row(s, row) < 0 || s->entries > INT32_MAX)
            return -1;
        ends[row] = (int32_t)s->entries;
    }
    return 0;
}

static inline void cp_hashed_free(cp_hashed *s)
{
    for (int c = 0; c < s->columns_count; c++)
        free(s->items[c].at);
    free(s->features.at);
    free(s->spare.at);
    free(s->indices);
    free(s->values);
    cp_words_free(&s->words);
}
