/* Character classes and lower case of UTF-8 text. */
#pragma once

#include <stdint.h>

enum cp_letter {
    CP_SEPARATOR, /* between words: spaces, punctuation, control characters */
    CP_LETTER,
    CP_SINGLE /* a word of its own: ideographs, kana, symbols and emoji, which are written without spaces */
};

/* Return ASCII letters and digits in lower case, and the underscore; 0 for separators. */
static inline uint8_t cp_ascii(uint8_t c)
{
    static const uint8_t lower[128] = {
        ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5', ['6'] = '6', ['7'] = '7',
        ['8'] = '8', ['9'] = '9', ['_'] = '_', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd', ['e'] = 'e',
        ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l', ['m'] = 'm',
        ['n'] = 'n', ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't', ['u'] = 'u',
        ['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c',
        ['D'] = 'd', ['E'] = 'e', ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k',
        ['L'] = 'l', ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r', ['S'] = 's',
        ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y', ['Z'] = 'z'};
    return lower[c];
}

/* Decode a character of several bytes; returns their number, or 0 if invalid. */
static inline int cp_utf8_read(const uint8_t *p, const uint8_t *end, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int bytes = *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
    if (!bytes || end - p < bytes)
        return 0;
    uint32_t c = *p & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[bytes] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *code = c;
    return bytes;
}

/* Encode a character in this many bytes. */
static inline void cp_utf8_write(uint8_t *to, uint32_t code, int bytes)
{
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        to[i] = (uint8_t)(0x80 | (code & 0x3F));
    to[0] = (uint8_t)((0xF00u >> bytes & 0xF0) | code);
}

/* Return the class of a character beyond ASCII; a letter unless in a range. */
static inline enum cp_letter cp_letter_of(uint32_t code)
{
    static const struct {
        uint32_t first, last;
        enum cp_letter kind;
    } ranges[] = {
        {0x80, 0xA9, CP_SEPARATOR},       {0xAB, 0xB4, CP_SEPARATOR},       {0xB6, 0xB9, CP_SEPARATOR},
        {0xBB, 0xBF, CP_SEPARATOR},       {0xD7, 0xD7, CP_SEPARATOR},       {0xF7, 0xF7, CP_SEPARATOR},
        {0x55A, 0x55F, CP_SEPARATOR},     {0x589, 0x58A, CP_SEPARATOR},     {0x5BE, 0x5BE, CP_SEPARATOR},
        {0x5C0, 0x5C0, CP_SEPARATOR},     {0x5C3, 0x5C3, CP_SEPARATOR},     {0x5F3, 0x5F4, CP_SEPARATOR},
        {0x60C, 0x60D, CP_SEPARATOR},     {0x61B, 0x61B, CP_SEPARATOR},     {0x61D, 0x61F, CP_SEPARATOR},
        {0x66A, 0x66D, CP_SEPARATOR},     {0x6D4, 0x6D4, CP_SEPARATOR},     {0x964, 0x965, CP_SEPARATOR},
        {0x1361, 0x1368, CP_SEPARATOR},   {0x2000, 0x206F, CP_SEPARATOR},   {0x20A0, 0x20CF, CP_SEPARATOR},
        {0x2190, 0x2BFF, CP_SINGLE},   {0x2E00, 0x2E7F, CP_SEPARATOR},   {0x2E80, 0x2FFF, CP_SINGLE},
        {0x3000, 0x3004, CP_SEPARATOR},   {0x3005, 0x3007, CP_SINGLE},   {0x3008, 0x3020, CP_SEPARATOR},
        {0x3021, 0x302F, CP_SINGLE},   {0x3030, 0x3030, CP_SEPARATOR},   {0x3031, 0x30FF, CP_SINGLE},
        {0x3400, 0x9FFF, CP_SINGLE},   {0xF900, 0xFAFF, CP_SINGLE},   {0xFE00, 0xFE6F, CP_SEPARATOR},
        {0xFEFF, 0xFF0F, CP_SEPARATOR},   {0xFF1A, 0xFF20, CP_SEPARATOR},   {0xFF3B, 0xFF40, CP_SEPARATOR},
        {0xFF5B, 0xFF65, CP_SEPARATOR},   {0xFFF0, 0xFFFF, CP_SEPARATOR},   {0x1F000, 0x1FAFF, CP_SINGLE},
        {0x20000, 0x3FFFF, CP_SINGLE},
    };
    int low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    int within = low < (int)(sizeof ranges / sizeof *ranges) && ranges[low].first <= code;
    return within ? ranges[low].kind : CP_LETTER;
}

/* Return a letter beyond ASCII in lower case: Latin, Greek, Cyrillic, Armenian and fullwidth ones. The length in UTF-8
 * does not change; the final sigma becomes a normal one. */
static inline uint32_t cp_lower(uint32_t code)
{
    static const struct {
        uint16_t first, last, step; /* every step-th letter from the first to the last */
        int16_t add;
    } ranges[] = {
        {0xC0, 0xD6, 1, 32},     {0xD8, 0xDE, 1, 32},     {0x100, 0x12E, 2, 1},   {0x132, 0x136, 2, 1},
        {0x139, 0x147, 2, 1},    {0x14A, 0x176, 2, 1},    {0x178, 0x178, 1, -121}, {0x179, 0x17D, 2, 1},
        {0x1A0, 0x1A4, 2, 1},    {0x1AF, 0x1AF, 1, 1},    {0x1CD, 0x1DB, 2, 1},   {0x1DE, 0x1EE, 2, 1},
        {0x1F8, 0x21E, 2, 1},    {0x222, 0x232, 2, 1},    {0x386, 0x386, 1, 38},  {0x388, 0x38A, 1, 37},
        {0x38C, 0x38C, 1, 64},   {0x38E, 0x38F, 1, 63},   {0x391, 0x3A1, 1, 32},  {0x3A3, 0x3AB, 1, 32},
        {0x3C2, 0x3C2, 1, 1},    {0x400, 0x40F, 1, 80},   {0x410, 0x42F, 1, 32},  {0x460, 0x480, 2, 1},
        {0x48A, 0x4BE, 2, 1},    {0x4C0, 0x4C0, 1, 15},   {0x4C1, 0x4CD, 2, 1},   {0x4D0, 0x52E, 2, 1},
        {0x531, 0x556, 1, 48},   {0x1E00, 0x1E94, 2, 1},  {0x1EA0, 0x1EFE, 2, 1}, {0xFF21, 0xFF3A, 1, 32},
    };
    for (int i = 0; i < (int)(sizeof ranges / sizeof *ranges) && ranges[i].first <= code; i++)
        if (code <= ranges[i].last)
            return (code - ranges[i].first) % ranges[i].step ? code : (uint32_t)((int32_t)code + ranges[i].add);
    return code;
}
