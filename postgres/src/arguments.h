/* Arguments of a call that predicts. */
#pragma once

#include "postgres.h"

#include "models.h"

typedef struct {
    bool list, pair, mixed; /* features: one array; a sparse pair of arrays; an array and a number; else one argument
                             * each */
    bool literal;           /* an untyped array literal, such as '{1, 2}' */
    bool record;            /* features are the fields of one record argument */
    int count;              /* number of feature arguments */
    bool grouped;           /* the argument after the features is the row's group */
    Oid *types, *given;     /* types: of one number per argument; given: declared types */
    const NullableDatum *row;
} CorgiArguments;

extern void corgi_note_types(CorgiArguments *a, int count, Oid *given);
extern CorgiCached *corgi_group_of_arguments(const CorgiArguments *a, CorgiCached *c);
extern void corgi_check_arguments(CorgiArguments *a, const CorgiCached *c);
extern bool corgi_takes_columns(const CorgiModel *m);
extern int64 corgi_read_arguments(const CorgiArguments *a, const CorgiModel *m, char *to);
extern bool corgi_encode_arguments(const CorgiArguments *a, const CorgiModel *m, char *to);
extern bool corgi_score_arguments(const CorgiArguments *a, CorgiCached *c);
