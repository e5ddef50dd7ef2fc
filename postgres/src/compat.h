/* Differences between PostgreSQL 15, 16, 17 and 18. */
#pragma once

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "corgipile needs PostgreSQL 15 or later"
#endif

#include "commands/explain.h"
#include "storage/fd.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

/* Virtual generated columns (18) are not stored, so scans do not return them. */
#if PG_VERSION_NUM >= 180000
#define CORGI_IS_VIRTUAL(attribute) ((attribute)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define CORGI_IS_VIRTUAL(attribute) false
#endif

/* Rights to execute functions and to act as another role. */
#if PG_VERSION_NUM >= 160000
#define CORGI_MAY_EXECUTE(function, user) object_aclcheck(ProcedureRelationId, function, user, ACL_EXECUTE)
#define CORGI_MAY_BECOME(user, role) member_can_set_role(user, role)
#else
#define CORGI_MAY_EXECUTE(function, user) pg_proc_aclcheck(function, user, ACL_EXECUTE)
#define CORGI_MAY_BECOME(user, role) is_member_of_role(user, role)
#endif

/* Creation of a domain. */
#if PG_VERSION_NUM >= 180000
#define CORGI_DEFINE_DOMAIN(statement) DefineDomain(NULL, statement)
#else
#define CORGI_DEFINE_DOMAIN(statement) DefineDomain(statement)
#endif

/* True if an error may point to a part of a type, as to a column of a table. */
#define CORGI_TYPES_HAVE_PARTS (PG_VERSION_NUM >= 170000)

/* A backend's status entry by index. */
#if PG_VERSION_NUM >= 160000
#define CORGI_BACKEND(place) pgstat_get_local_beentry_by_index(place)
#else
#define CORGI_BACKEND(place) pgstat_fetch_stat_local_beentry(place)
#endif

/* Rows a scan returned, in the statistics. */
#if PG_VERSION_NUM >= 160000
#define CORGI_RETURNED(rel) ((rel)->pgstat_info->counts.tuples_returned)
#else
#define CORGI_RETURNED(rel) ((rel)->pgstat_info->t_counts.t_tuples_returned)
#endif

/* The locator of a table's files. */
#if PG_VERSION_NUM >= 160000
#define CORGI_STORAGE(rel) (RelationGetSmgr(rel)->smgr_rlocator)
#else
#define CORGI_STORAGE(rel) (RelationGetSmgr(rel)->smgr_rnode)
#endif

/* True if direct I/O (16) bypasses the page cache. Prefetching is then useless and forbidden. */
#if PG_VERSION_NUM >= 160000
#define CORGI_DIRECT_IO ((io_direct_flags & IO_DIRECT_DATA) != 0)
#else
#define CORGI_DIRECT_IO false
#endif

/* The next datum of a sort, copied if it is a pointer. */
#if PG_VERSION_NUM >= 160000
#define CORGI_NEXT_DATUM(sort, value, null) tuplesort_getdatum(sort, true, true, value, null, NULL)
#else
#define CORGI_NEXT_DATUM(sort, value, null) tuplesort_getdatum(sort, true, value, null, NULL)
#endif

/* EXPLAIN (GENERIC_PLAN) (16): parameters have no values. */
#if PG_VERSION_NUM >= 160000
#define CORGI_GENERIC(flags) (((flags) & EXEC_FLAG_EXPLAIN_GENERIC) != 0)
#else
#define CORGI_GENERIC(flags) false
#endif
