/* dispatch.c -- runs one Call as up to three jobs: y or dx by fprop_dgrad, dw
 * by wgrad, db by bias_grad.
 *
 * They run one after the other in one scratch buffer of the largest size. The
 * same functions describe a job when space is asked for (addresses are then
 * NULL) and when it runs, so the two cannot disagree. */
#include "cpu/conv/dispatch.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/wgrad.h"

/* Data of operand i for the products: the operand or its copy in 16 bits. */
static const void *operand(const Call *c, int i)
{
    return c->half.x[i] ? c->half.x[i]->data : c->x[i]->data;
}

static const void *dy_operand(const Call *c)
{
    return c->half.dy ? c->half.dy->data : c->dy ? c->dy->data : NULL;
}

/* The second input of an implicit concat, x[X2], or its gradient, dx[X2]. */
static ConcatInput second_input(const Call *c, const Tensor *at)
{
    if (!c->x[X2]) return (ConcatInput){0};
    return (ConcatInput){.at = at ? at->data : NULL,
                         .from = c->x[0]->dim.c,
                         .add = !(c->fresh >> X2 & 1)};
}

/* The job of the forward run. `y` exists even when only space is asked for.
 * table: of the epilogue, NULL while only space is asked for. */
static FpropDgrad forward(const Call *c, bool transposed, float *table)
{
    return (FpropDgrad){.window = op_window(c->attr, c->x[1]),
                        .transposed = transposed,
                        .no_winograd = c->no_winograd,
                        .half = is_bf16(c),
                        .in = call_image(c),
                        .out = c->y->dim,
                        .x = operand(c, 0),
                        .w = operand(c, 1),
                        .bias = c->x[2] ? c->x[2]->data : NULL,
                        .y = c->y->data,
                        .second = second_input(c, c->x[X2]),
                        .epilogue = epilogue_of(c, table),
                        .threads = c->threads};
}

/* Extents of the result: a backward run may have no y, and while only space is
 * asked for there may be no dy. */
static Dims result(const Call *c)
{
    return c->dy ? c->dy->dim : c->y->dim;
}

/* The job of the gradient in x: a sum over dy with `transposed` negated,
 * without bias. It is added where dx already holds another node's gradient. */
static FpropDgrad backward(const Call *c, bool transposed)
{
    return (FpropDgrad){.window = op_window(c->attr, c->x[1]),
                        .transposed = !transposed,
                        .add = !(c->fresh & 1),
                        .no_winograd = c->no_winograd,
                        .half = is_bf16(c),
                        .in = result(c),
                        .out = call_image(c),
                        .x = dy_operand(c),
                        .w = operand(c, 1),
                        .y = c->dx[0] ? c->dx[0]->data : NULL,
                        .second = second_input(c, c->dx[X2]),
                        .threads = c->threads};
}

/* The job of the gradient in w. Its image is the tensor that windows slide
 * over: x of a convolution, dy of a transposed one. */
static Wgrad weights(const Call *c, bool transposed)
{
    const void *x = operand(c, 0), *dy = dy_operand(c);
    return (Wgrad){.window = op_window(c->attr, c->x[1]),
                   .in = transposed ? result(c) : call_image(c),
                   .out = transposed ? call_image(c) : result(c),
                   .x = transposed ? dy : x,
                   .a = transposed ? x : dy,
                   .second = second_input(c, c->x[X2]),
                   .dw = c->dx[1]->data,
                   .add = !(c->fresh & 2),
                   .no_winograd = c->no_winograd,
                   .half = is_bf16(c),
                   .threads = c->threads};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

Space conv_call_space(const Call *c, bool transposed)
{
    Space s = {0};
    FpropDgrad f = forward(c, transposed, NULL);
    s.fwd = epilogue_bytes(c) + fprop_dgrad_bytes(&f);
    if (c->dx[0] || c->dx[X2]) {
        FpropDgrad b = backward(c, transposed);
        s.bwd = fprop_dgrad_bytes(&b);
    }
    if (c->dx[1]) {
        Wgrad w = weights(c, transposed);
        s.bwd = larger(s.bwd, wgrad_bytes(&w));
    }
    if (c->dx[2]) s.bwd = larger(s.bwd, bias_grad_bytes(result(c)));
    return s;
}

void conv_call_fwd(const Call *c, bool transposed)
{
    FpropDgrad f = forward(c, transposed, c->scratch);
    fprop_dgrad_run(&f, c->dev, (char *)c->scratch + epilogue_bytes(c));
}

void conv_call_bwd(const Call *c, bool transposed)
{
    if (c->dx[0] || c->dx[X2]) {
        FpropDgrad b = backward(c, transposed);
        fprop_dgrad_run(&b, c->dev, c->scratch);
    }
    if (c->dx[1]) {
        Wgrad w = weights(c, transposed);
        wgrad_run(&w, c->dev, c->scratch);
    }
    if (c->dx[2])
        bias_grad_run(c->dy->data, c->dy->dim, c->dx[2]->data, !(c->fresh & 4),
                      c->dev, c->scratch);
}
