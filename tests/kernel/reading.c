/* Reads rows and items from a device that answers short, is interrupted, fails, or caches a part: all bytes arrive in
 * their place and nowhere else, by as few calls as the limits allow, and a failure names the row. */
#include "device.h"
#include <pthread.h>

static pthread_t caller;
static int woken; /* threads that the caller signalled */

static inline int counted_signal(pthread_cond_t *cond)
{
    woken += pthread_equal(pthread_self(), caller) != 0;
    return pthread_cond_signal(cond);
}

#define pthread_cond_signal counted_signal
#include "io/reader.h"

enum { MAX_RUNS = 12, MAX_SLOTS = 20000, GUARD = 0x5A };

static const enum cp_type types[] = {CP_U8, CP_I32, CP_I64};
static int64_t extents[2 * MAX_RUNS], runs, rows_read;
static int32_t into[MAX_SLOTS], sweep[MAX_SLOTS];

/* Draw ascending runs of rows whose gaps are near the largest that is read over; `near` rows make that gap. */
static void draw_runs(int64_t rows, int64_t near, int kind)
{
    int64_t at = draw(rows / 8 + 1);
    for (runs = rows_read = 0; runs < MAX_RUNS && at < rows; runs++) {
        int64_t count = 1 + draw(draw(2) ? 3 : rows / 4);
        count = count < rows - at ? count : rows - at;
        extents[2 * runs] = at, extents[2 * runs + 1] = at + count;
        rows_read += count;
        at += count + (draw(3) ? near - 1 + draw(3) : draw(4));
        at = at < extents[2 * runs + 1] ? extents[2 * runs + 1] : at;
    }
    for (int32_t i = 0; i < rows_read; i++)
        into[i] = i;
    for (int64_t i = rows_read - 1; kind && i > 0; i--) {
        int64_t other = draw(i + 1);
        int32_t slot = into[i];
        into[i] = into[other], into[other] = slot;
    }
    for (int64_t i = 0; kind == 2 && i < rows_read; i++)
        into[i] = draw(3) ? into[i] : -1;
    for (int64_t e = 0, at_row = 0; e < runs; at_row += extents[2 * e + 1] - extents[2 * e], e++)
        for (int64_t i = 0, count = extents[2 * e + 1] - extents[2 * e]; i < count; i++)
            sweep[at_row + i] = (int32_t)(count - 1 - i);
}

static cp_reader started(cp_column *columns, int64_t count)
{
    cp_reader reader;
    check(cp_reader_start(&reader, 1) == 0, "reader");
    reader.columns = columns, reader.column_count = count;
    return reader;
}

static const unsigned char *row_of(const cp_column *c, int64_t row, int *file, int64_t *offset)
{
    int64_t piece = row >= c->starts[1];
    *file = c->fds[piece] - FIRST_FD;
    *offset = c->offsets[piece] + (row - c->starts[piece]) * cp_row_bytes(c);
    return device.bytes[*file] + *offset;
}

static void check_row(const cp_column *c, const char *slot, const unsigned char *row)
{
    for (int64_t k = 0; k < c->target.items; k++)
        if (c->target.from == c->target.to) {
            check(!memcmp(slot, row, (size_t)cp_row_bytes(c)), "the row in its slot");
        } else {
            int32_t number;
            double real;
            memcpy(&number, row + 4 * k, 4), memcpy(&real, slot + 8 * k, 8);
            check(real == (double)number, "the number in its slot");
        }
}

/* Check that slots have their rows, and all other bytes of the buffer are as before. */
static void check_slots(cp_column *columns, int64_t count, char *buffer, int64_t bytes, int64_t stride)
{
    for (int64_t e = 0, i = 0; e < runs; e++)
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++)
            for (int64_t c = 0; into[i] >= 0 && c < count; c++) {
                int file;
                int64_t offset, wide = columns[c].target.items * cp_type_bytes[columns[c].target.to];
                char *slot = columns[c].target.base + into[i] * stride;
                check_row(&columns[c], slot, row_of(&columns[c], row, &file, &offset));
                memset(slot, GUARD, (size_t)wide);
            }
    for (int64_t i = 0; i < bytes; i++)
        check(buffer[i] == GUARD, "nothing is written beside the rows");
}

