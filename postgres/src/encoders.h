/* Encoders of columns as numbers, equivalent to corgipile.features in Python. */
#pragma once

#include "postgres.h"

#include "lib/stringinfo.h"
#include "names.h"
#include "sgd/sums.h"

/* Comparison families of values: text, times as moments, numbers as doubles. */
typedef enum { CORGI_NO_FAMILY, CORGI_TEXT, CORGI_NUMBER, CORGI_TIME } CorgiFamily;

/* CORGI_HASHED: to features shared with other columns, see hashing.h. */
typedef enum { CORGI_AS_NUMBER, CORGI_AS_VECTOR, CORGI_ONEHOT, CORGI_ORDINAL, CORGI_HASH, CORGI_HASHED } CorgiWay;

/* The encoder of one column. */
typedef struct CorgiEncoder {
    const char *column;
    CorgiWay way;
    CorgiFamily family;     /* of categories */
    bool filled;            /* numbers: missing values are filled */
    bool unknown;           /* categories: a missing value counts as unknown unless it is a category */
    bool whole;             /* no training row lacks it: precision as if unfilled */
    bool holed;             /* but a validation row does; otherwise it is read as if unfilled */
    bool ordered;           /* categories: with a given order */
    bool strict;            /* categories: a missing value that is no category is an error; else its row is skipped */
    bool null_known;        /* categories: missing is the last category */
    double fill;
    int64 buckets;          /* of a hash */
    CorgiNames *values;     /* categories, except of a hash */
    int64 width;            /* numbers it becomes; of a list 0 until known */
    cp_sum *total;          /* sum of the values, while fitting */
    int64 found;
} CorgiEncoder;

typedef struct CorgiHashing CorgiHashing;

/* Encoders of a table's features and label. */
typedef struct {
    int count;
    CorgiEncoder *features; /* [count] */
    CorgiNames *classes;    /* of a text label, by index; NULL: numbers */
    CorgiHashing *hashing;  /* NULL: no hashed columns */
} CorgiEncoding;

enum { CORGI_MAX_ONEHOT = 1000, CORGI_MAX_VALUES = 1 << 20, CORGI_MAX_BUCKETS = 1 << 20, CORGI_BUCKETS = 256 };
enum { CORGI_MAX_TEXT = 64 << 20 }; /* most bytes of a column's categories */

typedef enum { CORGI_MISSING_ERROR, CORGI_MISSING_MEAN, CORGI_MISSING_NUMBER, CORGI_MISSING_SKIP } CorgiMissing;

/* A requested encoding, of one column or of all text columns. */
typedef struct {
    const char *column;     /* NULL: all text columns */
    CorgiWay way;
    int64 buckets;
} CorgiEncodeOption;

/* values.c */
extern CorgiFamily corgi_family(Oid type);
extern bool corgi_is_text(Oid type);
extern double corgi_number_of(Oid type, Datum value);
extern const char *corgi_text_of(Oid type, Datum value, Size *length);
extern void corgi_sort_values(CorgiNames *n, Oid type);
extern void corgi_write_value(StringInfo json, const char *text, Oid type);
