#include "tests/support/bf16_backend.h"
#include "tests/test.h"
#include <string.h>

/* The bf16 values of tensor `from`, or of its copy, as floats. The caller owns
 * the memory. */
static void decode(const Call *c, const Tensor *from, const Tensor *copy,
                   Tensor *to)
{
    int64_t count = numel(from->dim);
    *to = *from;
    REQUIRE(to->data = mem_alloc((size_t)count * sizeof(float)));
    // a plan that makes copies makes all that are requested
    REQUIRE(copy || c->precision == PRECISION_f32);
    for (int64_t i = 0; i < count; i++) {
        double v = copy ? precision_value(PRECISION_bf16,
                                          ((const uint16_t *)copy->data)[i])
                        : tensor_get(from, i);
        tensor_set(to, i, precision_round(PRECISION_bf16, v));
    }
}

static unsigned copies(const Call *c)
{
    unsigned wants = c->dy ? HALF_DY : 3;
    if (!op_multiplies(call_op(c))) return 0;
    if (c->dy && c->dx[0]) wants |= 2;
    if (c->dy && c->dx[1]) wants |= 1;
    return wants;
}

static Storage half_storage(const Call *c)
{
    return (Storage){.copies = copies(c)};
}

/* The memory that the f32 kernels need, whatever the precision of the plan. */
static Space half_space(const Call *c)
{
    Call call = *c;
    call.precision = PRECISION_f32;
    return backend_cpu.space[call_op(c)](&call);
}

/* The f32 kernel of the cpu backend on rounded operands. */
static bool half_run(const Call *c)
{
    Call call = *c;
    call.precision = PRECISION_f32;
    call.half = (CallCopies){.dy = NULL};
    const unsigned wants = copies(c);
    Tensor t[3] = {{.data = NULL}};
    for (int i = 0; i < 2; i++) {
        if (!(wants >> i & 1)) continue;
        decode(c, c->x[i], c->half.x[i], &t[i]);
        call.x[i] = &t[i];
    }

    if (wants & HALF_DY) {
        decode(c, c->dy, c->half.dy, &t[2]);
        call.dy = &t[2];
    }
    Op op = call_op(c);
    bool ok = (c->dy ? backend_cpu.bwd : backend_cpu.fwd)[op](&call);
    for (int i = 0; i < 3; i++) mem_free(t[i].data);
    return ok;
}

static bool half_convert(const Call *c)
{
    uint16_t *to = c->y->data;
    REQUIRE(c->y->type == BF16 && c->x[0]->type == F32);
    for (int64_t i = 0; i < numel(c->y->dim); i++) {
        float v =
            (float)precision_round(PRECISION_bf16, tensor_get(c->x[0], i));
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        to[i] = (uint16_t)(bits >> 16);
    }
    return true;
}

Backend half_backend(void)
{
    static const Op op[] = {OP_conv, OP_upconv, OP_linear};
    Backend be = backend_cpu;
    be.name = "half";
    be.storage = half_storage;
    be.convert = half_convert;
    for (int i = 0; i < 3; i++) {
        be.fwd[op[i]] = be.bwd[op[i]] = half_run;
        be.space[op[i]] = half_space;
    }
    return be;
}
