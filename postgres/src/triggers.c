/* Triggers that keep models consistent with the server's roles, on the table of models and on statements.
 * An owner is stored as a type that stands for the role, see roles.c. DROP OWNED first drops a role's models. The
 * server's dependencies also record which roles have rights on a model, as for its own objects. */
#include "compat.h"
#include "jobs.h"
#include "rights.h"

#include "access/genam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/trigger.h"
#include "commands/user.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(corgipile_guard_model);
PG_FUNCTION_INFO_V1(corgipile_note_roles);
PG_FUNCTION_INFO_V1(corgipile_follow_roles);

static const char *const lists[] = {"may_use", "may_read", "may_replace"};

typedef struct {
    char *name;
    int64 owner;            /* as in the row */
    CorgiHolders holders;
} Owned;

static Datum column_value(Relation rel, HeapTuple row, const char *name)
{
    bool null;
    Datum value = heap_getattr(row, SPI_fnumber(RelationGetDescr(rel), name), RelationGetDescr(rel), &null);
    if (null)
        ereport(ERROR, errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("%s must not be NULL", name));
    return value;
}

static Owned owned_at(Relation rel, HeapTuple row)
{
    Owned o = {.name = TextDatumGetCString(column_value(rel, row, "name")),
               .owner = DatumGetInt64(column_value(rel, row, "owner"))};
    o.holders = (CorgiHolders){.owner = corgi_resolve(o.owner),
                               .use = DatumGetArrayTypeP(column_value(rel, row, lists[0])),
                               .read = DatumGetArrayTypeP(column_value(rel, row, lists[1])),
                               .replace = DatumGetArrayTypeP(column_value(rel, row, lists[2]))};
    return o;
}

static bool same_lists(const Owned *a, const Owned *b)
{
    const ArrayType *x[] = {a->holders.use, a->holders.read, a->holders.replace};
    const ArrayType *y[] = {b->holders.use, b->holders.read, b->holders.replace};
    for (int i = 0; i < 3; i++)
        if (VARSIZE(x[i]) != VARSIZE(y[i]) || memcmp(x[i], y[i], VARSIZE(x[i])) != 0)
            return false;
    return true;
}

/* Check what policies cannot, because they do not see the old row: only the owner renames, grants or gives away a
 * model, and only to a role of which the caller is a member. */
static void check_update(Relation rel, const Owned *old, const Owned *new)
{
    bool reowned = old->holders.owner != new->holders.owner;
    if (GetUserId() == rel->rd_rel->relowner || (!reowned && strcmp(old->name, new->name) == 0 && same_lists(old, new)))
        return;
    corgi_check_right(CORGI_OWN, GetUserId(), &old->holders, old->name);
    if (reowned && new->holders.owner == CORGI_NOBODY)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("a role must exist to own model \"%s\"", new->name));
    if (reowned && !CORGI_MAY_BECOME(GetUserId(), new->holders.owner))
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("must be a member of role \"%s\" to give it model \"%s\"", corgi_role_name(new->holders.owner),
                       new->name));
}

/* Before a row is stored, replace its owner by the type that stands for the role. If a dump names a missing owner, the
 * restoring role owns the model. */
static HeapTuple store_owner(Relation rel, HeapTuple row, const Owned *new, bool inserting)
{
    Oid role = new->holders.owner;
    bool null = false;
    int at = SPI_fnumber(RelationGetDescr(rel), "owner");
    if (role == CORGI_NOBODY && inserting) {
        role = GetUserId();
        ereport(WARNING,
                errmsg("model \"%s\" has no existing owner; %s now owns it", new->name, corgi_role_name(role)));
    }
    if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
        return row;
    Datum owner = Int64GetDatum(CORGI_ROLE_TYPE | corgi_type_of(role));
    return heap_modify_tuple_by_cols(row, RelationGetDescr(rel), 1, &at, &owner, &null);
}

/* A NULL here would be an error for all who read the table. */
static void check_lists(const Owned *o)
{
    const ArrayType *lists_held[] = {o->holders.use, o->holders.read, o->holders.replace};
    for (int i = 0; i < lengthof(lists_held); i++)
        if (array_contains_nulls((ArrayType *) lists_held[i]))
            ereport(ERROR, errcode(ERRCODE_NOT_NULL_VIOLATION),
                    errmsg("%s of model \"%s\" must not hold a NULL", lists[i], o->name));
}

/* Return the data of a trigger call. Refuses other calls. */
static TriggerData *trigger_of(FunctionCallInfo fcinfo)
{
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("this function must be called by "
                                                                                  "a trigger"));
    return (TriggerData *) fcinfo->context;
}

