/* Hash table of texts with numbers. */
#include "names.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/fmgrprotos.h"

enum { INITIAL_BITS = 6, MAX_LISTED_NAMES = 10 };

/* Return an empty list in the current memory context. */
CorgiNames *corgi_make_names(void)
{
    CorgiNames *n = palloc0(sizeof *n);
    n->context = CurrentMemoryContext;
    n->bits = INITIAL_BITS;
    n->room = 1 << (INITIAL_BITS - 1);
    n->names = palloc(sizeof *n->names * (Size) n->room);
    n->table = palloc0(sizeof *n->table << n->bits);
    return n;
}

static bool is_name(const CorgiName *a, const char *text, Size length)
{
    return a->length == length && memcmp(a->text, text, length) == 0;
}

/* Return the table slot of a text, or its free slot. */
static int64 table_slot(const CorgiNames *n, const char *text, Size length, uint32 hash)
{
    int64 mask = (INT64CONST(1) << n->bits) - 1, at = hash & mask;
    while (n->table[at] != 0) {
        const CorgiName *found = &n->names[n->table[at] - 1];
        if (found->hash == hash && is_name(found, text, length))
            break;
        at = (at + 1) & mask;
    }
    return at;
}

/* Return the number of a text, or CORGI_UNNAMED. */
int64 corgi_find_name(CorgiNames *n, const char *text, Size length)
{
    if (n->last < n->count && is_name(&n->names[n->last], text, length))
        return n->last;
    int64 found = n->table[table_slot(n, text, length, hash_bytes((const unsigned char *) text, (int) length))] - 1;
    n->last = Max(found, 0);
    return found;
}

/* Rebuild the table. */
static void fill_table(CorgiNames *n)
{
    memset(n->table, 0, sizeof *n->table << n->bits);
    for (int64 i = 0; i < n->count; i++)
        n->table[table_slot(n, n->names[i].text, n->names[i].length, n->names[i].hash)] = (int32) i + 1;
    n->last = 0;
}

static void grow_table(CorgiNames *n)
{
    n->room *= 2;
    n->bits++;
    n->names = repalloc_huge(n->names, sizeof *n->names * (Size) n->room);
    n->table = repalloc_huge(n->table, sizeof *n->table << n->bits);
    fill_table(n);
}

/* Return the number of a text; adds it if it is new. */
int64 corgi_add_name(CorgiNames *n, const char *text, Size length)
{
    int64 found = corgi_find_name(n, text, length);
    if (found != CORGI_UNNAMED)
        return found;
    if (n->count == n->room)
        grow_table(n);
    CorgiName *new = &n->names[n->count];
    new->text = MemoryContextAlloc(n->context, length + 1);
    memcpy(new->text, text, length);
    new->text[length] = '\0';
    new->length = length;
    new->hash = hash_bytes((const unsigned char *) text, (int) length);
    n->bytes += length;
    n->table[table_slot(n, text, length, new->hash)] = (int32) n->count + 1;
    n->last = n->count;
    return n->count++;
}

/* Sort key of a text: its UTF-8 bytes, which sort by character, or its number. */
typedef struct {
    CorgiName name;
    const char *utf8;
    double number;
    int64 place;            /* original index: equal doubles keep their order */
} Key;

static int by_text(const void *a, const void *b) { return strcmp(((const Key *) a)->utf8, ((const Key *) b)->utf8); }

static int by_number(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static double number_of(const char *text)
{
    return DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(text)));
}

/* Sort as Python does and renumber from 0. */
void corgi_sort_names(CorgiNames *n, bool numbers)
{
    Key *keys = palloc_extended(sizeof *keys * (Size) Max(n->count, 1), MCXT_ALLOC_HUGE);
    for (int64 i = 0; i < n->count; i++) {
        CorgiName *one = &n->names[i];
        keys[i].name = *one;
        keys[i].place = i;
        keys[i].utf8 = numbers ? NULL : pg_server_to_any(one->text, (int) one->length, PG_UTF8);
        keys[i].number = numbers ? number_of(one->text) : 0;
    }
    qsort(keys, (size_t) n->count, sizeof *keys, numbers ? by_number : by_text);
    for (int64 i = 0; i < n->count; i++)
        n->names[i] = keys[i].name;
    pfree(keys);
    fill_table(n);
}

/* Sort names by `compare` and renumber. Texts may have changed in place, with equal lengths. */
void corgi_order_names(CorgiNames *n, int (*compare)(const void *, const void *))
{
    for (int64 i = 0; i < n->count; i++)
        n->names[i].hash = hash_bytes((const unsigned char *) n->names[i].text, (int) n->names[i].length);
    qsort(n->names, (size_t) n->count, sizeof *n->names, compare);
    fill_table(n);
}

/* List the first names, for an error. */
const char *corgi_list_names(const CorgiNames *n)
{
    StringInfoData text;
    initStringInfo(&text);
    for (int64 i = 0; i < Min(n->count, MAX_LISTED_NAMES); i++)
        appendStringInfo(&text, "%s\"%s\"", i ? ", " : "", n->names[i].text);
    if (n->count > MAX_LISTED_NAMES)
        appendStringInfoString(&text, ", ...");
    return text.data;
}
