/* Source table: its kind, privileges, columns and parts. */
#include "compat.h"
#include "run.h"

#include "access/relation.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

static const char *kind_of(char relkind)
{
    switch (relkind) {
    case RELKIND_VIEW: return "a view";
    case RELKIND_FOREIGN_TABLE: return "a foreign table";
    case RELKIND_INDEX: return "an index";
    case RELKIND_SEQUENCE: return "a sequence";
    default: return "not a table";
    }
}

/* Return a table's qualified SQL name. */
char *corgi_sql_name(Relation rel)
{
    return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
}

/* Check a table, or a part of the named table. */
static void check_kind(Relation rel, Relation named)
{
    char kind = rel->rd_rel->relkind;
    bool query = kind == RELKIND_VIEW || kind == RELKIND_FOREIGN_TABLE;
    const char *name = RelationGetRelationName(rel);
    if (kind != RELKIND_RELATION && kind != RELKIND_MATVIEW && kind != RELKIND_PARTITIONED_TABLE)
        ereport(
            ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
            errmsg("\"%s\" is %s; a table or materialized view is needed", name, kind_of(kind)),
            query ? errhint("Give query => 'SELECT * FROM %s' instead of source.", corgi_sql_name(named))
                  : 0);
    if (kind != RELKIND_PARTITIONED_TABLE && rel->rd_tableam->scan_set_tidrange == NULL)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("the access method of table \"%s\" cannot scan a range of pages", name));
    if (!RelationIsPopulated(rel))
        ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                errmsg("materialized view \"%s\" has not been populated", name),
                errhint("Use the REFRESH MATERIALIZED VIEW command."));
    if (RELATION_IS_OTHER_TEMP(rel))
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("\"%s\" is another session's temporary table", name));
}

/* Roles of columns, and their types. */
typedef enum { FEATURE, LABEL, WEIGHT, GROUP, LABELS, ONE_LABEL } ColumnRole;

static const struct { const char *name, *needed; } column_roles[] = {
    [FEATURE] = {"feature", "numbers, or an array such as real[], double precision[] or integer[], are needed"},
    [LABEL] = {"label", "a number, boolean or text is needed"},
    [WEIGHT] = {"weight", "a number or boolean is needed"},
    [GROUP] = {"group", "text, whole numbers or booleans are needed"},
    [LABELS] = {"label", "an array of text or of whole numbers is needed, or several columns of 0 and 1"},
    [ONE_LABEL] = {"label", "0 and 1, or booleans, are needed"},
};

/* Return whether a column's type suits its role. Features may be numbers, arrays of them, or types encoded as numbers
 * or categories. */
static bool suits(const CorgiColumn *c, ColumnRole role)
{
    const bool whole = c->type == INT2OID || c->type == INT4OID || c->type == INT8OID;
    if (role == LABELS)
        return c->list && (corgi_is_text(c->type) || whole);
    if (role == GROUP)
        return !c->list && (corgi_is_text(c->type) || whole || c->type == BOOLOID);
    if (corgi_is_number(c->type))
        return role == FEATURE || !c->list;
    return !c->list &&
           (role == FEATURE ? corgi_family(c->type) != CORGI_NO_FAMILY : role == LABEL && corgi_is_text(c->type));
}

/* Return a column by name. */
static CorgiColumn find_column(Relation rel, const char *name, ColumnRole role)
{
    CorgiColumn c = {.name = name, .attnum = get_attnum(RelationGetRelid(rel), name)};
    if (c.attnum <= 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
                errmsg("table \"%s\" has no column \"%s\"", RelationGetRelationName(rel), name));
    Form_pg_attribute a = TupleDescAttr(RelationGetDescr(rel), c.attnum - 1);
    Oid item = get_element_type(getBaseType(a->atttypid));
    c.list = OidIsValid(item);
    c.type = getBaseType(c.list ? item : a->atttypid);
    if (!suits(&c, role))
        ereport(
            ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("%s column \"%s\" is %s; %s", column_roles[role].name, name, format_type_be(a->atttypid),
                   column_roles[role].needed),
            role == FEATURE || c.type == JSONOID || c.type == JSONBOID || (role == LABEL && corgi_casts_to_text(c.type))
                ? corgi_hint_cast(a->atttypid, name)
            : role == LABELS && corgi_is_text(c.type)
                ? errhint(
                      "Split text that holds several by a query, or in a column of its own: string_to_array(%s, ',').",
                      quote_identifier(name))
                : 0);
    if (CORGI_IS_VIRTUAL(a))
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("column \"%s\" is a virtual generated column", name), errhint("Make it STORED."));
    return c;
}

