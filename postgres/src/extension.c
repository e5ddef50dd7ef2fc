/* Entry points: loading the library, and the function that stands for the three operators in a query. */
#include "corgipile.h"

#include "fmgr.h"
#include "settings.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);
PG_FUNCTION_INFO_V1(corgipile_train_support);
PG_FUNCTION_INFO_V1(corgipile_train);

void _PG_init(void)
{
    corgi_define_settings();
    corgi_install_planner();
}

/* The planner calls this before it looks for paths, which loads the library and so its hook: no preloading needed. */
Datum corgipile_train_support(PG_FUNCTION_ARGS) { PG_RETURN_POINTER(NULL); }

/* Reached only where the planner could not put the operators in place of the call. */
Datum corgipile_train(PG_FUNCTION_ARGS)
{
    ereport(
        ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
        errmsg("corgipile.train was called where the planner cannot replace it by its operators"),
        errhint(
            "Write SELECT * FROM corgipile.train(...), alone in its FROM item, with arguments that refer to no other "
            "FROM item."));
    PG_RETURN_NULL();
}
