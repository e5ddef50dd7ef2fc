/* Shared declarations of the three operators: SGD requests steps from TupleShuffle, which requests rows from
 * BlockShuffle.
 * Numbers of rows, blocks and slots are those of kernel/plan/plan.h. A block is a run of pages; its rows are those
 * visible to the query's snapshot. */
#ifndef CORGIPILE_H
#define CORGIPILE_H

#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "compat.h"
#include "encoders.h"
#include "hashing.h"
#include "sgd/epochs.h"
#include "sgd/scale_sample.h"
#include "executor/executor.h"
#include "nodes/extensible.h"
#include "plan/permute.h"
#include "lib/stringinfo.h"
#include "options.h"
#include "rights.h"
#include "utils/rel.h"
#include "utils/resowner.h"

typedef struct {
    const char *name;
    AttrNumber attnum;
    Oid type;               /* of one number */
    bool list;              /* an array column */
    const char *part;       /* name of its partition, or NULL */
    CorgiEncoder *encoder;  /* of a feature; NULL: a plain number or array of numbers */
    CorgiNames *classes;    /* of a text label; NULL: the label is a number */
    bool lenient;           /* a missing label is NaN, or class -1 */
} CorgiColumn;

/* A table and its columns. Partitions and children are parts, read one after the other; a plain table is its own
 * part. */
typedef struct CorgiSource {
    Relation rel;
    CorgiColumn label, *features;
    CorgiColumn weight, by; /* weight: unnamed if every row weighs 1; by: group column, if named */
    CorgiColumn *labels;    /* multilabel columns: one array, or one of 0 and 1 per label; NULL: one label per row */
    int feature_columns, label_columns;
    AttrNumber last;        /* last attribute needed */
    int bytes;              /* of a real: 8 if a feature is double precision, else 4 */
    bool sparse;            /* features are an index and a value array, or hashed columns */
    CorgiEncoding *encoding; /* NULL: all columns are plain numbers */
    bool encoded;           /* some feature is not a plain number or array of numbers */
    bool lenient;           /* rows that cannot be learnt from are skipped */
    struct CorgiSource *parts;
    int part_count, number; /* number: of this part */
    int64 pages, block_pages;
} CorgiSource;

/* Start of a block: its part, its page, and the number of its first visible row in the whole table. */
typedef struct {
    int64 row, page;
    int part;
} CorgiPlace;

/* Results of the first pass: blocks by training rows, classes, row width. */
typedef struct {
    int64 rows, blocks, widest, width, held; /* held: validation rows */
    int64 heaviest;         /* most bytes of sparse rows in one block */
    int64 *cuts;            /* [blocks + 1] */
    CorgiPlace *place;      /* [blocks]; blocks without training rows are absent */
    double *classes, *sketch; /* sketch: of blocks, if balanced by label */
    int16 *vectors;         /* [blocks][traits], if balanced by content */
    int32 traits;
    int64 class_count;
    double *class_weight;   /* weight of each class; NULL: 1 */
    double chance;          /* loss of the best constant; with given classes, of zero weights */
} CorgiSurvey;

typedef struct {
    int64 row_bytes, slots, buffer_blocks, group;
    bool whole;
} CorgiSizes;

/* Row buffer: slot s has its features at x + s * stride, its label at y[s], and came from tid[s]. A sparse row has
 * `lengths` items at `indices` and `values`, see buffer.c. */
typedef struct {
    char *x;
    double *y, *weight;     /* weight: row weights, or NULL */
    ItemPointerData *tid;
    int32 *part, *group;    /* part: of the row, if there are several; group: of the row, if any */
    int64 slots, stride;
    uint64 *indices, *values; /* addresses, as the kernel takes them */
    int64 *lengths;
    int64 widest, heaviest; /* slots and bytes of a region */
    char *next, *stop;      /* of the region being filled */
    MemoryContext memory;   /* owner of all arrays */
} CorgiBuffer;

