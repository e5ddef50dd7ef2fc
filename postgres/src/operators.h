/* Shared declarations of the three operators: SGD requests steps from TupleShuffle, which requests rows from
 * BlockShuffle. */
#pragma once

#include "postgres.h"

#include "compat.h"
#include "nodes/extensible.h"
#include "reading.h"
#include "run.h"

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
extern Node *corgi_create_state(CustomScan *scan, Size bytes, const CustomExecMethods *methods);
extern void corgi_install_planner(void);
extern TupleTableSlot *corgi_never_executed(CustomScanState *node);
