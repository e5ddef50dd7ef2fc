/* Roles as column values, and types that stand for them.
 * A model stays with a renamed role, and a dump holds role names: a column of type corgipile.role stores numbers and
 * shows names. Each role that owns models has a type in the extension's schema, owned by the role, which stands for it.
 * The server then treats models like its own objects: REASSIGN OWNED moves the type, and its models, to another role,
 * and DROP ROLE is refused. */
#include "compat.h"
#include "rights.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/typecmds.h"
#include "fmgr.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define PREFIX "models_of_"

PG_FUNCTION_INFO_V1(corgipile_role_in);
PG_FUNCTION_INFO_V1(corgipile_role_out);
PG_FUNCTION_INFO_V1(corgipile_role_receive);
PG_FUNCTION_INFO_V1(corgipile_role_send);

/* Return the role that a value denotes. */
Oid corgi_resolve(int64 role)
{
    Oid owner = CORGI_NOBODY;
    if ((role & CORGI_ROLE_TYPE) == 0)
        return (Oid) role;
    HeapTuple type = SearchSysCache1(TYPEOID, ObjectIdGetDatum((Oid) role));
    if (HeapTupleIsValid(type)) {
        owner = ((Form_pg_type) GETSTRUCT(type))->typowner;
        ReleaseSysCache(type);
    }
    return owner;
}

/* No role can be named "public" or "none". */
static int64 role_of(const char *name)
{
    if (strcmp(name, "public") == 0)
        return ACL_ID_PUBLIC;
    if (strcmp(name, "none") == 0)
        return CORGI_NOBODY;
    Oid role = get_role_oid(name, true);
    if (OidIsValid(role))
        return role;
    ereport(WARNING, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("role \"%s\" does not exist", name));
    return CORGI_NOBODY;
}

char *corgi_role_name(int64 value)
{
    Oid role = corgi_resolve(value);
    char *name = role == CORGI_NOBODY ? NULL : GetUserNameFromId(role, true);
    return role == ACL_ID_PUBLIC ? pstrdup("public") : name == NULL ? pstrdup("none") : name;
}

Datum corgipile_role_in(PG_FUNCTION_ARGS) { PG_RETURN_INT64(role_of(PG_GETARG_CSTRING(0))); }

Datum corgipile_role_out(PG_FUNCTION_ARGS) { PG_RETURN_CSTRING(corgi_role_name(PG_GETARG_INT64(0))); }

Datum corgipile_role_receive(PG_FUNCTION_ARGS)
{
    StringInfo message = (StringInfo) PG_GETARG_POINTER(0);
    int bytes;
    PG_RETURN_INT64(role_of(pq_getmsgtext(message, message->len - message->cursor, &bytes)));
}

Datum corgipile_role_send(PG_FUNCTION_ARGS)
{
    StringInfoData message;
    char *name = corgi_role_name(PG_GETARG_INT64(0));
    pq_begintypsend(&message);
    pq_sendtext(&message, name, (int) strlen(name));
    PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

/* Return whether a type represents a role: it depends on the table of models. */
bool corgi_is_role_type(Oid type)
{
    ScanKeyData keys[2];
    bool found = false;
    Relation depend = table_open(DependRelationId, AccessShareLock);
    HeapTuple tuple;
    ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(TypeRelationId));
    ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(type));
    SysScanDesc scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, lengthof(keys), keys);
    while (HeapTupleIsValid(tuple = systable_getnext(scan))) {
        Form_pg_depend d = (Form_pg_depend) GETSTRUCT(tuple);
        found |= d->refclassid == RelationRelationId && d->refobjid == corgi_models_table();
    }
    systable_endscan(scan);
    table_close(depend, AccessShareLock);
    return found;
}

/* Make a type dependent on the table of models. As a member of the extension it could not change owners. */
static void add_dependency(Oid type)
{
    ObjectAddress part = {TypeRelationId, type, 0}, whole = {RelationRelationId, corgi_models_table(), 0};
    if (!corgi_is_role_type(type))
        recordDependencyOn(&part, &whole, DEPENDENCY_AUTO);
}

