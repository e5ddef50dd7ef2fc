/* Rows passed to a function as one record. */
#pragma once

#include "postgres.h"

#include "models.h"

/* Reader of features from records of one type. */
typedef struct {
    TupleDesc columns;
    Datum *values;          /* of all fields */
    bool *nulls;
    int count, *place;      /* count: of features; place: their field indices */
    Oid *types;             /* of the features */
    NullableDatum *row;     /* features of the last record */
} CorgiRecord;

extern bool corgi_is_record(Oid type);
extern CorgiRecord *corgi_open_record(Datum record, const char *model, MemoryContext context);
extern bool corgi_record_fits(const CorgiRecord *f, Datum record);
extern void corgi_read_record(CorgiRecord *f, Datum record);
