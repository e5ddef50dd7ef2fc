/* Numbers in their stored form. */
#pragma once

#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "source.h"
#include "io/gather.h"
#include "utils/array.h"

/* Return the kernel's code of a type's stored form; CP_TYPES if it has none. */
static inline enum cp_type corgi_stored_type(Oid type)
{
    switch (type) {
    case BOOLOID: return CP_U8;
    case INT2OID: return CP_I16;
    case INT4OID: return CP_I32;
    case INT8OID: return CP_I64;
    case FLOAT4OID: return CP_F32;
    case FLOAT8OID: return CP_F64;
    default: return CP_TYPES;
    }
}

/* Return whether a label is exact as a double; integers are up to 2^53. */
static inline bool corgi_is_exact(Oid type, double y) { return type != INT8OID || fabs(y) <= 9007199254740992.0; }

/* Words of an array's header, which may lie at any address. Positions and sizes exclude the length word, for an empty
 * and a one-dimensional array. */
enum { CORGI_DIMENSIONS = 0, CORGI_DATA_OFFSET = 1, CORGI_LENGTH = 3 };
enum { CORGI_EMPTY_HEAD = sizeof(ArrayType) - VARHDRSZ, CORGI_HEAD = ARR_OVERHEAD_NONULLS(1) - VARHDRSZ };
static inline int32 corgi_head(const char *body, int word)
{
    int32 value;
    memcpy(&value, body + word * sizeof value, sizeof value);
    return value;
}

/* Open a list that is stored uncompressed and without NULLs. Returns false if it is not, or if it is damaged. */
static inline bool corgi_plain_list(const char *stored, Oid type, CorgiList *list)
{
    const char *body = VARDATA_ANY(stored);
    if (VARATT_IS_EXTERNAL(stored) || VARATT_IS_COMPRESSED(stored))
        return false;
    int64 size = VARSIZE_ANY_EXHDR(stored);
    list->count = size < CORGI_HEAD ? 0 : corgi_head(body, CORGI_LENGTH);
    list->numbers = body + CORGI_HEAD;
    if (size == CORGI_EMPTY_HEAD)
        return corgi_head(body, CORGI_DIMENSIONS) == 0;
    return size >= CORGI_HEAD && corgi_head(body, CORGI_DIMENSIONS) == 1 && corgi_head(body, CORGI_DATA_OFFSET) == 0 &&
           list->count >= 0 && list->count * cp_type_bytes[corgi_stored_type(type)] <= size - CORGI_HEAD;
}

/* Copy numbers as reals of `bytes` bytes. */
static inline void corgi_copy_numbers(char *to, int bytes, const char *from, enum cp_type type, int64 count)
{
    if (type == (bytes == sizeof(double) ? CP_F64 : CP_F32))
        cp_copy_row(to, from, count * bytes);
    else
        cp_cast(to, bytes == sizeof(double), from, type, count);
}
