/* Hashed features of columns, equivalent to corgipile.features.hashing in Python. */
#pragma once

#include "postgres.h"

#include "encoders.h"
#include "miscadmin.h"

static inline int corgi_no_stop(void)
{
    CHECK_FOR_INTERRUPTS(); /* the row's memory stays valid */
    return 0;
}

#define CP_INTERRUPTED() corgi_no_stop()
#include "text/hashed.h"

enum { CORGI_HASH_BITS = 18, CORGI_NGRAMS = 2 }; /* defaults declared in SQL */

/* One hashed column. */
typedef struct {
    int at;                 /* index among the encoding's columns */
    enum cp_hashed_kind kind;
    CorgiFamily family;     /* of a category */
    bool filled;            /* missing numbers are filled */
    double fill;
} CorgiHashedSource;

/* The hasher of rows, with its current row. */
struct CorgiHashing {
    int bits, ngrams, source_count, term_count, beside_count;
    bool strict;            /* a missing value is an error; else it has no features, or is the empty category */
    CorgiHashedSource sources[CP_MAX_HASHED_COLUMNS];
    cp_hashed_term terms[CP_MAX_HASHED_COLUMNS];
    int *beside;            /* [beside_count]: plain columns, whose features follow the hashed ones */
    int64 beside_width;     /* features of the plain columns */
    cp_hashed row;
    cp_hashed_column columns[CP_MAX_HASHED_COLUMNS];
    int64_t offsets[CP_MAX_HASHED_COLUMNS][2];
    double numbers[CP_MAX_HASHED_COLUMNS];
    float *row_beside;      /* [beside_width] */
    NullableDatum *values;  /* [columns] */
    MemoryContext texts;    /* of the row, if converted */
};
