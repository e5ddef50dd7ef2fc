/* Entry points: library loading, and the function that the operators replace in a query. */
#include "operators.h"
#include "settings.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);
PG_FUNCTION_INFO_V1(corgipile_train_support);
PG_FUNCTION_INFO_V1(corgipile_train);

void _PG_init(void)
{
    corgi_define_settings();
    corgi_install_planner();
}

/* Support function that the planner calls before it plans paths. The call loads the library and its planner hook, so no
 * preloading is needed. */
Datum corgipile_train_support(PG_FUNCTION_ARGS) { PG_RETURN_POINTER(NULL); }

/* Reached only if the planner could not replace the call by the operators. */
Datum corgipile_train(PG_FUNCTION_ARGS)
{
    ereport(
        ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
        errmsg("corgipile.train cannot run here: the planner replaces it only as a whole FROM item"),
        errhint(
            "Write SELECT * FROM corgipile.train(...) with arguments that refer to no other FROM item."));
    PG_RETURN_NULL();
}
