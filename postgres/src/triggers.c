/* What keeps models and the roles of the server in step: the triggers of the table of models, and that of statements.
 *
 * An owner becomes a type that stands for the role, see roles.c. DROP OWNED drops the models of a role first. The server
 * also knows which roles hold rights on a model, as it does of the privileges of its own objects. */
#include "rights.h"
#include "jobs.h"

#include "access/genam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
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

static Datum column(Relation rel, HeapTuple row, const char *name)
{
    bool null;
    Datum value = heap_getattr(row, SPI_fnumber(RelationGetDescr(rel), name), RelationGetDescr(rel), &null);
    if (null)
        ereport(ERROR, errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("%s must not be NULL", name));
    return value;
}

static Owned owned_at(Relation rel, HeapTuple row)
{
    Owned o = {.name = TextDatumGetCString(column(rel, row, "name")),
               .owner = DatumGetInt64(column(rel, row, "owner"))};
    o.holders = (CorgiHolders){.owner = corgi_resolve(o.owner),
                               .use = DatumGetArrayTypeP(column(rel, row, lists[0])),
                               .read = DatumGetArrayTypeP(column(rel, row, lists[1])),
                               .replace = DatumGetArrayTypeP(column(rel, row, lists[2]))};
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

/* Refuse what policies cannot, for they do not see the row as it was: that another than the owner renames the model,
 * gives it away or grants it, and that it is given to a role the giver is no member of. */
static void check_update(Relation rel, const Owned *old, const Owned *new)
{
    bool given = old->holders.owner != new->holders.owner;
    if (GetUserId() == rel->rd_rel->relowner || (!given && strcmp(old->name, new->name) == 0 && same_lists(old, new)))
        return;
    corgi_check_right(CORGI_OWN, GetUserId(), &old->holders, old->name);
    if (given && new->holders.owner == CORGI_NOBODY)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no such role to own model \"%s\"", new->name));
    if (given && !CORGI_MAY_BECOME(GetUserId(), new->holders.owner))
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("must be a member of role \"%s\" to give it model \"%s\"", corgi_role_name(new->holders.owner), new->name));
}

/* Before a row comes in: its owner becomes a type that stands for the role. Where a dump names an owner that is not
 * here, the model is the restoring role's. */
static HeapTuple settle_owner(Relation rel, HeapTuple row, const Owned *new, bool comes_in)
{
    Oid role = new->holders.owner;
    Datum owner;
    bool null = false;
    int at = SPI_fnumber(RelationGetDescr(rel), "owner");
    if (role == CORGI_NOBODY && comes_in) {
        role = GetUserId();
        ereport(WARNING, errmsg("model \"%s\" has no owner here; it becomes %s's", new->name, corgi_role_name(role)));
    }
    if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
        return row;
    owner = Int64GetDatum(CORGI_STANDS | corgi_type_of(role));
    return heap_modify_tuple_by_cols(row, RelationGetDescr(rel), 1, &at, &owner, &null);
}

/* One such list would be an error to all who look at the table. */
static void check_lists(const Owned *o)
{
    const ArrayType *held[] = {o->holders.use, o->holders.read, o->holders.replace};
    for (int i = 0; i < lengthof(held); i++)
        if (array_contains_nulls((ArrayType *) held[i]))
            ereport(ERROR, errcode(ERRCODE_NOT_NULL_VIOLATION),
                    errmsg("%s of model \"%s\" must not hold a NULL", lists[i], o->name));
}

/* Return what a trigger is called with; refuse other calls. */
TriggerData *corgi_trigger_of(FunctionCallInfo fcinfo)
{
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("this is a trigger's function"));
    return (TriggerData *) fcinfo->context;
}

Datum corgipile_guard_model(PG_FUNCTION_ARGS)
{
    TriggerData *t = corgi_trigger_of(fcinfo);
    Relation rel = t->tg_relation;
    Owned old, new;
    if (TRIGGER_FIRED_BY_INSERT(t->tg_event)) {
        new = owned_at(rel, t->tg_trigtuple);
        check_lists(&new);
        return PointerGetDatum(settle_owner(rel, t->tg_trigtuple, &new, true));
    }
    old = owned_at(rel, t->tg_trigtuple);
    new = owned_at(rel, t->tg_newtuple);
    check_lists(&new);
    check_update(rel, &old, &new);
    if (old.owner == new.owner && (new.owner & CORGI_STANDS) != 0)
        return PointerGetDatum(t->tg_newtuple);
    return PointerGetDatum(settle_owner(rel, t->tg_newtuple, &new, false));
}

