/* Settings of a session, taken to another: those that were set for it, by whatever means, and may be set at any time. */
#include "jobs.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

/* Of the statement or the connection, not of what is asked for. */
static const char *const left_behind[] = {"application_name", "client_encoding", "statement_timeout", "transaction_timeout"};

static struct config_generic **all_settings(int *count)
{
#if PG_VERSION_NUM >= 160000
    return get_guc_variables(count);
#else
    *count = GetNumConfigOptions();
    return get_guc_variables();
#endif
}

/* Whether a setting was made for a role, a database, a connection or the session. Roles, and what a transaction is, are
 * not set back by RESET ALL; the worker sees to them itself. */
static bool is_taken(const struct config_generic *s)
{
    if ((s->context != PGC_USERSET && s->context != PGC_SUSET) || (s->flags & GUC_NO_RESET_ALL))
        return false;
    for (int i = 0; i < lengthof(left_behind); i++)
        if (pg_strcasecmp(s->name, left_behind[i]) == 0)
            return false;
    return s->source >= PGC_S_GLOBAL && s->source != PGC_S_OVERRIDE && s->source != PGC_S_TEST;
}

/* List names and values in turn. Called as who may see all of them. */
ArrayType *corgi_take_settings(void)
{
    int count, taken = 0;
    struct config_generic **settings = all_settings(&count);
    Datum *texts = palloc(sizeof *texts * 2 * (Size) Max(count, 1));
    for (int i = 0; i < count; i++) {
        const char *value = is_taken(settings[i]) ? GetConfigOptionByName(settings[i]->name, NULL, true) : NULL;
        if (value == NULL)
            continue;
        texts[taken++] = CStringGetTextDatum(settings[i]->name);
        texts[taken++] = CStringGetTextDatum(value);
    }
    return construct_array(texts, taken, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Have the settings that were taken; those that only a superuser may make were made by one. */
void corgi_apply_settings(const ArrayType *settings)
{
    List *texts = corgi_text_list(PointerGetDatum(settings));
    for (int i = 0; i + 1 < list_length(texts); i += 2)
        (void) set_config_option(list_nth(texts, i), list_nth(texts, i + 1), PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SET, true,
                                 ERROR, false);
}
