/* program.c -- the code of a program: instructions, then registers.
 *
 * Instructions are written with a register of its own for each value and
 * gradient. A second pass gives these the PROGRAM_TEMPS registers that exist: a
 * register is free again after the last instruction that reads it, and may be
 * the result of that same instruction. */
#include "engine/graph/program.h"
#include <string.h>

/* Registers before the second pass, above the REG_*: of the value of step i,
 * and of its gradient. */
enum {
    VALUE_OF = REG_COUNT,
    GRAD_OF = VALUE_OF + PROGRAM_STEPS,
    OWN_COUNT = GRAD_OF + PROGRAM_STEPS
};
_Static_assert(OWN_COUNT <= INT8_MAX, "registers are 8 bits");

bool program_takes(Op op)
{
    switch (op) {
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
    case OP_scale:
    case OP_relu:
    case OP_leaky_relu:
    case OP_sigmoid:
    case OP_tanh:
    case OP_gelu:
    case OP_silu:
    case OP_constant:
#define UNARY(name, ...)       case OP_##name:
#define UNARY_STEP(name, ...)  case OP_##name:
#define BINARY(name, ...)      case OP_##name:
#define BINARY_STEP(name, ...) case OP_##name:
#include "engine/graph/elementwise.def"
        return true;
    default:
        return false;
    }
}

/* The operator of step i. */
static Op op_of(const Program *p, int i)
{
    return (Op)p->step[i].attr->op;
}

/* The number of operands of step i that are computed with. */
static int operands_of(const Program *p, int i)
{
    return op_of(p, i) == OP_constant ? 0 : op_info[op_of(p, i)].in;
}

/* The register, before the second pass, of the operand x of a step
 * (ProgramStep.x). The result of the last step is REG_Y. */
static int8_t value_of(const Program *p, int x)
{
    if (x < MAX_IN) return (int8_t)x;
    const int i = x - MAX_IN;
    return (int8_t)(i == p->steps - 1 ? REG_Y : VALUE_OF + i);
}

/* Appends an instruction of step i without registers. */
static Instruction *append(ProgramCode *code, const Program *p, int i)
{
    const OpInfo *info = &op_info[op_of(p, i)];
    Instruction *n = &code->list[code->count++];
    *n = (Instruction){.op = (int16_t)op_of(p, i),
                       .a = REG_NONE,
                       .b = REG_NONE,
                       .dy = REG_NONE};
    if (info->attrs > 0) n->p = (float)op_attr(p->step[i].attr, 0);
    if (info->attrs > 1) n->q = (float)op_attr(p->step[i].attr, 1);
    return n;
}

/* Appends the instruction that computes the value of step i. */
static void append_value(ProgramCode *code, const Program *p, int i)
{
    const int count = operands_of(p, i);
    Instruction *n = append(code, p, i);
    if (count > 0) n->a = value_of(p, p->step[i].x[0]);
    if (count > 1) n->b = value_of(p, p->step[i].x[1]);
    n->to = value_of(p, MAX_IN + i);
}

/* Appends the values of the steps with `need`. Constants come first, so that a
 * kernel can skip them after its first elements. */
static void append_values(ProgramCode *code, const Program *p, const bool *need)
{
    for (int constant = 1; constant >= 0; constant--) {
        for (int i = 0; i < p->steps; i++)
            if (need[i] && (operands_of(p, i) == 0) == constant)
                append_value(code, p, i);
        if (constant) code->constants = code->count;
    }
}

/* Does the derivative of operand k of step i read operand `of`? The row of mul
 * keeps both operands, but each derivative reads the other factor alone. */
static bool derivative_reads(const Program *p, int i, int k, int of)
{
    const Op op = op_of(p, i);
    if (op == OP_mul) return of != k;
    return op_info[op].keep & KEEP_X && of < operands_of(p, i);
}

/* Does the derivative of step i read its result? */
static bool derivative_reads_y(const Program *p, int i)
{
    return op_info[op_of(p, i)].keep & KEEP_Y;
}

/* What the backward code computes. */
typedef struct Flow {
    bool wants[PROGRAM_STEPS]; /* the gradient of the step's result */
    bool need[PROGRAM_STEPS];  /* its value                         */
} Flow;

/* Is the gradient of x, an operand of a step, wanted? */
static bool wants(const Program *p, const Flow *f, int x)
{
    return x < MAX_IN ? p->wants >> x & 1 : f->wants[x - MAX_IN];
}

/* Is the gradient of operand k of step i computed? */
static bool flows(const Program *p, const Flow *f, int i, int k)
{
    return f->wants[i] && wants(p, f, p->step[i].x[k]);
}

/* Records that the value of x is needed. */
static void need(Program *p, Flow *f, int x)
{
    if (x < MAX_IN)
        p->reads |= 1u << x;
    else if (x - MAX_IN == p->steps - 1)
        p->reads_y = true;
    else
        f->need[x - MAX_IN] = true;
}

