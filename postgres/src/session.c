/* Transfer of a session's settings to another session: those that were set for it and may be set at any time. */
#include "jobs.h"
#include "options.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

enum { SETTING_TEXTS = 4 };  /* texts */

/* settings of the statement or the connection, so not transferred */
static const char *const excluded[] = {"application_name", "client_encoding", "statement_timeout",
                                       "transaction_timeout"};

static struct config_generic **all_settings(int *count)
{
#if PG_VERSION_NUM >= 160000
    return get_guc_variables(count);
#else
    *count = GetNumConfigOptions();
    return get_guc_variables();
#endif
}

/* Return whether a setting was made for a role, database, connection or session. Roles and transaction properties are
 * exempt from RESET ALL; the worker handles them. */
static bool is_transferred(const struct config_generic *s)
{
    if ((s->context != PGC_USERSET && s->context != PGC_SUSET) || (s->flags & GUC_NO_RESET_ALL))
        return false;
    for (int i = 0; i < lengthof(excluded); i++)
        if (pg_strcasecmp(s->name, excluded[i]) == 0)
            return false;
    return s->source >= PGC_S_GLOBAL && s->source != PGC_S_OVERRIDE && s->source != PGC_S_TEST;
}

/* Return each setting's name, value and authority. A setting of a library that is not loaded yet may turn out to be
 * superuser-only. */
ArrayType *corgi_take_settings(void)
{
    int count, count_texts = 0;
    struct config_generic **settings = all_settings(&count);
    Datum *texts = palloc(sizeof *texts * SETTING_TEXTS * (Size) Max(count, 1));
    for (int i = 0; i < count; i++) {
        const char *value = is_transferred(settings[i]) ? GetConfigOption(settings[i]->name, true, false) : NULL;
        if (value == NULL)
            continue;
        texts[count_texts++] = CStringGetTextDatum(settings[i]->name);
        texts[count_texts++] = CStringGetTextDatum(value);
        texts[count_texts++] = CStringGetTextDatum(psprintf("%d", settings[i]->scontext));
        texts[count_texts++] = CStringGetTextDatum(psprintf("%u", settings[i]->srole));
    }
    return construct_array(texts, count_texts, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Apply transferred settings under the same authority. */
void corgi_apply_settings(const ArrayType *settings)
{
    List *texts = corgi_text_list(PointerGetDatum(settings));
    for (int i = 0; i + SETTING_TEXTS <= list_length(texts); i += SETTING_TEXTS)
        (void) set_config_option_ext(
            list_nth(texts, i), list_nth(texts, i + 1), (GucContext) atoi(list_nth(texts, i + 2)), PGC_S_SESSION,
            (Oid) strtoul(list_nth(texts, i + 3), NULL, 10), GUC_ACTION_SET, true, ERROR, false);
}
