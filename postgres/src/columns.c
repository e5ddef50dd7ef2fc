/* Conversion of row values to numbers: labels to doubles, features straight into a buffer slot. */

#include "numbers.h"

#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "utils/numeric.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

enum { MAX_LABEL_BYTES = 100 }; /* bytes of a label in an error */

/* Name a row so that SQL finds it: WHERE ctid = '(page,item)'. */
char *corgi_row_name(const CorgiColumn *c, const ItemPointerData *tid)
{
    return psprintf("row (%u,%u)%s", ItemPointerGetBlockNumberNoCheck(tid), ItemPointerGetOffsetNumberNoCheck(tid),
                    c->part ? psprintf(" of %s", c->part) : "");
}

void corgi_null_value(const CorgiColumn *c, TupleTableSlot *row, const char *what)
{
    REFUSE(ERRCODE_NULL_VALUE_NOT_ALLOWED, "%s has a NULL in %s column \"%s\"; every row must have a number",
           corgi_row_name(c, &row->tts_tid), what, c->name);
}

/* Return the index of a row's class. */
static double label_class(const CorgiColumn *label, Datum value, TupleTableSlot *row)
{
    Size length;
    const char *text = corgi_text_of(label->type, value, &length);
    int64 class_index = corgi_find_name(label->classes, text, length);
    if (unlikely(class_index == CORGI_UNNAMED && !label->lenient))
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "%s has label \"%.*s\", which is none of the classes %s",
               corgi_row_name(label, &row->tts_tid), (int) pg_mbcliplen(text, (int) length, MAX_LABEL_BYTES), text,
               corgi_list_names(label->classes));
    return (double) class_index;
}

/* Return a row's label: finite, and exact if it is an integer. A lenient label may be NaN, or -1 as a class. */
double corgi_read_label(const CorgiColumn *label, TupleTableSlot *row)
{
    bool null;
    Datum value = slot_getattr(row, label->attnum, &null);
    double y;
    if (unlikely(null) && label->lenient)
        return label->classes ? CORGI_UNNAMED : NAN;
    if (unlikely(null))
        corgi_null_value(label, row, "label");
    if (label->classes != NULL)
        return label_class(label, value, row);
    corgi_read_number(label->type, value, sizeof y, (char *) &y);
    if (unlikely(!isfinite(y)) && label->lenient)
        return NAN;
    if (unlikely(!isfinite(y)))
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "%s has label %g in column \"%s\"; a finite number is needed",
               corgi_row_name(label, &row->tts_tid), y, label->name);
    if (unlikely(!corgi_is_exact(label->type, y)))
        REFUSE(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
               "%s has label %.0f in column \"%s\"; labels up to 2^53 in size are exact",
               corgi_row_name(label, &row->tts_tid), y, label->name);
    return y;
}

static bool is_null(const char *bitmap, int64 i) { return !(bitmap[i / 8] >> (i % 8) & 1); }

/* Return the number of stored elements: those not NULL in the bitmap, or all if there is none. */
static int64 stored_elements(const char *bitmap, int64 count)
{
    int64 nulls = 0;
    for (int64 i = 0; bitmap != NULL && i < count; i++)
        nulls += is_null(bitmap, i);
    return count - nulls;
}

static const char *const has_null = "holds a NULL; every element must be a number";
static const char *const damaged_array = "is a damaged array: its size does not match its header";

/* Find the elements of an array, of `bytes` bytes each, and its null bitmap. Copies nothing, because the header may lie
 * at any address. Sets `why` and returns NULL if the array is unsuitable. */
static const char *array_elements(const struct varlena *array, int64 bytes, int64 *width, const char **bitmap,
                                  const char **why)
{
    const char *body = VARDATA_ANY(array);
    int64 size = VARSIZE_ANY_EXHDR(array), from = CORGI_HEAD;
    int32 dimensions = size < CORGI_EMPTY_HEAD ? -1 : corgi_head(body, CORGI_DIMENSIONS);
    *width = 0;
    *bitmap = NULL;
    if (dimensions == 0)
        return body;
    if (dimensions > 1 && dimensions <= MAXDIM)
        *why = psprintf("is an array of %d dimensions; 1 is needed", dimensions);
    else if (dimensions != 1 || size < CORGI_HEAD)
        *why = damaged_array;
    if (*why != NULL)
        return NULL;
    *width = corgi_head(body, CORGI_LENGTH);
    if (corgi_head(body, CORGI_DATA_OFFSET) != 0) {
        *bitmap = body + CORGI_HEAD;
        from = (int64) corgi_head(body, CORGI_DATA_OFFSET) - VARHDRSZ;
    }
    if (*width < 0 || from < CORGI_HEAD + (*bitmap ? (*width + 7) / 8 : 0) || from > size ||
        stored_elements(*bitmap, *width) * bytes > size - from)
        *why = damaged_array;
    return *why ? NULL : body + from;
}

