/* Runs the plans of several stretches of a pass in parallel; each lane has its own slots in one shared buffer.
 *
 * A step takes the next visits of some lanes. Unwanted visits are discarded: their slots are free at once, and a run
 * without wanted rows is not read. Slots that a step visits are free after the `ahead` steps that follow. */
#pragma once

#include "plan/plan.h"
#include "plan/slots.h"

/* One plan, and which of its visits are wanted: some columns of each batch of `each`, in some batches. */
typedef struct {
    cp_plan *plan;
    int64_t each, first, stop;      /* columns from first to stop of each batch */
    int64_t group, groups;          /* batch t of the lane has the number t * groups + group... */
    int64_t worker, workers;        /* ...and is wanted if that modulo `workers` is `worker` */
    int64_t place, skip;            /* the next visit after the skipped ones; visits already done */
    int32_t *slot_of;               /* [slots of the plan] */
    int64_t *row_of;                /* [slots of the plan] the row in it, numbered over all rows that the lanes
                                     * loaded */
    int32_t *waiting;               /* [room] slots ready to be taken: `count` from `head` on */
    int64_t head, count, room;
} cp_lane;

typedef struct {
    int64_t lane, at, stride, count; /* batches of a lane: the first one's slots go to visit[at], each next one's
                                      * `stride` further */
} cp_take;

typedef struct {
    cp_lane *lanes;
    int64_t count, room;
    cp_slot_pool pool;
    int64_t slots, ahead, number;
    int64_t loaded;                 /* rows loaded in earlier steps */
    int32_t **visited;              /* [ahead + 1] visits of the last steps, in a ring */
    int64_t *visits;
    /* of the current step */
    int64_t *extents, extent_count, extent_room;
    int32_t *into, *sweep, *visit;  /* sweep and visit: of one step of one plan */
    int64_t reads, into_room, sweep_room, visit_room;
    int has_discards;
} cp_lanes;

enum cp_lanes_status { CP_LANES_MADE, CP_LANES_NO_MEMORY, CP_LANES_OUTGROWN, CP_LANES_ENDED };

static inline void cp_lanes_free(cp_lanes *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        free(l->lanes[i].slot_of);
        free(l->lanes[i].row_of);
        free(l->lanes[i].waiting);
    }
    for (int64_t i = 0; l->visited && i <= l->ahead; i++)
        free(l->visited[i]);
    free(l->lanes);
    cp_slot_pool_free(&l->pool);
    free(l->visited);
    free(l->visits);
    free(l->extents);
    free(l->into);
    free(l->sweep);
    free(l->visit);
    memset(l, 0, sizeof *l);
}

/* Prepare lanes that share this many slots. Returns -1 if out of memory. */
static inline int cp_lanes_init(cp_lanes *l, int64_t slots, int64_t ahead)
{
    memset(l, 0, sizeof *l);
    l->slots = slots, l->ahead = ahead, l->number = -1;
    l->visited = calloc((size_t)ahead + 1, sizeof *l->visited);
    l->visits = calloc((size_t)ahead + 1, sizeof *l->visits);
    if (l->visited && l->visits)
        return 0;
    cp_lanes_free(l);
    return -1;
}

/* Grow an array to this many items, keeping its content. Returns the array, or NULL if out of memory. */
static inline void *cp_lanes_room(void *array, int64_t *room, int64_t need, size_t item)
{
    if (array && need <= *room)
        return array;
    need += need / 2 + 8;
    void *more = realloc(array, item * (size_t)need);
    if (more)
        *room = need;
    return more;
}