/* Record the origin of the row in a slot. */
static inline void corgi_note_origin(CorgiBuffer *b, int64 slot, const CorgiSource *s, ItemPointerData tid)
{
    b->tid[slot] = tid;
    if (b->part != NULL)
        b->part[slot] = s->number;
}

/* The numbers of an array, possibly detoasted. */
typedef struct {
    const char *numbers;
    int64 count;
    struct varlena *copy;   /* NULL: the array was readable in place */
} CorgiList;

/* Return the bytes of a sparse row: indices, then aligned values. */
static inline int64 corgi_pair_bytes(int64 count, int bytes)
{
    return TYPEALIGN(bytes, count * sizeof(int32)) + count * bytes;
}

typedef struct CorgiScaling CorgiScaling; /* feature standardisation */

typedef struct {
    CorgiOptions options;
    CorgiSource source;
    struct CorgiModel *past; /* warm-start model, or NULL */
    CorgiSurvey survey;
    CorgiSizes sizes;
    CorgiBuffer buffer;
    bool standardize, hinted;   /* standardize: features will be standardised; hinted: a hint suggested it */
    CorgiScaling *scaling;  /* once computed, else NULL */
    int passes;             /* over the table, before the epochs */
    uint64 holdout_key, holdout_from, holdout_width; /* see corgi_held_out */
    struct CorgiBest *best; /* best epoch, with early stopping; else NULL */
    struct CorgiFold *fold; /* of this training, or NULL */
    /* models by group or label, and their learners */
    struct CorgiGroups *groups; struct CorgiLabels *labels; struct CorgiModelStack *stack;
    struct CorgiWhere *where; /* NULL: all rows */
    struct CorgiWatch *watch; struct CorgiTruth *truth; /* watch: observes evaluated rows; truth: multilabel metrics; or
                                                         * NULL */
    Snapshot snapshot;      /* that sees the rows of a query; else NULL */
    ResourceOwner owner;    /* of the snapshot */
    bool prepared;          /* surveyed, sized, allocated */
    bool published;         /* in corgipile.progress */
} CorgiRun;

enum { CORGI_ORDER = 0, CORGI_BALANCE = 4, CORGI_HOLDOUT = 7 }; /* key purposes, as in corgipile.orders */

/* Return the same key as corgipile.orders.Key.hash, so that a seed gives the same order in Python. */
static inline uint64 corgi_key(const CorgiOptions *o, int epoch, int purpose)
{
    uint64_t parts[3] = {(uint64_t) o->seed, (uint64_t) epoch, (uint64_t) purpose};
    return cp_derive(parts, 3);
}

/* Return whether a row, by its number among the visible ones, is in the validation set. Each pass recomputes this. */
static inline bool corgi_held_out(const CorgiRun *run, int64 row)
{
    return run->holdout_width != 0 &&
           cp_random(run->holdout_key, (uint64_t) row) - run->holdout_from < run->holdout_width;
}

/* Return the snapshot that selects the rows. */
static inline Snapshot corgi_snapshot(const CorgiRun *run, const EState *estate)
{
    return run->snapshot ? run->snapshot : estate->es_snapshot;
}

/* One fold of a cross-validation: its rows are held out and measured only after the last epoch. */
typedef struct CorgiFold {
    int number, count;
    cp_figures held;        /* metrics of the fold's rows */
    int64 epochs;
    double seconds;
    bool numbers;           /* the score is R2, else accuracy */
} CorgiFold;