/* Find the numbers of an array without NULLs. Sets `why` if it is unsuitable. */
static const char *array_numbers(const struct varlena *array, Oid type, int64 *width, const char **why)
{
    const char *bitmap, *numbers = array_elements(array, cp_type_bytes[corgi_stored_type(type)], width, &bitmap, why);
    if (numbers != NULL && stored_elements(bitmap, *width) < *width) {
        *why = has_null;
        return NULL;
    }
    return numbers;
}

/* Open an array, detoasted if necessary. Sets `why` if it is unsuitable. The caller closes the list. */
CorgiList corgi_open_list(Datum array, Oid type, const char **why)
{
    struct varlena *stored = (struct varlena *) DatumGetPointer(array);
    CorgiList list = {.copy = NULL};
    if (VARATT_IS_EXTERNAL(stored) || VARATT_IS_COMPRESSED(stored))
        stored = list.copy = detoast_attr(stored);
    list.numbers = array_numbers(stored, type, &list.count, why);
    return list;
}

void corgi_close_list(CorgiList *list)
{
    if (list->copy != NULL)
        pfree(list->copy);
}

/* Return the numeric at an address, after padding; NULL unless it lies uncompressed before `end`. */
static const char *next_numeric(const char *at, const char *end)
{
    if (at < end)
        at = (const char *) att_align_pointer(at, TYPALIGN_INT, -1, at);
    if (at + VARHDRSZ > end || VARATT_IS_EXTERNAL(at) || VARATT_IS_COMPRESSED(at)) /* arrays end aligned */
        return NULL;
    return VARSIZE_ANY(at) >= VARHDRSZ_SHORT + sizeof(uint16) && VARSIZE_ANY(at) <= end - at ? at : NULL;
}

/* Copy a numeric[], whose elements are no machine numbers. */
static int64 read_numerics(Datum array, int bytes, int64 width, char *to, const char **why)
{
    const struct varlena *a = PG_DETOAST_DATUM(array);
    const char *bitmap, *end = (const char *) a + VARSIZE(a);
    int64 count;
    const char *at = array_elements(a, 1, &count, &bitmap, why);
    for (int64 i = 0; i < count && *why == NULL; i++) {
        if (bitmap != NULL && is_null(bitmap, i))
            *why = has_null;
        else if ((at = next_numeric(at, end)) == NULL)
            *why = damaged_array;
        else if (count == width)
            corgi_read_number(NUMERICOID, PointerGetDatum(at), bytes, to + i * bytes);
        at = at ? at + VARSIZE_ANY(at) : NULL;
    }
    return count;
}

/* Copy an array that holds NULLs, which become NaN. */
static int64 read_holed(Datum array, Oid type, int bytes, int64 width, char *to)
{
    Datum *values;
    bool *nulls;
    int count = corgi_elements(array, &values, &nulls);
    for (int i = 0; i < count && count == width; i++)
        if (nulls[i])
            corgi_put_same(NAN, 1, bytes, to + i * bytes);
        else
            corgi_read_number(type, values[i], bytes, to + i * bytes);
    return count;
}

/* Copy an array's numbers to `to` as reals of `bytes` bytes if it has `width` of them. Returns their number. Sets `why`
 * if the array is unsuitable. */
int64 corgi_read_array(Datum array, Oid type, int bytes, int64 width, char *to, const char **why)
{
    enum cp_type from = corgi_stored_type(type);
    if (type == NUMERICOID)
        return read_numerics(array, bytes, width, to, why);
    CorgiList list = corgi_open_list(array, type, why);
    if (list.numbers != NULL && list.count == width)
        corgi_copy_numbers(to, bytes, list.numbers, from, width);
    corgi_close_list(&list);
    return list.count;
}

