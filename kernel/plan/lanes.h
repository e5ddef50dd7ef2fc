/* Lanes: plans of stretches of a pass that run side by side, each with slots of its own among those of one buffer.
 *
 * A step takes the next visits of some lanes. What a lane visits that is not wanted is given up: its slot is free at once,
 * and a run of which nothing is wanted is not read. Slots that a step visits are free after the `ahead` steps that follow. */
#ifndef CP_LANES_H
#define CP_LANES_H

#include "plan/plan.h"
#include "plan/slots.h"

/* One plan, and which of its visits are wanted: those of some columns of each `each`, at some of its turns. */
typedef struct {
    cp_plan *plan;
    int64_t each, first, stop;      /* columns from first to stop of each */
    int64_t group, groups;          /* turn t of the lane is batch t * groups + group... */
    int64_t worker, workers;        /* ...and wanted where that leaves `worker`, divided by `workers` */
    int64_t place, skip;            /* the next visit that is not skipped; visits that were done before */
    int32_t *slot_of;               /* [slots of the plan] */
    int64_t *row_of;                /* [slots of the plan] which of all rows that the lanes loaded is there */
    int32_t *waiting;               /* [room] slots that wait to be taken: `count` from `head` on */
    int64_t head, count, room;
} cp_lane;

typedef struct {
    int64_t lane, at, stride, count; /* batches of a lane: the first one's slots go to visit[at], each next one's `stride` on */
} cp_take;

typedef struct {
    cp_lane *lanes;
    int64_t count, room;
    cp_slot_pool pool;
    int64_t slots, ahead, number;
    int64_t loaded;                 /* rows of the steps before */
    int32_t **visited;              /* [ahead + 1] visits of the last steps, in a ring */
    int64_t *visits;
    /* of the step that is made */
    int64_t *extents, extent_count, extent_room;
    int32_t *into, *sweep, *visit;  /* sweep and visit: of one step of one plan */
    int64_t reads, into_room, sweep_room, visit_room;
    int given_up;
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

/* Prepare lanes that share so many slots. Returns -1 without memory. */
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

/* Make room for so many items; what was there stays. Returns the array, or NULL. */
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

/* Add a lane; the caller keeps its plan alive, which nobody else follows. Returns its number, -1 without memory. */
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

/* Give up the row in a slot of a lane that nobody visits; one of this step is not even loaded. */
static inline void cp_lane_discard(cp_lanes *l, const cp_lane *lane, int32_t own)
{
    int64_t row = lane->row_of[own] - l->loaded;
    if (row >= 0) {
        l->into[row] = -1;
        l->given_up = 1;
    }
    cp_slot_pool_give(&l->pool, lane->slot_of[own]);
}

static inline int cp_lane_wants(const cp_lane *lane, int64_t place)
{
    int64_t turn = place / lane->each, column = place - turn * lane->each;
    return column >= lane->first && column < lane->stop &&
           (turn * lane->groups + lane->group) % lane->workers == lane->worker;
}

/* Make room for the step that a lane's plan has sized up, behind what this step loads already. */
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

/* Give the rows that a lane's plan loads their slots among all; what the plan puts side by side stays so if it can. */
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

/* Follow the next step of a lane: what it loads is loaded, what it visits waits to be taken, or is given up. */
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

/* Leave out runs of which no row is wanted. */
static inline void cp_lanes_trim(cp_lanes *l)
{
    int64_t kept = 0, rows = 0, at = 0;
    for (int64_t i = 0; i < l->extent_count; i++) {
        int64_t start = l->extents[2 * i], stop = l->extents[2 * i + 1], count = stop - start, wanted = 0;
        for (int64_t k = at; k < at + count; k++)
            wanted |= l->into[k] >= 0;
        if (wanted) {
            memmove(l->into + rows, l->into + at, 4 * (size_t)count);
            l->extents[2 * kept] = start, l->extents[2 * kept + 1] = stop;
            rows += count, kept++;
        }
        at += count;
    }
    l->extent_count = kept, l->reads = rows;
}

/* Make the next step, which visits `visits` slots: writes them, and leaves what it loads in `extents` and `into`. */
static inline int cp_lanes_next(cp_lanes *l, const cp_take *takes, int64_t count, int32_t *visit, int64_t visits)
{
    int64_t last = ++l->number % (l->ahead + 1);
    for (int64_t i = 0; i < l->visits[last]; i++)
        cp_slot_pool_give(&l->pool, l->visited[last][i]);
    l->visits[last] = l->extent_count = l->reads = l->given_up = 0;
    for (int64_t i = 0; i < count; i++) {
        int status = cp_lanes_take(l, &takes[i], visit);
        if (status != CP_LANES_MADE)
            return status;
    }
    l->loaded += l->reads;
    if (l->given_up)
        cp_lanes_trim(l);
    int32_t *kept = realloc(l->visited[last], 4 * (size_t)visits + 1);
    if (!kept)
        return CP_LANES_NO_MEMORY;
    memcpy(kept, visit, 4 * (size_t)visits);
    l->visited[last] = kept, l->visits[last] = visits;
    return CP_LANES_MADE;
}

#endif
