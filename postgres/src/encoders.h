/* How columns become numbers, as corgipile.features has it in Python; included by corgipile.h. */
#ifndef CORGIPILE_ENCODERS_H
#define CORGIPILE_ENCODERS_H

#include "lib/stringinfo.h"
#include "names.h"
#include "sgd/sums.h"

/* What values are compared as: text for itself, times as moments, numbers as doubles. */
typedef enum { CORGI_NO_FAMILY, CORGI_TEXT, CORGI_NUMBER, CORGI_TIME } CorgiFamily;

/* CORGI_HASHED: to features that share places with those of other columns, see hashing.h; it has none of its own. */
typedef enum { CORGI_AS_NUMBER, CORGI_AS_VECTOR, CORGI_ONEHOT, CORGI_ORDINAL, CORGI_HASH, CORGI_HASHED } CorgiWay;

/* How one column becomes numbers. */
typedef struct CorgiEncoder {
    const char *column;
    CorgiWay way;
    CorgiFamily family;     /* of categories */
    bool filled;            /* numbers: a number stands for what is missing */
    bool unknown;           /* categories: what is missing, if it is none of its own, is one that was never seen */
    bool whole;             /* nothing was missing in the rows to learn from: it has the numbers of one not filled */
    bool holed;             /* but it was in one held out; else the column is read as if it were not filled */
    bool ordered;           /* categories: in an order of their own */
    bool strict;            /* categories: what is missing is an error, if it is none of its own; else its row is left out */
    bool null_known;        /* categories: what is missing is one of its own, the last */
    double fill;
    int64 buckets;          /* of a hash */
    CorgiNames *values;     /* categories, but of a hash */
    int64 width;            /* numbers that it becomes; of a list 0 until it is known */
    cp_sum *total;          /* while it is fitted: of the numbers found */
    int64 found;
} CorgiEncoder;

typedef struct CorgiHashing CorgiHashing;

/* How the columns of a table become features and a label. */
typedef struct {
    int count;
    CorgiEncoder *features; /* [count] */
    CorgiNames *classes;    /* of a label of text, by their places; NULL: it is numbers */
    CorgiHashing *hashing;  /* NULL: no column is hashed to shared places */
} CorgiEncoding;

enum { CORGI_MOST_ONEHOT = 1000, CORGI_MOST_VALUES = 1 << 20, CORGI_MOST_BUCKETS = 1 << 20, CORGI_BUCKETS = 256 };
enum { CORGI_MOST_TEXT = 64 << 20 }; /* bytes of the categories of a column */

typedef enum { CORGI_MISSING_ERROR, CORGI_MISSING_MEAN, CORGI_MISSING_NUMBER, CORGI_MISSING_SKIP } CorgiMissing;

/* What was asked for of a column, or of all columns of text. */
typedef struct {
    const char *column;     /* NULL: all of text */
    CorgiWay way;
    int64 buckets;
} CorgiWish;

/* values.c */
extern CorgiFamily corgi_family(Oid type);
extern bool corgi_is_text(Oid type);
extern double corgi_number_of(Oid type, Datum value);
extern const char *corgi_text_of(Oid type, Datum value, Size *length);
extern void corgi_sort_values(CorgiNames *n, Oid type);
extern void corgi_write_value(StringInfo json, const char *text, Oid type);

#endif
