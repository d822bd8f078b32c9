#include "engine/check/ophalf.h"
#include <math.h>
#include <string.h>

// -- cases -------------------------------------------------------------------

/* Returns the larger of `times` and the factor that makes c divisible by
 * NARROW_CHANNELS. */
static int32_t times_of(int32_t times, int32_t c)
{
    int32_t own = 1;
    while (c * own % NARROW_CHANNELS) own *= 2;
    return own > times ? own : times;
}

bool opnarrow_case(OpCase *c)
{
    const OpInfo *info = &op_info[c->attr.op];
    const bool repeats = info->shape == op_info[OP_add].shape;
    const bool each = op_multiplies((Op)c->attr.op);
    const int lengths = info->flags & LENGTHS ? info->in - 1 : MAX_IN;
    int32_t most = 1, times = 1;
    Tensor y;

    for (int i = 0; i < info->in; i++)
        if (c->x[i].c > most) most = c->x[i].c;

    for (int i = 0; i < info->in; i++) {
        if (!c->x[i].n || i == lengths) continue; // lengths have no channels
        // a single broadcast channel would make the call one in float
        if (repeats) c->x[i].c = most;
        times = times_of(times, c->x[i].c);
    }

    if (each) times = times_of(times, c->x[1].n);
    if (c->attr.op == OP_slice)
        times = times_of(times_of(times, c->attr.slice.c), c->attr.slice.c0);
    for (int i = 0; i < info->in; i++)
        if (i != lengths) c->x[i].c *= times;
    if (each) c->x[1].n *= times;
    if (c->attr.op == OP_slice)
        c->attr.slice.c *= times, c->attr.slice.c0 *= times;
    return opcase_shape(c, &y);
}

/* Returns the backend's answer for a case, and the result's extents in *y. */
static unsigned said(const OpCase *c, const OpCheck *k, Tensor *y)
{
    Tensor x[MAX_IN];
    Call call = {.attr = &c->attr, .y = y, .train = !c->eval};
    if (precision_copy(k->precision) == F32 || !opcase_shape(c, y)) return 0;
    for (int i = 0; i < MAX_IN; i++) {
        x[i] = (Tensor){c->x[i], k->be->real, c->rank, NULL};
        if (c->x[i].n) call.x[i] = &x[i];
    }
    return backend_storage(k->be, &call).narrow;
}

unsigned opnarrow_bits(const OpCase *c, const OpCheck *k)
{
    Tensor y;
    const bool each = op_multiplies((Op)c->attr.op);
    unsigned bits = said(c, k, &y) & ~(unsigned)NARROW_ALONE;

    for (int i = 0; i <= MAX_IN; i++) {
        const Dims s = i == MAX_IN ? y.dim : c->x[i];
        if (!(bits >> i & 1)) continue;
        if (!s.n)
            bits &= ~(1u << i);
        else if (s.c % NARROW_CHANNELS)
            bits = each ? bits & ~(1u << i) : 0;
    }
    return bits;
}

// -- agreement ---------------------------------------------------------------

static void round_all(Precision p, double *v, int64_t count)
{
    for (int64_t i = 0; v && i < count; i++) v[i] = precision_round(p, v[i]);
}

bool opnarrow_values(const OpCase *c, const OpCheck *k, unsigned bits,
                     Arena *mem, OpValues *out)
{
    if (!opcase_values(c, mem, out)) return false;
    for (int i = 0; i < MAX_IN; i++)
        if (bits >> i & 1) round_all(k->precision, out->x[i], out->count[i]);
    if (bits & NARROW_Y) round_all(k->precision, out->dy, out->results);
    return true;
}

/* Compares one run with these tensors in float and one in 16 bits. */
static void agree(const OpCase *c, OpCheck *k, unsigned bits, OpOptions how)
{
    const Precision p = k->precision;
    const OpInfo *info = &op_info[c->attr.op];
    Arena mem = {0};
    OpValues v, wide, narrow;
    OpCase forward = *c;
    bool ok = false;

    forward.wrt = 0;
    TRY(opnarrow_values(c, k, bits, &mem, &v));
    if (info->keep & KEEP_Y) { // backward reads the stored result
        TRY(opcase_run(&forward, k, 2, &v, (OpOptions){0}, &mem, &wide));
        if (bits & NARROW_Y) round_all(p, wide.y, v.results);
        how.y = wide.y;
    }

    TRY(opcase_run(c, k, 2, &v, how, &mem, &wide));
    if (bits & NARROW_Y) round_all(p, wide.y, v.results);
    for (int i = 0; i < info->in; i++)
        if (bits >> i & 1) round_all(p, wide.dx[i], v.count[i]);
    how.narrow = bits;
    TRY(opcase_run(c, k, 2, &v, how, &mem, &narrow));
    opcase_same(k, c, &wide, &narrow, "in f32 and in 16 bits");
    ok = true;

done:
    if (!ok)
        opcheck_report(k, c, "%s, in 16 bits: %s", k->be->name, err_text());
    arena_release(&mem);
}

void opnarrow_alone(const OpCase *c, OpCheck *k)
{
    Tensor y;
    OpCase forward = *c;
    forward.wrt = 0;
    if (said(c, k, &y) & NARROW_ALONE)
        agree(&forward, k, NARROW_Y, (OpOptions){.forward_only = true});
}

void opnarrow_agree(const OpCase *c, OpCheck *k)
{
    const unsigned bits = opnarrow_bits(c, k);
    const bool each = op_multiplies((Op)c->attr.op);
    const bool over = op_info[c->attr.op].flags & INPLACE_GRAD && c->wrt & 1;
    agree(c, k, bits, (OpOptions){.accumulate = c->number % 3 == 0});
    if (over) agree(c, k, bits, (OpOptions){.inplace_grad = true});
    const unsigned half = c->number % 2 ? NARROW_Y : ~(unsigned)NARROW_Y;
    if (each && bits & half && bits & ~half)
        agree(c, k, bits & half, (OpOptions){0});
}
