/* Reader of selected training rows by their numbers, between the survey and the first epoch. */
#include "reading.h"
#include "run.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* Pass a block's rows in the runs from `at` on to `take`. Returns the first run that continues after the block. */
static int64 read_block(const CorgiRun *run, Snapshot snapshot, int64 block, const int64 (*runs)[2], int64 at,
                        int64 count, CorgiRowConsumer take, void *to)
{
    const CorgiPlace *place = &run->survey.place[block];
    CorgiSource part = run->source.parts[place->part];
    CorgiScan *scan = corgi_scan_begin(&run->source.parts[place->part], snapshot);
    int64 number = place->row, row = run->survey.cuts[block], stop = run->survey.cuts[block + 1];
    part.bytes = sizeof(double);
    corgi_scan_seek(scan, place->page, Min(place->page + run->source.block_pages, part.pages));
    for (int rows; at < count && runs[at][0] < stop && (rows = corgi_scan_next(scan)) > 0;)
        for (int i = 0; i < rows; i++, number++) {
            if (corgi_held_out(run, number) || (run->where != NULL && !corgi_matches(run, number)))
                continue;
            while (at < count && runs[at][1] <= row)
                at++;
            if (at < count && runs[at][0] <= row)
                take(to, &part, corgi_scan_row(scan, i));
            row++;
        }
    while (at < count && runs[at][1] <= row)
        at++;
    corgi_scan_end(scan);
    return at;
}

/* Pass the training rows of ascending runs [first, stop) to `take`, with features as double precision. */
void corgi_read_runs(const CorgiRun *run, Snapshot snapshot, const int64 (*runs)[2], int64 count, CorgiRowConsumer take,
                     void *to)
{
    const CorgiSurvey *v = &run->survey;
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile runs", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    int64 at = 0;
    for (int64 block = 0; at < count && block < v->blocks; block++) {
        while (at < count && runs[at][0] >= runs[at][1])
            at++;
        if (at == count || runs[at][0] >= v->cuts[block + 1])
            continue;
        CHECK_FOR_INTERRUPTS();
        at = read_block(run, snapshot, block, runs, at, count, take, to);
        MemoryContextReset(context);
    }
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
}
