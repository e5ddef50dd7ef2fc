/* Rights on models.
 * A model has an owner and lists of roles that may use, read and replace it. The library accesses the model tables as
 * their owner, past row security, so it checks rights here first. Policies apply the same rules to direct statements by
 * corgipile.may. */
#include "rights.h"

#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(corgipile_may);

static const char *const rights[] = {"use", "read", "replace", "own"};

/* Refuse functions that another version of the extension created. */
void corgi_refuse_version(void)
{
    ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
            errmsg("corgipile's functions and tables in this database must have its library's version"),
            errhint("Run ALTER EXTENSION corgipile UPDATE in this database, and connect again."));
}

/* Refuse a role without a privilege on the table of models. */
void corgi_check_models(AclMode mode, Oid user)
{
    AclResult may = pg_class_aclcheck(corgi_models_table(), user, mode);
    if (may != ACLCHECK_OK)
        aclcheck_error(may, OBJECT_TABLE, "models");
}

static bool is_listed(Oid user, const ArrayType *roles)
{
    const int64 *role = (const int64 *) ARR_DATA_PTR(roles);
    int count = ARR_HASNULL(roles) ? 0 : ArrayGetNItems(ARR_NDIM(roles), ARR_DIMS(roles));
    for (int i = 0; i < count; i++)
        if (role[i] == ACL_ID_PUBLIC || has_privs_of_role(user, corgi_resolve(role[i])))
            return true;
    return false;
}

/* Return whether a role has a right. Members of the owner have all; read implies use. Only superusers are members of a
 * missing role. */
bool corgi_may(CorgiRight right, Oid user, const CorgiHolders *h)
{
    if (has_privs_of_role(user, h->owner))
        return true;
    switch (right) {
    case CORGI_USE: return is_listed(user, h->use) || is_listed(user, h->read);
    case CORGI_READ: return is_listed(user, h->read);
    case CORGI_REPLACE: return is_listed(user, h->replace);
    case CORGI_OWN: break;
    }
    return false;
}

/* Read the holders from a result row that has CORGI_HOLDERS from a column on. */
CorgiHolders corgi_holders_at(HeapTuple row, TupleDesc columns, int from)
{
    bool null;
    CorgiHolders h = {.owner = corgi_resolve(DatumGetInt64(heap_getattr(row, from, columns, &null)))};
    h.use = DatumGetArrayTypeP(heap_getattr(row, from + 1, columns, &null));
    h.read = DatumGetArrayTypeP(heap_getattr(row, from + 2, columns, &null));
    h.replace = DatumGetArrayTypeP(heap_getattr(row, from + 3, columns, &null));
    return h;
}

void corgi_check_right(CorgiRight right, Oid user, const CorgiHolders *h, const char *name)
{
    if (!corgi_may(right, user, h))
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for model \"%s\"", name),
                right == CORGI_OWN ? errhint("Only members of its owner may do this.")
                                   : errhint("Its owner grants it: SELECT corgipile.grant_model(%s, %s, '%s').",
                                             quote_literal_cstr(name),
                                             quote_literal_cstr(GetUserNameFromId(user, false)), rights[right]));
}

/* may(privilege, owner, may_use, may_read, may_replace), for the caller; a role before the owner replaces the
 * caller. */
Datum corgipile_may(PG_FUNCTION_ARGS)
{
    int at = PG_NARGS() == 6 ? 2 : 1;
    Oid user = at == 2 ? corgi_resolve(PG_GETARG_INT64(1)) : GetUserId();
    char *privilege = text_to_cstring(PG_GETARG_TEXT_PP(0));
    CorgiHolders h = {.owner = corgi_resolve(PG_GETARG_INT64(at)), .use = PG_GETARG_ARRAYTYPE_P(at + 1),
                      .read = PG_GETARG_ARRAYTYPE_P(at + 2), .replace = PG_GETARG_ARRAYTYPE_P(at + 3)};
    for (int i = 0; i < lengthof(rights); i++)
        if (strcmp(privilege, rights[i]) == 0)
            PG_RETURN_BOOL(corgi_may((CorgiRight) i, user, &h));
    ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
            errmsg("privilege must be use, read, replace or own, got \"%s\"", privilege));
    PG_RETURN_NULL();
}

/* Return a positive number for a name. */
int32 corgi_name_number(const char *name)
{
    return (int32) (hash_bytes((const unsigned char *) name, (int) strlen(name)) >> 1) | 1;
}

/* Lock a model's name until the transaction ends. Waits for another holder. */
void corgi_lock_name(const char *name)
{
    LOCKTAG tag;
    SET_LOCKTAG_OBJECT(tag, MyDatabaseId, corgi_models_table(), (Oid) corgi_name_number(name), 0);
    if (LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
        return;
    ereport(NOTICE, errmsg("waiting for another transaction that stores model \"%s\"", name));
    (void) LockAcquire(&tag, ExclusiveLock, false, false);
}
