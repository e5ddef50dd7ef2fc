/* Settings of a session, taken to another: those that were set for it, by whatever means, and may be set at any time. */
#include "jobs.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

enum { OF_SETTING = 4 };  /* texts */

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

/* List of each its name, its value, and by what right it was made: that of a library that is not loaded yet may turn out to
 * be one that only a superuser makes. */
ArrayType *corgi_take_settings(void)
{
    int count, taken = 0;
    struct config_generic **settings = all_settings(&count);
    Datum *texts = palloc(sizeof *texts * OF_SETTING * (Size) Max(count, 1));
    for (int i = 0; i < count; i++) {
        const char *value = is_taken(settings[i]) ? GetConfigOption(settings[i]->name, true, false) : NULL;
        if (value == NULL)
            continue;
        texts[taken++] = CStringGetTextDatum(settings[i]->name);
        texts[taken++] = CStringGetTextDatum(value);
        texts[taken++] = CStringGetTextDatum(psprintf("%d", settings[i]->scontext));
        texts[taken++] = CStringGetTextDatum(psprintf("%u", settings[i]->srole));
    }
    return construct_array(texts, taken, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Have the settings that were taken, by the same right. */
void corgi_apply_settings(const ArrayType *settings)
{
    List *texts = corgi_text_list(PointerGetDatum(settings));
    for (int i = 0; i + OF_SETTING <= list_length(texts); i += OF_SETTING)
        (void) set_config_option_ext(list_nth(texts, i), list_nth(texts, i + 1), (GucContext) atoi(list_nth(texts, i + 2)),
                                     PGC_S_SESSION, (Oid) strtoul(list_nth(texts, i + 3), NULL, 10), GUC_ACTION_SET, true,
                                     ERROR, false);
}
