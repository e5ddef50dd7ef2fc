/* Rights on models, and the tables that hold them. */
#pragma once

#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/rel.h"

/* A value of type corgipile.role: the oid of a role; PUBLIC is 0, nobody an unused oid. With the bit above, the oid of
 * a type whose owner is meant, see roles.c. */
#define CORGI_NOBODY ((Oid) 0xFFFFFFFF)
#define CORGI_ROLE_TYPE ((int64) 1 << 32)

typedef enum { CORGI_USE, CORGI_READ, CORGI_REPLACE, CORGI_OWN } CorgiRight;

typedef struct {
    Oid owner;
    ArrayType *use, *read, *replace;
} CorgiHolders;
#define CORGI_HOLDERS "owner, may_use, may_read, may_replace"

/* Identifies a version of a model's row. */
typedef struct {
    TransactionId writer;   /* invalid: there is no row */
    CommandId command;
    ItemPointerData place;
} CorgiVersion;

typedef struct {
    Oid user;
    int context, path;      /* saved security context; nesting level of the settings to restore */
} CorgiCaller;

/* owner.c */
extern Oid corgi_models_table(void);
extern int corgi_enter_path(void);
extern void corgi_leave_path(int level);
extern CorgiCaller corgi_become_owner(void);
extern void corgi_become_caller(CorgiCaller caller);
extern CorgiCaller corgi_open_tables(void);
extern void corgi_close_tables(CorgiCaller caller);
extern void corgi_execute(const char *query, int count, Oid *types, Datum *values, const char *nulls, bool reads);
extern uint64 corgi_execute_for(const char *query, const char *name, bool reads);
extern char *corgi_text_at(int column, MemoryContext context);

/* roles.c */
extern Oid corgi_resolve(int64 role);
extern char *corgi_role_name(int64 value);
extern Oid corgi_type_of(Oid role);
extern bool corgi_is_role_type(Oid type);
extern void corgi_restore_type_dependencies(void);
extern void corgi_lock_types(Oid role);

/* versions.c */
extern void corgi_check_version(Relation rel, HeapTuple old, HeapTuple new, const char *name);

/* rights.c */
extern void corgi_refuse_version(void) __attribute__((noreturn));
extern void corgi_check_models(AclMode mode, Oid user);
extern bool corgi_may(CorgiRight right, Oid user, const CorgiHolders *h);
extern CorgiHolders corgi_holders_at(HeapTuple row, TupleDesc columns, int from);
extern void corgi_check_right(CorgiRight right, Oid user, const CorgiHolders *h, const char *name);
extern int32 corgi_name_number(const char *name);
extern void corgi_lock_name(const char *name);
