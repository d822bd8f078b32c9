/* session_average.c -- averages of weights, and the running statistics that
 * belong to them.
 *
 * An average is a block on the device with the layout of the values, so one
 * call on flat memory updates it. Statistics collected during training belong
 * to the weights of each step, not to the averaged weights, so they can be
 * computed again. A batch norm updates them by r <- (1 - m) r + m b, so from r
 * = 0 one batch gives m b, and the mean of all b is a sum of these divided by m
 * and the number of batches. They are few (two numbers per channel) and are
 * added up on the host, in double. */
#include "engine/session/session_inside.h"
#include <math.h>

bool session_ema(Session *s, double ema)
{
    if (!(ema >= 0 && ema < 1))
        return fail_usage("ema is %g, want a number from 0 to below 1", ema);
    if (s->param_range)
        return fail_usage("ema: the network has begun to train");
    s->ema = ema;
    return params_average(&s->params);
}

bool session_has_ema(const Session *s)
{
    return s->ema > 0;
}

bool session_average(Session *s, int64_t count)
{
    const Params *q = &s->params;
    CHECK(q->average && count >= 0);
    return s->be->blend(s->dev, q->average, q->value, q->total,
                        1 / ((double)count + 1));
}

bool session_swap(Session *s)
{
    CHECK(s->params.average && s->under_way == 0);
    return params_swap(&s->params);
}

/* == recomputing statistics ============================================= */

/* Returns the address of the running statistics, and their number in *count. */
static char *running_at(const Session *s, int64_t *count)
{
    *count = s->params.total - s->params.trained;
    return (char *)s->params.value +
           (size_t)s->params.trained * dtype_bytes(s->be->real);
}

/* Returns the momentum of the batch norm that owns the statistics of parameter
 * `node`; 0 if no operator of a training step updates it. */
static double momentum_of(const Session *s, int node)
{
    const Graph *g = s->spec.graph;
    for (int i = 0; i < s->nodes; i++) {
        const Node *n = &g->node[i];
        if (!s->in_step[i] || n->kind != NODE_OP || n->attr.op != OP_batch_norm)
            continue;
        for (int k = 0; k < op_info[OP_batch_norm].in; k++)
            if (n->in[k] == node) return (double)n->attr.batch_norm.momentum;
    }
    return 0;
}

/* Copies the statistics to `before` and zeroes all that have a momentum. */
static bool clear_running_stats(Session *s)
{
    const Params *q = &s->params;
    size_t real = dtype_bytes(s->be->real);
    int64_t count;
    char *at = running_at(s, &count);

    if (!s->be->download(s->dev, s->before, at, (size_t)count * real))
        return false;

    for (int i = 0; i < q->count; i++) {
        const Param *a = &q->list[i];
        if (a->trained || momentum_of(s, a->node) == 0) continue;
        char *from = (char *)s->before + (size_t)(a->at - q->trained) * real;
        for (size_t k = 0; k < (size_t)numel(a->dim) * real; k++) from[k] = 0;
    }
    return s->be->upload(s->dev, at, s->before, (size_t)count * real);
}

bool session_update_bn_begin(Session *s)
{
    int64_t count;
    running_at(s, &count);
    CHECK(s->under_way == 0);
    mem_free(s->bn_sums);
    s->bn_batches = 0;
    s->bn_sums = mem_alloc(((size_t)count + 1) * sizeof *s->bn_sums);
    return s->bn_sums && clear_running_stats(s);
}

/* Returns number i of `before`. */
static double before_at(const Session *s, int64_t i)
{
    Tensor t = {.type = s->be->real, .data = s->before};
    return tensor_get(&t, i);
}

bool session_update_bn_add(Session *s)
{
    int64_t count;
    char *at = running_at(s, &count);
    CHECK(s->bn_sums);
    if (!s->be->download(s->dev, s->before, at,
                         (size_t)count * dtype_bytes(s->be->real)))
        return false;
    for (int64_t i = 0; i < count; i++) s->bn_sums[i] += before_at(s, i);
    s->bn_batches++;
    return clear_running_stats(s);
}

bool session_update_bn_end(Session *s)
{
    const Params *q = &s->params;
    bool ok = true;
    CHECK(s->bn_sums && s->bn_batches > 0);

    for (int i = 0; ok && i < q->count; i++) {
        const Param *a = &q->list[i];
        double m = a->trained ? 0 : momentum_of(s, a->node);
        if (m == 0) continue;
        // statistics have one axis: user order and memory order are equal
        double *sum = s->bn_sums + (a->at - q->trained);
        for (int64_t k = 0; k < numel(a->dim); k++)
            sum[k] /= m * (double)s->bn_batches;
        ok = params_write(q, i, PARAM_VALUE, 0, sum);
    }

    mem_free(s->bn_sums);
    s->bn_sums = NULL;
    return ok;
}
