/* Reads and writes byte ranges, advises on memory, takes slots and runs a planner; each against what it promises. */
#include "device.h"

#define CP_RANGES_SHARED 5000 /* so that few bytes are worth threads */

static uint64_t advised[64][2]; /* calls of madvise: from, to */
static int advised_count, advised_error;

static inline int device_madvise(void *from, size_t bytes, int advice)
{
    (void)advice;
    advised[advised_count][0] = (uint64_t)(uintptr_t)from, advised[advised_count++][1] = (uint64_t)(uintptr_t)from + bytes;
    return advised_count == 2 ? device_fail(advised_error) < 0 && advised_error ? -1 : 0 : 0;
}

#define madvise device_madvise
#include "io/advise.h"
#include "io/planner.h"
#include "io/ranges.h"
#include "plan/slots.h"

enum { MAX_RANGES = 300, PAGES = 64 };

/* Draw ascending ranges of a file, some adjacent, some as far apart as one call may reach; returns their bytes. */
static int64_t draw_ranges(int64_t *offsets, int64_t *lengths, int64_t *count)
{
    int64_t total = 0, many = draw(2);
    for (int64_t at = draw(5000); *count < MAX_RANGES; ++*count) {
        int64_t bytes = 1 + (many ? draw(900) : draw(30000));
        bytes = draw(20) ? bytes : CP_STAGE_BYTES + draw(3) - 1;
        if (at + bytes > FILE_BYTES)
            break;
        offsets[*count] = at, lengths[*count] = bytes, total += bytes;
        memset(device.wanted[0] + at, 1, (size_t)bytes);
        at += bytes + (draw(3) ? many ? draw(40) : draw(3000) : CP_GAP_BYTES + draw(3) - 1);
    }
    return total;
}

static void ranges(uint64_t seed)
{
    static int64_t offsets[MAX_RANGES], lengths[MAX_RANGES], to[MAX_RANGES];
    int64_t count = 0, total, at = 1, widest = CP_STAGE_BYTES + 1;
    device_reset(seed);
    total = draw_ranges(offsets, lengths, &count);
    char *out = malloc((size_t)total + (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        to[i] = at + (seed & 1 ? (int64_t)(uintptr_t)out : 0), at += lengths[i] + 1;
    for (int how = 0; how < 4; how++) {
        cp_ranges r = {.fd = FIRST_FD, .count = count, .offsets = offsets, .lengths = lengths, .to = to, .out = seed & 1 ? NULL : out};
        device.cache = how == 3 ? MIXED : how, device.choppy = how == 3;
        device_forget();
        memset(out, 0x5A, (size_t)at);
        check(cp_ranges_read(&r, 1) == 0, "ranges are read");
        for (int64_t i = 0, place = 1; i < count; place += lengths[i++] + 1)
            check(out[place - 1] == 0x5A && !memcmp(out + place, device.bytes[0] + offsets[i], (size_t)lengths[i]), "a range");
        check(out[at - 1] == 0x5A, "nothing is written after the ranges");
        if (how < 2)
            check_calls(how == CACHED, CP_GAP_BYTES, CP_STAGE_BYTES, CP_RANGES_PER_CALL, widest);
        for (int64_t i = 0; i < device.count; i++)
            check(how || device.calls[i].nowait, "nobody waits for cached bytes");
        if (!how)
            continue;
        int64_t bad = draw(count), place = offsets[bad] + draw(lengths[bad]);
        device.broken[0] = how == 2 ? -1 : place, device.size[0] = how == 2 ? place : FILE_BYTES;
        check(cp_ranges_read(&r, 1) == 1 && r.broken == bad && r.error == (how == 2 ? 0 : EIO), "the range that failed");
        for (int64_t hole = 0; how == 1 && hole + 1 < count; hole++)
            if (offsets[hole + 1] > offsets[hole] + lengths[hole]) {
                device.broken[0] = offsets[hole] + lengths[hole], hole = count;
                check(cp_ranges_read(&r, 1) == 0, "bytes between ranges may fail");
            }
        device.broken[0] = -1, device.size[0] = FILE_BYTES;
    }
    free(out);
}

/* Few bytes are copied from the cache by one thread, many by up to four, one per processor. */
static void copiers(void)
{
    int64_t lengths[2] = {CP_RANGES_SHARED - 10, 9};
    cp_ranges r = {.count = 2, .lengths = lengths};
    cpu_set_t set, one;
    check(sched_getaffinity(0, sizeof set, &set) == 0 && cp_ranges_copiers(&r, 9) == 1, "few bytes");
    int most = CPU_COUNT(&set) < 4 ? CPU_COUNT(&set) : 4;
    lengths[1]++;
    check(cp_ranges_copiers(&r, 9) == most && cp_ranges_copiers(&r, 1) == 1, "many bytes");
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &set))
            CPU_SET(cpu, &one);
    check(sched_setaffinity(0, sizeof one, &one) == 0 && cp_ranges_copiers(&r, 9) == 1, "one processor for this process");
    check(sched_setaffinity(0, sizeof set, &set) == 0, "all processors again");
}

