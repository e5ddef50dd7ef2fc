/* What a model in training knows beside its weights, as lines of numbers that a host stores: going on from a stored model
 * is then going on, to the bit. A line has a number a feature and one for the intercept; the last line begins with counts. */
#ifndef CP_SGD_KEEP_H
#define CP_SGD_KEEP_H

#include "sgd/state.h"

/* Numbers in the state: one a weight and one an intercept, laid out as the weights are. */
typedef struct {
    size_t at, bias;
    int bytes;
} cp_plane;

enum { CP_MOST_PLANES = 4 };

/* List the planes that a state has beside the weights. */
static inline int cp_sgd_planes(const cp_sgd *s, cp_plane *planes)
{
    int count = 0;
    if (s->averaged)
        planes[count++] = (cp_plane){s->mean, s->mean_bias, sizeof(double)};
    return count;
}

/* Return how many lines [features + 1] are to be kept; 0 of plain SGD. */
static inline int64_t cp_sgd_lines(const cp_sgd *s)
{
    cp_plane planes[CP_MOST_PLANES];
    int count = cp_sgd_planes(s, planes);
    return count ? count * s->outputs + 1 : 0;
}

static inline void cp_keep_number(char *at, int bytes, double *line, int into)
{
    float narrow = (float)*line;
    if (into && bytes == 4)
        memcpy(at, &narrow, sizeof narrow);
    else if (into)
        memcpy(at, line, sizeof *line);
    else if (bytes == 4)
        memcpy(&narrow, at, sizeof narrow), *line = (double)narrow;
    else
        memcpy(line, at, sizeof *line);
}

/* Copy a flushed state's lines out, or into it. */
static inline void cp_sgd_keep(cp_sgd *s, double *lines, int into)
{
    const int64_t line = s->features + 1;
    cp_plane planes[CP_MOST_PLANES];
    int count = cp_sgd_planes(s, planes);
    for (int p = 0; p < count; p++)
        for (int64_t k = 0; k < s->outputs; k++, lines += line) {
            char *plane = (char *)s + planes[p].at, *bias = (char *)s + planes[p].bias;
            for (int64_t j = 0; j < s->features; j++)
                cp_keep_number(plane + (s->sparse ? j * s->padded + k : k * s->padded + j) * planes[p].bytes,
                               planes[p].bytes, lines + j, into);
            cp_keep_number(bias + k * planes[p].bytes, planes[p].bytes, lines + s->features, into);
        }
    if (count && into)
        s->taken = (int64_t)*lines;
    else if (count)
        memset(lines, 0, (size_t)line * sizeof *lines), *lines = (double)s->taken;
}

#endif
