/* Evaluation of a model on validation rows, a table or a query: one pass over the rows in storage order, at learning
 * rate 0. */
#include "corgipile.h"

#include "access/tableam.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

enum { PART_ROWS = 4096, PART_BYTES = 1 << 20, PART_SCORES = 1 << 17 };

typedef struct {
    CorgiRun run;           /* with its own small buffer */
    CorgiLearner *evaluator;
    int32 visit[PART_ROWS];
    int64 buffered, number;  /* waiting: buffered rows; number: of the next row */
    bool held;              /* measures validation rows, else all rows */
    MemoryContext rows;     /* memory of buffered rows */
} Pass;

/* Allocate a buffer for `bytes` of rows. */
static CorgiBuffer make_buffer(const CorgiRun *run, int64 bytes)
{
    const CorgiSource *s = &run->source;
    int64 width = run->survey.width, slots = s->sparse ? PART_ROWS : bytes / (width * s->bytes);
    slots = Min(slots, run->truth ? corgi_truth_rows(run->truth) : PART_ROWS);
    slots = Max(Min(slots, (int64) PART_ROWS), 1);
    return corgi_make_buffer(s, width, slots, slots, bytes);
}

static Pass *make_pass(const CorgiRun *run, CorgiLearner *evaluator, bool held)
{
    Pass *p = palloc0(sizeof *p);
    p->run = *run;
    p->run.options.learning_rate = 0;
    p->run.buffer = make_buffer(run, PART_BYTES);
    p->evaluator = evaluator;
    p->held = held;
    p->rows = AllocSetContextCreate(CurrentMemoryContext, "corgipile rows", ALLOCSET_DEFAULT_SIZES);
    for (int32 i = 0; i < PART_ROWS; i++)
        p->visit[i] = i;
    return p;
}

/* Report the slots of measured rows to the observer. */
static void report_slots(const Pass *p)
{
    const CorgiBuffer *b = &p->run.buffer;
    for (int32 i = 0; i < p->buffered; i++)
        p->run.watch->slot(p->run.watch, &p->run, i, b->y[i], b->weight ? b->weight[i] : 1);
}

/* Report the scores of measured rows to the observer, in batches because rows may have many scores. */
static void report_rows(const Pass *p)
{
    CorgiWatch *w = p->run.watch;
    CorgiModelStack *stack = p->run.stack;
    int64 outputs = stack ? corgi_stack_outputs(stack) : corgi_learner_outputs(w->scorer),
          most = Max(PART_SCORES / outputs, 1);
    if (p->buffered == 0)
        return;
    double *scores = palloc(sizeof *scores * (Size) (outputs * Min(most, p->buffered)));
    for (int64 from = 0; from < p->buffered; from += most) {
        int64 count = Min(most, p->buffered - from);
        if (stack != NULL)
            corgi_stack_decide(stack, &p->run, p->visit + from, count, scores);
        else
            corgi_learner_decide_rows(w->scorer, &p->run, p->visit + from, count, scores);
        for (int64 i = from; i < from + count; i++)
            w->row(w, p->run.buffer.y[i], p->run.buffer.weight ? p->run.buffer.weight[i] : 1,
                   scores + (i - from) * outputs);
    }
    pfree(scores);
}

static void measure_rows(Pass *p)
{
    for (int64 done = 0; done < p->buffered && p->run.stack != NULL;) {
        int32 refused;
        int status = corgi_stack_learn(p->run.stack, &p->run, p->visit, p->buffered, &done, &refused);
        if (status != CP_SGD_OK)
            corgi_learner_refuse(&p->run, status, refused);
    }
    for (int64 done = 0; done < p->buffered && p->run.stack == NULL;) {
        int status = corgi_learner_learn(p->evaluator, &p->run, p->visit, p->buffered, &done);
        if (corgi_learner_skips(&p->run, status))
            done++;
        else if (status != CP_SGD_OK)
            corgi_learner_refuse(&p->run, status, p->visit[done]);
    }
}

