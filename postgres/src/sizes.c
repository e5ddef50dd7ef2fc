/* Chooses sizes: pages of a block by stored bytes, TOAST included; blocks in the buffer by its bytes in memory. */
#include "corgipile.h"

#include "access/relation.h"
#include "plan.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

enum { DEFAULT_BLOCK_BYTES = 256 << 10, DEFAULT_BLOCKS = 192, STEP_ROWS = 8192, STEP_BYTES = 2 << 20, CHUNKS = 128 };
enum { FEWEST_BLOCKS = 16, BALANCED_BLOCKS = 64, WHOLE_PILES = 192, AHEAD = 1 };

/* The bytes of a table's rows, its TOAST pages included. */
static int64 stored_bytes(const CorgiSource *part)
{
    int64 bytes = part->pages * BLCKSZ;
    if (OidIsValid(part->rel->rd_rel->reltoastrelid)) {
        Relation toast = relation_open(part->rel->rd_rel->reltoastrelid, AccessShareLock);
        bytes += (int64) RelationGetNumberOfBlocks(toast) * BLCKSZ;
        relation_close(toast, NoLock);
    }
    return bytes;
}

/* Return the pages of a block: as many as hold about block_bytes, counting each row's TOASTed part. */
int64 corgi_block_pages(const CorgiSource *s, const CorgiOptions *o)
{
    int64 wanted = o->block_bytes, bytes = 0;
    if (wanted == 0)
        wanted = Min((int64) DEFAULT_BLOCK_BYTES, o->buffer_bytes / DEFAULT_BLOCKS);
    for (int i = 0; i < s->part_count; i++)
        bytes += stored_bytes(&s->parts[i]);
    return Min(Max(wanted / Max(bytes / Max(s->pages, 1), 1), 1), Max(s->pages, 1));
}

/* Slots for this many blocks and a step read ahead: as many with one thread, so that threads do not change the model. */
static int64 slots_of(const CorgiRun *run, int64 blocks)
{
    const CorgiSizes *z = &run->sizes;
    cp_spec spec = {.kind = run->options.order, .buffer = blocks, .group = z->group, .shift = z->shift,
                    .whole = z->whole, .ahead = AHEAD};
    return cp_slots(&spec, run->survey.widest, run->survey.blocks);
}

/* Find the largest number of blocks whose slots fit the budget; 1 if none does. */
static int64 largest(const CorgiRun *run, int64 budget, int64 most)
{
    int64 low = 1, high = Max(most, 1);
    while (low < high) {
        int64 middle = (low + high + 1) / 2;
        if (slots_of(run, middle) <= budget)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void check_room(const CorgiRun *run, int64 budget)
{
    const CorgiSizes *z = &run->sizes;
    if (z->slots > budget)
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("the buffer holds " INT64_FORMAT " rows, but order %s over blocks of " INT64_FORMAT
                       " rows needs at least " INT64_FORMAT,
                       budget, run->options.order_name, run->survey.widest, z->slots),
                errhint("Give buffer_size => '" INT64_FORMAT "kB' or a smaller block_size.",
                        z->slots * z->row_bytes / 1000 + 1));
    if (run->options.order >= CP_CORGIPILE && z->buffer_blocks < Min((int64) FEWEST_BLOCKS, run->survey.blocks))
        ereport(NOTICE,
                errmsg("the buffer holds only " INT64_FORMAT " of " INT64_FORMAT " blocks: rows are mixed poorly",
                       z->buffer_blocks, run->survey.blocks),
                errhint("Give a larger buffer_size or a smaller block_size."));
}

/* Turn buffer_size into blocks and slots, as corgipile does in Python: riffle loads a group of
 * blocks a step and keeps blocks as they were read where that leaves piles enough, for what is written in one run is
 * written fastest; orders that mix nothing load as many blocks as make a step worth its overhead. */
void corgi_fit_sizes(CorgiRun *run)
{
    CorgiSizes *z = &run->sizes;
    const CorgiSurvey *v = &run->survey;
    int64 budget, step, room, most;
    z->row_bytes = corgi_slot_bytes(&run->source, v->width) + (v->heaviest + v->widest - 1) / v->widest;
    budget = Min(run->options.buffer_bytes / z->row_bytes, (int64) INT32_MAX - 1);
    step = Max(Min((int64) STEP_ROWS, STEP_BYTES / z->row_bytes), 1);
    step = (step + v->widest - 1) / v->widest;
    room = budget / v->widest;
    z->group = 1;
    most = v->blocks;
    if (run->options.order == CP_RIFFLE) {
        z->group = Max(Min(room / 8, step), 1);
        z->whole = run->source.sparse || run->options.balance || room >= WHOLE_PILES;
        while (v->widest / CHUNKS >> (z->shift + 1))
            z->shift++;
        most = z->whole ? 2 * v->blocks : v->blocks;
        most = run->options.balance ? Min(most, (int64) BALANCED_BLOCKS) : most;
    }
    if (run->options.order < CP_CORGIPILE)
        z->buffer_blocks = Max(Min(Min(step, room / (1 + AHEAD)), v->blocks), 1);
    else
        z->buffer_blocks = largest(run, budget, most);
    z->slots = slots_of(run, z->buffer_blocks);
    check_room(run, budget);
}
