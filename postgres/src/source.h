/* A table and its columns, and rows of numbers in the slots of a buffer. */
#pragma once

#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "hashing.h"
#include "options.h"
#include "utils/rel.h"

typedef struct {
    const char *name;
    AttrNumber attnum;
    Oid type;               /* of one number */
    bool list;              /* an array column */
    const char *part;       /* name of its partition, or NULL */
    CorgiEncoder *encoder;  /* of a feature; NULL: a plain number or array of numbers */
    CorgiNames *classes;    /* of a text label; NULL: the label is a number */
    bool lenient;           /* a missing label is NaN, or class -1 */
} CorgiColumn;

/* A table and its columns. Partitions and children are parts, read one after the other; a plain table is its own
 * part. */
typedef struct CorgiSource {
    Relation rel;
    CorgiColumn label, *features;
    CorgiColumn weight, by; /* weight: unnamed if every row weighs 1; by: group column, if named */
    CorgiColumn *labels;    /* multilabel columns: one array, or one of 0 and 1 per label; NULL: one label per row */
    int feature_columns, label_columns;
    AttrNumber last;        /* last attribute needed */
    int bytes;              /* of a real: 8 if a feature is double precision, else 4 */
    bool sparse;            /* features are an index and a value array, or hashed columns */
    CorgiEncoding *encoding; /* NULL: all columns are plain numbers */
    bool encoded;           /* some feature is not a plain number or array of numbers */
    bool lenient;           /* rows that cannot be learnt from are skipped */
    struct CorgiSource *parts;
    int part_count, number; /* number: of this part */
    int64 pages, block_pages;
} CorgiSource;

/* Start of a block: its part, its page, and the number of its first visible row in the whole table. */
typedef struct {
    int64 row, page;
    int part;
} CorgiPlace;

/* Row buffer: slot s has its features at x + s * stride, its label at y[s], and came from tid[s]. A sparse row has
 * `lengths` items at `indices` and `values`, see buffer.c. */
typedef struct {
    char *x;
    double *y, *weight;     /* weight: row weights, or NULL */
    ItemPointerData *tid;
    int32 *part, *group;    /* part: of the row, if there are several; group: of the row, if any */
    int64 slots, stride;
    uint64 *indices, *values; /* addresses, as the kernel takes them */
    int64 *lengths;
    int64 widest, heaviest; /* slots and bytes of a region */
    char *next, *stop;      /* of the region being filled */
    MemoryContext memory;   /* owner of all arrays */
} CorgiBuffer;

/* Record the origin of the row in a slot. */
static inline void corgi_note_origin(CorgiBuffer *b, int64 slot, const CorgiSource *s, ItemPointerData tid)
{
    b->tid[slot] = tid;
    if (b->part != NULL)
        b->part[slot] = s->number;
}

/* The numbers of an array, possibly detoasted. */
typedef struct {
    const char *numbers;
    int64 count;
    struct varlena *copy;   /* NULL: the array was readable in place */
} CorgiList;

/* hints.c */
extern const char *corgi_cast_to_list(Oid type);
extern int corgi_hint_cast(Oid type, const char *column);
extern bool corgi_casts_to_text(Oid type);
extern char *corgi_feature_name(const CorgiSource *source, int64 i);

/* source.c */
extern char *corgi_sql_name(Relation rel);
extern void corgi_open_source(CorgiSource *s, CorgiOptions *o);
extern void corgi_close_source(CorgiSource *s);
extern bool corgi_settle(const CorgiSource *s, CorgiPlace *place);
extern int64 corgi_max_blocks(const CorgiSource *s);
extern void corgi_check_rows(bool no_source, const char *query, const char *where);

/* columns.c */
extern bool corgi_is_number(Oid type);
extern double corgi_read_label(const CorgiColumn *label, TupleTableSlot *row);
extern int64 corgi_scalar_width(const CorgiSource *s);
extern int64 corgi_row_width(const CorgiSource *s, TupleTableSlot *row);
extern void corgi_read_features(const CorgiSource *s, TupleTableSlot *row, int64 width, char *to);
extern int64 corgi_read_array(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern int64 corgi_read_array_with_nulls(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern void corgi_read_number(Oid type, Datum value, int bytes, char *to);
extern char *corgi_row_name(const CorgiColumn *c, const ItemPointerData *tid);
extern void corgi_null_value(const CorgiColumn *c, TupleTableSlot *row, const char *what) __attribute__((noreturn));
extern CorgiList corgi_open_list(Datum array, Oid type, const char **why);
extern void corgi_close_list(CorgiList *list);

/* encoding.c */
extern void corgi_open_encoding(CorgiSource *s, CorgiOptions *o);
extern void corgi_attach_encodings(CorgiSource *s, CorgiEncoding *e);

/* encode.c */
extern void corgi_put_same(double value, int64 width, int bytes, char *to);
extern void corgi_fill(double value, int64 width, int bytes, char *to);
extern bool corgi_encode(const CorgiColumn *c, Datum value, bool null, int bytes, char *to);

/* hashing.c */
extern bool corgi_has_name(const List *names, const char *name);
extern bool corgi_same_names(const List *a, const List *b);
extern void corgi_read_hashing(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types);
extern void corgi_choose_hashed(CorgiOptions *o, Relation rel, bool all, const List *others);
extern bool corgi_is_plain_feature(const CorgiOptions *o, const char *column);
extern CorgiEncoder corgi_hashed_encoder(const CorgiOptions *o, const CorgiColumn *c);
extern CorgiHashing *corgi_new_hashing(MemoryContext context);
extern void corgi_make_hashing(const CorgiSource *s, const CorgiOptions *o, CorgiEncoding *e);
extern void corgi_settle_hashing(CorgiEncoding *e, bool fitted);
extern int64 corgi_hashed_width(const CorgiHashing *h);
extern char *corgi_hashed_terms(const CorgiEncoding *e);
extern void corgi_resume_hashing(CorgiOptions *o, const CorgiEncoding *e, List *columns);

static inline CorgiHashing *corgi_hashing(const CorgiSource *s) { return s->encoding ? s->encoding->hashing : NULL; }

/* hashed.c */
extern const cp_hashed *corgi_hash_row(const CorgiSource *s, TupleTableSlot *row);
extern void corgi_trim_hashing(CorgiHashing *h);
extern const cp_hashed *corgi_hash_call(const CorgiEncoding *e, const Oid *types, const NullableDatum *row);