Datum corgipile_guard_model(PG_FUNCTION_ARGS)
{
    TriggerData *t = trigger_of(fcinfo);
    Relation rel = t->tg_relation;
    Owned new;
    if (TRIGGER_FIRED_BY_INSERT(t->tg_event)) {
        new = owned_at(rel, t->tg_trigtuple);
        check_lists(&new);
        return PointerGetDatum(store_owner(rel, t->tg_trigtuple, &new, true));
    }
    Owned old = owned_at(rel, t->tg_trigtuple);
    new = owned_at(rel, t->tg_newtuple);
    check_lists(&new);
    check_update(rel, &old, &new);
    corgi_check_version(rel, t->tg_trigtuple, t->tg_newtuple, old.name);
    if (old.owner == new.owner && (new.owner & CORGI_ROLE_TYPE) != 0)
        return PointerGetDatum(t->tg_newtuple);
    return PointerGetDatum(store_owner(rel, t->tg_newtuple, &new, false));
}

static int by_oid(const void *a, const void *b)
{
    Oid x = *(const Oid *) a, y = *(const Oid *) b;
    return x < y ? -1 : x > y;
}

/* Collect the roles with rights on a model, sorted, without PUBLIC and missing roles. Returns their number. */
static int collect_roles(const CorgiHolders *h, Oid **roles)
{
    const ArrayType *lists_held[] = {h->use, h->read, h->replace};
    int count = 0, room = 0;
    for (int i = 0; i < 3; i++)
        room += ArrayGetNItems(ARR_NDIM(lists_held[i]), ARR_DIMS(lists_held[i]));
    *roles = palloc(sizeof **roles * (Size) room);
    for (int i = 0; i < 3; i++)
        for (int k = 0;
             k < ArrayGetNItems(ARR_NDIM(lists_held[i]), ARR_DIMS(lists_held[i])) && !ARR_HASNULL(lists_held[i]); k++)
            (*roles)[count++] = corgi_resolve(((const int64 *) ARR_DATA_PTR(lists_held[i]))[k]);
    for (int i = count; i-- > 0;)
        if ((*roles)[i] == ACL_ID_PUBLIC || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum((*roles)[i])))
            (*roles)[i] = (*roles)[--count];
    qsort(*roles, (size_t) count, sizeof **roles, by_oid);
    return (int) qunique(*roles, (size_t) count, sizeof **roles, by_oid);
}

/* Drop from `before` the roles that are absent in `after` but have rights on another model. Lists are sorted. */
static int drop_shared(Relation rel, const char *name, Oid *before, int count, const Oid *after, int count_after)
{
    SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, SnapshotSelf, 0, NULL);
    for (HeapTuple row; count > 0 && HeapTupleIsValid(row = systable_getnext(scan));) {
        Owned other = owned_at(rel, row);
        Oid *lists_held = NULL;
        int left = 0, count_held = strcmp(other.name, name) == 0 ? 0 : collect_roles(&other.holders, &lists_held);
        for (int i = 0; i < count; i++)
            if (count_held == 0 || !bsearch(&before[i], lists_held, (size_t) count_held, sizeof *lists_held, by_oid) ||
                bsearch(&before[i], after, (size_t) count_after, sizeof *after, by_oid))
                before[left++] = before[i];
        count = left;
    }
    systable_endscan(scan);
    return count;
}

/* Update the server's dependencies from the roles of `old` to those of `new`. A model is a part of the table's row
 * type. Before 17 it is the whole type: a role stays while any model names it, and a lock serialises changes. */
static void update_dependencies(Relation rel, const char *name, const Owned *old, const Owned *new)
{
    Oid *before = palloc(sizeof(Oid)), *after = palloc(sizeof(Oid));
    int count_before = old ? collect_roles(&old->holders, &before) : 0;
    int count_after = new ? collect_roles(&new->holders, &after) : 0;
    int32 part = CORGI_TYPES_HAVE_PARTS ? corgi_name_number(name) : 0;
    bool same = count_before == count_after && memcmp(before, after, sizeof *after * (Size) count_after) == 0;
    if (!CORGI_TYPES_HAVE_PARTS && !same) {
        LOCKTAG tag;
        SET_LOCKTAG_OBJECT(tag, MyDatabaseId, corgi_models_table(), InvalidOid, 2);
        (void) LockAcquire(&tag, ExclusiveLock, false, false);
        CommandCounterIncrement(); /* an earlier row of the same statement may have removed the role */
        count_before = drop_shared(rel, name, before, count_before, after, count_after);
    }
    updateAclDependencies(TypeRelationId, rel->rd_rel->reltype, part, InvalidOid, count_before, before, count_after,
                          after);
}

/* After a row is inserted, updated or deleted. */
Datum corgipile_note_roles(PG_FUNCTION_ARGS)
{
    TriggerData *t = trigger_of(fcinfo);
    Relation rel = t->tg_relation;
    bool update = TRIGGER_FIRED_BY_UPDATE(t->tg_event);
    Owned first = owned_at(rel, t->tg_trigtuple), new = first;
    if (update)
        new = owned_at(rel, t->tg_newtuple);
    if (TRIGGER_FIRED_BY_INSERT(t->tg_event))
        update_dependencies(rel, first.name, NULL, &first);
    else if (!update)
        update_dependencies(rel, first.name, &first, NULL);
    else if (!CORGI_TYPES_HAVE_PARTS || strcmp(first.name, new.name) == 0)
        update_dependencies(rel, new.name, &first, &new);
    else {
        update_dependencies(rel, first.name, &first, NULL);
        update_dependencies(rel, new.name, NULL, &new);
    }
    return PointerGetDatum(NULL);
}

