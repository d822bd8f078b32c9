/* program.c -- programs of elementwise operators (engine/graph/program.h), and
 * the operators of elementwise.def, sub, mul, div and scale as programs of one
 * step.
 *
 * A task runs all instructions on a part of its block before the next part:
 * each register is an array of PART elements in the nearest cache, so memory is
 * read and written once, however many operators the program has. The memory of
 * a gradient, and of an operand with the extents of the result, is the register
 * itself; an operand that is broadcast is expanded into a register.
 *
 * The gradient of a broadcast operand is a sum, which the plain loops
 * compute. */
#include "engine/graph/program.h"
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include <string.h>

enum { PART = 1024 }; // elements: 4 KiB a register
_Static_assert(BLOCK % PART == 0, "parts begin where blocks do");

/* Registers of a task: their memory, and where each lies now. */
typedef struct Registers {
    _Alignas(64) float own[REG_COUNT][PART];
    float *at[REG_COUNT];
} Registers;

// -- broadcast operands ------------------------------------------------------

/* Element offsets of an operand along the axes of the result; 0 where it is
 * broadcast. */
typedef struct Strides {
    int64_t n, d, h, w, c;
} Strides;

static Strides strides_of(Dims s)
{
    const int64_t w = s.c, h = w * s.w, d = h * s.h, n = d * s.d;
    return (Strides){s.n > 1 ? n : 0, s.d > 1 ? d : 0, s.h > 1 ? h : 0,
                     s.w > 1 ? w : 0, s.c > 1 ? 1 : 0};
}

/* Writes elements from .. from+count-1 of t, broadcast to the extents `all`. */
static void expand(const Tensor *t, Dims all, int64_t from, int64_t count,
                   float *to)
{
    const Strides s = strides_of(t->dim);
    const float *x = t->data;
    int64_t row = from / all.c, c = from % all.c;
    while (count > 0) {
        int64_t r = row++;
        const int64_t w = r % all.w, h = (r /= all.w) % all.h;
        const int64_t d = (r /= all.h) % all.d, n = r / all.d;
        const float *from_row = x + n * s.n + d * s.d + h * s.h + w * s.w;
        const int64_t width = least(all.c - c, count);
        for (int64_t i = 0; i < width; i++) to[i] = from_row[(c + i) * s.c];
        to += width, count -= width, c = 0;
    }
}

// -- one part ----------------------------------------------------------------

/* Sets the registers of operands and, in a backward run, of gradients to
 * elements from .. from+count-1. */
static void set_registers(const Call *c, const Program *p, int64_t from,
                          int64_t count, Registers *r)
{
    const bool back = c->dy != NULL;
    for (int k = 0; k < p->operands; k++) {
        const Tensor *x = c->x[k];
        if (back && !(p->reads >> k & 1)) continue;
        if (dims_equal(x->dim, c->y->dim))
            r->at[REG_X + k] = floats(x, from);
        else
            expand(x, c->y->dim, from, count, r->own[REG_X + k]);
    }
    if (!back || p->reads_y) r->at[REG_Y] = floats(c->y, from);
    if (!back) return;

    // dx[0] may be dy's memory: it is written before dy is read last
    r->at[REG_DY] = floats(c->dy, from);
    for (int k = 0; k < p->operands; k++) {
        if (!(p->wants >> k & 1)) continue;
        r->at[REG_DX + k] = floats(c->dx[k], from);
        if (c->dx[k]->data != c->dy->data) continue;
        r->at[REG_DY] = r->own[REG_DY];
        memcpy(r->own[REG_DY], floats(c->dy, from),
               (size_t)count * sizeof(float));
    }
}

/* Is the result of the instruction added to its register? Instructions add up
 * the terms of a gradient; the first term is added too where an earlier call
 * wrote to the gradient of the operand (Call.fresh). */
static bool adds(const Call *c, const Instruction *i)
{
    const int k = i->to - REG_DX;
    return i->add || (k >= 0 && k < MAX_IN && !(c->fresh >> k & 1));
}

/* Runs instructions from .. code->count-1 on `count` elements. */
static void run_code(const Call *c, const ProgramCode *code, int from,
                     int64_t count, Registers *r)
{
    for (int k = from; k < code->count; k++) {
        const Instruction *i = &code->list[k];
        float *to = r->at[i->to];
        const Function f = {.a = i->a < 0 ? to : r->at[i->a],
                            .b = i->b < 0 ? to : r->at[i->b],
                            .dy = i->dy < 0 ? to : r->at[i->dy],
                            .to = to,
                            .n = count,
                            .add = adds(c, i)};
        simd()->function(i, &f);
    }
}

/* BlockFn: all parts of a block; constants are computed in the first. */
static void run_block(const Call *c, int64_t from, int64_t count)
{
    const Program *p = c->program;
    const ProgramCode *code = c->dy ? &p->backward : &p->forward;
    Registers r;
    for (int k = 0; k < REG_COUNT; k++) r.at[k] = r.own[k];
    for (int64_t at = 0; at < count; at += PART) {
        const int64_t part = least(PART, count - at);
        set_registers(c, p, from + at, part, &r);
        run_code(c, code, at ? code->constants : 0, part, &r);
    }
}

// -- calls -------------------------------------------------------------------

bool cpu_program(const Call *c)
{
    if (!c->dy || c->program->wants) blocks_run(c, numel(c->y->dim), run_block);
    return true;
}

/* Runs the operator of a call as a program of one step; forward if dy is
 * NULL. */
static bool run_alone(const Call *c, const Tensor *dy)
{
    Program p;
    Call of = *c;
    program_of_call(c, &p);
    of.program = &p, of.dy = dy;
    return cpu_program(&of);
}

/* Has each wanted gradient the extents of the result? Another is a sum. */
static bool grads_are_whole(const Call *c)
{
    for (int k = 0; k < 2; k++)
        if (c->dx[k] && !dims_equal(c->dx[k]->dim, c->y->dim)) return false;
    return true;
}

#define VALUE(name)                      \
    bool cpu_##name##_fwd(const Call *c) \
    {                                    \
        return run_alone(c, NULL);       \
    }
#define ROW(name)                                          \
    VALUE(name)                                            \
    bool cpu_##name##_bwd(const Call *c)                   \
    {                                                      \
        return grads_are_whole(c) ? run_alone(c, c->dy)    \
                                  : plain_##name##_bwd(c); \
    }
ROW(sub)
ROW(mul)
ROW(div)
ROW(scale)
#define UNARY(name, ...)       ROW(name)
#define BINARY(name, ...)      ROW(name)
#define UNARY_STEP(name, ...)  VALUE(name)
#define BINARY_STEP(name, ...) VALUE(name)
#include "engine/graph/elementwise.def"
