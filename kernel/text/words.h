/* Words of text and their n-grams, in lower case and separated by one space. */
#pragma once

#include "text/letters.h"

#include <stdlib.h>
#include <string.h>

#define CP_MAX_NGRAMS 8
#define CP_WORDS_DROP_BYTES ((int64_t)1 << 16) /* bytes of past words from which they are dropped */

/* A reader of one text after another. The words of n-grams are contiguous in its own memory. */
typedef struct {
    uint8_t *bytes;
    int64_t room, used;
    int64_t begins[CP_MAX_NGRAMS]; /* start of the last words, the latest first */
    int count, ngrams, open;        /* words stored, most words per n-gram, whether the latest word is unfinished */
    const uint8_t *at, *end;
} cp_words;

static inline void cp_words_begin(cp_words *w, const uint8_t *text, int64_t length)
{
    w->used = w->count = w->open = 0;
    w->at = text;
    w->end = text + length;
}

static inline void cp_words_free(cp_words *w)
{
    free(w->bytes);
    w->bytes = NULL;
}

/* Make space for a few more bytes; returns -1 if out of memory. */
static inline int cp_words_room(cp_words *w)
{
    if (w->room - w->used >= 8)
        return 0;
    int64_t room = w->room ? w->room * 2 : 256;
    uint8_t *bytes = realloc(w->bytes, (size_t)room);
    if (!bytes)
        return -1;
    w->bytes = bytes;
    w->room = room;
    return 0;
}

/* Begin a word; words of no further n-gram are dropped now and then. */
static inline void cp_words_open(cp_words *w)
{
    int stored = w->count < w->ngrams - 1 ? w->count : w->ngrams - 1;
    if (w->used > CP_WORDS_DROP_BYTES) {
        int64_t from = stored ? w->begins[stored - 1] : w->used;
        memmove(w->bytes, w->bytes + from, (size_t)(w->used - from));
        w->used -= from;
        for (int i = 0; i < stored; i++)
            w->begins[i] -= from;
    }
    if (w->used)
        w->bytes[w->used++] = ' ';
    for (int i = stored; i > 0; i--)
        w->begins[i] = w->begins[i - 1];
    w->begins[0] = w->used;
    w->count = stored + 1;
    w->open = 1;
}

/* Read a non-ASCII character; returns 1 if the word ends there. */
static inline int cp_words_read_unicode(cp_words *w)
{
    uint32_t code = 0;
    int bytes = cp_utf8_read(w->at, w->end, &code);
    enum cp_letter kind = bytes ? cp_letter_of(code) : CP_LETTER; /* invalid UTF-8 is kept as it is */
    if (kind != CP_LETTER && w->open)
        return 1;
    if (kind == CP_SEPARATOR) {
        w->at += bytes;
        return 0;
    }
    if (!w->open)
        cp_words_open(w);
    if (bytes)
        cp_utf8_write(w->bytes + w->used, cp_lower(code), bytes);
    else
        w->bytes[w->used] = *w->at;
    w->used += bytes ? bytes : 1;
    w->at += bytes ? bytes : 1;
    return kind == CP_SINGLE;
}

/* Read the next word: returns 1, 0 at the end of the text, -1 if out of memory. N-gram `k` of the words that end with
 * it, k < count, is the bytes from `begins[k]` to `used`. */
static inline int cp_words_next(cp_words *w)
{
    w->open = 0;
    while (w->at < w->end) {
        if (cp_words_room(w) < 0)
            return -1;
        uint8_t c = *w->at;
        if (c >= 0x80) {
            if (cp_words_read_unicode(w))
                return 1;
            continue;
        }
        if ((c = cp_ascii(c))) {
            if (!w->open)
                cp_words_open(w);
            w->bytes[w->used++] = c;
        } else if (w->open) {
            return 1;
        }
        w->at++;
    }
    return w->open;
}
