/* plan_programs.c -- trees of elementwise operators as programs.
 *
 * An elementwise operator is a pass over memory. Where the backend runs
 * programs (Backend.program), an operator takes over those of its operands that
 * are results of elementwise operators, have the extents of its own result and
 * no other reader. Their values become registers of one call
 * (engine/graph/program.h), the call of the last operator. A constant becomes
 * an instruction of each program that reads it.
 *
 * An operator stays a call of its own if an operand is broadcast and wants a
 * gradient, which is then a sum; if the program would exceed PROGRAM_STEPS,
 * PROGRAM_TEMPS or MAX_IN; or if the gradient of an operand would be added up
 * in another order.
 *
 * So values and gradients in f32 have the bits of separate calls. In 16 bits
 * separate calls round the inner values, a program does not. */
#include "engine/plan/plan_inside.h"

/* Has every operand of node i that wants a gradient the extents of the result?
 * Another operand is broadcast, and its gradient is a sum. */
static bool grads_are_whole(Plan *p, int i)
{
    const PlanNode *q = &p->node[i];
    for (int k = 0; k < info_of(p, i)->in; k++) {
        const int v = operand_of(p, i, k);
        if (v >= 0 && p->node[v].wants &&
            !dims_equal(p->node[v].first.x.dim, q->first.x.dim))
            return false;
    }
    return true;
}

/* Can node i be a step of a program? */
static bool may_join(Plan *p, int i)
{
    const PlanNode *q = &p->node[i];
    return is_run(p, i) && program_takes((Op)q->attr.op) && q->act < 0 &&
           q->norm < 0 && i != p->spec.loss && grads_are_whole(p, i);
}

/* Inserts the operand v into a program; returns its number, -1: no room. */
static int insert_operand(PlanProgram *to, int v)
{
    for (int k = 0; k < to->code.operands; k++)
        if (to->operand[k] == v) return k;
    if (to->code.operands == MAX_IN) return -1;
    to->operand[to->code.operands] = v;
    return to->code.operands++;
}

/* Writes the program of node i to *out: the one that it has, or one of its
 * operator alone. */
static void program_of(Plan *p, int i, PlanProgram *out)
{
    if (p->node[i].program) {
        *out = *p->node[i].program;
        return;
    }
    const int count = info_of(p, i)->in;
    *out = (PlanProgram){
        .code = {.steps = 1, .step = {{&p->node[i].attr, {-1, -1}}}},
        .node = {i}};
    if (node_of(p, i)->attr.op == OP_constant) return;
    for (int k = 0; k < count; k++)
        out->code.step[0].x[k] =
            (int8_t)insert_operand(out, operand_of(p, i, k));
}

/* Two programs that become one: steps of from[s] so far, and the numbers that
 * they have in the new one. */
typedef struct Merge {
    const PlanProgram *from[2];
    int next[2], moved[2][PROGRAM_STEPS];
} Merge;

/* The operand x of a step of from[s] as an operand of the new program (both as
 * ProgramStep.x); -1: no room. v: the node whose value is the result of
 * from[0], which is a step now. */
static int merged_operand(const Merge *m, int s, int x, int v, PlanProgram *to)
{
    const PlanProgram *first = m->from[0];
    if (x >= MAX_IN) return MAX_IN + m->moved[s][x - MAX_IN];
    if (s == 1 && m->from[1]->operand[x] == v)
        return MAX_IN + m->moved[0][first->code.steps - 1];
    return insert_operand(to, m->from[s]->operand[x]);
}

/* Joins a and b into *to: the steps of both in the order of the graph, which
 * each has already. Where b reads node v, it reads the result of a. false: no
 * room. */
static bool merge(const PlanProgram *a, const PlanProgram *b, int v,
                  PlanProgram *to)
{
    Merge m = {.from = {a, b}};
    *to = (PlanProgram){.code.steps = a->code.steps + b->code.steps};
    if (to->code.steps > PROGRAM_STEPS) return false;

    for (int i = 0; i < to->code.steps; i++) {
        // the last step of b is the last of all, so b does not run out first
        const bool of_a = m.next[0] < a->code.steps &&
                          a->node[m.next[0]] < b->node[m.next[1]];
        const int s = of_a ? 0 : 1, own = m.next[s]++;
        const ProgramStep *step = &m.from[s]->code.step[own];
        m.moved[s][own] = i;
        to->node[i] = m.from[s]->node[own];
        to->code.step[i] = (ProgramStep){step->attr, {-1, -1}};
        for (int k = 0; k < 2; k++) {
            if (step->x[k] < 0) continue;
            const int x = merged_operand(&m, s, step->x[k], v, to);
            if (x < 0) return false;
            to->code.step[i].x[k] = (int8_t)x;
        }
    }
    return true;
}