static void rows(uint64_t seed)
{
    device_reset(seed);
    int64_t count = seed % 4 ? 1 : 1 + draw(4), width, total = 0, stride = 0, swept = seed % 5 == 4, starts[3], least = 1;
    int64_t offsets[4][2], wide = seed % 3 == 1;
    int32_t fds[4][2];
    cp_column columns[4];
    for (int64_t c = 0; c < count; c++) { /* scalars side by side are transposed together */
        int cast = !wide && seed % 6 == 0;
        enum cp_type from = !wide && seed % 5 == 2 ? CP_U8 : CP_I32; /* rows of any number of bytes */
        cast = cast && from == CP_I32;
        int64_t items = wide ? 1024 + draw(400) : count > 2 ? 1 + (draw(4) == 0) : 1 + draw(19);
        columns[c] = (cp_column){2, starts, offsets[c], fds[c],
                                 {(char *)stride, 0, items, from, cast ? CP_F64 : from, seed % 7 == 0}, NULL};
        stride += items * (cast ? 8 : cp_type_bytes[from]);
        least = cp_row_bytes(&columns[c]) > least ? cp_row_bytes(&columns[c]) : least;
    }
    stride += seed % 2 ? 0 : 8;
    width = least;
    int64_t number = (FILE_BYTES - 200000) / width < 9000 ? (FILE_BYTES - 200000) / width : 9000;
    starts[0] = 0, starts[1] = draw(number), starts[2] = number;
    draw_runs(number, CP_GAP_BYTES / width, (int)(seed % 4 == 3 ? 2 : seed % 2));
    int64_t bytes = stride * rows_read + 64;
    char *buffer = malloc((size_t)bytes);
    memset(buffer, GUARD, (size_t)bytes);
    for (int64_t c = 0; c < count; c++) {
        columns[c].target.base = buffer + (uintptr_t)columns[c].target.base, columns[c].target.stride = stride;
        for (int i = 0; i < 2; i++)
            fds[c][i] = FIRST_FD + (int)((c + i) % 2), offsets[c][i] = draw(200000);
    }
    for (int64_t e = 0; e < runs; e++)
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++)
            for (int64_t c = 0; c < count; c++) {
                int file;
                int64_t offset;
                row_of(&columns[c], row, &file, &offset);
                memset(device.wanted[file] + offset, 1, (size_t)cp_row_bytes(&columns[c]));
                total += cp_row_bytes(&columns[c]);
            }
    cp_reader reader = started(columns, count);
    for (int how = 0; how < 4; how++) {
        device.cache = how == 3 ? MIXED : how % 3, device.choppy = how == 3;
        device_forget();
        atomic_store(&reader.read.bytes, 0);
        check(!cp_reader_read(&reader, extents, runs, into, swept ? sweep : NULL, 1), "rows are read");
        check_slots(columns, count, buffer, bytes, stride);
        int64_t read = atomic_load(&reader.read.bytes);
        check(how > 1 || read == device.moved, "bytes are counted once");
        check(read >= total && (read == total || !swept || wide), "no byte is read over in runs that are swept");
        check(reader.read.waited == (how > 0 && reader.read.waited), "cached bytes need no waiting");
        check(how != COLD || reader.read.waited, "other bytes do");
        if (count == 1 && !(swept && !wide) && how < 2)
            check_calls(how == CACHED, CP_GAP_BYTES, CP_STAGE_BYTES, INT64_MAX, width);
        for (int64_t i = 0; i < device.count; i++)
            check(how != CACHED || device.calls[i].nowait, "nobody waits for cached bytes");
    }
    int64_t e = draw(runs), bad = extents[2 * e] + draw(extents[2 * e + 1] - extents[2 * e]), offset;
    int file;
    row_of(&columns[0], bad, &file, &offset);
    for (int how = 0; how < 6; how++) {
        device.cache = how % 3;
        device.broken[file] = how < 3 ? offset + draw(cp_row_bytes(&columns[0])) : -1;
        device.size[file] = how < 3 ? FILE_BYTES : offset + draw(cp_row_bytes(&columns[0]));
        check(cp_reader_read(&reader, extents, runs, into, swept ? sweep : NULL, 1) == 1, "a failure is returned");
        check(reader.read.error == (how < 3 ? EIO : 0), "the system's error, 0 at the end of the file");
        check(reader.read.error_fd == FIRST_FD + file, "the file of the failure");
        check(count > 1 || (reader.read.error_row <= bad && (bad - reader.read.error_row) * width <= CP_STAGE_BYTES) || how > 2,
              "a row near the failure");
    }
    device.size[file] = FILE_BYTES, device.broken[file] = -1;
    device_forget();
    cp_reader_prefetch(&reader, extents, runs);
    int64_t advised = 0;
    for (int64_t i = 0; i < device.count; advised += device.calls[i++].bytes)
        for (int64_t k = 0; k < device.calls[i].bytes; k++)
            check(device.wanted[device.calls[i].file][device.calls[i].offset + k], "wanted rows are prefetched");
    check(advised == total, "all wanted rows are prefetched");
    cp_reader_stop(&reader);
    free(buffer);
}

