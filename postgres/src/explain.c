/* EXPLAIN output of the three operators. */
#include "members.h"
#include "operators.h"

void corgi_explain_blocks(const CorgiRun *run, ExplainState *es)
{
    const CorgiSource *source = &run->source;
    if (source->rel == NULL)
        return;
    if (run->options.query != NULL)
        ExplainPropertyText("Query", run->options.query, es);
    else
        ExplainPropertyText("Table", RelationGetRelationName(source->rel), es);
    if (run->options.where != NULL)
        ExplainPropertyText("Filter", run->options.where, es);
    if (source->parts != source)
        ExplainPropertyInteger("Parts", NULL, source->part_count, es);
    ExplainPropertyInteger("Pages", NULL, source->pages, es);
    ExplainPropertyInteger("Block Pages", NULL, source->block_pages, es);
    ExplainPropertyInteger("Blocks", NULL, run->prepared ? run->survey.blocks : corgi_max_blocks(source), es);
}

void corgi_explain_tuples(const CorgiRun *run, ExplainState *es)
{
    if (run->source.rel == NULL)
        return;
    ExplainPropertyText("Order", run->options.automatic && !run->prepared ? "auto" : run->options.order_name, es);
    if (run->options.content)
        ExplainPropertyText("Balanced", "content", es);
    else
        ExplainPropertyBool("Balanced", run->options.balance, es);
    if (run->prepared) {
        ExplainPropertyInteger("Buffer Blocks", NULL, run->sizes.buffer_blocks, es);
        ExplainPropertyInteger("Buffer Rows", NULL, run->sizes.slots, es);
        ExplainPropertyInteger("Buffer Memory", "kB", run->sizes.slots * run->sizes.row_bytes / 1024, es);
    } else {
        ExplainPropertyInteger("Buffer Memory", "kB", run->options.buffer_bytes / 1024, es);
    }
}

void corgi_explain_learning(const CorgiRun *run, ExplainState *es)
{
    const CorgiOptions *o = &run->options;
    ExplainPropertyText("Model", o->kind, es);
    ExplainPropertyInteger("Epochs", NULL, o->epochs, es);
    ExplainPropertyInteger("Batch Size", NULL, o->batch, es);
    if (o->by != NULL)
        ExplainPropertyText("By", o->by, es);
    if (o->holdout > 0)
        ExplainPropertyFloat("Holdout", NULL, o->holdout, 4, es);
    if (o->warm_start != NULL)
        ExplainPropertyText("Warm Start", o->warm_start, es);
    ExplainPropertyInteger("Threads", NULL, o->threads, es);
    if (!run->prepared)
        ExplainPropertyText("Standardize",
                            o->standardize == CORGI_YES  ? "true"
                            : o->standardize == CORGI_NO ? "false"
                            : run->past == NULL          ? "where needed"
                            : run->past->standardized    ? "true"
                                                         : "false",
                            es);
    else
        ExplainPropertyBool("Standardized", run->scaling != NULL, es);
    if (corgi_hashing(&run->source) != NULL) {
        ExplainPropertyText("Hashed", corgi_hashed_terms(run->source.encoding), es);
        ExplainPropertyInteger("Hash Bits", NULL, corgi_hashing(&run->source)->bits, es);
        ExplainPropertyInteger("N-grams", NULL, corgi_hashing(&run->source)->ngrams, es);
    }
    ExplainPropertyText("Numbers", run->source.bytes == 4 ? "real" : "double precision", es);
    if (run->prepared) {
        if (run->members != NULL)
            ExplainPropertyInteger(corgi_are_labels(run->members) ? "Labels" : "Groups", NULL, corgi_model_count(run),
                                   es);
        ExplainPropertyInteger("Passes before Epochs", NULL, run->passes, es);
        ExplainPropertyInteger("Features", NULL, run->survey.width, es);
        ExplainPropertyInteger("Rows per Epoch", NULL, run->survey.rows, es);
    }
}
