/* Parses `tensorflow.Example` messages (protobuf): a map from names to lists of bytes, floats or integers.
 *
 *   Example { Features features = 1 }   Features { map<string, Feature> feature = 1 }
 *   Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }   each list { repeated value = 1 }
 *
 * Numbers may be packed or not, unknown fields are skipped, and the last entry of a name counts. */
#pragma once

#include "formats/crc32c.h"
#include <stdlib.h>

enum cp_example_kind { CP_EXAMPLE_EMPTY, CP_EXAMPLE_BYTES, CP_EXAMPLE_FLOAT, CP_EXAMPLE_INT };
enum cp_example_code { CP_EXAMPLE_OK, CP_EXAMPLE_MALFORMED, CP_EXAMPLE_MISSING, CP_EXAMPLE_KIND, CP_EXAMPLE_COUNT };

/* The unread part of a message. */
typedef struct {
    const uint8_t *p, *end;
} cp_span;

/* One field: its number, its wire type, and the bytes of its value (for a varint, as encoded). */
typedef struct {
    uint64_t number;
    int wire;
    cp_span value;
} cp_pb_field;

static inline int cp_pb_varint(cp_span *m, uint64_t *out)
{
    *out = 0;
    for (int64_t shift = 0; m->p < m->end; shift += 7) { /* a message of 300 MB can be one varint */
        uint8_t byte = *m->p++;
        *out |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
        if (byte < 128)
            return 0;
    }
    return -1;
}

/* Read the next field of a message. Returns 1, 0 at its end, -1 if it is malformed. */
static inline int cp_pb_next(cp_span *m, cp_pb_field *f)
{
    uint64_t tag, size;
    if (m->p == m->end)
        return 0;
    if (cp_pb_varint(m, &tag) < 0)
        return -1;
    f->number = tag >> 3;
    f->wire = (int)(tag & 7);
    f->value.p = m->p;
    if (f->wire == 0) {
        if (cp_pb_varint(m, &size) < 0)
            return -1;
        f->value.end = m->p;
        return 1;
    }
    if (f->wire == 2) {
        if (cp_pb_varint(m, &size) < 0)
            return -1;
        f->value.p = m->p;
    } else if (f->wire == 1 || f->wire == 5)
        size = f->wire == 1 ? 8 : 4;
    else
        return -1;
    if (size > (uint64_t)(m->end - m->p))
        return -1;
    f->value.end = m->p += size;
    return 1;
}

/* Read the next field with this number, which must hold bytes; others are skipped. Returns as cp_pb_next does. */
static inline int cp_pb_bytes(cp_span *m, uint64_t number, cp_span *value)
{
    cp_pb_field f;
    int more;
    while ((more = cp_pb_next(m, &f)) > 0)
        if (f.number == number) {
            *value = f.value;
            return f.wire == 2 ? 1 : -1;
        }
    return more;
}

/* Iterator over the entries of an Example, across all its Features messages. */
typedef struct {
    cp_span example, features;
} cp_entries;

static inline cp_entries cp_entries_of(const uint8_t *p, const uint8_t *end)
{
    return (cp_entries){{p, end}, {end, end}};
}

static inline int cp_entry_next(cp_entries *e, cp_span *name, cp_span *feature)
{
    cp_span entry;
    cp_pb_field f;
    int more;
    while ((more = cp_pb_bytes(&e->features, 1, &entry)) == 0) {
        do {
            if ((more = cp_pb_next(&e->example, &f)) <= 0)
                return more;
            if (f.number <= 2 && (f.wire != 2 || (f.number == 2 && f.value.p < f.value.end)))
                return -1; /* 2: feature lists of a SequenceExample */
        } while (f.number != 1);
        e->features = f.value;
    }
    if (more < 0)
        return -1;
    *name = *feature = (cp_span){entry.end, entry.end};
    while ((more = cp_pb_next(&entry, &f)) > 0)
        if (f.number == 1 || f.number == 2) {
            if (f.wire != 2)
                return -1;
            *(f.number == 1 ? name : feature) = f.value;
        }
    return more < 0 ? -1 : 1;
}

