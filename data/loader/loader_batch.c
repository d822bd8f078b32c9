/* loader_batch.c -- the samples of a batch, and how each is made.
 *
 * Batches are begun in order, each in its slot of the ring; with several ranks
 * each makes its shard of a batch, or its shard of the batches. */
#include "data/loader/loader_inside.h"
#include "engine/ranks/ranks.h"
#include <stdio.h>
#include <string.h>

/* Moves to the next batch, across the end of an epoch. */
static void advance(const Loader *l, uint32_t *epoch, int32_t *number)
{
    if (++*number == l->order.batches) *number = 0, ++*epoch;
}

void loader_skip_others(const Loader *l, uint32_t *epoch, int32_t *number)
{
    const LoaderOptions *o = &l->options;
    while (o->whole_batches && *number % o->ranks != o->rank)
        advance(l, epoch, number);
}

/* Keeps this rank's shard of a batch whose ids are all in the slot: moves its
 * own ids to the front. A rank without a sample makes one of another rank,
 * because all ranks must take the same number of steps. */
static void take_share(const Loader *l, Slot *s)
{
    const LoaderOptions *o = &l->options;
    Batch *b = &s->batch;
    b->whole = b->count;
    if (o->ranks < 2 || o->whole_batches) return;
    b->count = ranks_shard(b->whole, o->rank, o->ranks, &b->first);
    b->idle = b->count == 0;
    if (b->idle) b->count = 1;
    if (b->first == b->whole) b->first--;
    memmove(s->id, s->id + b->first, (size_t)b->count * sizeof *s->id);
}

/* Begins the next batch in its slot, which is free. */
static Slot *begin_batch(Loader *l)
{
    loader_skip_others(l, &l->epoch, &l->number);

    // free: loader_next_work has counted the slots in use
    Slot *s = &l->slot[l->begun++ % l->slots];
    int32_t first = l->number * l->options.batch, count = l->options.batch;
    if (count > l->order.samples - first) count = l->order.samples - first;
    s->batch = (Batch){.epoch = l->epoch,
                       .number = l->number,
                       .last = l->number == l->order.batches - 1,
                       .count = count,
                       .fields = l->fields,
                       .id = s->id};
    for (int i = 0; i < count; i++)
        s->id[i] = pipeline_id(l->pipeline,
                               order_sample(&l->order, l->epoch, first + i));
    for (int f = 0; f < l->fields; f++) {
        Dims n = order_dims(&l->order, s->id, count, f);
        s->batch.field[f] =
            (Tensor){n, F32, pipeline_rank(l->pipeline, f), s->data[f]};
    }

    take_share(l, s);
    count = s->batch.count;
    for (int f = 0; f < l->fields; f++) s->batch.field[f].dim.n = count;

    // with ids_only there is nothing to make
    s->started = s->done = l->options.ids_only ? count : 0;

    // count: no sample has failed
    s->failed = count;
    s->kind = ERR_NONE;
    advance(l, &l->epoch, &l->number);
    return s;
}

/* The last batch begun is handed out completely before a new one begins, so
 * workers fill first the batch that is due first. */
Slot *loader_next_work(Loader *l)
{
    if (l->begun > l->taken) {
        Slot *s = &l->slot[(l->begun - 1) % l->slots];
        if (s->started < s->batch.count) return s;
    }
    // the caller's slot is not free
    if (l->begun - l->taken + l->held >= l->slots) return NULL;
    return begin_batch(l);
}

/* A sample is made in its own extents, then padded or cut to those of the
 * batch: its bytes depend on no other sample. */
bool loader_make_sample(Loader *l, Worker *me, Slot *s, int i)
{
    const Dataset *ds = pipeline_dataset(l->pipeline);
    float *to[MAX_FIELDS], *out[MAX_FIELDS] = {NULL};
    Dims n[MAX_FIELDS], have[MAX_FIELDS];
    const double from = trace_now(l->options.trace);

    for (int f = 0; f < l->fields; f++) {
        n[f] = s->batch.field[f].dim;
        n[f].n = 1;
        have[f] = pipeline_dims_of(l->pipeline, s->id[i].number, f);
        to[f] = s->data[f] + i * numel(n[f]);
        out[f] = dims_equal(n[f], have[f]) ? to[f] : me->scratch[f];
    }

    // draws of an epoch number that no run reaches
    const uint32_t epoch = s->batch.epoch ^ (l->options.again ? 1u << 31 : 0);
    if (!pipeline_sample(l->pipeline, s->id[i].number, epoch,
                         l->options.augment, &l->stop, out))
        return false;
    for (int f = 0; f < l->fields; f++)
        if (out[f] != to[f])
            bucket_place(out[f], have[f], ds->field[f].kind, n[f], to[f]);
    trace_span(l->options.trace, me->row, "sample", "loader", s->id[i].number,
               from);
    return true;
}

/* The first of several failures counts, so the report does not depend on
 * timing. */
void loader_finish_sample(Slot *s, int i, bool ok)
{
    if (!ok && i < s->failed) {
        s->failed = i;
        s->kind = err_kind();
        snprintf(s->text, sizeof s->text, "%s", err_text());
    }
    s->done++;
}