/* Add a lane; the caller keeps its plan alive and does not advance it. Returns its number, or -1 if out of memory. */
static inline int64_t cp_lanes_add(cp_lanes *l, const cp_lane *like)
{
    const cp_spec *s = &like->plan->spec;
    int64_t slots = cp_max64(1, cp_slots(s, like->plan->widest, s->blocks));
    if (!l->count && cp_slot_pool_init(&l->pool, l->slots, like->plan->widest) < 0)
        return -1;
    cp_lane *more = cp_lanes_room(l->lanes, &l->room, l->count + 1, sizeof *more);
    if (!more)
        return -1;
    l->lanes = more;
    cp_lane *lane = &more[l->count];
    *lane = *like;
    lane->waiting = NULL, lane->head = lane->count = lane->room = 0;
    lane->slot_of = malloc(sizeof *lane->slot_of * (size_t)slots);
    lane->row_of = malloc(sizeof *lane->row_of * (size_t)slots);
    if (lane->slot_of && lane->row_of)
        return l->count++;
    free(lane->slot_of);
    free(lane->row_of);
    return -1;
}

/* Discard the row in a lane's slot; a row of this step is not even loaded. */
static inline void cp_lane_discard(cp_lanes *l, const cp_lane *lane, int32_t own)
{
    int64_t row = lane->row_of[own] - l->loaded;
    if (row >= 0) {
        l->into[row] = -1;
        l->has_discards = 1;
    }
    cp_slot_pool_give(&l->pool, lane->slot_of[own]);
}

static inline int cp_lane_wants(const cp_lane *lane, int64_t place)
{
    int64_t turn = place / lane->each, column = place - turn * lane->each;
    return column >= lane->first && column < lane->stop &&
           (turn * lane->groups + lane->group) % lane->workers == lane->worker;
}

/* Grow the arrays for the step that a lane's plan has begun, behind what this step already loads. */
static inline int cp_lane_fit(cp_lanes *l, cp_lane *lane)
{
    const cp_plan *plan = lane->plan;
    void *p;
    if (!(p = cp_lanes_room(l->extents, &l->extent_room, l->extent_count + plan->extents, 16)))
        return -1;
    l->extents = p;
    if (!(p = cp_lanes_room(l->into, &l->into_room, l->reads + plan->reads, 4)))
        return -1;
    l->into = p;
    if (!(p = cp_lanes_room(l->sweep, &l->sweep_room, plan->reads, 4)))
        return -1;
    l->sweep = p;
    if (!(p = cp_lanes_room(l->visit, &l->visit_room, plan->visits, 4)))
        return -1;
    l->visit = p;
    if (lane->head && lane->head + lane->count + plan->visits > lane->room) {
        memmove(lane->waiting, lane->waiting + lane->head, sizeof *lane->waiting * (size_t)lane->count);
        lane->head = 0;
    }
    if (!(p = cp_lanes_room(lane->waiting, &lane->room, lane->head + lane->count + plan->visits, 4)))
        return -1;
    lane->waiting = p;
    return 0;
}

/* Assign shared slots to the rows that a lane's plan loads; rows that the plan keeps adjacent stay adjacent if
 * possible. */
static inline int cp_lane_load(cp_lanes *l, cp_lane *lane, int64_t reads)
{
    int32_t *into = l->into + l->reads;
    for (int64_t from = 0, to; from < reads; from = to) {
        to = from + 1;
        if (into[from] < 0)
            continue;
        while (to < reads && to - from < l->pool.chunk && into[to] == into[to - 1] + 1)
            to++;
        int32_t *slot = lane->slot_of + into[from];
        if (cp_slot_pool_take(&l->pool, to - from, slot) < 0)
            return -1;
        int64_t *row = lane->row_of + into[from], at = l->loaded + l->reads;
        for (int64_t i = from; i < to; i++)
            *row++ = at + i;
        memcpy(into + from, slot, sizeof *slot * (size_t)(to - from));
    }
    l->reads += reads;
    return 0;
}

