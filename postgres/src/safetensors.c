/* Reader and writer of model files: a length, a JSON header, numbers. Input is not trusted. */
#include "safetensors.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/memutils.h"

#ifdef WORDS_BIGENDIAN
#error "numbers are little-endian in files and copied as they are"
#endif

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8, MAX_MESSAGE_BYTES = 400 }; /* bytes */

static const char *const header_query =
    "SELECT key, value ->> 'dtype', value ->> 'shape', value ->> 'data_offsets', pg_catalog.jsonb_typeof(value -> $2), "
    "value ->> $2 FROM pg_catalog.jsonb_each($1::pg_catalog.jsonb)";

/* Refuse content that is not a model. */
void corgi_bad_content(const char *format, ...)
{
    StringInfoData why;
    initStringInfo(&why);
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        int needed = appendStringInfoVA(&why, format, arguments);
        va_end(arguments);
        if (needed == 0)
            break;
        enlargeStringInfo(&why, needed);
    }
    ereport(ERROR, errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
            errmsg("the content is not a model saved by corgipile: %.*s",
                   pg_mbcliplen(why.data, why.len, MAX_MESSAGE_BYTES), why.data));
}

static const char *text_at(HeapTuple row, int column)
{
    const char *value = SPI_getvalue(row, SPI_tuptable->tupdesc, column);
    return value ? value : "";
}

/* Parse a JSON list of integers. Returns their number, or -1. */
static int read_list(const char *text, int most, int64 *to)
{
    int count = 0;
    if (*text++ != '[')
        return -1;
    while (*text != ']') {
        char *end;
        if (count == most || (count > 0 && (*text++ != ',' || *text++ != ' ')) || *text < '0' || *text > '9')
            return -1;
        errno = 0;
        to[count++] = strtoll(text, &end, 10);
        if (errno != 0)
            return -1;
        text = end;
    }
    return text[1] == '\0' ? count : -1;
}

/* Parse a tensor's header entry. */
static CorgiTensor tensor_at(HeapTuple row, const char *data, int64 size)
{
    CorgiTensor t = {.name = text_at(row, 1)};
    int64 shape[2], offsets[2];
    const char *kind = text_at(row, 2);
    t.bytes = strcmp(kind, "F32") == 0 ? 4 : strcmp(kind, "F64") == 0 ? 8 : 0;
    if (t.bytes == 0)
        corgi_bad_content("tensor \"%s\" is of type \"%s\"; F32 or F64 is wanted", t.name, kind);
    t.dimensions = read_list(text_at(row, 3), 2, shape);
    if (t.dimensions < 1)
        corgi_bad_content("the shape of tensor \"%s\" must be one or two numbers", t.name);
    t.rows = t.dimensions == 2 ? shape[0] : 1;
    t.columns = shape[t.dimensions - 1];
    if (read_list(text_at(row, 4), 2, offsets) != 2 || offsets[0] > offsets[1] || offsets[1] > size)
        corgi_bad_content("tensor \"%s\" lies outside the " INT64_FORMAT " bytes of numbers", t.name, size);
    if (t.rows > size || t.columns > size || t.rows * t.columns > size ||
        t.rows * t.columns * t.bytes != offsets[1] - offsets[0])
        corgi_bad_content("the size of tensor \"%s\" does not match its shape", t.name);
    t.start = offsets[0];
    t.end = offsets[1];
    t.numbers = data + t.start;
    return t;
}