/* Would the gradients of the operands of program `to` of node i, which takes
 * over node v, add up in the order of separate calls? Backward calls run from
 * the last node to the first, and each adds its terms to the gradients of its
 * operands. The program adds the terms of all its steps at node i. So no other
 * call may read such an operand between its first reader in the program and
 * node i. v is still a call here; `own` counts what it reads. */
static bool keeps_order(Plan *p, const PlanProgram *to, int i, int v)
{
    for (int k = 0; k < to->code.operands; k++) {
        const int of = to->operand[k];
        int first = i, own = 0;
        if (!p->node[of].wants) continue;
        for (int s = to->code.steps - 1; s >= 0; s--)
            for (int x = 0; x < 2; x++)
                if (to->code.step[s].x[x] == k) first = to->node[s];
        for (int x = 0; x < MAX_IN; x++)
            own += v > first && operand_of(p, v, x) == of;
        if (plan_readers(p, of, first + 1, i, own + 1) > own) return false;
    }
    return true;
}

/* Compiles *to, whose last step is node i. */
static bool compile(Plan *p, PlanProgram *to)
{
    to->code.wants = 0;
    for (int k = 0; k < to->code.operands && p->spec.loss >= 0; k++)
        if (p->node[to->operand[k]].wants) to->code.wants |= 1u << k;
    return program_compile(&to->code);
}

/* Takes node v, an operand of node i, over into the program of node i; false if
 * it stays a call. */
static bool take_over(Plan *p, int i, int v)
{
    const bool constant =
        node_of(p, v)->kind == NODE_OP && node_of(p, v)->attr.op == OP_constant;
    PlanProgram a, b, to;
    if (!constant) {
        int times = 0;
        for (int k = 0; k < MAX_IN; k++) times += operand_of(p, i, k) == v;
        if (node_of(p, v)->kind != NODE_OP || !may_join(p, v) ||
            plan_keeps(p, v) ||
            !dims_equal(p->node[v].first.x.dim, p->node[i].first.x.dim) ||
            plan_readers(p, v, v + 1, p->nodes, times + 1) != times)
            return false;
    }
    program_of(p, v, &a);
    program_of(p, i, &b);
    if (!merge(&a, &b, v, &to) || !compile(p, &to) ||
        (!constant && !keeps_order(p, &to, i, v)))
        return false;

    PlanNode *q = &p->node[i];
    if (!q->program) q->program = ARENA_NEW(&p->mem, PlanProgram, 1);
    if (!q->program) return false;
    *q->program = to;
    // a constant may have other readers, which take a copy of their own
    for (int s = 0; s < a.code.steps && !constant; s++) {
        p->node[a.node[s]].used = false;
        p->node[a.node[s]].read_by = i;
    }
    return true;
}

/* Takes the operands of node i over, one after the other. */
static void join_operands(Plan *p, int i)
{
    for (int k = 0; k < MAX_IN;) {
        const int v = operand_of(p, i, k);
        // a new program has other operands: all are looked at again
        k = v >= 0 && take_over(p, i, v) ? 0 : k + 1;
    }
}

/* A program of one operator, of a constant and others, is no gain over the
 * operator's own kernel if memory is the bound, but saves the launch of the
 * constant. */
void plan_programs(Plan *p)
{
    if (!p->spec.be->program) return;
    for (int i = 0; i < p->nodes; i++)
        if (p->node[i].used && may_join(p, i) &&
            node_of(p, i)->attr.op != OP_constant)
            join_operands(p, i);

    // a constant that only programs read needs no call
    for (int i = 0; i < p->nodes; i++)
        if (is_run(p, i) && node_of(p, i)->attr.op == OP_constant &&
            !plan_keeps(p, i) && !plan_readers(p, i, i + 1, p->nodes, 1))
            p->node[i].used = false;
}
