/* pack.c -- see pack.h.
 *
 * The block of PACK_RUNS: for each slice the index of its first run, and the
 * number of runs; the runs; their values one after the other. A gap of a few
 * zeros does not end a run, as a new run would take more bytes than the zeros
 * do. Offsets have 32 bits, so a volume with more values is kept dense. */
#include "data/preprocess/pack.h"
#include <string.h>

/* Loops over blocks of a constant length, which the compiler vectorises. */
enum { BLOCK = 256 };

/* Elements at .. at + count - 1 of a slice; value: index of its first value. */
typedef struct Run {
    uint32_t at, count, value;
} Run;

/* The numbers to pack: F32 or U8. */
typedef struct Numbers {
    const void *data;
    bool bytes;
    int64_t slice; /* elements */
    int32_t slices;
} Numbers;

static inline float number(const Numbers *x, int64_t i)
{
    return x->bytes ? ((const uint8_t *)x->data)[i]
                    : ((const float *)x->data)[i];
}

/* Are n floats whole numbers that fit I16? Calls with a constant n are
 * vectorised. *any: OR of all values in two's complement. */
static bool whole_numbers(const float *x, int n, int32_t *any)
{
    int32_t bad = 0, bits = 0;

    // first excludes NaN and values for which the cast is undefined
    for (int i = 0; i < n; i++)
        bad |= !(x[i] >= INT16_MIN) | !(x[i] <= INT16_MAX);
    if (bad) return false;
    for (int i = 0; i < n; i++) {
        const int32_t k = (int32_t)x[i];
        bits |= k;
        bad |= (float)k != x[i];
    }

    *any |= bits;
    return !bad;
}

/* The smallest type that holds all numbers; *bits: all are 0 or 1. */
static Dtype exact_type(const Numbers *x, bool *bits)
{
    const int64_t n = x->slice * x->slices;
    const float *f = x->data;
    int32_t any = 0;

    *bits = false;
    for (int64_t i = 0; i < n && x->bytes; i++)
        any |= ((const uint8_t *)x->data)[i];
    const int64_t whole = x->bytes ? 0 : n / BLOCK * BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK)
        if (!whole_numbers(f + i, BLOCK, &any)) return F32;
    if (!x->bytes && !whole_numbers(f + whole, (int)(n - whole), &any))
        return F32;
    *bits = any >> 1 == 0;
    return any >> 8 == 0 ? U8 : I16;
}

/* Number of nonzero elements. */
static int64_t count_values(const Numbers *x)
{
    const int64_t n = x->slice * x->slices, whole = n / BLOCK * BLOCK;
    const uint8_t *u8 = x->data;
    const float *f = x->data;
    int64_t count = 0;

    for (int64_t i = 0; i < n && x->bytes; i++) count += u8[i] != 0;
    for (int64_t i = 0; i < whole && !x->bytes; i += BLOCK) {
        int32_t part = 0;
        for (int k = 0; k < BLOCK; k++) part += f[i + k] != 0;
        count += part;
    }

    for (int64_t i = whole; i < n && !x->bytes; i++) count += f[i] != 0;
    return count;
}

/* The size of a list of runs; with `run` and `first`, find_runs also writes the
 * list. */
typedef struct Runs {
    int64_t runs, values;
} Runs;

static Runs find_runs(const Numbers *x, size_t size, uint32_t *first, Run *run)
{
    const int64_t gap = (int64_t)(sizeof(Run) / size);
    Runs all = {0, 0};

    for (int32_t d = 0; d < x->slices; d++) {
        int64_t from = d * x->slice, end = -1 - gap; // of the current run
        if (first) first[d] = (uint32_t)all.runs;
        for (int64_t i = 0; i < x->slice; i++) {
            if (number(x, from + i) == 0) continue;
            if (i - end > gap) {
                if (run)
                    run[all.runs] = (Run){(uint32_t)i, 0, (uint32_t)all.values};
                all.runs++;
                end = i;
            }
            all.values += i + 1 - end;
            end = i + 1;
            if (run) {
                Run *r = &run[all.runs - 1];
                r->count = (uint32_t)(end - r->at);
            }
        }
    }

    if (first) first[x->slices] = (uint32_t)all.runs;
    return all;
}

/* Bytes of the block; 0 if 32 bits do not suffice. */
static size_t runs_bytes(const Numbers *x, Runs all, size_t size)
{
    if (all.values > UINT32_MAX || x->slice > UINT32_MAX) return 0;
    return ((size_t)x->slices + 1) * sizeof(uint32_t) +
           (size_t)all.runs * sizeof(Run) + (size_t)all.values * size;
}