enum { CORGI_FIGURES = 8 };
/* A stored model. */
typedef struct CorgiModel {
    char *kind, *label;
    char *weight;           /* default row-weight column of calls; NULL: each row weighs 1 */
    Datum figures[CORGI_FIGURES]; /* per-epoch metrics, as arrays, see model.c */
    List *features;         /* of char ** */
    cp_loss_choice of;
    int bytes;
    int64 width, outputs, classes, epochs, best; /* best: predicting epoch; -1: the last */
    double *class_values, *coefficients, *intercepts;
    double *learnt;         /* [outputs + 2 + beside][width + 1], see corgi_get_learnt; NULL: weights suffice */
    int64 beside;           /* rows of optimizer state */
    int64 groups;           /* models by group, each of `outputs`; 0: one model */
    struct CorgiGroupIndex *known; /* their groups, see multi_model.c; or NULL */
    CorgiNames *labels; bool whole; /* labels: one output each; whole: labels are numbers */
    bool standardized;      /* features were standardised */
    char *how;              /* optimizer description, as of corgi_describe_optimizer */
    double rate;            /* of the first epoch; 0: unknown */
    double *losses;         /* [epochs] */
    CorgiEncoding *encoding; /* NULL: columns are plain numbers */
} CorgiModel;

typedef struct {
    cp_figures learnt, held; /* held: validation metrics after the epoch; 0 rows if there are none */
    double seconds;
    int64 skipped;          /* skipped rows */
} CorgiEpoch;

typedef struct {
    CorgiEpoch *epochs;     /* [count] */
    double *losses;         /* [past + count], those of a warm start first */
    int64 past, count, room;
    const char *score;
} CorgiHistory;

/* hints.c */
extern const char *corgi_cast_to_list(Oid type);
extern int corgi_hint_cast(Oid type, const char *column);
extern bool corgi_casts_to_text(Oid type);

extern char *corgi_feature_name(const CorgiSource *source, int64 i);
extern void corgi_report_scales(const cp_scale_result *seen, const CorgiRun *run);
extern int corgi_hint_rate(const CorgiRun *run);
extern void corgi_warn_no_better(const CorgiRun *run, const CorgiEpoch *last);

/* options.c */
enum {
    ARG_SOURCE, ARG_MODEL, ARG_FEATURES, ARG_LABEL, ARG_NAME, ARG_EPOCHS, ARG_LEARNING_RATE, ARG_DECAY, ARG_L2,
    ARG_BATCH_SIZE, ARG_BLOCK_SIZE, ARG_BUFFER_SIZE, ARG_ORDER, ARG_BALANCE, ARG_SEED, ARG_INTERCEPT, ARG_CLASSES,
    ARG_HOLDOUT, ARG_WARM_START, ARG_TOLERANCE, ARG_THREADS, ARG_WEIGHTS, ARG_ENCODE,
    ARG_MISSING, ARG_QUERY, ARG_WHERE, ARG_STANDARDIZE, ARG_AVERAGE, ARG_STEP, ARG_L1, ARG_WEIGHT, ARG_CLASS_WEIGHT,
    ARG_PATIENCE, ARG_MAX_NORM, ARG_TEXT, ARG_INTERACTIONS, ARG_HASH_BITS, ARG_NGRAMS, ARG_BY, ARG_LABELS, ARG_COUNT
};
extern void corgi_read_options(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types);
extern void corgi_settle_classes(CorgiOptions *o, const CorgiSource *s);
extern CorgiNames *corgi_named_classes(const CorgiOptions *o);
extern void corgi_number_texts(CorgiOptions *o);
extern void corgi_check_class_names(CorgiNames *names, const char *subject, const char *kind);
extern double *corgi_check_classes(double *classes, int64 count, const char *subject, const char *kind, int64 *found);
extern List *corgi_text_list(Datum array);
extern char *corgi_describe_optimizer(const CorgiOptions *o);
extern void corgi_take_step(CorgiOptions *o, const char *how, double rate);
extern void corgi_check_rows(bool no_source, const char *query, const char *where);

/* encode_options.c */
extern char *corgi_argument_text(Datum value, Oid type);
extern List *corgi_read_encode(Datum value, Oid type);
extern List *corgi_read_names(Datum value, Oid type, const char *what);
extern CorgiMissing corgi_read_missing(Datum value, Oid type, double *fill);

