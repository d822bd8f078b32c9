/* order.c -- see order.h. */
#include "data/loader/order.h"
#include <string.h>

/* The w of a batch with this longest sample. */
static int32_t round_up(const Order *o, int32_t w)
{
    const int64_t m = o->options.multiple, up = (w + m - 1) / m * m;
    return up < o->most_w ? (int32_t)up : o->most_w;
}

/* Sets the lengths of all samples, and the largest extents of batches; dim[f]
 * holds the extents of the samples on entry. */
static bool measure_lengths(Order *o)
{
    const Dataset *ds = pipeline_dataset(o->pipeline);
    int32_t longest = 1, least_w = INT32_MAX;
    if (!bucket_new(o->samples, o->options.batch, &o->bucket)) return false;

    for (int32_t i = 0; i < o->samples; i++) {
        const SampleId id = pipeline_id(o->pipeline, i);
        const CaseFacts *of = pipeline_facts(o->pipeline, id.item);
        const int32_t w = pipeline_dims_of(o->pipeline, i, 0).w;
        // a patch may lie anywhere in its case
        const bool ends = w == of->dim.w && of->length > 0 && of->length < w;
        const int32_t own = ends ? of->length : w;
        bucket_set(o->bucket, i, own);
        if (own > longest) longest = own;
        if (w < least_w) least_w = w;
    }

    // if all samples have one w, as after a fit, the network takes that w
    o->most_w = least_w == o->dim[0].w ? least_w : INT32_MAX;
    for (int f = 0; f < o->fields; f++) {
        o->made[f] = o->dim[f];
        if (field_on_grid(ds->field[f].kind))
            o->dim[f].w = round_up(o, longest);
    }
    return true;
}

/* Sets extents and the number of batches. pipeline_dims fails if extents
 * differ, and names two cases. */
static bool measure(Order *o)
{
    const LoaderOptions *how = &o->options;
    Pipeline *p = o->pipeline;
    o->fields = pipeline_dataset(p)->fields;
    o->samples = how->only ? how->only_count : pipeline_samples(p);

    for (int f = 0; f < o->fields; f++) {
        Dims *most = &o->dim[f];
        if (how->bucket ? !pipeline_dims_but_w(p, f, most)
                        : how->batch > 1 && !pipeline_dims(p, f, most))
            return false;
        if (how->bucket || how->batch > 1) continue;
        // batches of one may differ in size: memory for the largest
        for (int32_t i = 0; i < o->samples; i++) {
            Dims n = pipeline_dims_of(p, how->only ? how->only[i] : i, f);
            if (!i || numel(n) > numel(*most)) *most = n;
        }
    }

    if (how->bucket && !measure_lengths(o)) return false;
    o->batches = o->samples / how->batch;
    if (o->samples % how->batch && !how->drop_last) o->batches++;
    if (!o->batches)
        return fail_usage("no batch: %d sample%s, batch is %d and drop_last "
                          "is set",
                          o->samples, o->samples == 1 ? "" : "s", how->batch);
    return true;
}

/* Copies the list of samples and checks their numbers. */
static bool take_only(Order *o)
{
    const LoaderOptions *how = &o->options;
    const int32_t all = pipeline_samples(o->pipeline);
    if (!how->only) return true;
    if (how->bucket)
        return fail_usage(
            "a list of samples (only) cannot be combined with bucket");
    if (how->only_count < 1) return fail_usage("the list of samples is empty");
    for (int32_t i = 0; i < how->only_count; i++)
        if (how->only[i] < 0 || how->only[i] >= all)
            return fail_usage("sample %d of the list: the data set has %d",
                              how->only[i], all);
    const size_t bytes = (size_t)how->only_count * sizeof *o->only;
    o->only = mem_alloc(bytes);
    if (o->only) memcpy(o->only, how->only, bytes);
    return o->only;
}

bool order_make(Order *o, Pipeline *p, const LoaderOptions *options)
{
    *o = (Order){.pipeline = p, .options = *options};
    if (options->batch < 1)
        return fail_usage("batch is %d, wanted 1 or more", options->batch);
    if (options->multiple < 0 || options->multiple > 65535)
        return fail_usage("multiple is %d, wanted 1 to 65535",
                          options->multiple);
    if (options->multiple > 1 && !options->bucket)
        return fail_usage("multiple is %d, but batches are not bucketed",
                          options->multiple);
    if (!options->multiple) o->options.multiple = 1;
    if (!take_only(o) || !measure(o)) return false;
    if (options->shuffle || options->bucket)
        o->number = mem_alloc((size_t)o->samples * sizeof *o->number);
    return o->number || !(options->shuffle || options->bucket);
}

void order_free(Order *o)
{
    bucket_free(o->bucket);
    mem_free(o->number);
    mem_free(o->only);
    *o = (Order){.pipeline = NULL};
}

int32_t order_sample(Order *o, uint32_t epoch, int32_t place)
{
    CHECK(place >= 0 && place < o->samples);
    if (!o->number) return o->only ? o->only[place] : place;

    if (!o->known || o->epoch != epoch) {
        const Rng draw = {
            .seed = o->options.seed, .stream = RNG_SHUFFLE, .epoch = epoch};
        if (o->bucket)
            bucket_order(o->bucket, o->options.shuffle ? &draw : NULL,
                         o->number);
        else
            rng_permutation(&draw, (uint32_t)o->samples, o->number);
        o->epoch = epoch;
        o->known = true;
    }

    const int32_t number = (int32_t)o->number[place];
    return o->only ? o->only[number] : number;
}

/* Samples of a batch have one size, though batches of one may differ; with
 * bucketing they have the w of the longest. */
Dims order_dims(const Order *o, const SampleId *id, int count, int field)
{
    Dims n = pipeline_dims_of(o->pipeline, id[0].number, field);
    const FieldKind kind = pipeline_dataset(o->pipeline)->field[field].kind;
    if (!o->bucket || !field_on_grid(kind)) return n;
    n.w = 1;
    for (int i = 0; i < count; i++) {
        const int32_t w = bucket_length(o->bucket, id[i].number);
        if (w > n.w) n.w = w;
    }
    n.w = round_up(o, n.w);
    return n;
}

/* Voxels along w in the batches of the epoch, compared with batches that are
 * all as long as the longest. */
const char *order_report(Order *o, uint32_t epoch, Arena *mem)
{
    if (!o->bucket) return "";
    int64_t own = 0, bucketed = 0, seen = 0;
    int32_t least = INT32_MAX, most = 0;

    for (int32_t b = 0, at = 0; b < o->batches; b++) {
        int32_t longest = 1, count = 0;
        for (; count < o->options.batch && at < o->samples; count++, at++) {
            const int32_t n =
                bucket_length(o->bucket, order_sample(o, epoch, at));
            own += n;
            if (n > longest) longest = n;
        }
        const int32_t w = round_up(o, longest);
        seen += count;
        bucketed += (int64_t)w * count;
        if (w < least) least = w;
        if (w > most) most = w;
    }

    return arena_printf(
        mem,
        "batches of samples of like length, w %d to %d: %.3g %% of them is "
        "padding, %.3g %% were all %d",
        least, most, 100 * (1 - (double)own / (double)bucketed),
        100 * (1 - (double)own / ((double)most * (double)seen)), most);
}