/* Columns of rows of varying length, in two pieces: where each row's items are. */
typedef struct {
    cp_column column;
    cp_lists lists;
    int64_t items[2], counts[2], offsets[2], size[MAX_SLOTS], at[MAX_SLOTS];
    int32_t fds[2];
    uint64_t address[MAX_SLOTS];
    int64_t length[MAX_SLOTS];
} list_column;

static list_column lists[2];
static cp_column list_columns[2];
static int64_t list_starts[3];

/* Draw the length of a row; many: 1 for short rows, 2 for multiples of 8 KB. */
static int64_t draw_length(int64_t item, int64_t left, int many)
{
    int64_t kind = draw(40), bytes = many == 1 ? 2 : many == 2 ? 8192 * draw(4) : kind < 4 ? 0 : kind < 34 ? draw(200)
                                     : kind < 37 ? 2048 + draw(5) - 2 : kind < 39 ? 16000 + draw(800) : 60000 + draw(9000);
    bytes = bytes < left ? bytes : left;
    return bytes / item;
}

static void make_list(list_column *l, int number, int64_t item, int text, int wide, int many, int64_t *end)
{
    l->lists = (cp_lists){l->items, l->counts, item, text, l->address, l->length};
    l->column = (cp_column){2, list_starts, l->offsets, l->fds, {NULL, 0, 1, types[1 + wide], types[1 + wide], 0}, &l->lists};
    for (int piece = 0; piece < 2; piece++) {
        int file = (piece + number) % 2;
        int64_t first = list_starts[piece], stop = list_starts[piece + 1], width = wide ? 8 : 4, low = draw(3);
        int64_t place = end[file] = (end[file] + 7) / 8 * 8, left = (FILE_BYTES - 70000) / 2 - (stop - first + 1) * 8;
        l->fds[piece] = FIRST_FD + file, l->offsets[piece] = place;
        end[file] += (stop - first + 1) * width;
        l->items[piece] = end[file] - low * item; /* the first rows of the file may be cut off */
        for (int64_t row = first; row <= stop; row++) {
            memcpy(device.bytes[file] + place + (row - first) * width, &low, (size_t)width);
            if (row == stop)
                break;
            l->at[row] = end[file], l->size[row] = draw_length(item, left, many);
            low += l->size[row], end[file] += l->size[row] * item, left -= l->size[row] * item;
            for (int64_t k = 0; text && k < l->size[row]; k++) /* characters of one and of two bytes */
                memcpy(device.bytes[file] + l->at[row] + k, k + 1 < l->size[row] && k % 3 ? "\xC3\xA9" : "e",
                       k + 1 < l->size[row] && k % 3 ? 2 : 1), k += k + 1 < l->size[row] && k % 3 != 0;
        }
        l->counts[piece] = low;
    }
}