/* losses.c */
extern cp_loss_choice corgi_loss_of(const char *kind, int64 classes);
extern const char *corgi_loss_name(const cp_loss_choice *of);
extern int64 corgi_max_classes(const char *kind);
extern bool corgi_has_probability(const cp_loss_facts *f);
extern bool corgi_is_per_class(const cp_loss_facts *f);
extern bool corgi_is_of_numbers(const cp_loss_facts *f);
extern char *corgi_loss_names(bool (*wanted)(const cp_loss_facts *));

static inline bool corgi_predicts_numbers(const cp_loss_choice *of) { return cp_losses[of->loss].labels == CP_NUMBERS; }

static inline int64 corgi_outputs(const cp_loss_choice *of, int64 classes)
{
    return cp_loss_per_class(of->loss) ? classes : 1;
}

/* source.c */
extern char *corgi_sql_name(Relation rel);
extern void corgi_open_source(CorgiSource *s, CorgiOptions *o);
extern void corgi_close_source(CorgiSource *s);
extern bool corgi_settle(const CorgiSource *s, CorgiPlace *place);
extern int64 corgi_max_blocks(const CorgiSource *s);

/* query.c */
extern void corgi_open_query(CorgiRun *run);
extern void corgi_close_query(CorgiRun *run);

extern Oid corgi_store_query(const char *query);
extern void corgi_drop_query(Oid kept);

/* folds.c */
extern void corgi_hold_out(CorgiRun *run);

/* src/where.c */
extern void corgi_open_where(CorgiRun *run);
extern bool corgi_row_matches(const CorgiRun *run, const CorgiSource *part, int64 number, TupleTableSlot *row);
extern bool corgi_matches(const CorgiRun *run, int64 number);