/* Stores v as element i of a block of `type`, which represents it exactly. */
static inline void put(void *data, Dtype type, int64_t i, float v)
{
    switch (type) {
    case U8:
        ((uint8_t *)data)[i] = (uint8_t)v;
        break;
    case I16:
        ((int16_t *)data)[i] = (int16_t)v;
        break;
    default:
        ((float *)data)[i] = v;
    }
}

static void fill_runs(const Numbers *x, Dtype type, void *block)
{
    uint32_t *first = block;
    Run *run = (Run *)(first + x->slices + 1);
    find_runs(x, dtype_bytes(type), first, run);
    void *value = run + first[x->slices];
    for (int32_t d = 0; d < x->slices; d++)
        for (uint32_t r = first[d]; r < first[d + 1]; r++)
            for (uint32_t k = 0; k < run[r].count; k++)
                put(value, type, (int64_t)run[r].value + k,
                    number(x, d * x->slice + run[r].at + k));
}

/* Fast path: a photograph that is not cached is packed for every sample. */
static void fill_bytes(const float *restrict x, int64_t n, uint8_t *restrict y)
{
    const int64_t whole = n / BLOCK * BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK)
        for (int k = 0; k < BLOCK; k++) y[i + k] = (uint8_t)(int32_t)x[i + k];
    for (int64_t i = whole; i < n; i++) y[i] = (uint8_t)x[i];
}

static void fill(const Numbers *x, Pack *p)
{
    const int64_t n = numel(p->dim);
    uint8_t *bit = p->data;

    switch (p->kind) {
    case PACK_BITS:
        for (int64_t i = 0; i < n; i++)
            bit[i / 8] |= (uint8_t)((number(x, i) != 0) << i % 8);
        break;
    case PACK_RUNS:
        fill_runs(x, p->type, p->data);
        break;
    default:
        if (p->type == (x->bytes ? U8 : F32))
            memcpy(p->data, x->data, p->bytes);
        else if (p->type == U8)
            fill_bytes(x->data, n, p->data);
        else
            for (int64_t i = 0; i < n; i++)
                ((int16_t *)p->data)[i] = (int16_t)number(x, i);
    }
}

bool pack_make(const Tensor *t, Pack *out)
{
    bool bits;
    const int64_t n = numel(t->dim);
    CHECK(t->dim.n == 1 && (t->type == F32 || t->type == U8));
    const Numbers x = {t->data, t->type == U8, n / t->dim.d, t->dim.d};
    Pack p = {.dim = t->dim, .kind = PACK_DENSE, .owned = true};
    p.type = exact_type(&x, &bits);
    if (bits) p.kind = PACK_BITS;
    const size_t size = dtype_bytes(p.type);
    p.bytes = bits ? (size_t)(n + 7) / 8 : (size_t)n * size;

    // at least half the size: reading runs is a little slower than reading
    // rows. Searched only if the values alone take no more
    size_t runs = 0;
    if ((size_t)count_values(&x) <= p.bytes / 2 / size)
        runs = runs_bytes(&x, find_runs(&x, size, NULL, NULL), size);
    if (runs && runs <= p.bytes / 2) p.kind = PACK_RUNS, p.bytes = runs;
    p.data = mem_alloc(p.bytes);
    if (!p.data) return false;
    fill(&x, &p);
    *out = p;
    return true;
}

void pack_free(Pack *p)
{
    if (p->owned) mem_free(p->data);
    *p = (Pack){.data = NULL};
}

static void read_runs(const Pack *p, int32_t d, int64_t slice, float *out)
{
    const uint32_t *first = p->data;
    const Run *run = (const Run *)(first + p->dim.d + 1);
    const void *value = run + first[p->dim.d];
    memset(out, 0, (size_t)slice * sizeof *out);
    for (uint32_t r = first[d]; r < first[d + 1]; r++)
        tensor_to_f32(value, p->type, run[r].value, run[r].count,
                      out + run[r].at);
}

void pack_read(const Pack *p, int32_t d, int32_t count, float *out)
{
    const int64_t slice = numel(p->dim) / p->dim.d;
    const int64_t at = d * slice, n = count * slice;
    const uint8_t *bit = p->data;
    CHECK(d >= 0 && count >= 0 && d + count <= p->dim.d);

    switch (p->kind) {
    case PACK_BITS:
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(bit[(at + i) / 8] >> (at + i) % 8 & 1);
        break;
    case PACK_RUNS:
        for (int32_t k = 0; k < count; k++)
            read_runs(p, d + k, slice, out + k * slice);
        break;
    default:
        tensor_to_f32(p->data, p->type, at, n, out);
    }
}

