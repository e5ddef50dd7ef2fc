/* Choice of hashed columns by the arguments text, interactions, hash_bits and ngrams. */
#include "source.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))
#define WRONG(...) REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, __VA_ARGS__)

bool corgi_has_name(const List *names, const char *name)
{
    ListCell *cell;
    foreach (cell, names)
        if (strcmp(lfirst(cell), name) == 0)
            return true;
    return false;
}

bool corgi_same_names(const List *a, const List *b)
{
    const ListCell *mine, *theirs;
    bool same = list_length(a) == list_length(b);
    forboth(mine, a, theirs, b)
        same = same && strcmp(lfirst(mine), lfirst(theirs)) == 0;
    return same;
}

/* Split a text at a character and trim blanks around the parts. */
static List *split_text(const char *text, char at)
{
    List *parts = NIL;
    for (const char *end; ; text = end + 1) {
        const char *from = text + strspn(text, " \t\n\r"), *to;
        end = strchr(text, at) ? strchr(text, at) : text + strlen(text);
        for (to = end; to > from && strchr(" \t\n\r", to[-1]) != NULL; to--)
            ;
        parts = lappend(parts, pnstrdup(from, (Size) (to - from)));
        if (*end == '\0')
            return parts;
    }
}

/* Parse a JSON array of names and of arrays of names. */
static List *read_json(const char *text)
{
    Jsonb *given = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
    JsonbIterator *at = JsonbIteratorInit(&given->root);
    JsonbIteratorToken token;
    JsonbValue value;
    List *terms = NIL, *term = NIL;
    int depth = 0;
    while ((token = JsonbIteratorNext(&at, &value, false)) != WJB_DONE) {
        depth += (token == WJB_BEGIN_ARRAY) - (token == WJB_END_ARRAY);
        if (token == WJB_BEGIN_OBJECT || depth > 2 || (token == WJB_ELEM && value.type != jbvString))
            WRONG("interactions must be column names or lists of them, got %s", text);
        if (token == WJB_ELEM)
            term = lappend(term, pnstrdup(value.val.string.val, value.val.string.len));
        if (depth == 1 && token != WJB_BEGIN_ARRAY) {
            terms = lappend(terms, term);
            term = NIL;
        }
    }
    return terms;
}

/* Parse interactions: 'city:device,city', an array of such as 'city:device', or JSON if names have a colon. */
static List *read_interactions(Datum value, Oid type)
{
    List *terms = NIL;
    ListCell *cell;
    const char *text = OidIsValid(get_element_type(getBaseType(type))) ? "" : corgi_argument_text(value, type);
    if (text[strspn(text, " \t\n\r")] == '[')
        return read_json(text);
    List *names = *text ? split_text(text, ',') : corgi_read_names(value, type, "interactions");
    foreach (cell, names)
        terms = lappend(terms, split_text(lfirst(cell), ':'));
    return terms;
}

/* Check the columns of each term, and the number of terms. */
static void check_terms(const List *terms)
{
    List *all = NIL;
    ListCell *cell, *inner;
    foreach (cell, terms) {
        List *term = lfirst(cell), *seen = NIL;
        if (term == NIL || list_length(term) > CP_MAX_CROSSED)
            WRONG("interactions must have 1 to %d columns, got %d", CP_MAX_CROSSED, list_length(term));
        foreach (inner, term) {
            const char *name = lfirst(inner);
            if (*name == '\0')
                WRONG("text and interactions must name columns, got an empty name");
            if (corgi_has_name(seen, name))
                WRONG("an interaction must not repeat columns, got \"%s\" twice", name);
            seen = lappend(seen, (char *) name);
            if (!corgi_has_name(all, name))
                all = lappend(all, (char *) name);
        }
        for (int i = 0; i < foreach_current_index(cell); i++)
            if (corgi_same_names(list_nth(terms, i), term))
                WRONG("text and interactions must not repeat terms, got column \"%s\"%s twice", (char *) linitial(term),
                      list_length(term) > 1 ? " and its partners" : "");
    }
    if (list_length(terms) > CP_MAX_HASHED_COLUMNS || list_length(all) > CP_MAX_HASHED_COLUMNS)
        WRONG("text and interactions must have at most %d columns and as many terms, got %d columns and %d terms",
              CP_MAX_HASHED_COLUMNS, list_length(all), list_length(terms));
}