static int compare_offsets(const void *a, const void *b)
{
    const CorgiTensor *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Check that tensors are contiguous. */
static void check_contiguous(CorgiTensors *t, int64 size)
{
    int64 end = 0;
    qsort(t->tensors, (size_t) t->count, sizeof *t->tensors, compare_offsets);
    for (int i = 0; i < t->count; i++) {
        if (t->tensors[i].start != end)
            corgi_bad_content("tensor \"%s\" overlaps another or follows a gap", t->tensors[i].name);
        end = t->tensors[i].end;
    }
    if (end != size)
        corgi_bad_content("it has " INT64_FORMAT " bytes of numbers; its tensors need " INT64_FORMAT, size, end);
}

/* Return the header as text. */
static Datum header_of(const char *content, Size size, uint64 *length)
{
    if (size < LENGTH_BYTES)
        corgi_bad_content("it has %zu bytes", size);
    memcpy(length, content, LENGTH_BYTES);
    if (*length > CORGI_MAX_HEADER || *length > size - LENGTH_BYTES)
        corgi_bad_content("its header has " UINT64_FORMAT " bytes, the whole file " UINT64_FORMAT, *length,
                          (uint64) size);
    char *text = pnstrdup(content + LENGTH_BYTES, (Size) *length);
    if (strlen(text) != *length || *text != '{')
        corgi_bad_content("its header is not JSON");
    return CStringGetTextDatum(pg_any_to_server(text, (int) *length, PG_UTF8));
}

/* Parse a file. Called within SPI, whose memory holds the result. */
CorgiTensors corgi_read_tensors(const char *content, Size size)
{
    uint64 length;
    Datum values[] = {header_of(content, size, &length), CStringGetTextDatum(CORGI_META)};
    Oid types[] = {TEXTOID, TEXTOID};
    CorgiTensors t = {0};
    if (SPI_execute_with_args(header_query, lengthof(types), types, values, NULL, true, 0) != SPI_OK_SELECT)
        elog(ERROR, "reading a header failed");
    t.tensors = palloc(sizeof *t.tensors * (Size) Max(SPI_processed, 1));
    for (uint64 i = 0; i < SPI_processed; i++) {
        HeapTuple row = SPI_tuptable->vals[i];
        if (strcmp(text_at(row, 1), "__metadata__") != 0)
            t.tensors[t.count++] =
                tensor_at(row, content + LENGTH_BYTES + length, (int64) (size - LENGTH_BYTES - length));
        else if (strcmp(text_at(row, 5), "string") == 0)
            t.meta = CStringGetTextDatum(text_at(row, 6));
    }
    check_contiguous(&t, (int64) (size - LENGTH_BYTES - length));
    if (t.meta == (Datum) 0)
        corgi_bad_content("it says nothing of a model");
    return t;
}

/* Return a tensor, or NULL. */
const CorgiTensor *corgi_find_tensor(const CorgiTensors *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            return &t->tensors[i];
    return NULL;
}

/* Copy some of a tensor's numbers. They must be finite. */
void corgi_take_numbers(const CorgiTensor *t, int64 from, int64 count, double *to)
{
    for (int64 i = 0; i < count; i++) {
        float number;
        if (t->bytes == 8)
            memcpy(&to[i], t->numbers + 8 * (from + i), 8);
        else {
            memcpy(&number, t->numbers + 4 * (from + i), 4);
            to[i] = number;
        }
        if (!isfinite(to[i]))
            corgi_bad_content("a number of tensor \"%s\" is NaN or infinite", t->name);
    }
}

static int64 count_of(const CorgiOutput *o) { return Max(o->rows, 1) * o->columns; }

/* Write the header, padded to align the numbers. */
static void write_header(StringInfo to, const char *meta, const CorgiOutput *outputs, int count)
{
    int64 offsets = 0;
    appendStringInfoString(to, "{\"__metadata__\":{\"" CORGI_META "\":");
    escape_json(to, meta);
    appendStringInfoChar(to, '}');
    for (int i = 0; i < count; i++) {
        const CorgiOutput *o = &outputs[i];
        int64 bytes = count_of(o) * o->bytes;
        appendStringInfo(to, ",\"%s\":{\"dtype\":\"F%d\",\"shape\":[", o->name, 8 * o->bytes);
        if (o->rows > 0)
            appendStringInfo(to, INT64_FORMAT ",", o->rows);
        appendStringInfo(to, INT64_FORMAT "],\"data_offsets\":[" INT64_FORMAT "," INT64_FORMAT "]}", o->columns,
                         offsets, offsets + bytes);
        offsets += bytes;
    }
    appendStringInfoChar(to, '}');
    appendStringInfoSpaces(to, (ALIGN_BYTES - to->len % ALIGN_BYTES) % ALIGN_BYTES);
}

static char *write_tensor(char *to, const CorgiOutput *o)
{
    for (int64 i = 0; i < Max(o->rows, 1); i++, to += o->columns * o->bytes)
        for (int64 k = 0; k < o->columns; k++) {
            double number = o->numbers[i * o->stride + k];
            float small = (float) number;
            memcpy(to + k * o->bytes, o->bytes == 8 ? (void *) &number : (void *) &small, (Size) o->bytes);
        }
    return to;
}

static void refuse_size(const char *what, int64 bytes, int64 most)
{
    if (bytes > most)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("%s " INT64_FORMAT " MB; the limit is %d MB", what, bytes >> 20, (int) (most >> 20)));
}

/* Write a file. */
bytea *corgi_write_tensors(const char *meta, const CorgiOutput *outputs, int count)
{
    StringInfoData header;
    int64 bytes = LENGTH_BYTES + VARHDRSZ;
    refuse_size("the model's metadata takes", (int64) strlen(meta), CORGI_MAX_HEADER);
    initStringInfo(&header);
    write_header(&header, meta, outputs, count);
    char *utf8 = pg_server_to_any(header.data, header.len, PG_UTF8);
    uint64 length = strlen(utf8);
    length += (ALIGN_BYTES - length % ALIGN_BYTES) % ALIGN_BYTES;
    refuse_size("the model's metadata takes", (int64) length, CORGI_MAX_HEADER);
    for (int i = 0; i < count; i++)
        bytes += count_of(&outputs[i]) * outputs[i].bytes;
    bytes += (int64) length;
    refuse_size("the model takes", bytes, MaxAllocSize);
    bytea *content = palloc((Size) bytes);
    SET_VARSIZE(content, bytes);
    char *to = VARDATA(content);
    memcpy(to, &length, LENGTH_BYTES);
    memset(to + LENGTH_BYTES, ' ', (Size) length);
    memcpy(to + LENGTH_BYTES, utf8, strlen(utf8));
    to += LENGTH_BYTES + length;
    for (int i = 0; i < count; i++)
        to = write_tensor(to, &outputs[i]);
    return content;
}