/* Check the bundles of the rows: each row's items, those of a column side by side, and as few bundles as rules allow. */
static void check_bundles(int64_t count, const int32_t *owner, const cp_bundles *b)
{
    int64_t bytes = 0, rows = 0, run = 0, changed = 0;
    const char *next[2] = {NULL, NULL};
    int32_t open = CP_NO_OWNER;
    for (int64_t e = 0, i = 0; e < runs; e++)
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++) {
            int64_t more = 0;
            changed |= e != run, run = e;
            if (into[i] < 0)
                continue;
            for (int64_t c = 0; c < count; c++)
                more += lists[c].size[row] * lists[c].lists.item;
            check(owner[into[i]] <= -2, "the bundle of a row");
            const cp_bundle *bundle = &b->all[-2 - owner[into[i]]];
            if (owner[into[i]] != open) {
                check(open == CP_NO_OWNER || bytes + more > CP_BUNDLE_MAX_BYTES || (changed && bytes >= CP_BUNDLE_END_BYTES),
                      "a bundle that could be longer");
                bytes = rows = 0, open = owner[into[i]];
                for (int64_t c = 0; c < count; c++) {
                    next[c] = (char *)(uintptr_t)lists[c].address[into[i]];
                    check((next[c] - bundle->data) % 16 == 0 && (c == 0 || next[c] >= next[0]), "columns are aligned");
                }
            } else {
                check(!changed || bytes < CP_BUNDLE_END_BYTES, "a long bundle ends with its run");
            }
            bytes += more, rows++, changed = 0;
            check(bytes <= CP_BUNDLE_MAX_BYTES || rows == 1, "the size of a bundle");
            for (int64_t c = 0; c < count; c++) {
                const list_column *l = &lists[c];
                int64_t size = l->size[row] * l->lists.item;
                check(l->length[into[i]] == l->size[row] && l->address[into[i]] == (uint64_t)(uintptr_t)next[c], "the place");
                check(!memcmp(next[c], device.bytes[l->fds[row >= list_starts[1]] - FIRST_FD] + l->at[row], (size_t)size), "items");
                next[c] += size;
                check(next[c] <= bundle->data + bundle->bytes - CP_BUNDLE_OVERHEAD, "a bundle holds its rows");
            }
        }
}

static int read_items(cp_reader *reader, int32_t *owner, cp_bundles *bundles)
{
    int cache = device.cache;
    device.cache = CACHED;
    check(!cp_reader_read(reader, extents, runs, into, NULL, 1), "offsets");
    device.cache = cache;
    device_forget();
    atomic_store(&reader->read.bytes, 0);
    return cp_reader_items(reader, (cp_runs){extents, runs, into, NULL, NULL}, owner, bundles, 1);
}

static void release(cp_bundles *bundles, int32_t *owner)
{
    for (int32_t slot = (int32_t)rows_read; slot-- > 0;)
        check(cp_bundles_release(bundles, owner, &slot, 1) == 0, "no slot is the host's");
    check(!bundles->bytes && !bundles->rows, "released rows take no memory");
}

