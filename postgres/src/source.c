/* Opens the table to learn from: what kind of relation it is, who may read it, which columns serve. */
#include "corgipile.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"

static const char *kind_of(char relkind)
{
    switch (relkind) {
    case RELKIND_VIEW: return "a view";
    case RELKIND_FOREIGN_TABLE: return "a foreign table";
    case RELKIND_PARTITIONED_TABLE: return "a partitioned table";
    case RELKIND_INDEX: return "an index";
    case RELKIND_SEQUENCE: return "a sequence";
    default: return "not a table";
    }
}

static void check_kind(Relation rel)
{
    char kind = rel->rd_rel->relkind;
    const char *name = RelationGetRelationName(rel);
    if (kind != RELKIND_RELATION && kind != RELKIND_MATVIEW)
        ereport(
            ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
            errmsg("\"%s\" is %s; a table or materialized view is needed", name, kind_of(kind)),
            errhint("Make one of its rows: CREATE MATERIALIZED VIEW m AS SELECT * FROM %s.", quote_identifier(name)));
    if (find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("table \"%s\" has child tables", name),
                errhint("Train on one of them, or on a materialized view of all."));
    if (rel->rd_tableam->scan_set_tidrange == NULL)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("the access method of table \"%s\" cannot scan a range of pages", name));
    if (RELATION_IS_OTHER_TEMP(rel))
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("\"%s\" is a temporary table of another session", name));
    if (check_enable_rls(RelationGetRelid(rel), InvalidOid, false) == RLS_ENABLED)
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("row-level security applies to you on table \"%s\"", name),
                errhint("Train on a table that you make of the rows you may see."));
}

/* Find a column. Its type must be a number, or an array of numbers if `lists`. */
static CorgiColumn find_column(Relation rel, const char *name, bool lists, const char *what)
{
    CorgiColumn c = {.name = name, .attnum = get_attnum(RelationGetRelid(rel), name)};
    Form_pg_attribute a;
    Oid item;
    if (c.attnum <= 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
                errmsg("table \"%s\" has no column \"%s\"", RelationGetRelationName(rel), name));
    a = TupleDescAttr(RelationGetDescr(rel), c.attnum - 1);
    item = get_element_type(getBaseType(a->atttypid));
    c.list = OidIsValid(item);
    c.type = getBaseType(c.list ? item : a->atttypid);
    if (!corgi_is_number(c.type) || (c.list && !lists))
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("%s column \"%s\" is %s; %s", what, name, format_type_be(a->atttypid),
                       lists ? "numbers, or an array such as real[], double precision[] or integer[], are needed"
                             : "a number or boolean is needed"));
    if (CORGI_IS_VIRTUAL(a))
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("column \"%s\" is a virtual generated column", name), errhint("Make it STORED."));
    return c;
}

static void check_privileges(const CorgiSource *s)
{
    Oid table = RelationGetRelid(s->rel), user = GetUserId();
    if (pg_class_aclcheck(table, user, ACL_SELECT) == ACLCHECK_OK)
        return;
    for (int i = -1; i < s->feature_columns; i++) {
        const CorgiColumn *c = i < 0 ? &s->label : &s->features[i];
        if (pg_attribute_aclcheck(table, c->attnum, user, ACL_SELECT) != ACLCHECK_OK)
            aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(s->rel->rd_rel->relkind),
                           RelationGetRelationName(s->rel));
    }
}

static void find_features(CorgiSource *s, const CorgiOptions *o)
{
    ListCell *cell;
    s->features = palloc0(sizeof(CorgiColumn) * list_length(o->features));
    s->bytes = sizeof(float);
    foreach (cell, o->features) {
        CorgiColumn c = find_column(s->rel, lfirst(cell), true, "feature");
        if (c.list && list_length(o->features) > 1)
            ereport(
                ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("feature column \"%s\" is an array; give it alone, or a list of columns of numbers", c.name));
        if (c.attnum == s->label.attnum)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("column \"%s\" is the label; it cannot be a feature too", c.name));
        if (c.type == FLOAT8OID || c.type == NUMERICOID)
            s->bytes = sizeof(double);
        s->last = Max(s->last, c.attnum);
        s->features[s->feature_columns++] = c;
    }
}

/* Open the table and keep its lock to the end of the transaction. */
void corgi_open_source(CorgiSource *s, const CorgiOptions *o)
{
    memset(s, 0, sizeof *s);
    s->rel = relation_open(o->source, AccessShareLock);
    s->label.attnum = InvalidAttrNumber;
    if (pg_class_aclmask(o->source, GetUserId(), ACL_SELECT, ACLMASK_ALL) == 0 &&
        pg_attribute_aclcheck_all(o->source, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
        aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(s->rel->rd_rel->relkind), RelationGetRelationName(s->rel));
    check_kind(s->rel);
    s->label = find_column(s->rel, o->label, false, "label");
    s->last = s->label.attnum;
    find_features(s, o);
    check_privileges(s);
    s->pages = RelationGetNumberOfBlocks(s->rel);
    s->block_pages = corgi_block_pages(s->rel, s->pages, o);
}
