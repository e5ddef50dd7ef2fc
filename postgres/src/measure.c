/* Measures a model: one pass over the rows as they lie, at learning rate 0. */
#include "corgipile.h"

#include "access/tableam.h"
#include "utils/memutils.h"

enum { PART_ROWS = 4096, PART_BYTES = 1 << 20 };

typedef struct {
    CorgiRun run;           /* with a small buffer of its own */
    CorgiMachine *judge;
    int32 *visit;
    int64 waiting, number;  /* rows in the buffer; number of the next row */
    bool held;              /* of rows held out, else of all */
    MemoryContext rows;     /* what they leave behind */
} Pass;

static Pass *make_pass(const CorgiRun *run, CorgiMachine *judge, bool held)
{
    Pass *p = palloc0(sizeof *p);
    CorgiBuffer *b = &p->run.buffer;
    p->run = *run;
    p->run.options.learning_rate = 0;
    p->judge = judge;
    p->held = held;
    p->rows = AllocSetContextCreate(CurrentMemoryContext, "corgipile rows", ALLOCSET_DEFAULT_SIZES);
    b->stride = run->survey.width * run->source.bytes;
    b->slots = Max(Min((int64) PART_ROWS, PART_BYTES / b->stride), 1);
    b->x = MemoryContextAllocHuge(CurrentMemoryContext, (Size) (b->slots * b->stride));
    b->y = palloc(sizeof *b->y * (Size) b->slots);
    b->tid = palloc(sizeof *b->tid * (Size) b->slots);
    p->visit = palloc(sizeof *p->visit * (Size) b->slots);
    for (int32 i = 0; i < b->slots; i++)
        p->visit[i] = i;
    return p;
}

static void put_row(Pass *p, const CorgiSource *part, TupleTableSlot *row)
{
    const CorgiBuffer *b = &p->run.buffer;
    MemoryContext outside = MemoryContextSwitchTo(p->rows);
    slot_getsomeattrs(row, part->last);
    b->y[p->waiting] = corgi_read_label(&part->label, row);
    b->tid[p->waiting] = row->tts_tid;
    corgi_read_features(part, row, p->run.survey.width, b->x + p->waiting * b->stride);
    p->waiting++;
    MemoryContextSwitchTo(outside);
}

static void judge_rows(Pass *p)
{
    for (int64 done = 0; done < p->waiting;) {
        int status = corgi_machine_learn(p->judge, &p->run, p->visit, p->waiting, &done);
        if (status != CP_SGD_OK)
            corgi_machine_refuse(&p->run, status, p->visit[done]);
    }
    p->waiting = 0;
    MemoryContextReset(p->rows);
}

static void measure_part(Pass *p, const CorgiSource *part, Snapshot snapshot)
{
    TupleTableSlot *row = MakeSingleTupleTableSlot(RelationGetDescr(part->rel), table_slot_callbacks(part->rel));
    TableScanDesc scan = table_beginscan_strat(part->rel, snapshot, 0, NULL, true, false);
    while (table_scan_getnextslot(scan, ForwardScanDirection, row)) {
        if (p->held && !corgi_held_out(&p->run, p->number++))
            continue;
        put_row(p, part, row);
        if (p->waiting == p->run.buffer.slots)
            judge_rows(p);
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(row);
}

/* Measure a machine that has one row a batch on the table's rows, or on those held out. */
cp_figures corgi_measure(const CorgiRun *run, CorgiMachine *judge, bool held, Snapshot snapshot)
{
    MemoryContext outside = CurrentMemoryContext;
    MemoryContext context = AllocSetContextCreate(outside, "corgipile measure", ALLOCSET_DEFAULT_SIZES);
    Pass *p;
    MemoryContextSwitchTo(context);
    p = make_pass(run, judge, held);
    corgi_machine_begin(judge, 0);
    for (int i = 0; i < run->source.part_count; i++)
        measure_part(p, &run->source.parts[i], snapshot);
    judge_rows(p);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    return corgi_machine_end(judge);
}