static void items(uint64_t seed)
{
    int many = seed % 16 == 15, text = seed % 3 == 0;
    int64_t count = seed % 2 + 1, rows = many == 1 ? 18000 : 120, end[FILES] = {0, 0}, total = 0, widest = 1;
    static int32_t owner[MAX_SLOTS];
    cp_bundles bundles;
    many = seed % 5 == 2 && !many ? 2 : many; /* lengths that add up to the limits of bundles */
    device_reset(seed);
    list_starts[0] = 0, list_starts[1] = rows / 2 + draw(9), list_starts[2] = rows;
    for (int64_t c = 0; c < count; c++) {
        make_list(&lists[c], (int)c, text ? 1 : cp_type_bytes[types[draw(3)]], text, (int)draw(2), many, end);
        list_columns[c] = lists[c].column;
    }
    draw_runs(rows, 3, seed % 4 == 1 ? 0 : 2);
    if (many == 1) /* more ranges than are read at a time */
        for (extents[0] = 0, extents[1] = rows, runs = 1, rows_read = rows; total < rows; total++)
            into[total] = total % 2 ? -1 : (int32_t)total;
    total = 0;
    for (int64_t e = 0, i = 0; e < runs; e++)
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++)
            for (int64_t c = 0; into[i] >= 0 && c < count; c++) {
                int64_t bytes = lists[c].size[row] * lists[c].lists.item;
                memset(device.wanted[lists[c].fds[row >= list_starts[1]] - FIRST_FD] + lists[c].at[row], 1, (size_t)bytes);
                total += bytes, widest = bytes > widest ? bytes : widest;
            }
    for (int32_t i = 0; i < rows_read; i++)
        owner[i] = CP_NO_OWNER;
    cp_bundles_init(&bundles, seed % 2 ? 1 << 20 : 0);
    cp_reader reader = started(list_columns, count);
    int64_t entries = 0;
    for (int how = 0; how < 4; how++) {
        device.cache = how == 3 ? MIXED : how, device.choppy = how == 3;
        check(!read_items(&reader, owner, &bundles), "items are read");
        check_bundles(count, owner, &bundles);
        check(atomic_load(&reader.read.bytes) == total, "bytes of items are counted once");
        if (how < 2 && many != 1)
            check_calls(how == CACHED, how ? CP_GAP_BYTES : CP_ITEM_GAP, CP_STAGE_BYTES, CP_MAX_CALL_RANGES,
                        widest > CP_BUNDLE_MAX_BYTES ? widest : CP_BUNDLE_MAX_BYTES);
        release(&bundles, owner);
        check(!how || bundles.count <= entries, "entries of bundles are used again");
        entries = bundles.count;
    }
    for (int64_t i = 0, e = 0; many != 1 && e < runs; e++) /* a byte that fails: of a wanted row, or between two */
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++) {
            int file = lists[0].fds[row >= list_starts[1]] - FIRST_FD;
            int64_t bytes = lists[0].size[row] * lists[0].lists.item, place = bytes ? lists[0].at[row] + draw(bytes) : 0;
            if (!bytes || draw(8))
                continue;
            device.cache = (int)draw(3), device.choppy = 0, device.broken[file] = place;
            check(read_items(&reader, owner, &bundles) == device.wanted[file][place], "wanted bytes fail, others do not");
            check(into[i] < 0 || (reader.read.error == EIO && reader.read.error_fd == FIRST_FD + file), "the failure");
            for (int64_t k = into[i] < 0 ? place : lists[0].at[reader.read.error_row]; k < place; k++)
                check(device.wanted[file][k], "the failed row begins the bytes read in one piece");
            device.broken[file] = -1;
            unsigned char *byte = &device.bytes[file][place], old = *byte;
            if (text) {
                *byte = 0xFF;
                check(read_items(&reader, owner, &bundles) == (into[i] >= 0), "text is checked, if it is wanted");
                check(into[i] < 0 || (reader.read.error == CP_BAD_TEXT && reader.read.error_row == row), "the row of bad text");
                *byte = old;
            }
            for (int32_t slot = 0; slot < rows_read; slot++)
                owner[slot] = CP_NO_OWNER;
            cp_bundles_free(&bundles);
            cp_bundles_init(&bundles, seed % 2 ? 1 << 20 : 0);
        }
    cp_bundles_free(&bundles);
    cp_reader_stop(&reader);
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Cached rows in memory: a thread is woken for each full stage, if there is a core and a request for it. */
static void wakes(void)
{
    enum { ITEMS = 64, COUNT = 40000, THREADS = 6, CORES = 6, RUNS = 8 };
    char *data = calloc(COUNT, 4 * ITEMS), *buffer = malloc(COUNT * 4 * ITEMS);
    int64_t starts[2] = {0, COUNT}, offsets[1] = {(int64_t)(uintptr_t)data}, stage = CP_STAGE_BYTES / (4 * ITEMS);
    int32_t fds[1] = {CP_MEMORY}, *all = malloc(4 * COUNT);
    cp_column column = {1, starts, offsets, fds, {buffer, 4 * ITEMS, ITEMS, CP_I32, CP_I32, 0}, NULL};
    cp_reader reader;
    check(cp_reader_start(&reader, THREADS) == 0, "reader");
    reader.columns = &column, reader.column_count = 1, reader.cores = CORES;
    for (int32_t i = 0; i < COUNT; i++)
        all[i] = COUNT - 1 - i;
    for (int64_t stages = 0; stages < 8; stages++)
        for (int64_t rest = -1; rest < 2; rest++)
            for (int urgent = 0; urgent < 2; urgent++) {
                int64_t each = stages * stage / RUNS + rest, apart[2 * RUNS], cores = CORES - (urgent ? 1 : 2);
                for (int64_t e = 0; e < RUNS; e++) /* too far apart for one request */
                    apart[2 * e] = 1 + e * (COUNT / RUNS), apart[2 * e + 1] = apart[2 * e] + each;
                if (each < 1)
                    continue;
                woken = 0;
                check(cp_reader_read(&reader, apart, RUNS, all, NULL, urgent) == 0, "rows of memory");
                check(woken == least_of(least_of(cores, RUNS * each / stage), THREADS - 1), "woken threads");
            }
    cp_reader_stop(&reader);
    free(data), free(buffer), free(all);
}

int main(void)
{
    caller = pthread_self();
    wakes();
    for (uint64_t seed = 0; seed < 20; seed++) {
        rows(seed);
        items(seed);
    }
    return 0;
}
