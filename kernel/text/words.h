/* Words of text, and the n-grams of them: in lower case, what is between words as one space. */
#ifndef CP_WORDS_H
#define CP_WORDS_H

#include "text/letters.h"

#include <stdlib.h>
#include <string.h>

#define CP_MOST_NGRAMS 8
#define CP_WORDS_MOVED ((int64_t)1 << 16) /* bytes of words gone by, from which on they are let go */

/* A reader of one text after another. The words that n-grams are made of lie side by side in memory of its own. */
typedef struct {
    uint8_t *bytes;
    int64_t room, used;
    int64_t begins[CP_MOST_NGRAMS]; /* where the last words begin, the latest first */
    int count, ngrams, open;        /* words there are, words of an n-gram at most, whether the latest is not ended */
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

/* Make room for a few more bytes; return -1 where memory is short. */
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

/* Begin a word behind those that are there; those of no further n-gram are let go now and then. */
static inline void cp_words_open(cp_words *w)
{
    int kept = w->count < w->ngrams - 1 ? w->count : w->ngrams - 1;
    if (w->used > CP_WORDS_MOVED) {
        int64_t from = kept ? w->begins[kept - 1] : w->used;
        memmove(w->bytes, w->bytes + from, (size_t)(w->used - from));
        w->used -= from;
        for (int i = 0; i < kept; i++)
            w->begins[i] -= from;
    }
    if (w->used)
        w->bytes[w->used++] = ' ';
    for (int i = kept; i > 0; i--)
        w->begins[i] = w->begins[i - 1];
    w->begins[0] = w->used;
    w->count = kept + 1;
    w->open = 1;
}

/* Read what follows the ASCII of a word; return 1 where that is no more of it. */
static inline int cp_words_beyond(cp_words *w)
{
    uint32_t code = 0;
    int bytes = cp_utf8_read(w->at, w->end, &code);
    enum cp_letter kind = bytes ? cp_letter_of(code) : CP_LETTER; /* what is no UTF-8 is kept as it is */
    if (kind != CP_LETTER && w->open)
        return 1;
    if (kind == CP_APART) {
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
    return kind == CP_ALONE;
}

/* Read the next word: return 1, 0 at the end of the text, -1 where memory is short. N-gram `k` of the words that end
 * with it, k < count, is the bytes from `begins[k]` to `used`. */
static inline int cp_words_next(cp_words *w)
{
    w->open = 0;
    while (w->at < w->end) {
        if (cp_words_room(w) < 0)
            return -1;
        uint8_t c = *w->at;
        if (c >= 0x80) {
            if (cp_words_beyond(w))
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

#endif