/* Check privileges on the named table; as in a query, those on its parts do not matter. */
static void check_privileges(const CorgiSource *s)
{
    Oid table = RelationGetRelid(s->rel), user = GetUserId();
    if (check_enable_rls(table, InvalidOid, false) == RLS_ENABLED)
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("row-level security applies to you on table \"%s\"", RelationGetRelationName(s->rel)),
                errhint("Train on a table of the rows that you may see."));
    if (pg_class_aclcheck(table, user, ACL_SELECT) == ACLCHECK_OK)
        return;
    for (int i = -3 - s->label_columns; i < s->feature_columns; i++) {
        const CorgiColumn *c = i < -3    ? &s->labels[-4 - i]
                               : i == -3 ? &s->by
                               : i == -2 ? &s->weight
                               : i < 0   ? &s->label
                                         : &s->features[i];
        if (c->name != NULL && pg_attribute_aclcheck(table, c->attnum, user, ACL_SELECT) != ACLCHECK_OK)
            aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(s->rel->rd_rel->relkind),
                           RelationGetRelationName(s->rel));
    }
}

/* Check arrays: allowed alone or as a sparse pair. Hashed columns make sparse rows. */
static void check_lists(CorgiSource *s, bool hashed)
{
    const CorgiColumn *c = s->features;
    s->sparse = hashed || (s->feature_columns == 2 && c[0].list && c[1].list);
    for (int i = 0; hashed && i < s->feature_columns; i++)
        if (c[i].list)
            ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("feature column \"%s\" is an array; with hashed columns, features must be single values",
                           c[i].name));
    if (hashed)
        return;
    if (s->sparse && (c[0].type != INT4OID || (c[1].type != FLOAT4OID && c[1].type != FLOAT8OID)))
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("sparse features \"%s\" and \"%s\" must be integer[] and real[] (or double precision[]), "
                       "got %s[] and %s[]",
                       c[0].name, c[1].name, format_type_be(c[0].type), format_type_be(c[1].type)));
    for (int i = 0; i < s->feature_columns && s->feature_columns > 1 && !s->sparse; i++)
        if (c[i].list)
            ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                    errmsg("feature column \"%s\" is an array; give it alone, as indices or values of a sparse "
                           "pair, or give number columns",
                           c[i].name));
}

/* Return whether all columns but the label are features. */
static bool takes_all(const CorgiOptions *o)
{
    return o->features == NIL || (list_length(o->features) == 1 && strcmp(linitial(o->features), "*") == 0);
}

static bool is_among_labels(const CorgiSource *s, AttrNumber attnum)
{
    for (int i = 0; i < s->label_columns; i++)
        if (s->labels[i].attnum == attnum)
            return true;
    return false;
}

/* List all columns except label, weight and group. */
static List *other_columns(const CorgiSource *s)
{
    TupleDesc columns = RelationGetDescr(s->rel);
    List *names = NIL;
    for (int i = 0; i < columns->natts; i++)
        if (!TupleDescAttr(columns, i)->attisdropped && i + 1 != s->label.attnum && i + 1 != s->weight.attnum &&
            i + 1 != s->by.attnum && !is_among_labels(s, i + 1))
            names = lappend(names, pstrdup(NameStr(TupleDescAttr(columns, i)->attname)));
    if (names == NIL)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("there is no column besides the label \"%s\"", s->labels ? s->labels->name : s->label.name));
    return names;
}

/* Return whether hashed columns are requested but not chosen yet. */
static bool asks_for_hashing(const CorgiOptions *o) { return o->terms != NIL && o->encoding == NULL && !o->chosen; }

static void find_features(CorgiSource *s, CorgiOptions *o)
{
    ListCell *cell;
    if (asks_for_hashing(o))
        corgi_choose_hashed(o, s->rel, o->features != NIL && takes_all(o), other_columns(s));
    else if (takes_all(o))
        o->features = other_columns(s);
    s->features = palloc0(sizeof(CorgiColumn) * list_length(o->features));
    foreach (cell, o->features) {
        CorgiColumn c = find_column(s->rel, lfirst(cell), FEATURE);
        if (c.attnum == s->label.attnum || is_among_labels(s, c.attnum))
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("column \"%s\" is the label; it cannot be a feature too", c.name));
        if (c.attnum == s->weight.attnum)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("column \"%s\" is the weight; it cannot be a feature too", c.name));
        if (c.attnum == s->by.attnum)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("column \"%s\" is the group; it cannot be a feature too", c.name));
        s->last = Max(s->last, c.attnum);
        s->features[s->feature_columns++] = c;
    }
    check_lists(s, o->terms != NIL || (o->encoding != NULL && o->encoding->hashing != NULL));
}

/* Find the label column, or the columns of several labels; the label is then an integer, the row's label set. */
static void find_label(CorgiSource *s, const CorgiOptions *o)
{
    ListCell *cell;
    if (o->labels == NIL) {
        s->label = find_column(s->rel, o->label, LABEL);
        s->last = s->label.attnum;
        return;
    }
    s->label.type = INT4OID;
    s->labels = palloc0(sizeof *s->labels * (Size) list_length(o->labels));
    foreach (cell, o->labels)
        s->labels[s->label_columns++] =
            find_column(s->rel, lfirst(cell), list_length(o->labels) == 1 ? LABELS : ONE_LABEL);
}

