/* windowed.c -- see windowed.h. */
#include "tests/cuda/kernels/windowed.h"
#include "tests/test.h"

OpCase windowed_case(const Windowed *s, uint32_t number, unsigned odd)
{
    OpCase c = {.attr = op_default(OP_conv), .rank = s->rank, .x = {s->x}};
    c.x[1] = (Dims){s->filters, 1, 1, 1, s->x.c};
    int *k[] = {&c.x[1].d, &c.x[1].h, &c.x[1].w};
    int *step[] = {&c.attr.conv.sd, &c.attr.conv.sh, &c.attr.conv.sw};
    int *lo[] = {&c.attr.conv.pd0, &c.attr.conv.ph0, &c.attr.conv.pw0};
    int *hi[] = {&c.attr.conv.pd1, &c.attr.conv.ph1, &c.attr.conv.pw1};
    int *dil[] = {&c.attr.conv.dd, &c.attr.conv.dh, &c.attr.conv.dw};
    for (int i = 3 - s->rank; i < 3; i++) {
        *k[i] = s->kernel, *step[i] = s->stride;
        *lo[i] = s->lo, *hi[i] = s->hi, *dil[i] = s->dilation;
    }
    if (number % 2) c.x[2] = (Dims){1, 1, 1, 1, s->filters};
    c.wrt = number % 2 ? odd : 2;
    c.number = number;
    return c;
}

void windowed_y16(const OpCase *c, OpCheck *k)
{
    const OpOptions y32 = {.forward_only = true};
    const OpOptions y16 = {.forward_only = true, .narrow = NARROW_Y};
    Arena mem = {0};
    OpValues v, p, q;
    REQUIRE(opcase_values(c, &mem, &v));
    REQUIRE(opcase_run(c, k, 1, &v, y32, &mem, &p));
    REQUIRE(opcase_run(c, k, 1, &v, y16, &mem, &q));
    for (int64_t i = 0; i < v.results; i++)
        p.y[i] = precision_round(k->precision, p.y[i]);
    opcase_same(k, c, &p, &q, "y in f32 and in 16 bits");
    arena_release(&mem);
}