static int by_oid(const void *a, const void *b)
{
    Oid x = *(const Oid *) a, y = *(const Oid *) b;
    return x < y ? -1 : x > y;
}

/* Make a sorted list of the roles with rights on a model, without PUBLIC and those that are gone. Returns how many. */
static int roles_of(const CorgiHolders *h, Oid **roles)
{
    const ArrayType *held[] = {h->use, h->read, h->replace};
    int count = 0, room = 0;
    for (int i = 0; i < 3; i++)
        room += ArrayGetNItems(ARR_NDIM(held[i]), ARR_DIMS(held[i]));
    *roles = palloc(sizeof **roles * (Size) room);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < ArrayGetNItems(ARR_NDIM(held[i]), ARR_DIMS(held[i])) && !ARR_HASNULL(held[i]); k++)
            (*roles)[count++] = corgi_resolve(((const int64 *) ARR_DATA_PTR(held[i]))[k]);
    for (int i = count; i-- > 0;)
        if ((*roles)[i] == ACL_ID_PUBLIC || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum((*roles)[i])))
            (*roles)[i] = (*roles)[--count];
    qsort(*roles, (size_t) count, sizeof **roles, by_oid);
    return (int) qunique(*roles, (size_t) count, sizeof **roles, by_oid);
}

/* Of sorted lists of roles: drop from `before` what is not in `after` but has rights on a model of another name. */
static int without_shared(Relation rel, const char *name, Oid *before, int count, const Oid *after, int count_after)
{
    SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, SnapshotSelf, 0, NULL);
    for (HeapTuple row; count > 0 && HeapTupleIsValid(row = systable_getnext(scan));) {
        Owned other = owned_at(rel, row);
        Oid *held = NULL;
        int kept = 0, count_held = strcmp(other.name, name) == 0 ? 0 : roles_of(&other.holders, &held);
        for (int i = 0; i < count; i++)
            if (count_held == 0 || !bsearch(&before[i], held, (size_t) count_held, sizeof *held, by_oid) ||
                bsearch(&before[i], after, (size_t) count_after, sizeof *after, by_oid))
                before[kept++] = before[i];
        count = kept;
    }
    systable_endscan(scan);
    return count;
}

/* Tell the server that the roles of `new` are needed and those of `old` no longer. The models of a table stand for
 * parts of its row type; where types have none, for the whole of it: a role is needed as long as one model names it,
 * and those who change that wait for each other. */
static void depend(Relation rel, const char *name, const Owned *old, const Owned *new)
{
    Oid *before = palloc(sizeof(Oid)), *after = palloc(sizeof(Oid));
    int count_before = old ? roles_of(&old->holders, &before) : 0;
    int count_after = new ? roles_of(&new->holders, &after) : 0;
    int32 part = CORGI_TYPES_HAVE_PARTS ? corgi_name_number(name) : 0;
    bool same = count_before == count_after && memcmp(before, after, sizeof *after * (Size) count_after) == 0;
    if (!CORGI_TYPES_HAVE_PARTS && !same) {
        LOCKTAG tag;
        SET_LOCKTAG_OBJECT(tag, MyDatabaseId, corgi_models_table(), InvalidOid, 2);
        (void) LockAcquire(&tag, ExclusiveLock, false, false);
        CommandCounterIncrement(); /* of one statement's rows, the one before may have taken the same role back */
        count_before = without_shared(rel, name, before, count_before, after, count_after);
    }
    updateAclDependencies(TypeRelationId, rel->rd_rel->reltype, part, InvalidOid, count_before, before, count_after,
                          after);
}

/* After a row came in, changed, or went. */
Datum corgipile_note_roles(PG_FUNCTION_ARGS)
{
    TriggerData *t = corgi_trigger_of(fcinfo);
    Relation rel = t->tg_relation;
    bool update = TRIGGER_FIRED_BY_UPDATE(t->tg_event);
    Owned first = owned_at(rel, t->tg_trigtuple), new = first;
    if (update)
        new = owned_at(rel, t->tg_newtuple);
    if (TRIGGER_FIRED_BY_INSERT(t->tg_event))
        depend(rel, first.name, NULL, &first);
    else if (!update)
        depend(rel, first.name, &first, NULL);
    else if (!CORGI_TYPES_HAVE_PARTS || strcmp(first.name, new.name) == 0)
        depend(rel, new.name, &first, &new);
    else {
        depend(rel, first.name, &first, NULL);
        depend(rel, new.name, NULL, &new);
    }
    return PointerGetDatum(NULL);
}

