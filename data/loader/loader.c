/* loader.c -- a ring of batches between worker threads and one caller.
 *
 * Work is handed out sample by sample, as tickets 0, 1, 2, ... counted from the
 * position of the last seek; ticket t is the t-th sample from there on. The
 * slot of its batch in the ring is the batch's sequence number modulo the
 * number of slots. Tickets of a batch are handed out only when its slot is
 * free, so at most `prefetch` batches and the caller's batch exist. One lock
 * guards the tickets; samples are made outside it, each into its own place of
 * the batch. */
#define _GNU_SOURCE // SCHED_IDLE
#include "data/loader/loader_inside.h"
#include "engine/base/clock.h"
#include "engine/base/thread.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WORKERS = 256, DEFAULT_PREFETCH = 2, DEFAULT_PATIENCE_S = 60 };
static const int64_t default_bytes = (int64_t)256 << 20;

/* A hung worker is detached after this time. */
static const double close_s = 0.5;

int32_t loader_batches(const Loader *l)
{
    return l->order.batches;
}

int32_t loader_samples(const Loader *l)
{
    // drop_last omits samples that do not fill a batch
    int64_t whole = (int64_t)l->order.batches * l->options.batch;
    return whole < l->order.samples ? (int32_t)whole : l->order.samples;
}

/* ---- workers ------------------------------------------------------------ */

/* Called by the last user, the caller or a worker that hung. */
static void loader_destroy(Loader *l)
{
    for (int i = 0; i < l->slots && l->slot; i++) {
        mem_free(l->slot[i].id);
        for (int f = 0; f < MAX_FIELDS; f++) mem_free(l->slot[i].data[f]);
    }
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    pipeline_free(l->pipeline);
    trace_drop(l->options.trace);
    order_free(&l->order);
    for (int i = 0; i < l->workers && l->worker; i++)
        for (int f = 0; f < MAX_FIELDS; f++) mem_free(l->worker[i].scratch[f]);
    mem_free(l->slot);
    mem_free(l->worker);
    mem_free(l);
}

/* Gives this thread the lowest priority. If the system refuses, nothing changes
 * but the speed. */
static void give_way(void)
{
#ifdef SCHED_IDLE
    struct sched_param none = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
#endif
}

/* A worker takes a ticket under the lock and makes the sample without it. If it
 * is the last user it frees the loader, because the caller has returned. */
static void *work(void *context)
{
    Worker *me = context;
    Loader *l = me->loader;
    if (l->options.idle) give_way();
    pthread_mutex_lock(&l->lock);

    while (!atomic_load(&l->stop)) {
        Slot *s = loader_next_work(l);
        if (!s) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int i = s->started++;
        me->since = clock_s();
        me->item = s->id[i].item;
        pthread_mutex_unlock(&l->lock);
        bool ok = loader_make_sample(l, me, s, i);
        pthread_mutex_lock(&l->lock);
        me->since = 0;
        loader_finish_sample(s, i, ok);
        if (s->done == s->batch.count) pthread_cond_broadcast(&l->ready);
    }

    me->over = true;
    bool last = --l->users == 0;
    pthread_cond_broadcast(&l->ready);
    pthread_mutex_unlock(&l->lock);
    if (last) loader_destroy(l);
    return NULL;
}

/* Starts the workers. Fewer threads than requested only take longer; no thread
 * at all is an error. The lock is held, so that no worker runs before its
 * Worker is filled in. */
static bool start_workers(Loader *l)
{
    int n = 0;
    while (n < l->options.workers) {
        Worker *w = &l->worker[n];
        w->loader = l;
        l->users++;
        int failed = thread_start(&w->thread, work, w);
        if (failed) {
            l->users--;
            if (n == 0)
                return fail("cannot start a worker thread: %s; fix: workers "
                            "= 0, or fewer processes",
                            strerror(failed));
            break;
        }
        n++;
    }

    l->options.workers = n;
    l->started = true;
    return true;
}

/* ---- opening and closing ------------------------------------------------ */

/* Largest number of samples of a batch that this rank makes. */
static int most_samples(const LoaderOptions *o)
{
    if (o->ranks < 2 || o->whole_batches) return o->batch;
    return (o->batch + o->ranks - 1) / o->ranks;
}

/* Bytes of the largest batch. */
static bool batch_bytes(const Loader *l, size_t *out)
{
    *out = 0;
    for (int f = 0; f < l->fields && !l->options.ids_only; f++) {
        size_t bytes;
        if (!size_mul((size_t)numel(l->order.dim[f]),
                      (size_t)most_samples(&l->options) * sizeof(float),
                      &bytes) ||
            !size_add(*out, bytes, out))
            return false;
    }
    return true;
}

/* Allocates the batches ahead, as many as fit, and the caller's batch. A
 * running loader allocates no further memory for batches. */
