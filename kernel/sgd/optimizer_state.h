/* The optimizer state of a model, as lines of numbers that a host stores, so that training resumes bit for bit. A line
 * has one number per feature and one for the intercept; the last line begins with counters. */
#pragma once

#include "sgd/state.h"

/* An array in the state: one number per weight and per intercept, or, if `shared`, one per feature. Output k and
 * feature j are at k * output + j * feature. */
typedef struct {
    size_t at, bias;
    int bytes, shared;
    int64_t output, feature;
} cp_plane;

enum { CP_MAX_PLANES = 3 };

/* Return the number of counters. */
static inline int64_t cp_sgd_counts(const cp_sgd *s) { return s->rule == CP_MOMENTS ? 6 : 4; }

/* List the state's arrays besides the weights; returns their number. */
static inline int cp_sgd_planes(const cp_sgd *s, cp_plane *planes)
{
    const int64_t output = s->sparse ? 1 : s->padded, stride = s->sparse ? s->stride : 1;
    int count = 0;
    if (s->averaged)
        planes[count++] = (cp_plane){s->mean, s->mean_bias, sizeof(double), 0, output, s->sparse ? s->padded : 1};
    if (s->rule != CP_SAME)
        planes[count++] = (cp_plane){s->sums, s->sum_bias, s->bytes, 0, output, stride};
    if (s->rule == CP_NORMALIZED)
        planes[count++] = (cp_plane){s->inv, 0, s->bytes, 1, 0, stride};
    if (s->rule == CP_MOMENTS)
        planes[count++] = (cp_plane){s->means, s->mean_biases, s->bytes, 0, output, stride};
    return count;
}

/* Return how many lines [features + 1] the state takes; 0 for plain SGD. Counters come last, on as many lines as
 * needed. */
static inline int64_t cp_sgd_optimizer_lines(const cp_sgd *s)
{
    cp_plane planes[CP_MAX_PLANES];
    int64_t lines = 0;
    int count = cp_sgd_planes(s, planes);
    for (int p = 0; p < count; p++)
        lines += planes[p].shared ? 1 : s->outputs;
    return count ? lines + (cp_sgd_counts(s) + s->features) / (s->features + 1) : 0;
}

static inline void cp_plane_copy_number(char *at, int bytes, double *line, int into)
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

/* Copy one line of a plane, into the state or out of it. */
static inline void cp_plane_copy_line(cp_sgd *s, const cp_plane *p, int64_t k, double *line, int into)
{
    char *plane = (char *)s + p->at;
    for (int64_t j = 0; j < s->features; j++)
        cp_plane_copy_number(plane + (k * p->output + j * p->feature) * p->bytes, p->bytes, line + j, into);
    if (!p->shared)
        cp_plane_copy_number((char *)s + p->bias + k * p->bytes, p->bytes, line + s->features, into);
    else if (!into)
        line[s->features] = 0;
}

/* Copy the lines of a flushed state out, or into it. */
static inline void cp_sgd_copy_optimizer_state(cp_sgd *s, double *lines, int into)
{
    const int64_t line = s->features + 1, counts = (cp_sgd_counts(s) + s->features) / line;
    cp_plane planes[CP_MAX_PLANES];
    int count = cp_sgd_planes(s, planes);
    for (int p = 0; p < count; p++)
        for (int64_t k = 0; k < (planes[p].shared ? 1 : s->outputs); k++, lines += line)
            cp_plane_copy_line(s, &planes[p], k, lines, into);
    if (count == 0)
        return;
    if (into) {
        s->taken = (int64_t)lines[0];
        s->seen = lines[1];
        s->norm = lines[2];
        s->slopes = lines[3];
        for (int i = 0; s->rule == CP_MOMENTS && i < 2; i++)
            s->fade[i] = lines[4 + i];
        return;
    }
    memset(lines, 0, (size_t)(counts * line) * sizeof *lines);
    lines[0] = (double)s->taken;
    lines[1] = s->seen;
    lines[2] = s->norm;
    lines[3] = s->slopes;
    for (int i = 0; s->rule == CP_MOMENTS && i < 2; i++)
        lines[4 + i] = s->fade[i];
}

/* Reset the optimizer state; for sparse models the weights too, which share its memory. */
static inline void cp_sgd_forget(cp_sgd *s)
{
    memset(CP_AT(s, char, mean), 0, s->size - s->mean); /* `mean` and all that the layout places after it */
    if (s->sparse)
        memset(CP_AT(s, char, w), 0, (size_t)(s->stride * s->features * s->bytes));
    s->taken = s->since = s->counted = 0;
    s->seen = s->norm = s->slopes = s->open = s->owed = 0;
    s->fade[0] = s->fade[1] = 1;
}
