/* A corgipile.train call written as SQL, to be run elsewhere or again. */
#include "jobs.h"
#include "options.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

/* Read the arguments of an extension function. Types come from the call, because "any" has none. */
void corgi_take_arguments(FunctionCallInfo fcinfo, Datum *values, bool *nulls, Oid *types, int count)
{
    if (PG_NARGS() != count)
        corgi_refuse_version();
    for (int i = 0; i < count; i++) {
        values[i] = PG_GETARG_DATUM(i);
        nulls[i] = PG_ARGISNULL(i);
        types[i] = get_fn_expr_argtype(fcinfo->flinfo, i);
    }
}

static const char *type_name(Oid type)
{
    return format_type_extended(type, -1, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

static void write_argument(StringInfo sql, Datum value, bool null, Oid type)
{
    Oid output;
    bool varlena;
    if (null)
        appendStringInfo(sql, "NULL::%s", type_name(type == UNKNOWNOID ? TEXTOID : type));
    else if (type == REGCLASSOID)
        appendStringInfo(sql, "%u::pg_catalog.regclass", DatumGetObjectId(value));
    else if (type == UNKNOWNOID)
        appendStringInfoString(sql, quote_literal_cstr(DatumGetCString(value)));
    else {
        getTypeOutputInfo(type, &output, &varlena);
        appendStringInfo(sql, "%s::%s", quote_literal_cstr(OidOutputFunctionCall(output, value)), type_name(type));
    }
}

static void set_guc(const char *name, const char *value)
{
    (void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* Write the call so that it parses to the same bits under any settings and search path. */
char *corgi_write_call(const Datum *values, const bool *nulls, const Oid *types)
{
    StringInfoData sql;
    int level = NewGUCNestLevel();
    set_guc("extra_float_digits", "3");
    set_guc("DateStyle", "ISO, YMD");
    set_guc("IntervalStyle", "postgres");
    initStringInfo(&sql);
    appendStringInfoString(&sql, "corgipile.train(");
    for (int i = 0; i < ARG_COUNT; i++) {
        appendStringInfoString(&sql, i ? ", " : "");
        write_argument(&sql, values[i], nulls[i], types[i]);
    }
    appendStringInfoChar(&sql, ')');
    AtEOXact_GUC(true, level);
    return sql.data;
}
