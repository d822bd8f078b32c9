/* plan_microbatch.c -- groups of calls that run a few samples at a time.
 *
 * A wide layer writes more than a cache holds, and the next layer fetches it
 * from memory. In evaluation samples are independent. Where the backend asks
 * for it (Schedule.microbatch), a group of consecutive calls runs on the first
 * micro-batch, then on the next: a value inside the group is read while it is
 * in a cache, and its buffer has room for one micro-batch. The same kernels on
 * the same numbers give the bits of the whole batch. The order is the
 * depth-first order of "cascaded" layers (Mei et al., "DeFiNES", HPCA 2023),
 * with samples in place of tiles, so nothing is computed twice.
 *
 * While a group runs, extents and addresses of its values are those of a
 * micro-batch; at any other time those of the batch. A buffer that is used
 * inside the group alone has the size of a micro-batch. Any other buffer has a
 * part for each micro-batch and is in use from the first call of the group to
 * the last. */
#include "engine/plan/plan_inside.h"

/* Does the value of node v have the batch as its first extent? */
static bool is_batched(const Plan *p, int v)
{
    return node_of(p, v)->batched;
}

/* May call c run on a part of its samples? Not if its weights depend on
 * samples, nor if several samples share an operand along n. */
static bool goes_by_sample(const Plan *p, int c)
{
    const Call *call = &p->call[c];
    const OpInfo *info = info_of(p, call->node);

    for (int k = 0; k < MAX_IN; k++) {
        if (!call->x[k]) continue;
        const bool batched = is_batched(p, operand_of(p, call->node, k));
        if (!call->program && !op_by_sample(info, k)) {
            if (batched) return false;
        } else if (call->x[k]->dim.n != (batched ? call->y->dim.n : 1)) {
            return false;
        }
    }
    return is_batched(p, call->node);
}

/* Returns the micro-batch size that the backend asks for call c; the full batch
 * means no micro-batches. */
static int32_t slice_of(const Plan *p, int c)
{
    const int32_t n = p->call[c].y->dim.n;
    if (!goes_by_sample(p, c)) return n;
    const int32_t each = backend_schedule(p->spec.be, &p->call[c]).microbatch;
    return each < 1 || each > n ? n : each;
}

/* Returns the group that begins with call c; fewer than two operators are no
 * group. A 16-bit copy belongs to the operator that reads it, which comes
 * next. */
static MicrobatchGroup stage_from(const Plan *p, int c)
{
    MicrobatchGroup s = {.first = c, .end = c};
    int rows = 0;

    for (int i = c; i < p->calls; i++) {
        if (is_convert(&p->call[i])) continue;
        const int32_t n = p->call[i].y->dim.n, each = slice_of(p, i);
        if (each == n || (rows && n != s.batch)) break;
        s.each = rows && s.each < each ? s.each : each;
        s.batch = n;
        s.end = i + 1;
        rows++;
    }

    if (rows < 2) return (MicrobatchGroup){.first = c, .end = c};

    // micro-batches of nearly equal size
    s.microbatches = (s.batch + s.each - 1) / s.each;
    s.each = (s.batch + s.microbatches - 1) / s.microbatches;
    return s;
}

void plan_microbatches(Plan *p)
{
    p->groups = 0;
    if (p->spec.no_fusion || p->spec.train || p->spec.mc_dropout ||
        p->spec.loss >= 0)
        return;
    for (int c = 0; c < p->calls;) {
        const MicrobatchGroup s = stage_from(p, c);
        if (s.end > c) p->group[p->groups++] = s;
        c = s.end > c ? s.end : c + 1;
    }
}

/* == memory ============================================================ */

/* Is buffer b used by calls of the group only? */
static bool is_within(const Plan *p, const MicrobatchGroup *s, int b)
{
    return p->buffer[b].first >= s->first && p->buffer[b].last < s->end;
}

/* A function for each tensor of a group's calls in the pool, in buffer b;
 * `samples`: has a batch extent, else equal for all micro-batches. */
typedef void TensorFn(Plan *p, const MicrobatchGroup *s, Tensor *t, int b,
                      bool samples);