/* Advance a lane's plan by one step: load its rows, and queue or discard its visits. */
static inline int cp_lane_advance(cp_lanes *l, cp_lane *lane)
{
    cp_plan *plan = lane->plan;
    int status = cp_plan_begin(plan);
    if (status <= 0)
        return status < 0 ? CP_LANES_NO_MEMORY : CP_LANES_ENDED;
    if (cp_lane_fit(l, lane) < 0)
        return CP_LANES_NO_MEMORY;
    int64_t reads = plan->reads, visits = plan->visits, at = 0;
    if (cp_plan_next(plan, l->extents + 2 * l->extent_count, l->into + l->reads, l->sweep, l->visit) < 0)
        return CP_LANES_OUTGROWN;
    l->extent_count += plan->extents;
    if (cp_lane_load(l, lane, reads) < 0)
        return CP_LANES_OUTGROWN;
    for (; at < visits && lane->skip; at++, lane->skip--)
        cp_lane_discard(l, lane, l->visit[at]);
    int entire = lane->first == 0 && lane->stop == lane->each && lane->groups % lane->workers == 0;
    int32_t *end = lane->waiting + lane->head + lane->count;
    for (; at < visits; at++, lane->place++) {
        if (entire || cp_lane_wants(lane, lane->place))
            *end++ = lane->slot_of[l->visit[at]];
        else
            cp_lane_discard(l, lane, l->visit[at]);
    }
    lane->count = end - lane->waiting - lane->head;
    return CP_LANES_MADE;
}

/* Write the slots of the next batches of a lane. */
static inline int cp_lanes_take(cp_lanes *l, const cp_take *take, int32_t *visit)
{
    cp_lane *lane = &l->lanes[take->lane];
    int64_t width = lane->stop - lane->first, wanted = take->count * width;
    while (lane->count < wanted) {
        int status = cp_lane_advance(l, lane);
        if (status != CP_LANES_MADE)
            return status;
    }
    for (int64_t i = 0; wanted && i < take->count; i++)
        memcpy(visit + take->at + i * take->stride, lane->waiting + lane->head + i * width, 4 * (size_t)width);
    lane->head += wanted, lane->count -= wanted;
    return CP_LANES_MADE;
}

/* Drop runs without wanted rows. */
static inline void cp_lanes_trim(cp_lanes *l)
{
    int64_t remaining = 0, rows = 0, at = 0;
    for (int64_t i = 0; i < l->extent_count; i++) {
        int64_t start = l->extents[2 * i], stop = l->extents[2 * i + 1], count = stop - start, wanted = 0;
        for (int64_t k = at; k < at + count; k++)
            wanted |= l->into[k] >= 0;
        if (wanted) {
            memmove(l->into + rows, l->into + at, 4 * (size_t)count);
            l->extents[2 * remaining] = start, l->extents[2 * remaining + 1] = stop;
            rows += count, remaining++;
        }
        at += count;
    }
    l->extent_count = remaining, l->reads = rows;
}

/* Build the next step with `visits` visits: writes them, and leaves its loads in `extents` and `into`. */
static inline int cp_lanes_next(cp_lanes *l, const cp_take *takes, int64_t count, int32_t *visit, int64_t visits)
{
    int64_t last = ++l->number % (l->ahead + 1);
    for (int64_t i = 0; i < l->visits[last]; i++)
        cp_slot_pool_give(&l->pool, l->visited[last][i]);
    l->visits[last] = l->extent_count = l->reads = l->has_discards = 0;
    for (int64_t i = 0; i < count; i++) {
        int status = cp_lanes_take(l, &takes[i], visit);
        if (status != CP_LANES_MADE)
            return status;
    }
    l->loaded += l->reads;
    if (l->has_discards)
        cp_lanes_trim(l);
    int32_t *remaining = realloc(l->visited[last], 4 * (size_t)visits + 1);
    if (!remaining)
        return CP_LANES_NO_MEMORY;
    memcpy(remaining, visit, 4 * (size_t)visits);
    l->visited[last] = remaining, l->visits[last] = visits;
    return CP_LANES_MADE;
}