/* Parse the hashed columns and the parameters of hashing. */
void corgi_read_hashing(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types)
{
    ListCell *cell;
    o->words = nulls[ARG_TEXT] ? NIL : corgi_read_names(values[ARG_TEXT], types[ARG_TEXT], "text");
    foreach (cell, o->words)
        o->terms = lappend(o->terms, list_make1(lfirst(cell)));
    if (!nulls[ARG_INTERACTIONS])
        o->terms = list_concat(o->terms, read_interactions(values[ARG_INTERACTIONS], types[ARG_INTERACTIONS]));
    o->hash_bits = DatumGetInt32(values[ARG_HASH_BITS]);
    o->ngrams = DatumGetInt32(values[ARG_NGRAMS]);
    if (o->hash_bits < 1 || o->hash_bits > CP_MAX_HASH_BITS)
        WRONG("hash_bits must be 1 to %d, got %d", CP_MAX_HASH_BITS, o->hash_bits);
    if (o->ngrams < 1 || o->ngrams > CP_MAX_NGRAMS)
        WRONG("ngrams must be 1 to %d, got %d", CP_MAX_NGRAMS, o->ngrams);
    if (o->terms == NIL && o->warm_start == NULL && (o->hash_bits != CORGI_HASH_BITS || o->ngrams != CORGI_NGRAMS))
        WRONG("%s has no effect without text or interactions",
              o->hash_bits != CORGI_HASH_BITS ? "hash_bits" : "ngrams");
    check_terms(o->terms);
}

static Oid type_of(Relation rel, const char *name)
{
    AttrNumber at = get_attnum(RelationGetRelid(rel), name);
    if (at <= 0)
        REFUSE(ERRCODE_UNDEFINED_COLUMN, "table \"%s\" has no column \"%s\"", RelationGetRelationName(rel), name);
    return TupleDescAttr(RelationGetDescr(rel), at - 1)->atttypid;
}

/* Check that the columns can be hashed. */
static void check_columns(const CorgiOptions *o, Relation rel)
{
    ListCell *cell, *inner;
    foreach (cell, o->terms)
        foreach (inner, (List *) lfirst(cell)) {
            const char *name = lfirst(inner);
            Oid type = type_of(rel, name);
            if (corgi_has_name(o->words, name) && !corgi_is_text(getBaseType(type)))
                ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("text column \"%s\" is %s; text is needed", name, format_type_be(type)),
                        corgi_hint_cast(type, name));
            if (corgi_family(getBaseType(type)) == CORGI_NO_FAMILY)
                REFUSE(ERRCODE_DATATYPE_MISMATCH, "column \"%s\" of interactions must be text, numbers, dates or "
                                                  "times, got %s", name, format_type_be(type));
        }
}

/* Report columns that are not used, unless features names some. */
static void report_ignored(const CorgiOptions *o, const List *others)
{
    StringInfoData names;
    ListCell *cell;
    initStringInfo(&names);
    foreach (cell, others)
        if (!corgi_has_name(o->features, lfirst(cell)))
            appendStringInfo(&names, "%s\"%s\"", names.len ? ", " : "", (char *) lfirst(cell));
    if (names.len > 0)
        ereport(NOTICE, errmsg("columns that are not hashed are ignored: %s", names.data),
                errhint("Name columns of numbers in features to use them too."));
}

/* Set the features to all columns read: hashed ones, then plain ones. `all`: the plain ones are all columns but label
 * and weight. */
void corgi_choose_hashed(CorgiOptions *o, Relation rel, bool all, const List *others)
{
    List *columns = NIL;
    ListCell *cell, *inner;
    check_columns(o, rel);
    foreach (cell, o->terms)
        foreach (inner, (List *) lfirst(cell))
            if (!corgi_has_name(columns, lfirst(inner)))
                columns = lappend(columns, lfirst(inner));
    o->beside = o->features;
    if (all) {
        o->beside = NIL;
        foreach (cell, others)
            if (!corgi_has_name(columns, lfirst(cell)))
                o->beside = lappend(o->beside, lfirst(cell));
    }
    o->features = columns;
    o->chosen = true;
    foreach (cell, o->beside) {
        if (corgi_has_name(o->words, lfirst(cell)))
            WRONG("column \"%s\" is in text and in features; remove it from one of them", (char *) lfirst(cell));
        if (!corgi_has_name(columns, lfirst(cell)))
            o->features = lappend(o->features, lfirst(cell));
    }
    if (o->beside == NIL)
        report_ignored(o, others);
}

