/* Declarations for reading pages into buffer slots. */
#pragma once

#include "postgres.h"

#include "source.h"

/* deform.c */
typedef struct {
    int32 offset;           /* in each row without NULLs; -1: it varies */
    int16 at, length;       /* at: column, from 0; length: -1 or -2 if it varies, as in pg_type */
    uint8 align;
    bool wanted;
} CorgiField;

typedef struct {
    CorgiField *all, *some; /* some: wanted fields and those to step over in rows without NULLs */
    int last, count;        /* sizes of all and some */
    const char **where;     /* by column: the field in the current row */
    bool serve;             /* the types allow the fast path */
} CorgiFields;

typedef struct {
    Page page;
    BlockNumber number;
    const OffsetNumber *items; /* of its visible rows */
} CorgiPage;
extern CorgiFields corgi_make_fields(const CorgiSource *s);
extern bool corgi_put_page_rows(const CorgiSource *s, const CorgiFields *fields, const CorgiPage *page,
                                const int16 *which, int count, int64 width, CorgiBuffer *b, const int32 *into);

/* heap.c */
extern bool corgi_heap_is_compatible(TableScanDesc scan);

/* scan.c */
enum { CORGI_MAX_ROWS = MaxHeapTuplesPerPage }; /* most rows of one scan step */
typedef struct CorgiScan CorgiScan;
extern CorgiScan *corgi_scan_begin(const CorgiSource *source, Snapshot snapshot);
extern void corgi_scan_seek(CorgiScan *s, int64 page, int64 stop);
extern int corgi_scan_next(CorgiScan *s);
extern TupleTableSlot *corgi_scan_row(CorgiScan *s, int i);
extern bool corgi_scan_put(CorgiScan *s, const int16 *which, int count, int64 width, CorgiBuffer *b, const int32 *into);
extern void corgi_scan_end(CorgiScan *s);

/* prefetch.c */
typedef struct CorgiPrefetcher CorgiPrefetcher;
extern CorgiPrefetcher *corgi_make_prefetcher(void);
extern bool corgi_prefetch_is_useful(CorgiPrefetcher *a);
extern bool corgi_prefetch(CorgiPrefetcher *a, Relation rel, int64 page, int64 count, bool threads);
extern void corgi_stop_prefetcher(CorgiPrefetcher *a);

/* sparse.c */
#define CORGI_MAX_NUMBERS ((int64) ((MaxAllocSize - 64) / sizeof(double))) /* of a model: the limit of an array */
extern void corgi_refuse_indices(const CorgiColumn *c, const ItemPointerData *tid, int status, int64 width);
extern int64 corgi_survey_pair(const CorgiSource *s, TupleTableSlot *row, int64 *width);
extern bool corgi_put_pair(const CorgiSource *s, const CorgiList *index, const CorgiList *values, CorgiBuffer *b,
                           int64 slot);
extern void corgi_project_pair(const CorgiSource *s, TupleTableSlot *row, double *out);
extern bool corgi_read_pair(const CorgiSource *s, TupleTableSlot *row, CorgiBuffer *b, int64 slot);

/* buffer.c */
extern int64 corgi_slot_bytes(const CorgiSource *s, int64 width);
extern CorgiBuffer corgi_make_buffer(const CorgiSource *s, int64 width, int64 slots, int64 widest, int64 heaviest);
extern void corgi_free_buffer(CorgiBuffer *b);
extern void corgi_begin_place(CorgiBuffer *b, int64 place);
extern bool corgi_put_row(const CorgiSource *s, TupleTableSlot *row, int64 width, CorgiBuffer *b, int64 slot);
