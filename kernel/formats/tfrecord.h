/* Parses TFRecord files. A record is: length (u64), masked CRC-32C of the length, data, masked CRC-32C of the data; all
 * little-endian, records contiguous. */
#pragma once

#include "formats/crc32c.h"

#define CP_TFR_HEAD 12  /* bytes before the data */
#define CP_TFR_FRAME 16 /* bytes around the data */

enum cp_tfr_code {
    CP_TFR_OK,
    CP_TFR_LENGTH, /* the CRC of the length is wrong: the next record's offset is unknown */
    CP_TFR_DATA,   /* the CRC of the data is wrong */
    CP_TFR_END,    /* the file ends within the record */
    CP_TFR_PLACE   /* no record of the given size is here */
};

/* Read a head of 12 bytes. Returns the length of the data, or -1 if the CRC is wrong or no file could hold it. */
static inline int64_t cp_tfr_length(const uint8_t *p)
{
    uint64_t length = cp_load_u64(p);
    return length > INT64_MAX - CP_TFR_FRAME || cp_load_u32(p + 8) != cp_crc_masked(p, 8) ? -1 : (int64_t)length;
}

static inline int cp_tfr_data_ok(const uint8_t *record, int64_t length)
{
    return cp_load_u32(record + CP_TFR_HEAD + length) == cp_crc_masked(record + CP_TFR_HEAD, length);
}

typedef struct {
    /* in */
    const uint8_t *bytes;
    int64_t count;     /* available bytes */
    int64_t remaining; /* bytes up to the end of the file, at least `count` */
    int64_t room;      /* records */
    int lost;          /* search for the next valid head, byte by byte */
    /* out */
    int64_t *starts, *sizes; /* [room] of each record, with its frame */
    int64_t rows;
    int64_t consumed; /* offset to continue from; 0 and no rows: more bytes are needed */
    int64_t bad;      /* offset of the bad record */
    int code;         /* of the bad record; OK: none */
} cp_tfr_scan;

/* Find the next valid head. Returns 0 if there is none in the available bytes. */
static inline int cp_tfr_find(cp_tfr_scan *s)
{
    int64_t at = s->consumed;
    for (; s->count - at >= CP_TFR_HEAD; at++) {
        int64_t length = cp_tfr_length(s->bytes + at);
        if (length >= 0 && length <= s->remaining - at - CP_TFR_FRAME)
            break;
    }
    s->lost = s->count - at < CP_TFR_HEAD;
    s->consumed = s->lost && s->count == s->remaining ? s->count : at;
    return !s->lost;
}

/* Scan complete records up to the first bad one, and check every CRC. */
static inline void cp_tfr_walk(cp_tfr_scan *s)
{
    s->rows = s->consumed = 0;
    s->code = CP_TFR_OK;
    if (s->lost && !cp_tfr_find(s))
        return;
    while (s->consumed < s->remaining && s->rows < s->room) {
        const uint8_t *record = s->bytes + s->consumed;
        int64_t at_hand = s->count - s->consumed, left = s->remaining - s->consumed;
        int64_t length = at_hand < CP_TFR_HEAD ? 0 : cp_tfr_length(record);
        s->bad = s->consumed;
        if (length < 0 || length > left - CP_TFR_FRAME) {
            s->code = length < 0 ? CP_TFR_LENGTH : CP_TFR_END;
            s->lost = 1;
            s->consumed++;
            return;
        }
        if (at_hand < CP_TFR_HEAD || at_hand - CP_TFR_FRAME < length)
            return;
        length += CP_TFR_FRAME;
        if (!cp_tfr_data_ok(record, length - CP_TFR_FRAME)) {
            if (at_hand - length < CP_TFR_HEAD && left - length >= CP_TFR_HEAD)
                return;
            /* Without a head here bytes are missing: the next record begins somewhere inside this one. */
            s->lost = left > length && (left - length < CP_TFR_HEAD || cp_tfr_length(record + length) < 0);
            s->consumed += s->lost ? 1 : length;
            s->code = CP_TFR_DATA;
            return;
        }
        s->consumed += length;
        s->starts[s->rows] = s->bad;
        s->sizes[s->rows++] = length;
    }
}

/* Check the records at `starts` and compact their data; ends[0] = 0, ends[i + 1] is the end of record i. All records
 * must lie inside the bytes, and `out` must hold the sizes without frames. Returns the first bad record, or -1. */
static inline int64_t cp_tfr_pack(const uint8_t *bytes, const int64_t *starts, const int64_t *sizes, int64_t rows,
                                  uint8_t *out, int64_t *ends, int *code)
{
    ends[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *record = bytes + starts[i];
        int64_t length = sizes[i] - CP_TFR_FRAME, stated = cp_tfr_length(record);
        *code = stated < 0 ? CP_TFR_LENGTH : stated != length ? CP_TFR_PLACE : CP_TFR_OK;
        if (!*code && !cp_tfr_data_ok(record, length))
            *code = CP_TFR_DATA;
        if (*code)
            return i;
        memcpy(out + ends[i], record + CP_TFR_HEAD, (size_t)length);
        ends[i + 1] = ends[i] + length;
    }
    return -1;
}