/* Return whether a column has its own features besides the hashed ones. */
bool corgi_is_plain_feature(const CorgiOptions *o, const char *column) { return corgi_has_name(o->beside, column); }

static enum cp_hashed_kind hashed_kind(const CorgiOptions *o, const CorgiColumn *c)
{
    if (corgi_has_name(o->words, c->name))
        return CP_HASHED_WORDS;
    return corgi_family(c->type) == CORGI_NUMBER && c->type != BOOLOID ? CP_HASHED_NUMBER : CP_HASHED_CATEGORY;
}

/* Return the encoder of a hashed column without its own features. */
CorgiEncoder corgi_hashed_encoder(const CorgiOptions *o, const CorgiColumn *c)
{
    CorgiEncoder e = {.column = c->name, .way = CORGI_HASHED, .family = corgi_family(c->type), .strict = true};
    if (hashed_kind(o, c) != CP_HASHED_NUMBER)
        return e;
    e.way = CORGI_AS_NUMBER;
    e.filled = o->missing == CORGI_MISSING_NUMBER || o->missing == CORGI_MISSING_MEAN;
    e.fill = o->fill;
    e.width = 1;
    return e;
}

static void free_row(void *hashing) { cp_hashed_free(&((CorgiHashing *) hashing)->row); }

/* Return a hasher of rows. The context's reset frees the kernel's memory. */
CorgiHashing *corgi_new_hashing(MemoryContext context)
{
    CorgiHashing *h = MemoryContextAllocZero(context, sizeof *h);
    MemoryContextCallback *callback = MemoryContextAllocZero(context, sizeof *callback);
    *callback = (MemoryContextCallback){.func = free_row, .arg = h};
    MemoryContextRegisterResetCallback(context, callback);
    h->texts = AllocSetContextCreate(context, "corgipile texts", ALLOCSET_SMALL_SIZES);
    return h;
}

static int column_index(const CorgiEncoding *e, const char *column)
{
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->features[i].column, column) == 0)
            return i;
    elog(ERROR, "column \"%s\" is not hashed", column);
}

/* Choose how the columns of an encoding are hashed. */
void corgi_make_hashing(const CorgiSource *s, const CorgiOptions *o, CorgiEncoding *e)
{
    CorgiHashing *h = e->hashing = corgi_new_hashing(CurrentMemoryContext);
    ListCell *cell, *inner;
    h->bits = o->hash_bits;
    h->ngrams = o->ngrams;
    h->strict = o->missing == CORGI_MISSING_ERROR || o->missing == CORGI_MISSING_SKIP;
    foreach (cell, o->terms) { /* Sources come first among the columns, in the order of the terms. */
        cp_hashed_term *t = &h->terms[h->term_count++];
        foreach (inner, (List *) lfirst(cell)) {
            int at = column_index(e, lfirst(inner));
            const CorgiColumn *c = &s->features[at];
            enum cp_hashed_kind kind = hashed_kind(o, c);
            if (kind == CP_HASHED_NUMBER && e->features[at].way != CORGI_AS_NUMBER)
                WRONG("column \"%s\" is a number in interactions; encode must not change it", c->name);
            h->sources[at] = (CorgiHashedSource){.at = at, .kind = kind, .family = corgi_family(c->type)};
            h->source_count = Max(h->source_count, at + 1);
            t->columns[t->count++] = at;
        }
    }
    h->beside = palloc(sizeof *h->beside * (Size) Max(list_length(o->beside), 1));
    foreach (cell, o->beside)
        h->beside[h->beside_count++] = column_index(e, lfirst(cell));
}

