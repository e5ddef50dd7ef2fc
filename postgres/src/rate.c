/* Default learning rate: reduced if an epoch diverges or a regression's loss plateaus, raised if labels are far from 0.
 * kernel/sgd/epochs.h has the rules. Groups have a rate each, see model_stack_rates.c. */
#include "corgipile.h"

/* Initialise a learner, and watch for divergence while a lower rate is left to try. */
void corgi_begin_rate(const CorgiRun *run, CorgiLearner *learner, const CorgiHistory *h)
{
    const CorgiOptions *o = &run->options;
    if (run->stack != NULL)
        return;
    if (run->past != NULL)
        corgi_resume(run, learner);
    corgi_learner_watch(learner, o->adaptive && h->past == 0 && cp_sgd_reduced_rate(o->learning_rate) > 0, true);
}

/* Describe a change of rate; `of` names the groups. */
const char *corgi_describe_rate_change(double before, double rate, const char *of)
{
    return rate > before ? psprintf("learning rate %g is small for labels this far from 0%s; beginning again at %g",
                                    before, of, rate)
                         : psprintf("learning rate %g diverges%s; beginning again at %g", before, of, rate);
}

/* Restart training at another rate. */
void corgi_change_rate(CorgiRun *run, CorgiLearner *learner, const CorgiHistory *h, double rate)
{
    CorgiOptions *o = &run->options;
    if (run->stack != NULL)
        return; /* group rates changed at the end of the pass */
    ereport(WARNING, errmsg("%s", corgi_describe_rate_change(o->learning_rate, rate, "")),
            rate < o->learning_rate ? corgi_hint_scaling(run) : 0);
    o->learning_rate = rate;
    corgi_learner_forget(learner, run);
    corgi_begin_rate(run, learner, h);
    corgi_progress_restart(run);
}

/* Reduce a default rate if the loss has plateaued. */
void corgi_settle_rate(CorgiRun *run, const CorgiLearner *learner, const CorgiHistory *h)
{
    CorgiOptions *o = &run->options;
    double lower = cp_sgd_reduced_rate(o->learning_rate);
    if (run->stack != NULL) {
        corgi_stack_reduce_rates(run->stack, run);
        return;
    }
    if (!o->adaptive || lower == 0 || !corgi_learner_has_plateaued(learner, h->losses, h->past + h->count))
        return;
    o->learning_rate = lower;
    ereport(NOTICE, errmsg("the loss stands still; going on with a fifth of the learning rate"));
}