static void flush_rows(Pass *p)
{
    if (p->run.truth == NULL)
        measure_rows(p);
    if (p->run.truth != NULL)
        corgi_evaluate_labels(p->run.truth, &p->run, p->visit, p->buffered);
    else if (p->run.watch != NULL && p->run.watch->slot != NULL)
        report_slots(p);
    else if (p->run.watch != NULL)
        report_rows(p);
    p->buffered = 0;
    if (p->run.source.sparse)
        corgi_begin_place(&p->run.buffer, 0);
    MemoryContextReset(p->rows);
}

static bool put_row(Pass *p, const CorgiSource *part, TupleTableSlot *row)
{
    MemoryContext outside = MemoryContextSwitchTo(p->rows);
    bool fits = corgi_put_row(part, row, p->run.survey.width, &p->run.buffer, p->buffered);
    if (fits && p->run.stack != NULL)
        p->run.buffer.group[p->buffered] = corgi_group_of_row(p->run.stack, part, row);
    if (fits && p->run.truth != NULL)
        corgi_note_truth(p->run.truth, part, row, p->buffered);
    MemoryContextSwitchTo(outside);
    p->buffered += fits;
    return fits;
}

/* Measure a row that exceeds the buffer of sparse rows. */
static void put_long_row(Pass *p, const CorgiSource *part, TupleTableSlot *row)
{
    flush_rows(p);
    while (!put_row(p, part, row))
        p->run.buffer = make_buffer(&p->run, 2 * p->run.buffer.heaviest);
}

static bool is_wanted(const Pass *p, const CorgiSource *part, int64 number, TupleTableSlot *row)
{
    if (!p->held)
        return corgi_row_matches(&p->run, part, number, row);
    return corgi_held_out(&p->run, number) && (p->run.where == NULL || corgi_matches(&p->run, number));
}

static void measure_part(Pass *p, const CorgiSource *part, Snapshot snapshot)
{
    TupleTableSlot *row = MakeSingleTupleTableSlot(RelationGetDescr(part->rel), table_slot_callbacks(part->rel));
    TableScanDesc scan = table_beginscan_strat(part->rel, snapshot, 0, NULL, true, false);
    while (table_scan_getnextslot(scan, ForwardScanDirection, row)) {
        int64 number = p->number++;
        if (!is_wanted(p, part, number, row))
            continue;
        if (!put_row(p, part, row))
            put_long_row(p, part, row);
        if (p->buffered == p->run.buffer.slots)
            flush_rows(p);
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(row);
}

/* Measure rows, or validation rows only, with a learner of batch size 1; NULL: with group or label models. */
cp_figures corgi_measure(const CorgiRun *run, CorgiLearner *evaluator, bool held, Snapshot snapshot)
{
    MemoryContext outside = CurrentMemoryContext;
    MemoryContext context = AllocSetContextCreate(outside, "corgipile measure", ALLOCSET_DEFAULT_SIZES);
    int64 skipped;
    MemoryContextSwitchTo(context);
    Pass *p = make_pass(run, evaluator, held);
    if (evaluator != NULL)
        corgi_learner_begin(evaluator, 0);
    else if (run->stack != NULL)
        corgi_stack_begin(run->stack, &p->run, 0);
    for (int i = 0; i < run->source.part_count; i++)
        measure_part(p, &run->source.parts[i], snapshot);
    flush_rows(p);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    if (run->truth != NULL)
        return corgi_truth_figures(run->truth);
    return evaluator ? corgi_learner_end(evaluator) : corgi_stack_end(run->stack, &skipped);
}

enum { MODEL, SOURCE, FEATURES, LABEL, QUERY, WHERE }; /* arguments */

static char *text_argument(FunctionCallInfo fcinfo, int at)
{
    return PG_ARGISNULL(at) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(at));
}

/* Return the multilabel columns: one array column, or one per label. */
static List *label_columns(const CorgiOptions *o, const CorgiModel *m)
{
    List *columns = NIL;
    if (o->label != NULL)
        return list_make1((char *) o->label);
    for (int64 k = 0; k < m->labels->count; k++)
        columns = lappend(columns, m->labels->names[k].text);
    return columns;
}