static void each_tensor(Plan *p, const MicrobatchGroup *s, TensorFn *fn)
{
    for (int c = s->first; c < s->end; c++) {
        const Call *call = &p->call[c];
        for (int k = -1; k < MAX_IN; k++) {
            // the result first; a copy is of its own node's value
            if (k >= 0 && (is_convert(call) || !call->x[k])) continue;
            const int v = k < 0 ? call->node : operand_of(p, call->node, k);
            PlanValue *m = &p->node[v].first;
            const bool samples = is_batched(p, v);
            if (m->value >= 0) fn(p, s, &m->x, m->value, samples);
            if (m->half_value >= 0) fn(p, s, &m->half, m->half_value, samples);
        }
    }
}

/* Sets the buffer to the size of a micro-batch, or extends its life to the
 * whole group. */
static void fit(Plan *p, const MicrobatchGroup *s, Tensor *t, int b,
                bool samples)
{
    Buffer *buffer = &p->buffer[b];
    if (samples && is_within(p, s, b)) {
        Tensor part = *t;
        part.dim.n = s->each;
        buffer->bytes = plan_aligned(tensor_bytes(&part));
        return;
    }

    // a value of which only the copy or the extents are used may be freed by
    // now
    if (buffer->last < s->first || buffer->first >= s->end) return;
    if (buffer->first > s->first) buffer->first = s->first;
    if (buffer->last < s->end - 1) buffer->last = s->end - 1;
}

void plan_microbatches_fit(Plan *p)
{
    for (int i = 0; i < p->groups; i++) each_tensor(p, &p->group[i], fit);
}

/* == running =========================================================== */

/* Cuts the tensor to the current micro-batch. */
static void cut(Plan *p, const MicrobatchGroup *s, Tensor *t, int b,
                bool samples)
{
    const int32_t from = p->microbatch * s->each, rest = s->batch - from;
    if (!samples) return;
    t->dim.n = s->each;
    t->data = plan_address(p, b);
    if (t->data && !is_within(p, s, b))
        t->data = (char *)t->data + (size_t)p->microbatch * tensor_bytes(t);
    if (rest < s->each) t->dim.n = rest;
}

/* Restores the tensor to the whole batch. */
static void mend(Plan *p, const MicrobatchGroup *s, Tensor *t, int b,
                 bool samples)
{
    if (!samples) return;
    t->dim.n = s->batch;
    t->data = plan_address(p, b);
}

void plan_microbatch_cut(Plan *p, int i, int microbatch)
{
    p->microbatch = microbatch;
    each_tensor(p, &p->group[i], cut);
}

void plan_microbatch_mend(Plan *p, int i)
{
    p->microbatch = 0;
    each_tensor(p, &p->group[i], mend);
}

int plan_microbatch_of(const Plan *p, int c)
{
    for (int i = 0; i < p->groups; i++)
        if (p->group[i].first <= c && c < p->group[i].end) return i;
    return -1;
}

/* Enters call c, which is not in the group that ran last. */
static int enter(Plan *p, int c)
{
    const int i = plan_microbatch_of(p, c);
    p->group_at = i;
    if (i >= 0) plan_microbatch_cut(p, i, 0);
    return c;
}

int plan_first(Plan *p)
{
    return enter(p, 0);
}

/* Returns call c of a group, or the next that this micro-batch needs: copies of
 * weights exist since the first one. */
static int wanted(const Plan *p, int c)
{
    while (p->microbatch > 0 && is_convert(&p->call[c]) &&
           !is_batched(p, p->call[c].node))
        c++;
    return c;
}

int plan_next(Plan *p, int c)
{
    const int i = p->group_at;
    if (i < 0) return enter(p, c + 1);
    // a group ends with an operator, so a call follows each copy
    if (c + 1 < p->group[i].end) return wanted(p, c + 1);
    if (!plan_in_last_microbatch(p)) {
        plan_microbatch_cut(p, i, p->microbatch + 1);
        return wanted(p, p->group[i].first);
    }
    plan_microbatch_mend(p, i);
    return enter(p, c + 1);
}

void plan_stop(Plan *p)
{
    if (p->group_at >= 0) plan_microbatch_mend(p, p->group_at);
    p->group_at = -1;
}

bool plan_in_last_microbatch(const Plan *p)
{
    return p->group_at < 0 ||
           p->microbatch + 1 == p->group[p->group_at].microbatches;
}

int32_t plan_sample(const Plan *p)
{
    return p->group_at < 0 ? 0 : p->microbatch * p->group[p->group_at].each;
}

int plan_microbatched(const Plan *p)
{
    int calls = 0;
    for (int i = 0; i < p->groups; i++)
        calls += p->group[i].end - p->group[i].first;
    return calls;
}
