/* Choice of each column's encoder, before any row is read. */
#include "source.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* Return the encoding requested for a column, by name or for all text columns. */
static const CorgiEncodeOption *requested_encoding(const CorgiOptions *o, const CorgiColumn *c)
{
    const CorgiEncodeOption *all = NULL;
    ListCell *cell;
    foreach (cell, o->encode) {
        const CorgiEncodeOption *request = lfirst(cell);
        if (request->column != NULL && strcmp(request->column, c->name) == 0)
            return request;
        all = request->column == NULL && !c->list && corgi_is_text(c->type) ? request : all;
    }
    return all;
}

static void check_requests(const CorgiSource *s, const CorgiOptions *o)
{
    ListCell *cell;
    foreach (cell, o->encode) {
        const CorgiEncodeOption *request = lfirst(cell);
        bool is_feature = request->column == NULL;
        for (int i = 0; i < s->feature_columns && request->column != NULL; i++)
            is_feature |= strcmp(request->column, s->features[i].name) == 0 &&
                     (o->terms == NIL || corgi_is_plain_feature(o, request->column));
        if (!is_feature)
            REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "encode must name feature columns, got \"%s\"", request->column);
    }
}

/* Refuse a text column without an encoding. */
static void refuse_text_column(const CorgiColumn *c)
{
    ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("feature column \"%s\" is %s; numbers, or an array such as real[], double precision[] or integer[], "
                   "are needed", c->name, format_type_be(c->type)),
            errhint("Set encode => 'onehot', 'ordinal' or 'hash:256' to encode it as numbers."));
}

static CorgiEncoder encoder_for(const CorgiOptions *o, const CorgiColumn *c)
{
    const CorgiEncodeOption *request = requested_encoding(o, c);
    CorgiEncoder e = {.column = c->name, .way = c->list ? CORGI_AS_VECTOR : CORGI_AS_NUMBER, .strict = true};
    if (o->terms != NIL && !corgi_is_plain_feature(o, c->name))
        return corgi_hashed_encoder(o, c);
    if (request == NULL) {
        if (!c->list && corgi_is_text(c->type))
            refuse_text_column(c);
        e.filled = o->missing == CORGI_MISSING_NUMBER || (o->missing == CORGI_MISSING_MEAN && !c->list);
        e.fill = o->fill;
        e.width = !c->list;
        return e;
    }
    if (c->list)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "column \"%s\" is an array; encode takes columns of single values", c->name);
    e.way = request->way;
    e.family = corgi_family(c->type);
    e.ordered = type_is_enum(c->type);
    e.strict = o->missing != CORGI_MISSING_SKIP;
    e.buckets = request->way == CORGI_HASH ? request->buckets : 0;
    e.unknown = o->missing == CORGI_MISSING_NUMBER || o->missing == CORGI_MISSING_MEAN;
    e.null_known = request->way == CORGI_HASH && e.unknown;
    e.values = corgi_make_names();
    e.width = request->way == CORGI_HASH ? e.buckets : 1;
    return e;
}

/* Return whether a column holds plain numbers or arrays of them. */
static bool is_plain(const CorgiColumn *c) { return corgi_is_number(c->type); }

static bool all_plain(const CorgiSource *s)
{
    bool plain = is_plain(&s->label);
    for (int i = 0; i < s->feature_columns; i++)
        plain &= is_plain(&s->features[i]);
    return plain;
}

static CorgiEncoding *make_encoding(const CorgiSource *s, const CorgiOptions *o)
{
    CorgiEncoding *e = palloc0(sizeof *e);
    e->count = s->feature_columns;
    e->features = palloc0(sizeof *e->features * (Size) e->count);
    for (int i = 0; i < e->count; i++)
        e->features[i] = encoder_for(o, &s->features[i]);
    if (!is_plain(&s->label))
        e->classes = corgi_make_names();
    if (o->terms != NIL)
        corgi_make_hashing(s, o, e);
    return e;
}

static const char *const family_names[] = {"", "texts", "numbers", "times"};