/* Choose rows and columns to read; unnamed columns are those of training. */
static CorgiOptions evaluation_options(FunctionCallInfo fcinfo, const CorgiModel *m, const char *name)
{
    CorgiOptions o = {.kind = m->kind,
                      .of = m->of,
                      .features = m->features,
                      .label = m->label,
                      .encoding = m->encoding,
                      .query = text_argument(fcinfo, QUERY),
                      .by = corgi_group_column(m),
                      .where = text_argument(fcinfo, WHERE),
                      .weight = text_argument(fcinfo, PG_NARGS() - 1)};
    o.weight = o.weight ? o.weight : m->weight;
    corgi_check_rows(PG_ARGISNULL(SOURCE), o.query, o.where);
    o.source = PG_ARGISNULL(SOURCE) ? InvalidOid : PG_GETARG_OID(SOURCE);
    if (!PG_ARGISNULL(FEATURES))
        o.features =
            corgi_read_names(PG_GETARG_DATUM(FEATURES), get_fn_expr_argtype(fcinfo->flinfo, FEATURES), "features");
    if (!PG_ARGISNULL(LABEL))
        o.label = text_argument(fcinfo, LABEL);
    if (m->labels != NULL) {
        o.labels = label_columns(&o, m);
        o.label = corgi_name_of_sets(o.labels);
    }
    if (o.features == NIL || o.label == NULL)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("the params of model \"%s\" do not name its training columns", name),
                errhint("Give features and label."));
    return o;
}

/* Set the width and precision of the rows to the model's. */
static void fit_source(CorgiRun *run, const CorgiModel *m, const char *name)
{
    CorgiSource *s = &run->source;
    if (!s->features->list && corgi_scalar_width(s) != m->width)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("there are %d feature columns; model \"%s\" was trained with " INT64_FORMAT " features",
                       s->feature_columns, name, m->width));
    run->survey.width = m->width;
    s->bytes = m->bytes;
    for (int i = 0; i < s->part_count; i++)
        s->parts[i].bytes = m->bytes;
}

/* Load the model of a call; NULL if its name is NULL. */
CorgiModel *corgi_model_to_evaluate(FunctionCallInfo fcinfo, char **name)
{
    if (PG_ARGISNULL(MODEL))
        return NULL;
    *name = text_argument(fcinfo, MODEL);
    corgi_find_model(*name, CORGI_USE);
    return corgi_load_model(*name, true);
}

/* Refuse models that predict numbers and multilabel models. */
void corgi_need_classes(const CorgiModel *m, const char *name, const char *what)
{
    if (m->labels != NULL)
        corgi_require_single(m, name, psprintf("corgipile.%s uses", what));
    if (corgi_predicts_numbers(&m->of))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("model \"%s\" is of kind %s and predicts numbers; corgipile.%s needs a classifier", name,
                       m->kind, what));
}

/* Measure a model on the rows of a call. `watch`, unless NULL, observes each row. */
cp_figures corgi_evaluate_rows(FunctionCallInfo fcinfo, CorgiModel *m, const char *name, CorgiWatch *watch)
{
    CorgiRun run = {.options = evaluation_options(fcinfo, m, name), .watch = watch};
    if (run.options.query != NULL)
        corgi_open_query(&run);
    corgi_open_source(&run.source, &run.options);
    corgi_open_where(&run);
    fit_source(&run, m, name);
    if (m->groups > 0)
        run.stack = corgi_make_evaluation_stack(m, name, run.source.sparse);
    else if (m->labels != NULL)
        run.truth = corgi_make_truth(m, name, &run.source);
    else if (watch != NULL)
        watch->scorer = corgi_model_learner(m, run.source.sparse);
    if (watch != NULL)
        watch->truth = run.truth;
    CorgiLearner *evaluator = run.stack || run.truth ? NULL : corgi_model_learner(m, run.source.sparse);
    cp_figures figures = corgi_measure(&run, evaluator, false, run.snapshot ? run.snapshot : GetActiveSnapshot());
    corgi_check_weight(&figures, "the evaluated rows");
    corgi_close_source(&run.source);
    corgi_close_query(&run);
    return figures;
}