/* Copy an array's numbers, with NULLs as NaN. */
int64 corgi_read_array_with_nulls(Datum array, Oid type, int bytes, int64 width, char *to, const char **why)
{
    int64 count = corgi_read_array(array, type, bytes, width, to, why);
    if (likely(*why != has_null))
        return count;
    *why = NULL;
    return read_holed(array, type, bytes, width, to);
}

/* Read an array of a row. NULLs become NaN if the source is lenient or fills them. */
static int64 read_array(const CorgiSource *s, Datum array, int64 width, char *to, const char **why)
{
    const CorgiColumn *c = s->features;
    bool null_as_nan = s->lenient || (c->encoder != NULL && c->encoder->filled);
    return (null_as_nan ? corgi_read_array_with_nulls : corgi_read_array)(array, c->type, s->bytes, width, to, why);
}

/* Return the number of features that scalar columns become. */
int64 corgi_scalar_width(const CorgiSource *s)
{
    const CorgiHashing *h = corgi_hashing(s);
    int64 width = h ? corgi_hashed_width(h) : 0;
    for (int i = 0; h == NULL && i < s->feature_columns; i++)
        width += s->features[i].encoder ? s->features[i].encoder->width : 1;
    return width;
}

/* Return a row's number of features; 0 if a lenient row has none. */
int64 corgi_row_width(const CorgiSource *s, TupleTableSlot *row)
{
    const CorgiColumn *c = s->features;
    const char *why = NULL;
    bool null;
    if (!c->list)
        return corgi_scalar_width(s);
    Datum value = slot_getattr(row, c->attnum, &null);
    if (null && s->lenient)
        return 0;
    if (null)
        corgi_null_value(c, row, "feature");
    int64 width = read_array(s, value, -1, NULL, &why);
    if (why != NULL)
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s: column \"%s\" %s", corgi_row_name(c, &row->tts_tid), c->name, why);
    if (width < 1)
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s has an empty array in column \"%s\"; at least 1 number is needed",
               corgi_row_name(c, &row->tts_tid), c->name);
    return width;
}

static void read_list(const CorgiSource *s, TupleTableSlot *row, int64 width, char *to)
{
    const CorgiColumn *c = s->features;
    Datum value = row->tts_values[c->attnum - 1];
    const char *why = NULL;
    if (unlikely(row->tts_isnull[c->attnum - 1])) {
        if (!s->lenient)
            corgi_null_value(c, row, "feature");
        corgi_put_same(NAN, width, s->bytes, to);
        return;
    }
    int64 count = read_array(s, value, width, to, &why);
    if (c->encoder != NULL && c->encoder->filled && why == NULL && count == width)
        corgi_fill(c->encoder->fill, width, s->bytes, to);
    if (unlikely(why != NULL))
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s: column \"%s\" %s", corgi_row_name(c, &row->tts_tid), c->name, why);
    if (unlikely(count != width))
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "%s has " INT64_FORMAT " numbers in column \"%s\" where " INT64_FORMAT " are needed",
               corgi_row_name(c, &row->tts_tid), count, c->name, width);
}

/* Encode a row's columns into a slot. */
static void encode_row(const CorgiSource *s, TupleTableSlot *row, char *to)
{
    for (int i = 0; i < s->feature_columns; i++) {
        const CorgiColumn *c = &s->features[i];
        bool null = row->tts_isnull[c->attnum - 1];
        if (unlikely(!corgi_encode(c, row->tts_values[c->attnum - 1], null, s->bytes, to) && !s->lenient))
            ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                    errmsg("%s has a %s in feature column \"%s\"", corgi_row_name(c, &row->tts_tid),
                           null ? "NULL" : "NaN", c->name),
                    errhint("Set missing => 'mean', 'skip' or a number to accept it."));
        to += (c->encoder ? c->encoder->width : 1) * s->bytes;
    }
}

/* Put a row's features into a slot. The needed attributes are already deformed. */
void corgi_read_features(const CorgiSource *s, TupleTableSlot *row, int64 width, char *to)
{
    if (s->features->list) {
        read_list(s, row, width, to);
        return;
    }
    if (s->encoded || s->lenient) {
        encode_row(s, row, to);
        return;
    }
    for (int i = 0; i < s->feature_columns; i++) {
        const CorgiColumn *c = &s->features[i];
        if (unlikely(row->tts_isnull[c->attnum - 1]))
            corgi_null_value(c, row, "feature");
        corgi_read_number(c->type, row->tts_values[c->attnum - 1], s->bytes, to + i * s->bytes);
    }
}
