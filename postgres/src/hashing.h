/* How columns become hashed features, as corgipile.features.hashing has it in Python; included by corgipile.h. */
#ifndef CORGIPILE_HASHING_H
#define CORGIPILE_HASHING_H

#include "miscadmin.h"

static inline int corgi_no_stop(void)
{
    CHECK_FOR_INTERRUPTS(); /* what a row took stays with it */
    return 0;
}

#define CP_STOPPED() corgi_no_stop()
#include "text/hashed.h"

enum { CORGI_HASH_BITS = 18, CORGI_NGRAMS = 2 }; /* as SQL declares them */

/* One column that is hashed. */
typedef struct {
    int at;                 /* among the columns of the encoding */
    enum cp_hashed_kind kind;
    CorgiFamily family;     /* of a category */
    bool filled;            /* a number stands for one that is missing */
    double fill;
} CorgiHashedSource;

/* How rows are hashed, and the row under way. */
struct CorgiHashing {
    int bits, ngrams, source_count, term_count, beside_count;
    bool strict;            /* what is missing is missing; else it has no features, or is the empty category */
    CorgiHashedSource sources[CP_MOST_HASHED];
    cp_hashed_term terms[CP_MOST_HASHED];
    int *beside;            /* [beside_count]: the columns with places of their own behind the hashed ones */
    int64 beside_width;     /* numbers that they become */
    cp_hashed row;
    cp_hashed_column columns[CP_MOST_HASHED];
    int64_t offsets[CP_MOST_HASHED][2];
    double numbers[CP_MOST_HASHED];
    float *row_beside;      /* [beside_width] */
    NullableDatum *values;  /* [columns] */
    MemoryContext texts;    /* of the row, where they are not as they lie in the table */
};

#endif
