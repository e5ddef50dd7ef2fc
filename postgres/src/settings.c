/* Configuration settings of a server, database, role or session. */
#include "rights.h"
#include "settings.h"

#include <limits.h>

#include "postgres.h"
#include "utils/guc.h"

int corgi_share = CORGI_SHARE_NONE;
int corgi_max_threads = 2;
int corgi_max_memory = -1;
int corgi_max_jobs = -1;
int corgi_versions = 5;

static const struct config_enum_entry shares[] = {
    {"none", CORGI_SHARE_NONE, false}, {"use", CORGI_USE, false}, {"read", CORGI_READ, false}, {NULL, 0, false}};

void corgi_define_settings(void)
{
    DefineCustomEnumVariable("corgipile.share", "Right that everybody has on a newly stored model.", NULL, &corgi_share,
                             CORGI_SHARE_NONE, shares, PGC_USERSET, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("corgipile.max_threads", "Threads that a training may use.", NULL, &corgi_max_threads, 2, 1,
                            2, PGC_SUSET, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("corgipile.max_memory", "Largest buffer_size of a training.", "-1 means no limit.",
                            &corgi_max_memory, -1, -1, INT_MAX, PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
    DefineCustomIntVariable("corgipile.max_jobs", "Concurrent jobs of a logged-in role, in all databases.",
                            "-1 means no limit.", &corgi_max_jobs, -1, -1, INT_MAX, PGC_SUSET, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("corgipile.keep_versions", "Stored versions of a model, the current one included.",
                            "Applied when a model is replaced.", &corgi_versions, 5, 1, INT_MAX, PGC_USERSET, 0, NULL,
                            NULL, NULL);
    MarkGUCPrefixReserved("corgipile");
}
