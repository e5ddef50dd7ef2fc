/* A stored model applied to one sparse row. */
#include "learning.h"

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "sgd/isa.h"

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_DATA_EXCEPTION), errmsg(__VA_ARGS__))

/* Return whether these are the element types of a sparse pair: indices and values. */
bool corgi_is_pair(Oid indices, Oid values)
{
    return indices == INT4OID && (values == FLOAT4OID || values == FLOAT8OID);
}

static CorgiList open_list(Datum array, Oid type)
{
    const char *why = NULL;
    CorgiList list = corgi_open_list(array, type, &why);
    if (unlikely(why != NULL))
        REFUSE("the row to predict %s", why);
    return list;
}

static CorgiLearner *sparse_learner(CorgiCached *c)
{
    if (c->sparse == NULL) {
        MemoryContext outside = CurrentMemoryContext;
        MemoryContext context = AllocSetContextCreate(outside, "corgipile sparse model", ALLOCSET_SMALL_SIZES);
        MemoryContextSwitchTo(context);
        c->sparse = corgi_model_learner(c->model, true);
        MemoryContextSwitchTo(outside);
        MemoryContextSetParent(context, c->context); /* last, so that an error leaks nothing */
    }
    return c->sparse;
}

/* Score the row of an index and a value array; `type` is the value type. */
void corgi_score_pair(CorgiCached *c, Datum indices, Datum values, Oid type)
{
    const CorgiModel *m = c->model;
    CorgiList index = open_list(indices, INT4OID), value = open_list(values, type);
    int64 count = index.count;
    int32 *index_copy = palloc(sizeof *index_copy * (Size) (count + 1));
    char *value_copy = palloc((Size) (m->bytes * (count + 1)));
    if (count != value.count)
        REFUSE("the row has " INT64_FORMAT " indices and " INT64_FORMAT " values; the counts must be equal", count,
               value.count);
    memcpy(index_copy, index.numbers, sizeof *index_copy * (Size) count);
    cp_cast(value_copy, m->bytes == sizeof(double), value.numbers, type == FLOAT8OID ? CP_F64 : CP_F32, count);
    int status = corgi_learner_decide_pair(sparse_learner(c), index_copy, value_copy, count, c->scores);
    if (status == CP_SGD_BAD_ORDER)
        REFUSE("the row has indices that repeat or fall; they must increase");
    if (status == CP_SGD_BAD_INDEX)
        REFUSE("the row has an index outside the " INT64_FORMAT " features of model \"%s\", which begin at 0", m->width,
               c->name);
    corgi_close_list(&index);
    corgi_close_list(&value);
    pfree(index_copy);
    pfree(value_copy);
}

/* Score a hashed row. Returns false if a value is missing and has no replacement. */
bool corgi_score_hashed(CorgiCached *c, const Oid *types, const NullableDatum *row)
{
    const cp_hashed *hashed = corgi_hash_call(c->model->encoding, types, row);
    if (hashed == NULL)
        return false;
    if (corgi_learner_decide_pair(sparse_learner(c), hashed->indices, (const char *) hashed->values, hashed->entries,
                                  c->scores) != CP_SGD_OK)
        elog(ERROR, "kernel failed to score a row");
    corgi_trim_hashing(c->model->encoding->hashing); /* the model lives as long as the session */
    return true;
}