/* Finds the gradients that are computed, and the values that they need. */
static Flow flow_of(Program *p)
{
    Flow f = {{false}, {false}};
    unsigned reached = 0;
    for (int i = 0; i < p->steps; i++)
        for (int k = 0; k < operands_of(p, i) && op_info[op_of(p, i)].grad; k++)
            f.wants[i] |= wants(p, &f, p->step[i].x[k]);

    // backwards: a step that the gradient of the result does not reach has none
    bool into[PROGRAM_STEPS] = {false};
    into[p->steps - 1] = true;
    for (int i = p->steps - 1; i >= 0; i--) {
        f.wants[i] = f.wants[i] && into[i];
        for (int k = 0; k < operands_of(p, i); k++) {
            const int x = p->step[i].x[k];
            if (!flows(p, &f, i, k)) continue;
            if (x < MAX_IN)
                reached |= 1u << x;
            else
                into[x - MAX_IN] = true;
            if (derivative_reads_y(p, i)) need(p, &f, MAX_IN + i);
            for (int of = 0; of < 2; of++)
                if (derivative_reads(p, i, k, of))
                    need(p, &f, p->step[i].x[of]);
        }
    }
    p->wants &= reached;

    // operands of a value that is computed again
    for (int i = p->steps - 1; i >= 0; i--)
        for (int k = 0; f.need[i] && k < operands_of(p, i); k++)
            need(p, &f, p->step[i].x[k]);
    return f;
}

/* Appends the gradient of operand k of step i. seen: the registers that have a
 * gradient already. */
static void append_grad(ProgramCode *code, const Program *p, int i, int k,
                        bool *seen)
{
    const int x = p->step[i].x[k];
    Instruction *n = append(code, p, i);
    n->action = k ? PROGRAM_GRAD1 : PROGRAM_GRAD0;
    n->dy = (int8_t)(i == p->steps - 1 ? REG_DY : GRAD_OF + i);
    n->to = (int8_t)(x < MAX_IN ? REG_DX + x : GRAD_OF + x - MAX_IN);
    n->add = seen[n->to];
    seen[n->to] = true;
    if (derivative_reads_y(p, i)) n->a = value_of(p, MAX_IN + i);
    if (derivative_reads(p, i, k, 0)) n->a = value_of(p, p->step[i].x[0]);
    if (derivative_reads(p, i, k, 1)) n->b = value_of(p, p->step[i].x[1]);
}

/* Replaces the registers of values and gradients by REG_TEMP + 0 ..; false if
 * there are too few. */
static bool allocate(ProgramCode *code)
{
    int last[OWN_COUNT] = {0}; // the last instruction that names the register
    int at[OWN_COUNT];         // REG_TEMP + at is its place; -1: none yet
    bool taken[PROGRAM_TEMPS] = {false};
    memset(at, -1, sizeof at);
    for (int c = 0; c < code->count; c++) {
        const Instruction *n = &code->list[c];
        const int8_t reg[] = {n->a, n->b, n->dy, n->to};
        for (int k = 0; k < 4; k++)
            if (reg[k] >= VALUE_OF) last[reg[k]] = c;
    }
    // a constant keeps its register
    for (int c = 0; c < code->constants; c++)
        last[code->list[c].to] = INT32_MAX;

    for (int c = 0; c < code->count; c++) {
        Instruction *n = &code->list[c];
        int8_t *reg[] = {&n->a, &n->b, &n->dy, &n->to};
        for (int k = 0; k < 4; k++) {
            const int own = *reg[k];
            if (own < VALUE_OF) continue;
            for (int t = 0; t < PROGRAM_TEMPS && at[own] < 0; t++)
                if (!taken[t]) at[own] = t, taken[t] = true;
            if (at[own] < 0) return false;
            if (code->temps <= at[own]) code->temps = at[own] + 1;
            *reg[k] = (int8_t)(REG_TEMP + at[own]);
            // an operand read for the last time is free for the result
            if (last[own] <= c) taken[at[own]] = false;
        }
    }
    return true;
}

bool program_compile(Program *p)
{
    bool all[PROGRAM_STEPS], seen[OWN_COUNT] = {false};
    memset(all, true, sizeof all);
    p->forward.count = p->forward.temps = 0;
    p->backward.count = p->backward.temps = 0;
    p->reads = 0, p->reads_y = false;
    append_values(&p->forward, p, all);

    const Flow f = flow_of(p);
    append_values(&p->backward, p, f.need);
    for (int i = p->steps - 1; i >= 0; i--)
        for (int k = 0; k < operands_of(p, i); k++)
            if (flows(p, &f, i, k)) append_grad(&p->backward, p, i, k, seen);
    return allocate(&p->forward) && allocate(&p->backward);
}

void program_of_call(const Call *c, Program *p)
{
    *p = (Program){.steps = 1,
                   .operands = op_info[call_op(c)].in,
                   .step = {{c->attr, {0, 1}}}};
    for (int k = 0; k < p->operands; k++)
        if (c->dx[k]) p->wants |= 1u << k;
    CHECK(program_compile(p)); // one step needs no register
}
