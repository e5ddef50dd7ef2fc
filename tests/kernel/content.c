/* Describes blocks by the rows of a file of cases; prints the numbers of their vectors. */
#include "plan/content.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t head[3]; /* features, extras, blocks; then where blocks end, then rows */
    while (file && fread(&length, 4, 1, file) == 1 && fread(head, 8, 3, file) == 3) {
        int64_t width = head[0] + head[1], numbers = cp_content_width(head[0], head[1]), blocks = head[2];
        size_t bytes = length - 24 - 8 * (size_t)blocks;
        int64_t *ends = malloc(8 * (size_t)blocks + 1), plain = cp_content_plain(head[0]);
        int64_t *room = malloc(8 * (size_t)cp_content_room(head[0], head[1]));
        double *turn = malloc(8 * (size_t)(plain * plain) + 1);
        double *rows = malloc(bytes + 1), *center = malloc(8 * (size_t)width), *scale = malloc(8 * (size_t)width);
        int16_t *out = malloc(2 * (size_t)(blocks * numbers) + 1);
        if (fread(ends, 8, (size_t)blocks, file) != (size_t)blocks || fread(rows, 1, bytes, file) != bytes)
            return 1;
        cp_content_scale(rows, (int64_t)bytes / 8 / width, width, center, scale);
        cp_lens lens = {head[0], head[1], center, scale, turn};
        cp_content_turn(&lens, rows, (int64_t)bytes / 8 / width, room, turn);
        cp_content(&lens, rows, ends, blocks, room, out);
        for (int64_t i = 0; i < blocks * numbers; i++)
            printf("%d\n", out[i]);
        free(ends), free(room), free(turn), free(rows), free(center), free(scale), free(out);
    }
    return 0;
}
