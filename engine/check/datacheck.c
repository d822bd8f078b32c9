/* datacheck.c -- see datacheck.h. Extents are odd numbers, one voxel, a block
 * of threads and a partial sum of a channel mean, each plus and minus one. Each
 * step runs alone and with others, and some positions change twice. */
#include "engine/check/datacheck.h"
#include "data/augment/augment.h"
#include "engine/session/device_dataset.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIELDS = 4, SAMPLES = 3 };

static const FieldKind kinds[FIELDS] = {FIELD_IMAGE, FIELD_VALUE, FIELD_IMAGE,
                                        FIELD_LABEL};

static const struct {
    Dims dim; /* c: of the first image */
    bool constant;
} shapes[] = {
    {{1, 1, 7, 5, 1}, false},    {{1, 3, 4, 5, 3}, false},
    {{1, 1, 1, 1, 1}, false},    {{1, 1, 16, 16, 1}, false},
    {{1, 1, 1, 257, 2}, false},  {{1, 1, 64, 64, 1}, false},
    {{1, 1, 17, 241, 1}, false}, {{1, 2, 96, 65, 1}, false},
    {{1, 5, 9, 91, 2}, false},   {{1, 1, 6, 7, 1}, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const char *const recipes[] = {
    "",
    "flip axis=dhw\nflip axis=h\n",
    "affine p=0.6 rotate=-40,40 shift=0.2 scale=0.7,1.4\n",
    "contrast range=0.5,2 p=0.7\nflip axis=w\n",
    "brightness by=3 p=0.7\n",
    "gamma range=0.3,3 p=0.7\n",
    "noise sigma=0.3 p=0.7\n",
    "flip axis=dhw\naffine p=0.6\ncontrast\nbrightness\ngamma p=0.6\n"
    "noise p=0.6\n",
    "affine p=0.6\nflip axis=dhw\nnoise p=0.6\naffine p=0.6\nflip axis=w\n"
    "flip axis=h\ngamma p=1\n",
    "elastic spacing=5.5 amplitude=0,2.2 p=0.8\n",
    "flip axis=dhw\nelastic p=0.7 spacing=4 amplitude=1.6,1.6\naffine p=0.7 "
    "shear=-20,20\nelastic p=0.7\nnoise p=0.6\n",
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* One shape on the device and on the host. */
typedef struct Both {
    OpCheck *k;
    int cases;
    void *dev;
    DeviceDataset *r;
    DeviceDatasetField field[FIELDS];
    Sample sample[SAMPLES];
    Arena mem;
    int64_t labels, wrong; /* under spatial maps, over all shapes */
} Both;

static void report(OpCheck *k, const char *fmt, ...) ERR_FORMAT(2, 3);
static void report(OpCheck *k, const char *fmt, ...)
{
    char text[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    k->failures++;
    if (k->report) k->report(k->ctx, text);
}

/* Draws element i of field f of a sample. */
static float random_value(FieldKind kind, const Rng *r, uint32_t i)
{
    return kind == FIELD_LABEL ? (float)rng_below(r, i, 4)
                               : rng_uniform(r, i) * 6 - 2;
}

/* Fills samples of a shape on device and host. */
static bool both_fill(Both *b, Dims n, bool constant)
{
    uint32_t first = CHANGE_DRAWS;
    for (int f = 0; f < FIELDS; f++) {
        if (f > 0) n.c = f == 1 ? 2 : 1;
        b->field[f] = (DeviceDatasetField){.dim = n,
                                           .image = kinds[f] == FIELD_IMAGE,
                                           .nearest = kinds[f] == FIELD_LABEL,
                                           .first = first};
        if (b->field[f].image) first = change_next(first, n);
    }

    if (!device_dataset_open(b->k->be, b->dev, b->field, FIELDS, SAMPLES, 0,
                             &b->r))
        return false;

    for (int32_t s = 0; s < SAMPLES; s++) {
        Sample *one = &b->sample[s];
        *one = (Sample){.fields = FIELDS};
        for (int f = 0; f < FIELDS; f++) {
            const Rng r = {.seed = 21,
                           .stream = RNG_TEST,
                           .op = (uint16_t)f,
                           .sample = (uint32_t)s};
            int64_t count = numel(b->field[f].dim);
            float *x = ARENA_NEW(&b->mem, float, count);
            if (!x) return false;
            for (int64_t i = 0; i < count; i++)
                x[i] = random_value(kinds[f], &r, constant ? 0 : (uint32_t)i);
            one->data[f] = x, one->kind[f] = kinds[f];
            one->dim[f] = b->field[f].dim;
        }
        if (!device_dataset_put(b->r, s, (const float *const *)one->data))
            return false;
    }
    return true;
}

/* Changes applied to one sample of a batch. */
typedef struct Done {
    bool mapped; /* interpolated between voxels          */
    bool bent;   /* intensities changed                  */
    float added; /* largest amount added to an intensity */
} Done;

static void done_note(Done *d, const Change *c)
{
    if (change_moves(c->kind)) d->mapped = true;
    if (c->kind > CHANGE_ELASTIC) d->bent = true;
    if (c->kind == CHANGE_BRIGHTNESS || c->kind == CHANGE_NOISE)
        d->added = fmaxf(d->added, fabsf(c->amount));
}

/* Returns the allowed error of a field: 1e-5 of the numbers it was computed
 * from. The range of the field alone is not enough: it is 0 for one voxel or a
 * constant sample, and both sides still round the amounts that they add. */
static double bound_of(const DeviceDatasetField *f, const Done *d,
                       const float *want)
{
    float lo = want[0], hi = want[0], scale = f->image ? d->added : 0;
    if (f->nearest || !(d->mapped || (f->image && d->bent))) return 0;
    for (int64_t i = 0; i < numel(f->dim); i++)
        lo = fminf(lo, want[i]), hi = fmaxf(hi, want[i]);
    scale = fmaxf(scale, fmaxf(fabsf(lo), fabsf(hi)));
    return 1e-5 * fmax((double)scale, (double)hi - (double)lo);
}

/* Compares one field of one sample of a batch. */
static void compare(Both *b, int f, const float *got, const float *want,
                    const Done *d, const char *what)
{
    int64_t size = numel(b->field[f].dim), wrong = 0, at = 0;
    double bound = bound_of(&b->field[f], d, want);

    for (int64_t i = 0; i < size; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        // in this form NaN is wrong
        if (!(error <= bound))
            wrong++, at = i;
        else if (bound > 0)
            b->k->worst = fmax(b->k->worst, error / bound);
    }

    if (b->field[f].nearest && d->mapped) {
        b->labels += size, b->wrong += wrong;
    } else if (wrong) {
        report(b->k, "%s, field %d: %lld of %lld differ, %lld is %g, want %g",
               what, f, (long long)wrong, (long long)size, (long long)at,
               (double)got[at], (double)want[at]);
    }
}

/* Compares sample `number` as the host makes it with the device's in out[f]. */
static bool compare_sample(Both *b, const Steps *steps, uint32_t epoch,
                           int32_t number, int place,
                           const Tensor *const out[FIELDS], const Done *d,
                           const char *what)
{
    Sample want = b->sample[number];
    for (int f = 0; f < FIELDS; f++) {
        int64_t size = numel(want.dim[f]);
        float *x = ARENA_NEW(&b->mem, float, size);
        if (!x) return false;
        memcpy(x, want.data[f], (size_t)size * sizeof *x);
        want.data[f] = x;
    }

    if (!augment_sample(steps, 5, epoch, (uint32_t)number, &want)) return false;
    for (int f = 0; f < FIELDS; f++) {
        int64_t size = numel(want.dim[f]);
        float *got = ARENA_NEW(&b->mem, float, size);
        const float *from = (const float *)out[f]->data + place * size;
        if (!got ||
            !b->k->be->download(b->dev, got, from, (size_t)size * sizeof *got))
            return false;
        compare(b, f, got, want.data[f], d, what);
    }
    return true;
}

/* Input of a gather: samples, and `all` changes of each. */
typedef struct Draw {
    const int32_t *number;
    int count, all;
    Change change[MAX_STEPS * SAMPLES];
} Draw;

/* Gathers batches of `type` on the device; drop_batches frees them, also after
 * a failure. */
static bool make_batches(Both *b, const Draw *d, Dtype type, Tensor out[FIELDS])
{
    const Tensor *const at[FIELDS] = {&out[0], &out[1], &out[2], &out[3]};
    for (int f = 0; f < FIELDS; f++) {
        out[f] = (Tensor){b->field[f].dim, type, RANK_MAX, NULL};
        out[f].dim.n = d->count;
    }
    for (int f = 0; f < FIELDS; f++)
        if (!b->k->be->alloc(b->dev, tensor_bytes(&out[f]), &out[f].data))
            return false;
    return device_dataset_gather(b->r, d->number, d->count, d->change, d->all,
                                 at);
}

static void drop_batches(Both *b, Tensor out[FIELDS])
{
    for (int f = 0; f < FIELDS; f++) b->k->be->release(b->dev, out[f].data);
}

/* Checks the same batch stored in 16 bits: that of f32, rounded. */
static bool compare_rounded(Both *b, const Draw *d, Dtype type,
                            const Tensor wide[FIELDS], const char *what)
{
    Tensor out[FIELDS];
    bool ok = false;
    memset(out, 0, sizeof out);
    TRY(make_batches(b, d, type, out));

    for (int f = 0; f < FIELDS; f++) {
        const int64_t size = numel(out[f].dim);
        float *from = ARENA_NEW(&b->mem, float, size);
        uint16_t *want = ARENA_NEW(&b->mem, uint16_t, size);
        uint16_t *got = ARENA_NEW(&b->mem, uint16_t, size);
        TRY(from && want && got);
        TRY(b->k->be->download(b->dev, from, wide[f].data,
                               tensor_bytes(&wide[f])));
        TRY(b->k->be->download(b->dev, got, out[f].data,
                               tensor_bytes(&out[f])));
        precision_narrow(type, from, size, want);
        if (memcmp(got, want, (size_t)size * sizeof *got))
            report(b->k,
                   "%s, field %d: a batch of %s is not that of f32 "
                   "rounded",
                   what, f, dtype_name(type));
    }

    ok = true;

done:
    drop_batches(b, out);
    return ok;
}

/* Compares one batch of these samples. */
static bool compare_batch(Both *b, const Steps *steps, const int32_t *number,
                          int count, uint32_t epoch, const char *what)
{
    Change one[MAX_STEPS];
    Draw d = {.number = number, .count = count};
    Tensor out[FIELDS];
    const Tensor *const at[FIELDS] = {&out[0], &out[1], &out[2], &out[3]};
    Done made[SAMPLES] = {{false}};
    bool ok = false;

    memset(out, 0, sizeof out);
    for (int i = 0; i < count; i++) {
        d.all = augment_decide(steps, 5, epoch, (uint32_t)number[i],
                               b->field[0].dim, one);
        for (int k = 0; k < d.all; k++) {
            d.change[k * count + i] = one[k];
            done_note(&made[i], &one[k]);
        }
    }

    TRY(make_batches(b, &d, F32, out));
    for (int i = 0; i < count; i++)
        TRY(compare_sample(b, steps, epoch, number[i], i, at, &made[i], what));

    // one of the two formats per epoch is enough
    if (b->k->be->upload_narrow)
        TRY(compare_rounded(b, &d, epoch % 2 ? BF16 : F16, out, what));
    ok = true;

done:
    drop_batches(b, out);
    b->cases++;
    return ok;
}

/* Runs all step lists on one shape, batches of one to three, several epochs;
 * with `once` a quarter of the batches. */
static bool check_shape(Both *b, int s)
{
    static const int32_t number[][SAMPLES] = {
        {0}, {2, 0}, {1, 1, 2}, {0, 1, 2}};
    static const int count[] = {1, 2, 3, 3};
    bool ok = both_fill(b, shapes[s].dim, shapes[s].constant);

    for (uint32_t k = 0; ok && k < RECIPES; k++) {
        Steps steps;
        ok = steps_parse(recipes[k], &steps);
        for (uint32_t e = 0; ok && e < 4; e++) {
            if (b->k->once && (e + k + (uint32_t)s) % 4) continue;
            ArenaMark mark = arena_mark(&b->mem);
            char what[96], dims[DIMS_TEXT];
            snprintf(what, sizeof what, "sample of %s, steps %u, epoch %u",
                     dims_text(shapes[s].dim, 3, dims), k, e);
            ok = compare_batch(b, &steps, number[e], count[e], e, what);
            arena_rewind(&b->mem, mark);
        }
    }

    device_dataset_close(b->r);
    b->r = NULL;
    arena_release(&b->mem);
    return ok;
}

int datacheck_run(OpCheck *k)
{
    Both b = {.k = k};
    if (!k->be->gather) return 0;
    bool ok = k->be->open(k->device, 1, &b.dev);
    for (int s = 0; ok && s < SHAPES; s++) ok = check_shape(&b, s);
    if (!ok) report(k, "%s", err_text());
    if (b.dev) k->be->close(b.dev);
    if ((double)b.wrong > 1e-4 * (double)b.labels)
        report(k, "%lld of %lld labels differ under maps", (long long)b.wrong,
               (long long)b.labels);
    return b.cases;
}
