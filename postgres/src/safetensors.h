/* Model files in Python's format, see src/corgipile/linear/saving.py. */
#pragma once

#include "postgres.h"

#define CORGI_META "corgipile.model" /* metadata key of a model's description */
enum { CORGI_MAX_HEADER = 100000000 }; /* bytes, by the format */

/* A tensor of real numbers; a one-dimensional one has one row. */
typedef struct {
    const char *name;
    int bytes;              /* of a number: 4 or 8 */
    int dimensions;         /* 1 or 2 */
    int64 rows, columns, start, end;
    const char *numbers;    /* possibly unaligned */
} CorgiTensor;

/* Contents of a file. */
typedef struct {
    CorgiTensor *tensors;   /* [count] */
    int count;
    Datum meta;             /* the model's description, in the server's encoding */
} CorgiTensors;

extern void corgi_bad_content(const char *format, ...) pg_attribute_printf(1, 2) __attribute__((noreturn));
extern CorgiTensors corgi_read_tensors(const char *content, Size size);
extern const CorgiTensor *corgi_find_tensor(const CorgiTensors *t, const char *name);
extern void corgi_take_numbers(const CorgiTensor *t, int64 from, int64 count, double *to);

/* A tensor to be written, from doubles; `rows` is 0 for one dimension. */
typedef struct {
    const char *name;
    int bytes;
    int64 rows, columns;
    const double *numbers;
    int64 stride;           /* between rows */
} CorgiOutput;
extern bytea *corgi_write_tensors(const char *meta, const CorgiOutput *outputs, int count);
