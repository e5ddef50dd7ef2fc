/* Chooses sizes: pages of a block by stored bytes, TOAST included; blocks in the buffer by its bytes in memory. */
#include "corgipile.h"

#include "access/relation.h"
#include "fit.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

enum { DEFAULT_BLOCK_BYTES = 256 << 10, DEFAULT_BLOCKS = 192, FEWEST_BLOCKS = 16 };

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

/* Return the bytes of a buffer that holds so many blocks. */
static int64 bytes_for(const CorgiRun *run, const cp_room *room, int64 blocks)
{
    cp_room larger = *room;
    cp_spec spec;
    do {
        larger.budget *= 2;
        spec = (cp_spec){.kind = run->options.order, .whole = run->source.sparse ? 1 : -1, .ahead = 1};
        cp_fit(&spec, &larger);
    } while (spec.buffer < blocks && larger.budget < INT32_MAX / 2);
    return larger.budget * run->sizes.row_bytes;
}

/* Refuse a buffer that mixes nothing but the rows of one block. */
static void check_mixing(const CorgiRun *run, const cp_room *room)
{
    int64 blocks = run->survey.blocks, enough = Min((int64) FEWEST_BLOCKS, blocks);
    if (run->options.order < CP_CORGIPILE || run->sizes.buffer_blocks > 1 || blocks < 2)
        return;
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size => '" INT64_FORMAT "kB' holds one block of " INT64_FORMAT
                   " pages at a time: rows of different blocks would not be mixed",
                   run->options.buffer_bytes / 1024, run->source.block_pages),
            errhint("Leave block_size out, or give block_size => '" INT64_FORMAT "kB', or buffer_size => '" INT64_FORMAT
                    "kB'.",
                    Max(run->options.buffer_bytes / DEFAULT_BLOCKS / 1024, BLCKSZ / 1024),
                    bytes_for(run, room, enough) / 1024 + 1));
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

/* Turn buffer_size into blocks and slots, as corgipile does in Python. A step read ahead counts with one thread too, so
 * that threads do not change the model. */
void corgi_fit_sizes(CorgiRun *run)
{
    CorgiSizes *z = &run->sizes;
    const CorgiSurvey *v = &run->survey;
    cp_spec spec = {.kind = run->options.order, .whole = run->source.sparse ? 1 : -1, .ahead = 1};
    cp_room room = {.rows = v->rows, .blocks = v->blocks, .widest = v->widest, .balanced = run->options.balance};
    z->row_bytes = corgi_slot_bytes(&run->source, v->width) + (v->heaviest + v->widest - 1) / v->widest;
    room.step = cp_step_rows((double) z->row_bytes);
    room.budget = Min(run->options.buffer_bytes / z->row_bytes, (int64) INT32_MAX - 1);
    cp_fit(&spec, &room);
    z->buffer_blocks = spec.kind == CP_RIFFLE ? spec.buffer : Min(spec.buffer, v->blocks);
    z->group = spec.group;
    z->whole = spec.whole;
    z->slots = cp_slots(&spec, v->widest, v->blocks);
    check_room(run, room.budget);
    check_mixing(run, &room);
}
