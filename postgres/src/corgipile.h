/* What the three operators share: SGD asks TupleShuffle for steps, TupleShuffle asks BlockShuffle for rows.
 *
 * Numbers of rows, blocks and slots are those of kernel/plan/plan.h; a block is a run of pages here, and its rows are those
 * that the query's snapshot sees. */
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
    const char *part;       /* names the part of several that it is of, else NULL */
    CorgiEncoder *encoder;  /* of a feature; NULL: it is a number as it is, or an array of them */
    CorgiNames *classes;    /* of a label of text; NULL: it is a number */
    bool lenient;           /* a label that is missing is NaN, and no class -1 */
} CorgiColumn;

/* A table and its columns. Partitions and children are parts, read one after the other; a plain table is its own. */
typedef struct CorgiSource {
    Relation rel;
    CorgiColumn label, *features;
    CorgiColumn weight, by; /* weight: without a name each row counts for 1; by: of groups, if it has a name */
    CorgiColumn *labels;    /* of several labels: a column of arrays, or one of 0 and 1 for each; NULL: one label a row */
    int feature_columns, label_columns;
    AttrNumber last;        /* the last attribute that is needed */
    int bytes;              /* of a real: 8 where a feature is double precision, else 4 */
    bool sparse;            /* features: a column of indices and one of values, or hashed columns */
    CorgiEncoding *encoding; /* NULL: all columns are numbers as they are */
    bool encoded;           /* a feature is no number as it is, nor an array of them */
    bool lenient;           /* rows that cannot be learnt from are left out */
    struct CorgiSource *parts;
    int part_count, number; /* number: of a part */
    int64 pages, block_pages;
} CorgiSource;

/* Where a block begins: in which part, on which page, and the number of its first visible row in the whole table. */
typedef struct {
    int64 row, page;
    int part;
} CorgiPlace;

/* What the first pass finds: blocks by the rows to learn from, the classes, the width of a row. */
typedef struct {
    int64 rows, blocks, widest, width, held; /* held: rows held out */
    int64 heaviest;         /* bytes of the sparse rows of a block at most */
    int64 *cuts;            /* [blocks + 1] */
    CorgiPlace *place;      /* [blocks]; blocks without rows to learn from are left out */
    double *classes, *sketch; /* sketch, vectors: of blocks, if they are balanced by the label, by content */
    int16 *vectors;         /* [blocks][traits] */
    int32 traits;
    int64 class_count;
    double *class_weight;   /* what a row of each class counts for; NULL: 1 */
    double chance;          /* loss of the best constant; of zero weights where classes are given */
} CorgiSurvey;

typedef struct {
    int64 row_bytes, slots, buffer_blocks, group;
    bool whole;
} CorgiSizes;

/* The buffer: slot s has its features at x + s * stride, its label at y[s], and came from tid[s]. Sparse features are
 * `lengths` numbers at `indices` and `values`, see buffer.c. */
typedef struct {
    char *x;
    double *y, *weight;     /* weight: what rows count for, or NULL */
    ItemPointerData *tid;
    int32 *part, *group;    /* and from where, if there are several parts; of which group, if there are any */
    int64 slots, stride;
    uint64 *indices, *values; /* addresses, as the kernel takes them */
    int64 *lengths;
    int64 widest, heaviest; /* slots and bytes of a place */
    char *next, *stop;      /* of the place being filled */
    MemoryContext memory;   /* that holds it */
} CorgiBuffer;

/* Note where the row in a slot came from. */
static inline void corgi_note_origin(CorgiBuffer *b, int64 slot, const CorgiSource *s, ItemPointerData tid)
{
    b->tid[slot] = tid;
    if (b->part != NULL)
        b->part[slot] = s->number;
}

/* The numbers of an array, wherever they lie. */
typedef struct {
    const char *numbers;
    int64 count;
    struct varlena *copy;   /* NULL: the array itself was readable */
} CorgiList;

/* The bytes of a sparse row: indices, then values at an address that suits them. */
static inline int64 corgi_pair_bytes(int64 count, int bytes)
{
    return TYPEALIGN(bytes, count * sizeof(int32)) + count * bytes;
}

typedef struct CorgiScaling CorgiScaling; /* what features are standardised by */

