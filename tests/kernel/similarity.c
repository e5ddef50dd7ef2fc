/* Prints the similarity of neighbouring rows of each case in a file, in millionths. */
#include "plan/similarity.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t head[4]; /* spots, rows of each, features, extras */
    while (file && fread(&length, 4, 1, file) == 1 && fread(head, 8, 4, file) == 4) {
        double *rows = malloc(length - 32);
        if (fread(rows, 1, length - 32, file) != length - 32)
            return 1;
        printf("%ld\n", lrint(1e6 * cp_similarity(rows, head[0], head[1], head[2], head[3])));
        free(rows);
    }
    return 0;
}
