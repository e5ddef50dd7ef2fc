/* The arguments of a call that predicts; after corgipile.h, whose types it uses. */
#ifndef CORGIPILE_ARGUMENTS_H
#define CORGIPILE_ARGUMENTS_H

#include "corgipile.h"

typedef struct {
    bool list, pair, mixed; /* the features are one array, two arrays of a sparse row, an array and a number, else one
                             * argument each */
    bool literal;           /* a list without a type, such as '{1, 2}' */
    bool record;            /* they are fields of one argument */
    int count;              /* of features that came apart */
    bool grouped;           /* behind them is the group of the row */
    Oid *types, *given;     /* of a number in each, and as they came */
    const NullableDatum *row;
} CorgiArguments;

extern void corgi_note_types(CorgiArguments *a, int count, Oid *given);
extern CorgiCached *corgi_group_of_arguments(const CorgiArguments *a, CorgiCached *c);
extern void corgi_check_arguments(CorgiArguments *a, const CorgiCached *c);
extern bool corgi_takes_columns(const CorgiModel *m);
extern int64 corgi_read_arguments(const CorgiArguments *a, const CorgiModel *m, char *to);
extern bool corgi_encode_arguments(const CorgiArguments *a, const CorgiModel *m, char *to);
extern bool corgi_score_arguments(const CorgiArguments *a, CorgiCached *c);

#endif