typedef struct {
    CorgiOptions options;
    CorgiSource source;
    struct CorgiModel *past; /* to go on from, or NULL */
    CorgiSurvey survey;
    CorgiSizes sizes;
    CorgiBuffer buffer;
    bool standardize, hinted;   /* features are to be standardised; a hint suggested it */
    CorgiScaling *scaling;  /* by this, once it is known; else NULL */
    int passes;             /* over the table, before the epochs */
    uint64 holdout_key, holdout_from, holdout_width; /* see corgi_held_out */
    struct CorgiBest *best; /* epoch, where that is to predict, else NULL */
    struct CorgiFold *fold; /* that the training is of, or NULL */
    struct CorgiGroups *groups; struct CorgiLabels *labels; struct CorgiCompany *company; /* groups or labels, who learns */
    struct CorgiWhere *where; /* NULL: all rows */
    struct CorgiWatch *watch; struct CorgiTruth *truth; /* is told of rows that are measured; measures labels; or NULL */
    Snapshot snapshot;      /* that sees the rows of a query; else NULL */
    ResourceOwner owner;    /* of it */
    bool prepared;          /* surveyed, sized, allocated */
    bool published;         /* in corgipile.progress */
} CorgiRun;

enum { CORGI_ORDER = 0, CORGI_BALANCE = 4, CORGI_HOLDOUT = 7 }; /* what a key is for; as in corgipile.orders */

/* The same key as corgipile.orders.Key.hash, so that a seed means the same order in Python. */
static inline uint64 corgi_key(const CorgiOptions *o, int epoch, int purpose)
{
    uint64_t parts[3] = {(uint64_t) o->seed, (uint64_t) epoch, (uint64_t) purpose};
    return cp_derive(parts, 3);
}

/* Return whether a row, by its number among the visible ones, is held out: nothing is kept, each pass asks again. */
static inline bool corgi_held_out(const CorgiRun *run, int64 row)
{
    return run->holdout_width != 0 && cp_random(run->holdout_key, (uint64_t) row) - run->holdout_from < run->holdout_width;
}

/* What the rows are seen by. */
static inline Snapshot corgi_snapshot(const CorgiRun *run, const EState *estate)
{
    return run->snapshot ? run->snapshot : estate->es_snapshot;
}

/* A fold of a cross validation: the rows of its numbers are held out, and measured after the last epoch alone. */
typedef struct CorgiFold {
    int number, count;
    cp_figures held;        /* what came out */
    int64 epochs;
    double seconds;
    bool numbers;           /* the score is R2, else accuracy */
} CorgiFold;

enum { CORGI_FIGURES = 8 };
/* A stored model. */
typedef struct CorgiModel {
    char *kind, *label;
    char *weight;           /* column of what rows count for where a call names none; NULL: each for 1 */
    Datum figures[CORGI_FIGURES]; /* of its epochs: arrays, see model.c */
    List *features;         /* of char * */
    cp_loss_choice of;
    int bytes;
    int64 width, outputs, classes, epochs, best; /* best: the epoch that predicts; -1: the last */
    double *class_values, *coefficients, *intercepts;
    double *learnt;         /* [outputs + 2 + beside][width + 1], see corgi_get_learnt; NULL: the weights say it all */
    int64 beside;           /* lines of what was known beside the weights */
    int64 groups; struct CorgiKnown *known; /* models of as many groups, each of `outputs`, see multi_model.c; 0: one model */
    CorgiNames *labels; bool whole; /* of models of labels, of an output each; whole: labels are numbers */
    bool standardized;      /* features were standardised */
    char *how;              /* names in what way it was learnt, as corgi_how does */
    double rate;            /* of its first epoch; 0: not known */
    double *losses;         /* [epochs] */
    CorgiEncoding *encoding; /* NULL: columns are numbers as they are */
} CorgiModel;

typedef struct {
    cp_figures learnt, held; /* held: of the rows held out, after the epoch; no rows where there are none */
    double seconds;
    int64 skipped;          /* rows left out */
} CorgiEpoch;

typedef struct {
    CorgiEpoch *epochs;     /* [count] */
    double *losses;         /* [past + count], those of an earlier model first */
    int64 past, count, room;
    const char *score;
} CorgiHistory;

/* hints.c */
extern const char *corgi_cast_to_list(Oid type);
extern int corgi_hint_cast(Oid type, const char *column);
extern bool corgi_casts_to_text(Oid type);

extern char *corgi_feature_name(const CorgiSource *source, int64 i);
extern void corgi_tell_scales(const cp_looked *seen, const CorgiRun *run);
extern int corgi_hint_rate(const CorgiRun *run);
extern void corgi_tell_chance(const CorgiRun *run, const CorgiEpoch *last);

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
extern void corgi_check_class_names(CorgiNames *names, const char *whose, const char *kind);
extern double *corgi_check_classes(double *classes, int64 count, const char *whose, const char *kind, int64 *found);
extern List *corgi_text_list(Datum array);
extern char *corgi_how(const CorgiOptions *o);
extern void corgi_take_step(CorgiOptions *o, const char *how, double rate);
extern void corgi_check_rows(bool no_source, const char *query, const char *where);