/* Return the number of values in one field of a list; -1 if it is malformed. */
static inline int64_t cp_values_in(const cp_pb_field *f, int kind)
{
    int64_t length = f->value.end - f->value.p, count = 0;
    if (kind == CP_EXAMPLE_BYTES)
        return f->wire == 2 ? 1 : -1;
    if (kind == CP_EXAMPLE_FLOAT)
        return f->wire == 5 ? 1 : f->wire == 2 && length % 4 == 0 ? length / 4 : -1;
    if (f->wire != 2)
        return f->wire == 0 ? 1 : -1;
    for (int64_t i = 0; i < length; i++)
        count += f->value.p[i] < 128;
    return length && f->value.end[-1] >= 128 ? -1 : count;
}

/* Read the next field of values of a Feature; `list` starts empty. Returns 1, 0 at the end, -1 if it is malformed or
 * has lists of two kinds. */
static inline int cp_values_next(cp_span *feature, cp_span *list, int *kind, cp_pb_field *f)
{
    for (;;) {
        int more;
        while ((more = cp_pb_next(list, f)) > 0)
            if (f->number == 1)
                return 1;
        if (more < 0)
            return -1;
        do
            if ((more = cp_pb_next(feature, f)) <= 0)
                return more;
        while (f->number < 1 || f->number > 3);
        if (f->wire != 2 || (*kind && *kind != (int)f->number))
            return -1;
        *kind = (int)f->number;
        *list = f->value;
    }
}

/* Set the kind and number of values of a Feature, and add the bytes of byte values. */
static inline int cp_feature_count(cp_span feature, int *kind, int64_t *count, int64_t *bytes)
{
    cp_span list = {feature.end, feature.end};
    cp_pb_field f;
    int more;
    *kind = CP_EXAMPLE_EMPTY;
    *count = 0;
    while ((more = cp_values_next(&feature, &list, kind, &f)) > 0) {
        int64_t values = cp_values_in(&f, *kind);
        if (values < 0)
            return -1;
        *count += values;
        *bytes += *kind == CP_EXAMPLE_BYTES ? f.value.end - f.value.p : 0;
    }
    return more;
}

/* The features to extract from many records, and where they are. */
typedef struct {
    /* in */
    const uint8_t *data;
    const int64_t *ends; /* [rows + 1] record i lies from ends[i] to ends[i + 1] */
    int64_t rows, features;
    const cp_span *names;    /* [features] */
    const int32_t *kinds;    /* [features] */
    const int64_t *expected; /* [features] number of values, -1: any */
    /* out */
    int64_t *spans;  /* [features][rows][2] the Feature message, from and to */
    int64_t *counts; /* [features][rows] */
    int64_t *bytes;  /* [features] total bytes of byte values */
    /* of the first bad record */
    int64_t row, feature, got;
} cp_examples;

static inline int64_t cp_name_find(const cp_examples *x, const cp_span *name, int64_t hint)
{
    size_t length = (size_t)(name->end - name->p);
    for (int64_t i = 0; i < x->features; i++, hint++) {
        hint = hint < x->features ? hint : 0;
        if ((size_t)(x->names[hint].end - x->names[hint].p) == length && !memcmp(x->names[hint].p, name->p, length))
            return hint;
    }
    return -1;
}

/* Locate the features of one record; `places` has space for one span per feature. */
static inline int cp_example_locate(cp_examples *x, cp_span *places)
{
    cp_entries entries = cp_entries_of(x->data + x->ends[x->row], x->data + x->ends[x->row + 1]);
    cp_span name, feature;
    int64_t hint = 0;
    int more;
    memset(places, 0, sizeof *places * (size_t)x->features);
    while ((more = cp_entry_next(&entries, &name, &feature)) > 0) {
        int64_t i = cp_name_find(x, &name, hint);
        if (i >= 0) {
            places[i] = feature;
            hint = i + 1;
        }
    }
    return more < 0 ? CP_EXAMPLE_MALFORMED : CP_EXAMPLE_OK;
}