/* Whether a statement drops our extension. */
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

/* Returns whether the caller is the owner of the model tables, or a member of it. */
static bool may_all(void)
{
    CorgiCaller caller = corgi_become_owner();
    Oid owner = GetUserId();
    corgi_become_caller(caller);
    return has_privs_of_role(GetUserId(), owner);
}

/* Returns the names of the types that a statement alters or drops. */
static List *changed_types(const Node *command)
{
    const Node *name = NULL;
    switch ((int) nodeTag(command)) {
    case T_DropStmt:
        return ((const DropStmt *) command)->removeType == OBJECT_EXTENSION ? NIL : ((const DropStmt *) command)->objects;
    case T_AlterDomainStmt: name = (const Node *) ((const AlterDomainStmt *) command)->typeName; break;
    case T_RenameStmt: name = ((const RenameStmt *) command)->object; break;
    case T_AlterOwnerStmt: name = ((const AlterOwnerStmt *) command)->object; break;
    case T_AlterObjectSchemaStmt: name = ((const AlterObjectSchemaStmt *) command)->object; break;
    }
    return name == NULL ? NIL : list_make1(makeTypeNameFromNameList((List *) name));
}

/* Refuses changes of a type that stands for a role to the role itself, which owns it: a new name or constraint would
 * reach other roles through our schema, and models would lose their owner with the type. */
static void guard_types(const Node *command)
{
    ListCell *cell;
    foreach (cell, changed_types(command))
        if (corgi_is_tied(LookupTypeNameOid(NULL, lfirst_node(TypeName, cell), true)) && !may_all())
            ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("type %s must stay as it is: models belong to its owner", TypeNameToString(lfirst_node(TypeName, cell))),
                    errhint("DELETE models, or UPDATE corgipile.models SET owner, in its place."));
}

static void change(const char *query, Oid role)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(GetUserNameFromId(role, false))};
    CorgiCaller caller = corgi_become_owner();
    SPI_connect();
    if (SPI_execute_with_args(query, lengthof(types), types, values, NULL, false, 0) < 0)
        elog(ERROR, "changing corgipile.models failed");
    SPI_finish();
    corgi_become_caller(caller);
}

static const char *const drop_owned =
    "DELETE FROM corgipile.models WHERE owner::pg_catalog.text operator(pg_catalog.=) $1";
#define WITHOUT(list) \
    "ARRAY(SELECT r FROM pg_catalog.unnest(" list ") r WHERE r::pg_catalog.text operator(pg_catalog.<>) $1)"
static const char *const take_back =
    "UPDATE corgipile.models SET may_use = " WITHOUT("may_use") ", may_read = " WITHOUT("may_read") ", "
    "may_replace = " WITHOUT("may_replace") " WHERE EXISTS (SELECT FROM pg_catalog.unnest(may_use "
    "operator(pg_catalog.||) may_read operator(pg_catalog.||) may_replace) r WHERE r::pg_catalog.text "
    "operator(pg_catalog.=) $1)";

/* Before types change: those that stand for roles are refused. Before DROP EXTENSION: all that is made for models goes
 * too, and jobs end. Before DROP OWNED: where the caller may do that, the models go, and the rights on others. Where
 * not, the command itself will say so. */
Datum corgipile_follow_roles(PG_FUNCTION_ARGS)
{
    const EventTriggerData *data = (const EventTriggerData *) fcinfo->context;
    ListCell *cell;
    if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
                errmsg("this is an event trigger's function"));
    if (drops_extension(data->parsetree)) {
        corgi_tie_types();
        if (may_all())
            corgi_end_workers(); /* they would keep the tables */
    }
    guard_types(data->parsetree);
    if (!IsA(data->parsetree, DropOwnedStmt))
        PG_RETURN_NULL();
    foreach (cell, roleSpecsToIds(((DropOwnedStmt *) data->parsetree)->roles)) {
        Oid role = lfirst_oid(cell);
        if (!has_privs_of_role(GetUserId(), role))
            continue;
        corgi_lock_types(role);
        change(drop_owned, role);
        change(take_back, role);
    }
    PG_RETURN_NULL();
}