/* Copy ranges from memory to a file: adjacent ones by one call. */
static void writes(uint64_t seed)
{
    static int64_t offsets[MAX_RANGES], lengths[MAX_RANGES], starts[MAX_RANGES];
    static unsigned char expected[FILE_BYTES], old[FILE_BYTES];
    int64_t count = 0, at = 0;
    device_reset(seed);
    char *data = malloc(FILE_BYTES + MAX_RANGES);
    for (int64_t i = 0; i < FILE_BYTES + MAX_RANGES; i++)
        data[i] = (char)draw(256);
    draw_ranges(offsets, lengths, &count);
    memcpy(expected, device.bytes[0], FILE_BYTES), memcpy(old, expected, FILE_BYTES);
    for (int64_t i = 0, end = 0; i < count; end = offsets[i] + lengths[i], i++) {
        offsets[i] = i && draw(2) ? end : offsets[i]; /* adjacent in the file */
        starts[i] = at += draw(2);                    /* adjacent in memory, or not */
        memcpy(expected + offsets[i], data + at, (size_t)lengths[i]);
        at += lengths[i];
    }
    for (device.choppy = 0; device.choppy < 2; device.choppy++) {
        memcpy(device.bytes[0], old, FILE_BYTES);
        device_forget();
        check(cp_ranges_write(FIRST_FD, data, starts, lengths, offsets, count) == 0, "ranges are written");
        check(!memcmp(device.bytes[0], expected, FILE_BYTES), "the bytes of the file");
        int64_t calls = 0;
        for (int64_t i = 0; i < count; i++)
            calls += !i || starts[i] != starts[i - 1] + lengths[i - 1] || offsets[i] != offsets[i - 1] + lengths[i - 1];
        check(device.choppy || device.count == calls, "adjacent ranges are written by one call");
    }
    device.broken[0] = offsets[count - 1];
    device.cache = COLD;
    check(cp_ranges_write(FIRST_FD, data, starts, lengths, offsets, count) == EIO, "a device that takes nothing");
    device.cache = CACHED;
    check(cp_ranges_write(FIRST_FD, data, starts, lengths, offsets, count) == ENOSPC, "a full device");
    free(data);
}