static bool make_slots(Loader *l)
{
    size_t each;
    if (!batch_bytes(l, &each)) return false;
    l->slots = l->options.prefetch + 1;
    while (l->slots > 2 && (int64_t)each > l->options.prefetch_bytes / l->slots)
        l->slots--;
    if (!l->options.workers) l->slots = 1;
    l->bytes = (int64_t)each * l->slots;
    l->slot = mem_alloc((size_t)l->slots * sizeof *l->slot);
    if (!l->slot) return false;

    for (int i = 0; i < l->slots; i++) {
        size_t n = (size_t)most_samples(&l->options), bytes;
        // the ids of the whole batch, of which this rank makes a shard
        l->slot[i].id = mem_alloc((size_t)l->options.batch * sizeof(SampleId));
        if (!l->slot[i].id) return false;
        for (int f = 0; f < l->fields && !l->options.ids_only; f++) {
            if (!size_mul(n, (size_t)numel(l->order.dim[f]) * sizeof(float),
                          &bytes))
                return false;
            l->slot[i].data[f] = mem_alloc(bytes);
            if (!l->slot[i].data[f]) return false;
        }
    }
    return true;
}

static bool options_check(const LoaderOptions *o)
{
    if (o->workers < 0 || o->workers > MAX_WORKERS)
        return fail_usage("workers is %d, wanted 0 to %d", o->workers,
                          MAX_WORKERS);
    if (o->prefetch < 0 || o->prefetch > 1024)
        return fail_usage("prefetch is %d, wanted 0 to 1024", o->prefetch);
    if (o->ranks < 0 || o->rank < 0 || (o->ranks && o->rank >= o->ranks))
        return fail_usage("rank %d of %d does not exist", o->rank, o->ranks);
    return true;
}

/* With bucketing, each worker has room for one sample outside the batch: a
 * sample may be longer than its part of the batch, and another worker writes to
 * the part after it. */
static bool make_workers(Loader *l)
{
    l->workers = l->options.workers ? l->options.workers : 1;
    l->worker = mem_alloc((size_t)l->workers * sizeof *l->worker);
    if (!l->worker) return false;
    for (int i = 0; i < l->workers; i++)
        snprintf(l->worker[i].row, sizeof l->worker[i].row,
                 l->options.workers ? "loader %d" : "main", i + 1);

    for (int i = 0; i < l->workers && l->order.bucket && !l->options.ids_only;
         i++)
        for (int f = 0; f < l->fields; f++) {
            size_t bytes;
            if (!size_mul((size_t)numel(l->order.made[f]), sizeof(float),
                          &bytes))
                return false;
            l->worker[i].scratch[f] = mem_alloc(bytes);
            if (!l->worker[i].scratch[f]) return false;
        }
    return true;
}

bool loader_open(Pipeline *p, const LoaderOptions *options, Loader **out)
{
    *out = NULL;
    if (!options_check(options)) return false;
    Loader *l = mem_alloc(sizeof *l);
    if (!l) return false;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    clock_cond(&l->ready);
    pipeline_hold(p);
    l->pipeline = p;
    l->options = *options;
    trace_hold(options->trace);
    if (!options->ranks) l->options.ranks = 1;
    if (options->ids_only) l->options.workers = 0, l->options.prefetch = 1;
    if (!l->options.prefetch) l->options.prefetch = DEFAULT_PREFETCH;
    if (!l->options.prefetch_bytes) l->options.prefetch_bytes = default_bytes;
    if (!(l->options.patience_s > 0))
        l->options.patience_s = DEFAULT_PATIENCE_S;

    // the caller
    l->users = 1;
    TRY(order_make(&l->order, p, options));

    // more ranks than batches: some ranks make the same batches
    if (l->options.whole_batches && l->order.batches < l->options.ranks) {
        l->options.ranks = l->order.batches;
        l->options.rank %= l->options.ranks;
    }
    l->fields = l->order.fields;
    TRY(make_workers(l));
    TRY(make_slots(l));
    *out = l;

done:
    if (!*out) loader_destroy(l);
    return *out != NULL;
}

/* Raising `stop` makes workers leave after their current sample; workers that
 * do not leave within close_s are detached. The loader then belongs to them. */
void loader_close(Loader *l)
{
    if (!l) return;

    // one deadline for all workers together
    double until = clock_s() + close_s;
    atomic_store(&l->stop, true);
    pipeline_wake(l->pipeline);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->work);
    while (l->users > 1 && clock_s() < until)
        clock_wait(&l->ready, &l->lock, until - clock_s());

    for (int i = 0; i < l->options.workers && l->started; i++) {
        Worker *w = &l->worker[i];
        bool over = w->over;
        pthread_mutex_unlock(&l->lock);
        // a worker that is over only has to return
        if (over)
            pthread_join(w->thread, NULL);
        else
            pthread_detach(w->thread);
        pthread_mutex_lock(&l->lock);
    }

    bool last = --l->users == 0;
    pthread_mutex_unlock(&l->lock);
    if (last) loader_destroy(l);
}

/* ---- the caller --------------------------------------------------------- */

/* Releases the slot that the caller holds. */
static void release_held(Loader *l)
{
    if (!l->held) return;
    l->held = false;
    pthread_cond_broadcast(&l->work);
}

/* Cheap if the requested batch is the next one: a loop that seeks before every
 * epoch discards no batch. */
