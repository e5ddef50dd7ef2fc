/* Orders blocks by vectors read from a file, if one is named, else by many made here; prints the orders, or a hash. */
#include "plan/seriate.h"
#include <stdio.h>

static int64_t *ordered(const int16_t *vectors, int64_t count, int32_t width, uint64_t key)
{
    int64_t *order = malloc(8 * (size_t)count + 1);
    int16_t *exact = malloc(2 * (size_t)(count * width) + 1); /* so that a read past the end is seen */
    memcpy(exact, vectors, 2 * (size_t)(count * width));
    if (cp_balance_vectors(exact, count, width, key, order) < 0)
        exit(1);
    free(exact);
    return order;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    uint64_t sum = 1;
    while (file && fread(&length, 4, 1, file) == 1) { /* a case: key, width, vectors */
        char *data = malloc(length);
        int32_t width;
        uint64_t key;
        if (fread(data, 1, length, file) != length)
            return 1;
        memcpy(&key, data, 8), memcpy(&width, data + 8, 4);
        int64_t count = (length - 12) / (2 * width), *order = ordered((int16_t *)(void *)(data + 12), count, width, key);
        for (int64_t i = 0; i < count; i++)
            printf("%lld\n", (long long)order[i]);
        free(order), free(data);
    }
    for (uint64_t seed = 0; !file && seed < 60; seed++) {
        int32_t width = 1 + (int32_t)cp_below(seed, 1, CP_TRAITS);
        int64_t count = (int64_t)cp_below(seed, 2, seed % 10 ? 300 : 5000), numbers = count * width;
        uint64_t span = 1 + cp_below(seed, 3, 1 << 16);
        int16_t *vectors = malloc(2 * (size_t)numbers + 1);
        for (int64_t i = 0; i < numbers; i++)
            vectors[i] = (int16_t)((int64_t)cp_below(seed, 9 + (uint64_t)i, span) - (int64_t)span / 2);
        int64_t *order = ordered(vectors, count, width, seed);
        for (int64_t i = 0; i < count; i++)
            sum = cp_mix(sum + (uint64_t)order[i]);
        free(vectors), free(order);
    }
    if (!file)
        printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
