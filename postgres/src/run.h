/* The state of a training, and what happens before its epochs and after each. Numbers of rows, blocks and slots are
 * those of kernel/plan/plan.h. A block is a run of pages; its rows are those visible to the query's snapshot. */
#pragma once

#include "postgres.h"

#include "executor/executor.h"
#include "plan/permute.h"
#include "source.h"
#include "utils/resowner.h"

struct CorgiModel;

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
    struct CorgiMembers *members; /* of models by group or label; NULL: one model */
    struct CorgiModelStack *stack; /* learners */
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
extern void corgi_report_scales(const cp_scale_result *seen, const CorgiRun *run);
extern int corgi_hint_rate(const CorgiRun *run);
extern void corgi_warn_no_better(const CorgiRun *run, const CorgiEpoch *last);
extern int corgi_hint_scaling(CorgiRun *run);
extern void corgi_hint_nothing_learnt(CorgiRun *run, const CorgiHistory *h, const CorgiEpoch *last);

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

/* fit.c */
extern void corgi_fit_encoding(CorgiRun *run, CustomScanState *blocks);

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

/* history.c */
extern void corgi_begin_history(CorgiHistory *h, const CorgiOptions *o, const struct CorgiModel *past);
extern bool corgi_add_epoch(CorgiHistory *h, const CorgiRun *run, const CorgiEpoch *e);
extern void corgi_store_history(const CorgiHistory *h, const CorgiOptions *o, const struct CorgiModel *past);

/* progress.c */
extern void corgi_progress_begin(CorgiRun *run);
extern void corgi_progress_epoch(const CorgiRun *run, int64 epoch, int64 epochs);
extern void corgi_progress_restart(const CorgiRun *run);
extern void corgi_progress_rows(const CorgiRun *run, const cp_figures *so_far);
extern void corgi_progress_end(CorgiRun *run);
extern uint32 corgi_wait_event(void);
