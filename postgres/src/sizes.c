/* Sizes: pages per block from stored bytes, TOAST included; buffered blocks from their bytes in memory. */
#include "members.h"
#include "reading.h"

#include "access/relation.h"
#include "plan/fit.h"
#include "storage/bufmgr.h"

enum { DEFAULT_BLOCK_BYTES = 64 << 10, MIN_BLOCKS = 16 };

/* Return the stored bytes of a table, its TOAST pages included. */
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

/* Return the pages that hold about block_bytes, TOAST included. */
int64 corgi_block_pages(const CorgiSource *s, const CorgiOptions *o)
{
    int64 wanted = o->block_bytes, bytes = 0;
    if (wanted == 0)
        wanted = Min((int64) DEFAULT_BLOCK_BYTES, o->buffer_bytes / CP_WHOLE_PILES);
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
        larger.budget += larger.budget / 4 + 1;
        spec = (cp_spec){.kind = run->options.order, .whole = run->source.sparse ? 1 : -1, .ahead = 1};
        cp_fit(&spec, &larger);
    } while (larger.budget < INT32_MAX / 2 &&
             (spec.buffer < blocks || cp_slots(&spec, run->survey.widest, run->survey.blocks) > larger.budget));
    return larger.budget * run->sizes.row_bytes + corgi_learner_bytes(run) + corgi_members_bytes(run);
}

/* Hint at sufficient sizes. */
static int hint_sizes(const CorgiRun *run, const cp_room *room)
{
    int64 sufficient = bytes_for(run, room, Min((int64) MIN_BLOCKS, run->survey.blocks)) / 1024 + 1;
    int64 block = run->options.buffer_bytes / CP_WHOLE_PILES / 1024;
    if (run->source.block_pages == 1 || block * 1024 < BLCKSZ)
        return errhint("Give buffer_size => '" INT64_FORMAT "kB'.", sufficient);
    return errhint("Leave block_size out, or give block_size => '" INT64_FORMAT "kB', or buffer_size => '" INT64_FORMAT
                   "kB'.",
                   block, sufficient);
}

static void check_buffer(const CorgiRun *run, const cp_room *room)
{
    const CorgiSizes *z = &run->sizes;
    int64 blocks = run->survey.blocks;
    if (z->slots > room->budget)
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("the buffer holds " INT64_FORMAT " rows, but order %s over blocks of " INT64_FORMAT
                       " rows needs at least " INT64_FORMAT,
                       room->budget, run->options.order_name, run->survey.widest, z->slots),
                hint_sizes(run, room));
    if (!cp_order(run->options.order)->mixes || z->buffer_blocks >= Min((int64) MIN_BLOCKS, blocks))
        return;
    if (z->buffer_blocks == 1)
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("the buffer holds one block of " INT64_FORMAT
                       " pages at a time: rows of different blocks would not be mixed",
                       run->source.block_pages),
                hint_sizes(run, room));
    ereport(NOTICE,
            errmsg("the buffer holds only " INT64_FORMAT " of " INT64_FORMAT " blocks: rows are mixed poorly",
                   z->buffer_blocks, blocks),
            hint_sizes(run, room));
}

/* Return the part of buffer_size for rows. */
static int64 bytes_for_rows(const CorgiRun *run)
{
    int64 bytes = run->options.buffer_bytes, model_bytes = corgi_learner_bytes(run);
    if (model_bytes > bytes / 4 * 3)
        ereport(
            ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size is " INT64_FORMAT " kB; in training the model takes " INT64_FORMAT
                   " kB, with hash_bits %d",
                   bytes / 1024, model_bytes / 1024, corgi_hashing(&run->source)->bits),
            errhint("Give buffer_size => '" INT64_FORMAT "kB', or fewer hash_bits.", model_bytes / 3 * 4 / 1024 + 1));
    return bytes - model_bytes - corgi_members_bytes(run);
}

/* Convert buffer_size to blocks and slots as Python does. One read-ahead step always counts, so that threads do not
 * change the model. */
void corgi_fit_sizes(CorgiRun *run)
{
    CorgiSizes *z = &run->sizes;
    const CorgiSurvey *v = &run->survey;
    cp_spec spec = {.kind = run->options.order, .whole = run->source.sparse ? 1 : -1, .ahead = 1};
    cp_room room = {.rows = v->rows, .blocks = v->blocks, .widest = v->widest, .balanced = run->options.balance,
                    .spare = run->options.spare};
    z->row_bytes = corgi_slot_bytes(&run->source, v->width) + (v->heaviest + v->widest - 1) / v->widest;
    room.step = cp_step_rows((double) z->row_bytes);
    room.near = CP_CACHED_BUFFER_BYTES / z->row_bytes;
    room.row_bytes = (double) z->row_bytes;
    room.budget = Min(bytes_for_rows(run) / z->row_bytes, (int64) INT32_MAX - 1);
    cp_fit(&spec, &room);
    z->buffer_blocks = cp_order(spec.kind)->deals ? spec.buffer : Min(spec.buffer, v->blocks);
    z->group = spec.group;
    z->whole = spec.whole;
    z->slots = cp_slots(&spec, v->widest, v->blocks);
    check_buffer(run, &room);
}
