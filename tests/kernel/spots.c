/* Spreads spots over the blocks of a file of cases; prints how many, how large and where they are, and the vectors. */
#include "plan/spots.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t head[3]; /* rows, width, blocks; then the bytes of a row, then cuts */
    double row_bytes;
    while (file && fread(&length, 4, 1, file) == 1 && fread(head, 8, 3, file) == 3 && fread(&row_bytes, 8, 1, file) == 1) {
        cp_spots s = cp_spots_make(head[0], row_bytes);
        size_t numbers = (size_t)(s.count * head[1]), made = (size_t)(head[2] * head[1]);
        int64_t *cuts = malloc(8 * (size_t)(head[2] + 1)), *sums = malloc(8 * (size_t)head[1]);
        int16_t *vectors = malloc(2 * numbers + 1), *out = calloc(made + 1, 2);
        if (fread(cuts, 8, (size_t)(head[2] + 1), file) != (size_t)(head[2] + 1))
            return 1;
        for (size_t i = 0; i < numbers; i++)
            vectors[i] = (int16_t)(i * 2654435761u >> 7);
        cp_spots_spread(&s, vectors, head[1], cuts, head[2], sums, out);
        printf("%lld\n%lld\n", (long long)s.count, (long long)s.each);
        for (int64_t i = 0; i < s.count; i += 1 + s.count / 50)
            printf("%lld\n", (long long)cp_spot_row(&s, i));
        for (size_t i = 0; i < made; i++)
            printf("%d\n", out[i]);
        free(cuts), free(sums), free(vectors), free(out);
    }
    return 0;
}