/* Complete a hasher from fitted encoders, and allocate its row. */
void corgi_settle_hashing(CorgiEncoding *e, bool fitted)
{
    CorgiHashing *h = e->hashing;
    MemoryContext context = GetMemoryChunkContext(h);
    uint32 texts = 0;
    for (int i = 0; i < h->source_count; i++) {
        CorgiHashedSource *one = &h->sources[i];
        const CorgiEncoder *encoder = &e->features[one->at];
        const char *name = pg_server_to_any(encoder->column, (int) strlen(encoder->column), PG_UTF8);
        if (fitted && one->kind == CP_HASHED_NUMBER) {
            one->filled = encoder->filled;
            one->fill = encoder->fill;
        }
        h->columns[i] = (cp_hashed_column){.kind = one->kind, .offsets = h->offsets[i], .numbers = &h->numbers[i]};
        h->columns[i].seed =
            one->kind == CP_HASHED_WORDS ? texts++ : cp_murmur((const uint8_t *) name, strlen(name), 0);
    }
    h->beside_width = 0;
    for (int i = 0; i < h->beside_count; i++)
        h->beside_width += e->features[h->beside[i]].width;
    h->row_beside = MemoryContextAllocHuge(context, sizeof *h->row_beside * (Size) Max(h->beside_width, 1));
    h->values = MemoryContextAlloc(context, sizeof *h->values * (Size) Max(e->count, 1));
}

/* Return the features of a hashed row. */
int64 corgi_hashed_width(const CorgiHashing *h) { return (INT64CONST(1) << h->bits) + h->beside_width; }

/* Return the name of a hashed column. */
static const char *source_name(const CorgiEncoding *e, int source)
{
    return e->features[e->hashing->sources[source].at].column;
}

/* Return the terms, single words included, in the syntax of interactions. */
char *corgi_hashed_terms(const CorgiEncoding *e)
{
    const CorgiHashing *h = e->hashing;
    StringInfoData text;
    initStringInfo(&text);
    for (int t = 0; t < h->term_count; t++)
        for (int i = 0; i < h->terms[t].count; i++)
            appendStringInfo(&text, "%s%s", i ? ":" : t ? ", " : "", source_name(e, h->terms[t].columns[i]));
    return text.data;
}

/* Return the names of the plain columns. */
static List *names_beside(const CorgiEncoding *e)
{
    List *names = NIL;
    for (int i = 0; i < e->hashing->beside_count; i++)
        names = lappend(names, (char *) e->features[e->hashing->beside[i]].column);
    return names;
}

static bool same_terms(const CorgiOptions *o, const CorgiEncoding *e)
{
    const CorgiHashing *h = e->hashing;
    ListCell *cell;
    bool same = list_length(o->terms) == h->term_count;
    foreach (cell, same ? o->terms : NIL) {
        const cp_hashed_term *t = &h->terms[foreach_current_index(cell)];
        List *names = NIL;
        for (int i = 0; i < t->count; i++)
            names = lappend(names, (char *) source_name(e, t->columns[i]));
        same = same && corgi_same_names(lfirst(cell), names);
    }
    for (int i = 0; same && i < h->source_count; i++)
        same = corgi_has_name(o->words, source_name(e, i)) == (h->sources[i].kind == CP_HASHED_WORDS);
    return same;
}

/* Adopt the hashing of a warm start. `columns` are all its training columns. */
void corgi_resume_hashing(CorgiOptions *o, const CorgiEncoding *e, List *columns)
{
    const CorgiHashing *h = e ? e->hashing : NULL;
    bool requested = o->terms != NIL;
    if (h == NULL && (requested || o->hash_bits != CORGI_HASH_BITS || o->ngrams != CORGI_NGRAMS))
        WRONG("warm_start \"%s\" has no hashed columns; leave out text, interactions, hash_bits and ngrams",
              o->warm_start);
    if (h == NULL)
        return;
    if ((requested && !same_terms(o, e)) || (o->hash_bits != CORGI_HASH_BITS && o->hash_bits != h->bits) ||
        (o->ngrams != CORGI_NGRAMS && o->ngrams != h->ngrams))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("columns are hashed as by the model of warm_start: %s, hash_bits %d, ngrams %d",
                       corgi_hashed_terms(e), h->bits, h->ngrams),
                errhint("Leave out text, interactions, hash_bits and ngrams."));
    if (o->features != NIL && !corgi_same_names(o->features, names_beside(e)))
        WRONG("warm_start \"%s\" was trained with other plain columns; leave out features",
              o->warm_start);
    o->features = columns;
}
