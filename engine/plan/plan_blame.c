/* plan_blame.c -- the first call with a result that is not finite.
 *
 * The forward calls run again, one by one, and each result is downloaded and
 * looked at. A program has results between its operators, which are never in
 * memory: to find the operator, the program runs again with its first operator
 * alone, then with its first two, and so on. */
#include "engine/plan/plan_inside.h"
#include <math.h>
#include <stdio.h>

/* Statistics of a value: `first` is its first element that is not finite, or
 * -1. */
typedef struct Look {
    int64_t count, nan, inf, first;
    double lo, hi; // of finite elements; lo > hi if there are none
} Look;

/* The text and the report that plan_blame writes; more: may be NULL. */
typedef struct BlameText {
    char *text;
    size_t room;
    Blame *more;
} BlameText;

/* Statistics of no elements, also of a value inside fused operators. */
static const Look nothing = {.first = -1, .lo = INFINITY, .hi = -INFINITY};

/* Adds t to the statistics; its first element is number `from` of the value. */
static bool look_at(Plan *p, const Tensor *t, int64_t from, Look *l)
{
    Tensor host = *t;
    host.data = mem_alloc(tensor_bytes(t));
    bool ok = host.data &&
              p->spec.be->download(p->dev, host.data, t->data, tensor_bytes(t));
    l->count += numel(t->dim);

    for (int64_t i = 0; ok && i < numel(t->dim); i++) {
        double v = tensor_get(&host, i);
        if (isfinite(v)) {
            l->lo = fmin(l->lo, v), l->hi = fmax(l->hi, v);
            continue;
        }
        isnan(v) ? l->nan++ : l->inf++;
        if (l->first < 0) l->first = from + i;
    }

    mem_free(host.data);
    return ok;
}

/* Fills in the report of a value that is not finite; `from` may be NULL. */
static void tell(const Tensor *t, bool batched, const Look *l, const Look *from,
                 Blame *out)
{
    if (!out) return;
    const int64_t each = numel(t->dim) / t->dim.n;
    *out = (Blame){.count = l->count,
                   .nan = l->nan,
                   .inf = l->inf,
                   .sample =
                       batched && t->rank != RANK_SCALAR ? l->first / each : -1,
                   .lo = l->lo,
                   .hi = l->hi,
                   .from_lo = from ? from->lo : INFINITY,
                   .from_hi = from ? from->hi : -INFINITY};
}

/* Is an element of y, the result of node v, not finite? Then writes the report;
 * what: the names of the operators that made it. */
static bool is_to_blame(const Plan *p, int v, const Tensor *y, const char *what,
                        const Look *look, BlameText *out)
{
    const Look *l = &look[v];
    if (l->first < 0) return false;
    const Node *n = node_of(p, v);
    const Look *from = n->in[0] < 0 ? NULL : &look[p->node[n->in[0]].alias_of];
    const bool known = from && from->first == -1 && from->lo <= from->hi;
    plan_describe(p, v, what, out->text, out->room);
    tell(y, n->batched, l, known ? from : NULL, out->more);
    return true;
}

/* Adds the result of call c to the statistics of node v. */
static bool look_at_result(Plan *p, int c, int v, Look *look)
{
    const Tensor *y = p->call[c].y;
    return look_at(p, y, plan_sample(p) * (numel(y->dim) / y->dim.n), &look[v]);
}

/* Finds the first operator of the program of call c whose result is not finite.
 * x: a copy on the host of operand 0, if the result overwrites it; else
 * NULL. */
static bool blame_steps(Plan *p, int c, const void *x, Look *look,
                        BlameText *out)
{
    const PlanProgram *all = p->node[p->call[c].node].program;
    const size_t bytes = tensor_bytes(p->call[c].y);
    for (int s = 0; s < all->code.steps; s++) {
        Program part = all->code;
        Call call = p->call[c];
        const int v = all->node[s];
        const Attr *attr = part.step[s].attr;
        if (attr->op == OP_constant) continue;
        part.steps = s + 1, part.wants = 0;
        call.program = &part;
        look[v] = nothing;
        CHECK(program_compile(&part)); // it needs no more registers
        if ((x && !p->spec.be->upload(p->dev, call.x[0]->data, x, bytes)) ||
            !p->spec.be->program(&call) || !look_at_result(p, c, v, look))
            return false;
        if (is_to_blame(p, v, call.y, op_info[attr->op].name, look, out)) break;
    }
    return true;
}

/* Runs call c, the call of a program, and looks at its result; if that is not
 * finite, runs the program again operator by operator. Where the result
 * overwrites operand 0, the operand is kept for that on the host. */
static bool blame_program(Plan *p, int c, const PlanRun *run, Look *look,
                          BlameText *out)
{
    const Call *call = &p->call[c];
    const size_t bytes = tensor_bytes(call->y);
    const bool over = call->x[0] && call->x[0]->data == call->y->data;
    void *x = over ? mem_alloc(bytes) : NULL;
    bool ok =
        (!over ||
         (x && p->spec.be->download(p->dev, x, call->x[0]->data, bytes))) &&
        plan_run_call(p, c, run) && look_at_result(p, c, call->node, look);
    if (ok && look[call->node].first >= 0) ok = blame_steps(p, c, x, look, out);
    mem_free(x);
    return ok;
}

/* Runs the calls until a result is not finite. look: statistics of each node,
 * filled on the way. */
static bool blame_calls(Plan *p, const Step *step, Look *look, BlameText *out)
{
    const PlanRun run = {.step = *step};
    char row[ROW_TEXT];
    for (int c = plan_first(p); c < p->forward; c = plan_next(p, c)) {
        const Call *call = &p->call[c];
        // read before the next call, which may overwrite it
        const bool ok = call->program
                            ? blame_program(p, c, &run, look, out)
                            : plan_run_call(p, c, &run) &&
                                  (is_convert(call) ||
                                   look_at_result(p, c, call->node, look));
        if (ok && !*out->text &&
            (call->program || is_convert(call) || !plan_in_last_microbatch(p) ||
             !is_to_blame(p, call->node, call->y, row_text(p, call->node, row),
                          look, out)))
            continue;
        plan_stop(p);
        return ok;
    }
    return true;
}

bool plan_blame(Plan *p, const Step *step, char *text, size_t room, Blame *more)
{
    size_t bytes;
    BlameText out = {text, room, more};
    *text = 0;
    if (!plan_begin(p, step) ||
        !size_mul((size_t)p->nodes, sizeof(Look), &bytes))
        return false;
    Look *look = mem_alloc(bytes);
    bool ok = look;
    for (int i = 0; ok && i < p->nodes; i++) look[i] = nothing;

    // otherwise a bad image would be blamed on the first layer
    for (int i = 0; ok && !*text && i < p->spec.inputs; i++) {
        int node = p->spec.input[i].node;
        const PlanNode *q = &p->node[node];
        if (!q->used) continue;
        ok = look_at(p, &q->first.x, 0, &look[node]);
        if (!ok || look[node].first < 0) continue;
        snprintf(text, room, "input \"%s\"", node_of(p, node)->name);
        tell(&q->first.x, true, &look[node], NULL, more);
    }

    ok = ok && (*text || blame_calls(p, step, look, &out));
    mem_free(look);
    return ok;
}