/* columns.c */
extern bool corgi_is_number(Oid type);
extern double corgi_read_label(const CorgiColumn *label, TupleTableSlot *row);
extern int64 corgi_scalar_width(const CorgiSource *s);
extern int64 corgi_row_width(const CorgiSource *s, TupleTableSlot *row);
extern void corgi_read_features(const CorgiSource *s, TupleTableSlot *row, int64 width, char *to);
extern int64 corgi_read_array(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern int64 corgi_read_array_with_nulls(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern void corgi_read_number(Oid type, Datum value, int bytes, char *to);
extern char *corgi_row_name(const CorgiColumn *c, const ItemPointerData *tid);
extern void corgi_null_value(const CorgiColumn *c, TupleTableSlot *row, const char *what) __attribute__((noreturn));
extern CorgiList corgi_open_list(Datum array, Oid type, const char **why);
extern void corgi_close_list(CorgiList *list);

#include "reading.h"
#include "composite.h"

/* encoding.c */
extern void corgi_open_encoding(CorgiSource *s, CorgiOptions *o);
extern void corgi_attach_encodings(CorgiSource *s, CorgiEncoding *e);

/* encode.c */
extern void corgi_put_same(double value, int64 width, int bytes, char *to);
extern void corgi_fill(double value, int64 width, int bytes, char *to);
extern bool corgi_encode(const CorgiColumn *c, Datum value, bool null, int bytes, char *to);

/* hashing.c */
extern void corgi_read_hashing(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types);
extern void corgi_choose_hashed(CorgiOptions *o, Relation rel, bool all, const List *others);
extern bool corgi_is_plain_feature(const CorgiOptions *o, const char *column);
extern CorgiEncoder corgi_hashed_encoder(const CorgiOptions *o, const CorgiColumn *c);
extern CorgiHashing *corgi_new_hashing(MemoryContext context);
extern void corgi_make_hashing(const CorgiSource *s, const CorgiOptions *o, CorgiEncoding *e);
extern void corgi_settle_hashing(CorgiEncoding *e, bool fitted);
extern int64 corgi_hashed_width(const CorgiHashing *h);
extern char *corgi_hashed_terms(const CorgiEncoding *e);
extern void corgi_resume_hashing(CorgiOptions *o, const CorgiEncoding *e, List *columns);

static inline CorgiHashing *corgi_hashing(const CorgiSource *s) { return s->encoding ? s->encoding->hashing : NULL; }

/* hashed.c */
extern const cp_hashed *corgi_hash_row(const CorgiSource *s, TupleTableSlot *row);
extern void corgi_trim_hashing(CorgiHashing *h);
extern const cp_hashed *corgi_hash_call(const CorgiEncoding *e, const Oid *types, const NullableDatum *row);

/* fit.c */
extern void corgi_fit_encoding(CorgiRun *run, CustomScanState *blocks);

/* state.c */
extern void corgi_write_encoding(StringInfo json, const CorgiEncoding *e, const char *label, bool strict);
extern CorgiEncoding *corgi_read_encoding(const char *name, MemoryContext context);

/* survey.c */
extern void corgi_take_survey(CorgiRun *run, CustomScanState *blocks);

/* runs.c */
typedef void (*CorgiRowConsumer)(void *to, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_read_runs(const CorgiRun *run, Snapshot snapshot, const int64 (*runs)[2], int64 count,
                            CorgiRowConsumer take, void *to);

/* content.c */
extern void corgi_choose_balance(CorgiRun *run, Snapshot snapshot);
extern void corgi_describe_blocks(CorgiRun *run, Snapshot snapshot);

/* sizes.c */
extern void corgi_fit_sizes(CorgiRun *run);
extern int64 corgi_block_pages(const CorgiSource *s, const CorgiOptions *o);

#include "learning.h"
#include "groups.h"
#include "labels.h"

/* history.c */
extern void corgi_begin_history(CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past);
extern bool corgi_add_epoch(CorgiHistory *h, const CorgiRun *run, const CorgiEpoch *e);
extern void corgi_store_history(const CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past);

/* progress.c */
extern void corgi_progress_begin(CorgiRun *run);
extern void corgi_progress_epoch(const CorgiRun *run, int64 epoch, int64 epochs);
extern void corgi_progress_restart(const CorgiRun *run);
extern void corgi_progress_rows(const CorgiRun *run, const cp_figures *so_far);
extern void corgi_progress_end(CorgiRun *run);
extern uint32 corgi_wait_event(void);

#include "models.h"
#include "metrics.h"

/* blockshuffle.c */
extern const CustomScanMethods corgi_block_methods;
extern void corgi_block_open(CustomScanState *node, CorgiRun *run);
extern void corgi_block_seek(CustomScanState *node, const CorgiPlace *place);
extern CorgiScan *corgi_block_next(CustomScanState *node, int *count);
extern bool corgi_block_prefetch(CustomScanState *node, const CorgiPlace *place);
extern void corgi_block_stop(CustomScanState *node);
extern void corgi_block_close(CustomScanState *node);
extern void corgi_end_loop(CustomScanState *node);

/* tupleshuffle.c */
extern const CustomScanMethods corgi_tuple_methods;
extern void corgi_tuple_open(CustomScanState *node, CorgiRun *run);
extern void corgi_tuple_prepare(CustomScanState *node);
extern void corgi_tuple_begin(CustomScanState *node, int epoch);
struct corgi_step;
extern struct corgi_steps *corgi_tuple_steps(CustomScanState *node);
extern void corgi_tuple_load(CustomScanState *node, const struct corgi_step *step);
extern void corgi_tuple_stop(CustomScanState *node);

extern const CustomScanMethods corgi_sgd_methods; /* sgd.c */

/* explain.c */
extern void corgi_explain_blocks(const CorgiRun *run, ExplainState *es);
extern void corgi_explain_tuples(const CorgiRun *run, ExplainState *es);
extern void corgi_explain_learning(const CorgiRun *run, ExplainState *es);

/* planner.c */
#define CORGI_PREFIX "corgipile." /* prefix of our operators' registered names */
extern void corgi_show_name(CustomScan *scan);
extern void corgi_install_planner(void);
extern TupleTableSlot *corgi_never_executed(CustomScanState *node);

#endif