/* encode_options.c */
extern char *corgi_argument_text(Datum value, Oid type);
extern List *corgi_read_wishes(Datum value, Oid type);
extern List *corgi_read_names(Datum value, Oid type, const char *what);
extern CorgiMissing corgi_read_missing(Datum value, Oid type, double *fill);

/* losses.c */
extern cp_loss_choice corgi_loss_of(const char *kind, int64 classes);
extern const char *corgi_loss_name(const cp_loss_choice *of);
extern int64 corgi_most_classes(const char *kind);
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
extern int64 corgi_most_blocks(const CorgiSource *s);

/* query.c */
extern void corgi_open_query(CorgiRun *run);
extern void corgi_close_query(CorgiRun *run);

extern Oid corgi_keep_query(const char *query);
extern void corgi_drop_query(Oid kept);

/* folds.c */
extern void corgi_hold_out(CorgiRun *run);

/* where.c */
extern void corgi_open_where(CorgiRun *run);
extern bool corgi_ask_row(const CorgiRun *run, const CorgiSource *part, int64 number, TupleTableSlot *row);
extern bool corgi_is_wanted(const CorgiRun *run, int64 number);

/* columns.c */
extern bool corgi_is_number(Oid type);
extern double corgi_read_label(const CorgiColumn *label, TupleTableSlot *row);
extern int64 corgi_scalar_width(const CorgiSource *s);
extern int64 corgi_row_width(const CorgiSource *s, TupleTableSlot *row);
extern void corgi_read_features(const CorgiSource *s, TupleTableSlot *row, int64 width, char *to);
extern int64 corgi_read_array(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern int64 corgi_read_holed(Datum array, Oid type, int bytes, int64 width, char *to, const char **why);
extern void corgi_read_number(Oid type, Datum value, int bytes, char *to);
extern char *corgi_row_name(const CorgiColumn *c, const ItemPointerData *tid);
extern void corgi_null_value(const CorgiColumn *c, TupleTableSlot *row, const char *what) __attribute__((noreturn));
extern CorgiList corgi_open_list(Datum array, Oid type, const char **why);
extern void corgi_close_list(CorgiList *list);

#include "reading.h"
#include "composite.h"

/* encoding.c */
extern void corgi_open_encoding(CorgiSource *s, CorgiOptions *o);
extern void corgi_tie_encodings(CorgiSource *s, CorgiEncoding *e);

/* encode.c */
extern void corgi_put_same(double value, int64 width, int bytes, char *to);
extern void corgi_fill(double value, int64 width, int bytes, char *to);
extern bool corgi_encode(const CorgiColumn *c, Datum value, bool null, int bytes, char *to);

/* hashing.c */
extern void corgi_read_hashing(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types);
extern void corgi_choose_hashed(CorgiOptions *o, Relation rel, bool all, const List *others);
extern bool corgi_is_beside(const CorgiOptions *o, const char *column);
extern CorgiEncoder corgi_hashed_encoder(const CorgiOptions *o, const CorgiColumn *c);
extern CorgiHashing *corgi_new_hashing(MemoryContext context);
extern void corgi_make_hashing(const CorgiSource *s, const CorgiOptions *o, CorgiEncoding *e);
extern void corgi_settle_hashing(CorgiEncoding *e, bool fitted);
extern int64 corgi_hashed_width(const CorgiHashing *h);
extern char *corgi_hashed_terms(const CorgiEncoding *e);
extern void corgi_go_on_hashing(CorgiOptions *o, const CorgiEncoding *e, List *columns);

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
typedef void (*CorgiTaker)(void *to, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_read_runs(const CorgiRun *run, Snapshot snapshot, const int64 (*runs)[2], int64 count, CorgiTaker take,
                            void *to);

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
extern void corgi_progress_again(const CorgiRun *run);
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
extern bool corgi_block_ask(CustomScanState *node, const CorgiPlace *place);
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
#define CORGI_PREFIX "corgipile." /* of the names by which the server knows our operators, beside those of others */
extern void corgi_show_name(CustomScan *scan);
extern void corgi_install_planner(void);
extern TupleTableSlot *corgi_never_executed(CustomScanState *node);

#endif
