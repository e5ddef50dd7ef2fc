"""Measures how deep JSON nests under the address and undefined-behaviour sanitizers, whole texts and pieces of them."""

import json
import random

MAIN = r"""
#include "formats/nesting.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    while (file && fread(&length, 4, 1, file) == 1) {
        char *text = malloc(length + !length); /* just as long as it must be */
        if (fread(text, 1, length, file) != length)
            return 1;
        printf("%lld\n", (long long)cp_nesting(text, length));
        free(text);
    }
    return 0;
}
"""


def depth(text):
    """Return the most brackets that are open at once outside strings, one character at a time."""
    deep = most = 0
    inside = skipped = False
    for letter in text:
        if skipped:
            skipped = False
        elif inside:
            skipped, inside = letter == "\\", letter != '"'
        elif letter == '"':
            inside = True
        elif letter in "[{":
            deep += 1
            most = max(most, deep)
        elif letter in "]}":
            deep = max(deep - 1, 0)
    return most


def test_depth_of_brackets_under_sanitizers(sanitized):
    rng = random.Random(17)  # noqa: S311
    texts = ["", '"', "\\", '"\\', '"\\"', '["\\\\"]', "]]]]", "[" * 3000, json.dumps({'"[{\\': ["]\\", '\\"[']})]
    texts += ["".join(rng.choices('[{]}"\\a,', k=rng.randrange(30))) for _ in range(2000)]
    assert sanitized(MAIN, [text.encode() for text in texts]) == [depth(text) for text in texts]