bool loader_seek(Loader *l, uint32_t epoch, int32_t number)
{
    if (number < 0 || number > l->order.batches)
        return fail_usage("batch %d of an epoch of %d", number,
                          l->order.batches);
    if (number == l->order.batches) number = 0, epoch++;
    loader_skip_others(l, &epoch, &number);
    pthread_mutex_lock(&l->lock);
    release_held(l);

    // the oldest batch begun and not yet returned; else the batch to begin next
    const Batch *next = &l->slot[l->taken % l->slots].batch;
    bool there = l->begun > l->taken
                     ? next->epoch == epoch && next->number == number
                     : l->epoch == epoch && l->number == number;

    if (!there) {
        // samples in work write into their slots, so wait for them. No new
        // sample starts, because the count of the last batch becomes the
        // samples started
        for (int64_t b = l->taken; b < l->begun; b++) {
            Slot *s = &l->slot[b % l->slots];
            s->batch.count = s->started;
            while (s->done < s->started) clock_wait(&l->ready, &l->lock, 1);
        }
        l->taken = l->begun;
        l->epoch = epoch;
        l->number = number;
        pthread_cond_broadcast(&l->work);
    }

    pthread_mutex_unlock(&l->lock);
    return true;
}

/* Reports the worker that the caller waits for; the lock is held on entry and
 * exit. The callback runs without the lock: it may print slowly, and workers
 * must be able to finish meanwhile. */
static void tell_waiting(Loader *l, double waited)
{
    char text[512];
    int at = snprintf(text, sizeof text, "waiting %.0f s for data", waited);
    double now = clock_s();

    for (int i = 0; i < l->options.workers; i++) {
        const Worker *w = &l->worker[i];
        if (w->since == 0 || at > 400) continue;
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "%s worker %d has been at %.64s for %.0f s",
                       at > 30 ? "," : ":", i + 1,
                       pipeline_dataset(l->pipeline)->cases[w->item].key,
                       now - w->since);
    }

    pthread_mutex_unlock(&l->lock);
    l->options.waiting(l->options.context, text);
    pthread_mutex_lock(&l->lock);
}

/* Waits until the workers have finished a batch; the lock is held. */
static void wait_batch(Loader *l, const Slot *s)
{
    double begin = clock_s(), reported = begin;
    // not begun yet, or not finished
    while (l->begun <= l->taken || s->done < s->batch.count) {
        clock_wait(&l->ready, &l->lock, l->options.patience_s);
        double now = clock_s();
        if (now - reported < l->options.patience_s) continue;
        reported = now;
        if (l->options.waiting) tell_waiting(l, now - begin);
    }
    l->stats.wait_s += clock_s() - begin;
}

/* Makes the next batch in the caller's thread. */
static void make_batch(Loader *l)
{
    double begin = clock_s();
    Slot *s = loader_next_work(l);
    while (s->started < s->batch.count) {
        int i = s->started++;
        loader_finish_sample(s, i, loader_make_sample(l, l->worker, s, i));
    }
    l->stats.wait_s += clock_s() - begin;
}

/* The returned batch stays in its slot until the next call, which is why the
 * ring has one slot more than `prefetch`. */
bool loader_next(Loader *l, const Batch **out)
{
    *out = NULL;
    pthread_mutex_lock(&l->lock);
    release_held(l);
    bool ok = l->options.workers == 0 || l->started || start_workers(l);
    const double from = trace_now(l->options.trace);

    if (ok) {
        Slot *s = &l->slot[l->taken % l->slots];
        if (l->options.workers)
            wait_batch(l, s);
        else if (l->begun == l->taken)
            make_batch(l);
        trace_span(l->options.trace, "main", "wait for a batch", "wait",
                   s->batch.number, from);
        // not returned: the same slot is due again and fails again
        if (s->failed < s->batch.count) {
            ok = err_set(s->kind, s->text);
        } else {
            *out = &s->batch;
            l->taken++;
            l->held = true;
            l->stats.batches++;
            l->stats.samples += s->batch.count;
        }
    }

    pthread_mutex_unlock(&l->lock);
    return ok;
}

int loader_find(const Loader *l, const char *name)
{
    return dataset_field(pipeline_dataset(l->pipeline), name);
}

Tensor loader_field(const Loader *l, int field)
{
    CHECK(field >= 0 && field < l->fields);
    return (Tensor){l->order.dim[field], F32, pipeline_rank(l->pipeline, field),
                    NULL};
}

char *loader_report(Loader *l, Arena *mem)
{
    pthread_mutex_lock(&l->lock);
    const char *lengths = order_report(&l->order, l->epoch, mem);
    pthread_mutex_unlock(&l->lock);
    const int ahead = l->slots - 1;
    return !lengths ? NULL
                    : arena_printf(mem, "%d batch%s ahead, %.1f MiB%s%s", ahead,
                                   ahead == 1 ? "" : "es",
                                   (double)l->bytes / (1 << 20),
                                   *lengths ? "; " : "", lengths);
}

LoaderStats loader_stats(const Loader *l)
{
    return l->stats;
}