/* Advise on ascending ranges: all their pages and no others, adjacent ones by one call, whatever fails. */
static void advise(uint64_t seed)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address[20], length[20], base = page * 100, at = base;
    char wanted[PAGES * 8] = {0};
    int64_t count = draw(20), stretches = 0, last = -2;
    device.drawn = seed;
    for (int64_t i = 0; i < count; i++) {
        at += (uint64_t)(draw(2) ? draw(100) : draw((int64_t)(3 * page)));
        address[i] = at, length[i] = draw(5) ? (uint64_t)(draw(3) ? draw((int64_t)(2 * page)) : (int64_t)(page - at % page)) : 0;
        for (uint64_t k = 0; k < length[i]; k++)
            wanted[(at + k - base) / page] = 1;
        at += length[i];
    }
    for (int64_t k = 0; k < PAGES * 8; k++)
        if (wanted[k])
            stretches += last != k - 1, last = k;
    for (advised_error = 0; advised_error <= EIO; advised_error += EIO) {
        advised_count = 0;
        int error = cp_advise(address, length, count, CP_ADVICE_SOON), covered = 0;
        check(error == (advised_count > 1 ? advised_error : 0), "the first failure");
        check(advised_count == stretches, "one call for adjacent pages");
        for (int i = 0; i < advised_count; i++)
            for (uint64_t from = advised[i][0]; from < advised[i][1]; from += page, covered++)
                check(from % page == 0 && wanted[(from - base) / page], "pages of ranges only");
        for (int64_t k = 0; k < PAGES * 8; k++)
            covered -= wanted[k];
        check(covered == 0, "all pages of ranges");
    }
    check(cp_advise(address, length, 0, CP_ADVICE_NORMAL) == 0, "no ranges");
}

/* Take and give slots: each is free and within the pool, and a run gets consecutive slots while a full chunk is free. */
static void slots(uint64_t seed)
{
    enum { MOST = 200 };
    device.drawn = seed;
    int64_t count = 1 + draw(MOST), chunk = 1 + draw(20), left = count;
    int32_t into[MOST];
    char taken[MOST] = {0};
    cp_slot_pool pool;
    check(cp_slot_pool_init(&pool, count, chunk) == 0, "pool");
    chunk = chunk < count ? chunk : count;
    for (int turn = 0; turn < 300; turn++) {
        int64_t some = 1 + draw(chunk), whole = 0, consecutive = 1;
        for (int64_t first = 0; first + chunk <= count; first += chunk)
            whole |= memchr(taken + first, 1, (size_t)chunk) == NULL;
        int status = cp_slot_pool_take(&pool, some, into);
        check((status < 0) == (some > left), "slots run out when all are taken");
        for (int64_t i = 0; status == 0 && i < some; i++) {
            check(into[i] >= 0 && into[i] < count && !taken[into[i]], "a free slot");
            consecutive &= into[i] == into[0] + i;
            taken[into[i]] = 1, left--;
        }
        check(status < 0 || !whole || consecutive, "a run is consecutive while a chunk is free");
        for (int32_t slot = 0, all = draw(30) == 0; slot < count; slot++)
            if (taken[slot] && (all || draw(40) < 3))
                cp_slot_pool_give(&pool, slot), taken[slot] = 0, left++;
        check(pool.left == left, "the number of free slots");
    }
    cp_slot_pool_free(&pool);
}

static int status_of(void *context) { return ++*(int *)context < 3; }

/* A planner does one task at a time until one returns anything but 1; it may be stopped, or not have begun. */
static void planner(void)
{
    int done = 0;
    cp_planner p = {0};
    check(!cp_planner_ask(&p), "without a thread nothing is begun");
    cp_planner_start(&p, status_of, &done);
    for (int i = 1; i < 4; i++)
        check(cp_planner_ask(&p) && cp_planner_join(&p) == (i < 3) && done == i, "each task is done once");
    check(!cp_planner_ask(&p) && done == 3, "after the last status nothing is begun");
    p.status = 1;
    cp_planner_stop(&p);
    check(!cp_planner_ask(&p), "a stopped planner begins nothing");
    cp_planner_stop(&p);
}

int main(void)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        ranges(seed);
        writes(seed);
    }
    for (uint64_t seed = 0; seed < 150; seed++)
        advise(seed), slots(seed);
    copiers();
    planner();
    return 0;
}