/* Find the weight column, if any. */
static void find_weight(CorgiSource *s, const CorgiOptions *o)
{
    if (o->weight == NULL)
        return;
    s->weight = find_column(s->rel, o->weight, WEIGHT);
    if (s->weight.attnum == s->label.attnum)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("column \"%s\" is the label; it cannot be the weight too", o->weight));
    s->last = Max(s->last, s->weight.attnum);
}

static void open_table(CorgiSource *s, Relation rel, Relation named, CorgiOptions *o)
{
    memset(s, 0, sizeof *s);
    s->rel = rel;
    check_kind(rel, named);
    s->label.attnum = InvalidAttrNumber;
    find_label(s, o);
    find_weight(s, o);
    if (o->by != NULL)
        s->by = find_column(rel, o->by, GROUP);
    find_features(s, o);
    s->parts = s;
    s->part_count = 1;
    if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
        return;
    PredicateLockRelation(rel, GetActiveSnapshot()); /* first, so that rows added behind these pages conflict */
    s->pages = RelationGetNumberOfBlocks(rel);
}

/* List the leaf partitions, locked, in the order of their bounds. */
static List *partitions_of(Relation rel, List *found)
{
    PartitionDesc partitions = RelationGetPartitionDesc(rel, true);
    for (int i = 0; i < partitions->nparts; i++) {
        Relation part = relation_open(partitions->oids[i], AccessShareLock);
        if (part->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
            found = partitions_of(part, found);
        else
            found = lappend_oid(found, RelationGetRelid(part));
        relation_close(part, NoLock);
    }
    return found;
}

/* Set the part's name in messages about its rows. */
static void set_part_name(CorgiSource *part, const char *name)
{
    part->label.part = part->weight.part = part->by.part = name;
    for (int i = 0; i < part->label_columns; i++)
        part->labels[i].part = name;
    for (int i = 0; i < part->feature_columns; i++)
        part->features[i].part = part->label.part;
}

static void open_parts(CorgiSource *s, CorgiOptions *o)
{
    bool partitioned = s->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
    List *tables = partitioned ? partitions_of(s->rel, NIL)
                               : find_all_inheritors(RelationGetRelid(s->rel), AccessShareLock, NULL);
    ListCell *cell;
    if (!partitioned && list_length(tables) == 1)
        return;
    s->parts = palloc0(sizeof *s->parts * (Size) Max(list_length(tables), 1));
    s->part_count = 0;
    s->pages = 0;
    foreach (cell, tables) {
        CorgiSource *part = &s->parts[s->part_count++];
        open_table(part, relation_open(lfirst_oid(cell), NoLock), s->rel, o);
        part->number = s->part_count - 1;
        if (list_length(tables) > 1)
            set_part_name(part, psprintf("%s \"%s\"", part->rel->rd_rel->relispartition ? "partition" : "table",
                                     RelationGetRelationName(part->rel)));
        s->pages += part->pages;
    }
}

/* Open the table and its parts. Their locks last until the transaction's end. */
void corgi_open_source(CorgiSource *s, CorgiOptions *o)
{
    Relation rel = relation_open(o->source, AccessShareLock);
    if (pg_class_aclmask(o->source, GetUserId(), ACL_SELECT, ACLMASK_ALL) == 0 &&
        pg_attribute_aclcheck_all(o->source, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
        aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(rel->rd_rel->relkind), RelationGetRelationName(rel));
    open_table(s, rel, rel, o);
    check_privileges(s);
    if (o->query != NULL)
        set_part_name(s, "the query");
    corgi_open_encoding(s, o);
    s->lenient = o->missing == CORGI_MISSING_SKIP;
    open_parts(s, o);
    corgi_attach_encodings(s, s->encoding);
    s->block_pages = corgi_block_pages(s, o);
}

void corgi_close_source(CorgiSource *s)
{
    for (int i = 0; s->parts != s && i < s->part_count; i++)
        relation_close(s->parts[i].rel, NoLock);
    relation_close(s->rel, NoLock);
}

/* Advance a place past its part's end to the next part with pages. Returns false after the last. */
bool corgi_settle(const CorgiSource *s, CorgiPlace *place)
{
    for (; place->part < s->part_count; place->part++, place->page = 0)
        if (place->page < s->parts[place->part].pages)
            return true;
    return false;
}

/* Return the number of blocks, including those without rows. */
int64 corgi_max_blocks(const CorgiSource *s)
{
    int64 blocks = 0;
    for (int i = 0; i < s->part_count; i++)
        blocks += (s->parts[i].pages + s->block_pages - 1) / s->block_pages;
    return blocks;
}

/* Check that rows come from one place: a table with an optional condition, or a query. */
void corgi_check_rows(bool no_source, const char *query, const char *where)
{
    const char *problem = no_source && query == NULL       ? "source must not be NULL; name a table, or give a query"
                          : !no_source && query != NULL    ? "source and query both name rows; give one of them"
                          : where != NULL && query != NULL ? "where filters source; move the condition into query"
                                                           : NULL;
    if (problem != NULL)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s", problem));
}
