/* Models by group as they are stored: one row for all of them, as the one file of Python. */
#include "corgipile.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"

/* What Python checks of a file, see corgipile.linear.groups.check_groups. */
#define SHAPE                                                                                                                   \
    "strict $ ? (@.by.type() == \"string\" && @.groups.type() == \"array\" && @.groups.size() > 0 && "                          \
    "@.of_groups.type() == \"object\" && !exists(@.of_groups.* ? (@.type() != \"array\")) && !exists(@.groups[*] ? ("             \
    "@.type() == \"object\" || @.type() == \"array\" || (@.type() == \"number\" && @.floor() != @))))"
#define COUNTS "strict $.of_groups.* ? (@.size() != $n)"
#define RATES                                                                                                                   \
    "$ ? (exists(@.learning_rates) && (@.learning_rates.type() != \"array\" || @.learning_rates.size() != $n || "               \
    "exists(@.learning_rates[*] ? (@.type() != \"number\" || @ <= 0))))"

/* NULL of one model; 0 of groups that are damaged. */
static const char *const groups_query =
    "SELECT CASE WHEN NOT pg_catalog.jsonb_path_exists(params, '" SHAPE "') THEN 0 ELSE (SELECT CASE WHEN "
    "pg_catalog.jsonb_path_exists(params, '" COUNTS "', n) OR pg_catalog.jsonb_path_exists(params, '" RATES "', n) OR "
    "(SELECT pg_catalog.count(DISTINCT g) operator(pg_catalog.<) pg_catalog.count(*) FROM "
    "pg_catalog.jsonb_path_query(params, '$.groups[*]') g) THEN 0 ELSE (n operator(pg_catalog.->>) 'n')::pg_catalog.int8 END FROM "
    "pg_catalog.jsonb_build_object('n', pg_catalog.jsonb_array_length(params operator(pg_catalog.->) 'groups')) n) END "
    "FROM corgipile.models WHERE name operator(pg_catalog.=) $1 AND params operator(pg_catalog.?) 'by'";

/* Return of how many groups a stored model is; 0 where it is one model. Called within SPI. */
int64 corgi_stored_groups(const char *name)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    bool null;
    int64 count;
    if (SPI_execute_with_args(groups_query, lengthof(types), types, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed == 0)
        return 0;
    count = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null));
    if (null || count == 0)
        ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
                errmsg("the row of model \"%s\" in corgipile.models is damaged: its groups are damaged", name));
    return count;
}

/* Refuse models by group where one model is needed: `what` goes by one. */
void corgi_refuse_groups(const CorgiModel *m, const char *name, const char *what)
{
    if (m->groups == 0)
        return;
    ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
            errmsg("\"%s\" holds models of " INT64_FORMAT " groups; %s by one model", name, m->groups, what),
            errhint("SELECT corgipile.export('%s') is a file by which Python predicts: corgipile.load(path).predict(table); "
                    "load(path).of(group).pack() is the model of one group, for corgipile.import.", name));
}