/* Check that the columns match a fitted encoding. */
static void check_known(const CorgiSource *s, const CorgiEncoding *e)
{
    if (e->count != s->feature_columns)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "there are %d feature columns; the model was trained with %d",
               s->feature_columns, e->count);
    for (int i = 0; i < e->count; i++) {
        const CorgiColumn *c = &s->features[i];
        const CorgiEncoder *known = &e->features[i];
        CorgiFamily family = corgi_family(c->type);
        bool number = known->way == CORGI_AS_NUMBER;
        if ((known->way == CORGI_AS_VECTOR) != c->list || (number && family != CORGI_NUMBER && family != CORGI_TIME) ||
            (!number && !c->list && family != known->family))
            REFUSE(ERRCODE_DATATYPE_MISMATCH, "feature column \"%s\" is %s%s; the model takes %s there", c->name,
                   format_type_be(c->type), c->list ? "[]" : "",
                   number ? "numbers" : c->list ? "single values" : known->way == CORGI_AS_VECTOR ? "arrays of numbers"
                          : family_names[known->family]);
    }
    if ((e->classes != NULL) != !is_plain(&s->label))
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "label column \"%s\" is %s; the model has classes of %s", s->label.name,
               format_type_be(s->label.type), e->classes ? "text" : "numbers");
}

static void check_sparse(const CorgiSource *s, const CorgiOptions *o)
{
    if (s->sparse && o->terms == NIL && (o->encode != NIL || o->missing != CORGI_MISSING_ERROR))
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "%s takes no sparse features", o->encode != NIL ? "encode" : "missing");
}

/* Refuse a warm start from a model without an encoding. */
static void check_past(const CorgiOptions *o)
{
    if (o->warm_start != NULL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "warm_start \"%s\" was trained on numbers only", o->warm_start);
}

/* Choose the encoders, or none if all columns are plain numbers and nothing else was requested. */
void corgi_open_encoding(CorgiSource *s, CorgiOptions *o)
{
    check_requests(s, o);
    check_sparse(s, o);
    if (o->encoding != NULL) {
        check_known(s, o->encoding);
        s->encoding = o->encoding;
        return;
    }
    if (all_plain(s) && o->terms == NIL && o->encode == NIL &&
        (o->missing == CORGI_MISSING_ERROR || o->missing == CORGI_MISSING_SKIP))
        return;
    check_past(o);
    if (!is_plain(&s->label) && corgi_predicts_numbers(&o->of))
        REFUSE(ERRCODE_DATATYPE_MISMATCH,
               "label column \"%s\" is %s; a %s model predicts numbers, so a number is needed", s->label.name,
               format_type_be(s->label.type), o->kind);
    s->encoding = make_encoding(s, o);
}

/* Return whether an encoder does nothing, so that its column is read directly. */
static bool is_identity(const CorgiEncoder *e, const CorgiColumn *c)
{
    return (e->way == CORGI_AS_NUMBER || e->way == CORGI_AS_VECTOR) && (!e->filled || (e->whole && !e->holed)) &&
           is_plain(c);
}

/* Attach the encoders to a table's columns. */
static void attach(CorgiSource *s, CorgiEncoding *e)
{
    s->encoding = e;
    s->encoded = false;
    s->label.classes = e->classes;
    for (int i = 0; i < s->feature_columns; i++) {
        s->features[i].encoder = is_identity(&e->features[i], &s->features[i]) ? NULL : &e->features[i];
        s->encoded |= s->features[i].encoder != NULL;
    }
}

static bool is_wide(const CorgiColumn *c)
{
    const CorgiEncoder *e = c->encoder;
    bool small = c->type == BOOLOID || c->type == INT2OID || c->type == FLOAT4OID;
    if (e == NULL || e->way == CORGI_AS_VECTOR || (e->whole && is_plain(c)))
        return c->type == FLOAT8OID || c->type == NUMERICOID;
    return e->way == CORGI_AS_NUMBER && !small;
}

/* Choose the precision: double if some column needs it, as Python does. Hashed rows are real. */
static void choose_precision(CorgiSource *s)
{
    s->bytes = sizeof(float);
    for (int i = 0; i < s->feature_columns && corgi_hashing(s) == NULL; i++)
        if (is_wide(&s->features[i]))
            s->bytes = sizeof(double);
}

/* Attach the encoders, if any, to the columns of a table and its parts. */
void corgi_attach_encodings(CorgiSource *s, CorgiEncoding *e)
{
    for (int i = -1; i < s->part_count; i++) {
        CorgiSource *part = i < 0 ? s : &s->parts[i];
        if (e != NULL)
            attach(part, e);
        part->lenient = part->label.lenient = part->weight.lenient = s->lenient;
        choose_precision(part);
    }
}
