/* Texts with numbers: the classes of a label, the categories of a column. */
#pragma once

#include "postgres.h"

typedef struct {
    char *text;             /* in the server's encoding, zero-terminated */
    Size length;
    uint32 hash;
} CorgiName;

typedef struct {
    CorgiName *names;       /* [count], by number */
    int64 count, room;
    Size bytes;             /* of all texts */
    int32 *table;           /* [1 << bits]: 1 + number, or 0 */
    int bits;
    int64 last;             /* last match: equal classes are often adjacent */
    MemoryContext context;
} CorgiNames;

extern CorgiNames *corgi_make_names(void);
extern int64 corgi_find_name(CorgiNames *n, const char *text, Size length);
extern int64 corgi_add_name(CorgiNames *n, const char *text, Size length);
extern void corgi_sort_names(CorgiNames *n, bool numbers);
extern void corgi_order_names(CorgiNames *n, int (*compare)(const void *, const void *));
extern const char *corgi_list_names(const CorgiNames *n);

/* Number of an absent text. */
enum { CORGI_UNNAMED = -1 };
