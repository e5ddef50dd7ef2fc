/* Texts by their number: the classes of a label, the categories of a column. */
#ifndef CORGIPILE_NAMES_H
#define CORGIPILE_NAMES_H

#include "postgres.h"

typedef struct {
    char *text;             /* in the server's encoding, ends with 0 */
    Size length;
    uint32 hash;
} CorgiName;

typedef struct {
    CorgiName *names;       /* [count], by their number */
    int64 count, room;
    Size bytes;             /* of all texts */
    int32 *table;           /* [1 << bits]: 1 + number, or 0 */
    int bits;
    int64 last;             /* found last: rows of one class lie together */
    MemoryContext context;
} CorgiNames;

extern CorgiNames *corgi_make_names(void);
extern int64 corgi_find_name(CorgiNames *n, const char *text, Size length);
extern int64 corgi_add_name(CorgiNames *n, const char *text, Size length);
extern void corgi_sort_names(CorgiNames *n, bool numbers);
extern void corgi_order_names(CorgiNames *n, int (*compare)(const void *, const void *));
extern const char *corgi_list_names(const CorgiNames *n);

/* The number of a text that is not there. */
enum { CORGI_UNNAMED = -1 };

#endif