static inline int cp_example_measure(cp_examples *x, cp_span place)
{
    int64_t at = x->feature * x->rows + x->row, count;
    int kind;
    if (!place.p)
        return CP_EXAMPLE_MISSING;
    if (cp_feature_count(place, &kind, &count, &x->bytes[x->feature]) < 0)
        return CP_EXAMPLE_MALFORMED;
    x->got = kind;
    if (kind != CP_EXAMPLE_EMPTY && kind != x->kinds[x->feature])
        return CP_EXAMPLE_KIND;
    x->got = count;
    if (x->expected[x->feature] >= 0 && count != x->expected[x->feature])
        return CP_EXAMPLE_COUNT;
    x->spans[2 * at] = place.p - x->data;
    x->spans[2 * at + 1] = place.end - x->data;
    x->counts[at] = count;
    return CP_EXAMPLE_OK;
}

/* Locate all features of all records; stops at the first bad one. `places` has space for one span per feature. */
static inline int cp_examples_find(cp_examples *x, cp_span *places)
{
    memset(x->bytes, 0, sizeof *x->bytes * (size_t)x->features);
    for (x->row = 0; x->row < x->rows; x->row++) {
        int code = cp_example_locate(x, places);
        for (x->feature = 0; !code && x->feature < x->features; x->feature++)
            if ((code = cp_example_measure(x, places[x->feature])))
                return code;
        if (code)
            return code;
    }
    return CP_EXAMPLE_OK;
}

/* Destination of the values of one feature. */
typedef struct {
    uint8_t *values; /* [room] bytes, float32 or int64, by kind */
    int64_t *ends;   /* [ends_room] for byte values: the end of each in `values` */
    int64_t room, ends_room, kind;
    int64_t at, ends_at;
} cp_values;

/* Copy the values of one field; returns -1 if there is no space. */
static inline int cp_values_copy(cp_values *v, const cp_pb_field *f)
{
    int64_t count = cp_values_in(f, (int)v->kind), length = f->value.end - f->value.p;
    count = v->kind == CP_EXAMPLE_BYTES ? length : count;
    if (count < 0 || count > v->room - v->at || (v->kind == CP_EXAMPLE_BYTES && v->ends_at == v->ends_room))
        return -1;
    if (v->kind == CP_EXAMPLE_INT) {
        cp_span values = f->value;
        int64_t *out = (int64_t *)(void *)v->values + v->at;
        for (int64_t i = 0; i < count; i++) {
            uint64_t value;
            cp_pb_varint(&values, &value);
            out[i] = (int64_t)value;
        }
    } else
        memcpy(v->values + (v->kind == CP_EXAMPLE_FLOAT ? 4 : 1) * v->at, f->value.p, (size_t)length);
    v->at += count;
    if (v->kind == CP_EXAMPLE_BYTES)
        v->ends[v->ends_at++] = v->at;
    return 0;
}

/* Copy all values of one feature, which `cp_examples_find` located in these bytes. */
static inline int cp_examples_fill(cp_values *v, const uint8_t *data, const int64_t *spans, int64_t rows)
{
    v->at = v->ends_at = 0;
    for (int64_t i = 0; i < rows; i++) {
        cp_span feature = {data + spans[2 * i], data + spans[2 * i + 1]}, list = {feature.end, feature.end};
        cp_pb_field f;
        int kind = CP_EXAMPLE_EMPTY, more;
        while ((more = cp_values_next(&feature, &list, &kind, &f)) > 0)
            if (kind != v->kind || cp_values_copy(v, &f) < 0)
                return -1;
        if (more < 0)
            return -1;
    }
    return 0;
}