/* Return whether a statement drops this extension. */
static bool drops_extension(const Node *command)
{
    ListCell *cell;
    if (!IsA(command, DropStmt) || ((const DropStmt *) command)->removeType != OBJECT_EXTENSION)
        return false;
    foreach (cell, ((const DropStmt *) command)->objects)
        if (strcmp(strVal(lfirst(cell)), "corgipile") == 0)
            return true;
    return false;
}

/* Return whether the caller is the owner of the model tables, or a member of it. */
static bool may_drop_all(void)
{
    CorgiCaller caller = corgi_become_owner();
    Oid owner = GetUserId();
    corgi_become_caller(caller);
    return has_privs_of_role(GetUserId(), owner);
}

/* Return the names of the types that a statement alters or drops. */
static List *changed_types(const Node *command)
{
    const Node *name = NULL;
    switch ((int) nodeTag(command)) {
    case T_DropStmt:
        if (((const DropStmt *) command)->removeType == OBJECT_EXTENSION)
            return NIL;
        return ((const DropStmt *) command)->objects;
    case T_AlterDomainStmt: name = (const Node *) ((const AlterDomainStmt *) command)->typeName; break;
    case T_RenameStmt: name = ((const RenameStmt *) command)->object; break;
    case T_AlterOwnerStmt: name = ((const AlterOwnerStmt *) command)->object; break;
    case T_AlterObjectSchemaStmt: name = ((const AlterObjectSchemaStmt *) command)->object; break;
    }
    return name == NULL ? NIL : list_make1(makeTypeNameFromNameList((List *) name));
}

/* Refuse changes of a role's type by the role itself, which owns it: a new name or constraint would reach other roles
 * through the extension's schema, and without the type models would lose their owner. */
static void guard_types(const Node *command)
{
    ListCell *cell;
    foreach (cell, changed_types(command)) {
        const TypeName *name = lfirst_node(TypeName, cell);
        if (corgi_is_role_type(LookupTypeNameOid(NULL, name, true)) && !may_drop_all())
            ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("type %s must stay as it is: models belong to its owner", TypeNameToString(name)),
                    errhint("DELETE models, or UPDATE corgipile.models SET owner, in its place."));
    }
}

static void change_models(const char *query, Oid role)
{
    const char *name = GetUserNameFromId(role, false);
    CorgiCaller caller = corgi_open_tables();
    (void) corgi_execute_for(query, name, false);
    corgi_close_tables(caller);
}

static const char *const drop_query =
    "DELETE FROM corgipile.models WHERE owner::pg_catalog.text operator(pg_catalog.=) $1";
#define WITHOUT(list) \
    "ARRAY(SELECT r FROM pg_catalog.unnest(" list ") r WHERE r::pg_catalog.text operator(pg_catalog.<>) $1)"
static const char *const revoke_query =
    "UPDATE corgipile.models SET may_use = " WITHOUT("may_use") ", may_read = " WITHOUT("may_read") ", "
    "may_replace = " WITHOUT("may_replace") " WHERE EXISTS (SELECT FROM pg_catalog.unnest(may_use "
    "operator(pg_catalog.||) may_read operator(pg_catalog.||) may_replace) r WHERE r::pg_catalog.text "
    "operator(pg_catalog.=) $1)";

/* Before types change, refuse changes of role types. Before DROP EXTENSION, include all role types and end jobs. Before
 * DROP OWNED, drop the roles' models and their rights on others, if the caller may; otherwise the command itself raises
 * the error. */
Datum corgipile_follow_roles(PG_FUNCTION_ARGS)
{
    const EventTriggerData *data = (const EventTriggerData *) fcinfo->context;
    ListCell *cell;
    if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
                errmsg("this function must be called by an event trigger"));
    if (drops_extension(data->parsetree)) {
        corgi_restore_type_dependencies();
        if (may_drop_all())
            corgi_end_workers(); /* their sessions would block dropping the tables */
    }
    guard_types(data->parsetree);
    if (!IsA(data->parsetree, DropOwnedStmt))
        PG_RETURN_NULL();
    foreach (cell, roleSpecsToIds(((DropOwnedStmt *) data->parsetree)->roles)) {
        Oid role = lfirst_oid(cell);
        if (!has_privs_of_role(GetUserId(), role))
            continue;
        corgi_lock_types(role);
        change_models(drop_query, role);
        change_models(revoke_query, role);
    }
    PG_RETURN_NULL();
}