/* The rows of the box in slice d; out was zeroed. */
static void read_runs_box(const Pack *p, int32_t d, const Box *box, float *out)
{
    const uint32_t *first = p->data;
    const Run *run = (const Run *)(first + p->dim.d + 1);
    const void *value = run + first[p->dim.d];
    const int64_t row = (int64_t)p->dim.w * p->dim.c;
    const int64_t left = (int64_t)box->from[0] * p->dim.c;
    const int64_t length = (int64_t)box->n[0] * p->dim.c;

    for (uint32_t r = first[d]; r < first[d + 1]; r++) {
        const int64_t from = run[r].at, to = from + run[r].count;
        // a run may span several rows
        int64_t h = from / row, last = (to - 1) / row;
        if (h < box->from[1]) h = box->from[1];
        if (last >= box->from[1] + box->n[1])
            last = box->from[1] + box->n[1] - 1;
        for (; h <= last; h++) {
            const int64_t start = h * row + left;
            const int64_t lo = from > start ? from : start;
            const int64_t hi = to < start + length ? to : start + length;
            if (lo < hi)
                tensor_to_f32(value, p->type, run[r].value + (lo - from),
                              hi - lo,
                              out + (h - box->from[1]) * length + (lo - start));
        }
    }
}

void pack_read_box(const Pack *p, const Box *box, float *out)
{
    const Dims n = p->dim;
    const int64_t length = (int64_t)box->n[0] * n.c;
    const uint8_t *bit = p->data;

    CHECK(box->from[0] >= 0 && box->from[0] + box->n[0] <= n.w &&
          box->from[1] >= 0 && box->from[1] + box->n[1] <= n.h &&
          box->from[2] >= 0 && box->from[2] + box->n[2] <= n.d);
    if (box->n[0] == n.w && box->n[1] == n.h) { // the rows are contiguous
        pack_read(p, box->from[2], box->n[2], out);
        return;
    }
    if (p->kind == PACK_RUNS)
        memset(out, 0,
               (size_t)(box->n[2] * (int64_t)box->n[1] * length) * sizeof *out);

    for (int32_t d = 0; d < box->n[2]; d++) {
        if (p->kind == PACK_RUNS)
            read_runs_box(p, box->from[2] + d, box,
                          out + d * box->n[1] * length);
        for (int32_t h = 0; p->kind != PACK_RUNS && h < box->n[1]; h++) {
            const int64_t plane = (int64_t)(box->from[2] + d) * n.h;
            const int64_t at =
                ((plane + box->from[1] + h) * n.w + box->from[0]) * n.c;
            float *y = out + ((int64_t)d * box->n[1] + h) * length;
            if (p->kind == PACK_DENSE)
                tensor_to_f32(p->data, p->type, at, length, y);
            for (int64_t i = 0; p->kind == PACK_BITS && i < length; i++)
                y[i] = (float)(bit[(at + i) / 8] >> (at + i) % 8 & 1);
        }
    }
}

/* Every run lies inside its slice and after the run before, every value inside
 * the block. */
static bool check_runs(const Pack *p, int64_t slice)
{
    const size_t size = dtype_bytes(p->type);
    const size_t head = ((size_t)p->dim.d + 1) * sizeof(uint32_t);
    const uint32_t *first = p->data;

    if (p->bytes < head) return false;
    const uint64_t runs = first[p->dim.d];
    if (first[0] != 0 || runs > (p->bytes - head) / sizeof(Run)) return false;
    const Run *run = (const Run *)(first + p->dim.d + 1);
    uint64_t values = 0;

    for (int32_t d = 0; d < p->dim.d; d++) {
        uint64_t end = 0;
        if (first[d] > first[d + 1] || first[d + 1] > runs) return false;
        for (uint32_t r = first[d]; r < first[d + 1]; r++) {
            if (run[r].at < end || run[r].value != values) return false;
            end = (uint64_t)run[r].at + run[r].count;
            values += run[r].count;
            if (end > (uint64_t)slice) return false;
        }
    }
    return p->bytes == head + runs * sizeof(Run) + values * size;
}

bool pack_check(const Pack *p)
{
    const Dims n = p->dim;
    size_t count = 1, size;
    bool ok = n.n == 1 && n.d > 0 && n.h > 0 && n.w > 0 && n.c > 0 &&
              (p->type == F32 || p->type == I16 || p->type == U8) &&
              size_mul((size_t)n.d, (size_t)n.h, &count) &&
              size_mul(count, (size_t)n.w, &count) &&
              size_mul(count, (size_t)n.c, &count) && count < (size_t)1 << 40;

    if (ok && p->kind == PACK_DENSE)
        ok = size_mul(count, dtype_bytes(p->type), &size) && size == p->bytes;
    else if (ok && p->kind == PACK_BITS)
        ok = p->type == U8 && p->bytes == (count + 7) / 8;
    else if (ok)
        ok = p->kind == PACK_RUNS && check_runs(p, (int64_t)count / n.d);
    return ok || fail_data("a packed volume that contradicts itself");
}
