/* bucket.c -- see bucket.h. A window is at most half of an epoch, so that the
 * members of a batch are random also if all samples would fit in one window. */
#include "data/loader/bucket.h"
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 16,    /* batches sorted together: for evenly distributed lengths
                     * padding is then about 3 % of a batch */
    OP_SAMPLES = 0, /* RNG_SHUFFLE op: members of the batches   */
    OP_BATCHES = 1, /* order of the batches                     */
};

/* A sample and its place in the random order, which breaks ties between equal
 * lengths: by number, samples of one case would come together. */
typedef struct Member {
    int32_t length;
    uint32_t place, number;
} Member;

struct Bucket {
    int32_t count;
    int batch;
    int32_t *length;   /* (count)                    */
    Member *member;    /* (count) scratch            */
    uint32_t *batches; /* (count / batch + 1) scratch */
};

bool bucket_new(int32_t count, int batch, Bucket **out)
{
    const size_t n = (size_t)count;
    size_t bytes;
    *out = NULL;
    Bucket *b = mem_alloc(sizeof *b);
    if (!b) return false;
    b->count = count;
    b->batch = batch;
    TRY(size_mul(n, sizeof *b->member, &bytes));
    TRY(b->member = mem_alloc(bytes));
    TRY(b->length = mem_alloc(n * sizeof *b->length));
    TRY(b->batches = mem_alloc((n / (size_t)batch + 1) * sizeof *b->batches));
    *out = b;

done:
    if (!*out) bucket_free(b);
    return *out != NULL;
}

void bucket_free(Bucket *b)
{
    if (!b) return;
    mem_free(b->length);
    mem_free(b->member);
    mem_free(b->batches);
    mem_free(b);
}

void bucket_set(Bucket *b, int32_t number, int32_t length)
{
    CHECK(number >= 0 && number < b->count && length >= 1);
    b->length[number] = length;
}

int32_t bucket_length(const Bucket *b, int32_t number)
{
    CHECK(number >= 0 && number < b->count);
    return b->length[number];
}

/* no two are equal, so the order does not depend on qsort */
static int by_length(const void *left, const void *right)
{
    const Member *a = left, *b = right;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

void bucket_order(Bucket *b, const Rng *draw, uint32_t *order)
{
    const uint32_t count = (uint32_t)b->count, batch = (uint32_t)b->batch;
    const uint32_t full = count / batch;
    uint32_t window = full / 2 < 1 ? 1 : full / 2 > WINDOW ? WINDOW : full / 2;

    for (uint32_t i = 0; i < count; i++) order[i] = i;
    if (draw) {
        Rng r = *draw;
        r.op = OP_SAMPLES;
        rng_permutation(&r, count, order);
        r.op = OP_BATCHES;
        rng_permutation(&r, full, b->batches);
    }

    for (uint32_t i = 0; i < count; i++)
        b->member[i] = (Member){b->length[order[i]], i, order[i]};
    if (!draw) {
        qsort(b->member, count, sizeof *b->member, by_length);
        for (uint32_t i = 0; i < count; i++) order[i] = b->member[i].number;
        return;
    }

    for (uint32_t at = 0; at < full; at += window) {
        const uint32_t n = at + window > full ? full - at : window;
        qsort(b->member + at * batch, n * batch, sizeof *b->member, by_length);
    }

    // samples after the full batches stay as drawn
    for (uint32_t k = 0; k < full; k++)
        for (uint32_t i = 0; i < batch; i++)
            order[k * batch + i] = b->member[b->batches[k] * batch + i].number;
}

/* Row by row: w is the last axis before channels. */
void bucket_place(const float *x, Dims from, FieldKind kind, Dims to,
                  float *out)
{
    const int64_t rows = (int64_t)from.d * from.h;
    const int64_t have = (int64_t)from.w * from.c, room = (int64_t)to.w * to.c;
    const int64_t keep = have < room ? have : room;

    CHECK(from.d == to.d && from.h == to.h && from.c == to.c);
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * room, x + r * have, (size_t)keep * sizeof *out);

    for (int32_t c = 0; keep < room && c < to.c; c++) {
        const float pad = kind == FIELD_IMAGE
                              ? numbers_lowest(x + c, positions(from), to.c)
                              : 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = keep + c; i < room; i += to.c)
                out[r * room + i] = pad;
    }
}