/* List the types in our schema that belong to a role; InvalidOid: to any role. */
static List *types_of(Oid role)
{
    ScanKeyData keys[3];
    List *found = NIL;
    Relation types = table_open(TypeRelationId, AccessShareLock);
    HeapTuple tuple;
    ScanKeyInit(&keys[0], Anum_pg_type_typnamespace, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(get_rel_namespace(corgi_models_table())));
    ScanKeyInit(&keys[1], Anum_pg_type_typtype, BTEqualStrategyNumber, F_CHAREQ, CharGetDatum(TYPTYPE_DOMAIN));
    ScanKeyInit(&keys[2], Anum_pg_type_typowner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
    SysScanDesc scan = systable_beginscan(types, InvalidOid, false, NULL, OidIsValid(role) ? 3 : 2, keys);
    while (HeapTupleIsValid(tuple = systable_getnext(scan))) {
        Form_pg_type type = (Form_pg_type) GETSTRUCT(tuple);
        if (strncmp(NameStr(type->typname), PREFIX, strlen(PREFIX)) == 0)
            found = lappend_oid(found, type->oid);
    }
    systable_endscan(scan);
    table_close(types, AccessShareLock);
    return found;
}

/* Restore the dependencies of all types, which a dump lacks. */
void corgi_restore_type_dependencies(void)
{
    ListCell *cell;
    foreach (cell, types_of(InvalidOid))
        add_dependency(lfirst_oid(cell));
}

/* Lock a role's types until the transaction ends, after waiting for those who store its models. */
void corgi_lock_types(Oid role)
{
    ListCell *cell;
    foreach (cell, types_of(role))
        LockDatabaseObject(TypeRelationId, lfirst_oid(cell), 0, AccessExclusiveLock);
}

/* Create a type that stands for a role. Fires no event trigger, which would run as the owner. */
static void make_type_of(Oid role)
{
    CorgiCaller caller = corgi_become_owner();
    bool in_script = creating_extension;
    Oid schema = get_rel_namespace(corgi_models_table());
    CreateDomainStmt *domain = makeNode(CreateDomainStmt);
    char *name;
    for (int i = 0;; i++) {
        name = psprintf(PREFIX "%u_%d", role, i);
        if (!SearchSysCacheExists2(TYPENAMENSP, PointerGetDatum(name), ObjectIdGetDatum(schema)))
            break;
    }
    creating_extension = false; /* otherwise the type would be a member of the extension */
    domain->domainname = list_make2(makeString("corgipile"), makeString(name));
    domain->typeName = makeTypeNameFromNameList(list_make2(makeString("corgipile"), makeString("role")));
    CORGI_DEFINE_DOMAIN(domain);
    CommandCounterIncrement();
    AlterTypeOwner(domain->domainname, role, OBJECT_DOMAIN);
    CommandCounterIncrement();
    creating_extension = in_script;
    corgi_become_caller(caller);
}

/* Return a type that stands for a role; creates it if necessary. */
static Oid find_type(Oid role)
{
    LOCKTAG tag;
    List *found = types_of(role);
    if (found == NIL) {
        SET_LOCKTAG_OBJECT(tag, MyDatabaseId, corgi_models_table(), role, 1);
        (void) LockAcquire(&tag, ExclusiveLock, false, false);
        found = types_of(role); /* another session may just have created it */
    }
    if (found == NIL) {
        make_type_of(role);
        found = types_of(role);
    }
    if (found == NIL)
        elog(ERROR, "the type of a role that owns models no longer exists");
    add_dependency(linitial_oid(found));
    return linitial_oid(found);
}

/* Return the type that stands for a role, locked until the transaction ends. */
Oid corgi_type_of(Oid role)
{
    static Oid last = InvalidOid;
    for (;;) {
        if (corgi_resolve(CORGI_ROLE_TYPE | last) != role)
            last = find_type(role);
        LockDatabaseObject(TypeRelationId, last, 0, AccessShareLock);
        if (corgi_resolve(CORGI_ROLE_TYPE | last) == role)
            return last;
        UnlockDatabaseObject(TypeRelationId, last, 0, AccessShareLock); /* it was dropped meanwhile */
    }
}
