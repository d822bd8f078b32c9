/* plan_recompute.c -- the values that a plan drops to fit its budget.
 *
 * Backward calls read the results of forward calls, so memory use is highest
 * between the two passes. A dropped value frees its bytes from its last forward
 * reader until it is computed again, right before its first backward reader
 * (plan_calls.c). The cheapest set that fits is NP-hard to find on general
 * graphs [1]; a chain cut into sqrt(n) pieces needs one more forward run [2].
 *
 * This pass is greedy. With u(c) bytes in use at call c and `aim`, the target
 * for the fullest call, it lowers the pressure sum_c (u(c) / aim)^16. The
 * fullest call dominates this sum, but growth at other calls, where values are
 * computed again, counts as well. Each move drops the value that lowers the
 * pressure most for its time, found by planning anew; a cheap upper bound keeps
 * the number of such plans small (lazy evaluation [3]). If no drop helps, a
 * value that cuts a row of dropped ones in two is kept again. The pressure
 * falls with each move, so the pass ends: everything fits, or no move improves.
 * Finally the most expensive dropped values are kept again as far as they fit.
 *
 * The result can lie above a budget that another choice would meet. Then the
 * aim falls in small steps from the memory without dropping, which does not
 * depend on the budget: the smallest plan found this way is found for every
 * budget.
 *
 * Gaps between buffers are not known in advance. Where they exceed the budget,
 * the aim is lowered.
 *
 * [1] Jain et al., Checkmate: breaking the memory wall with optimal tensor
 * rematerialization, MLSys 2020. [2] Chen et al., Training deep nets with
 * sublinear memory cost, 2016. [3] Minoux, Accelerated greedy algorithms for
 * maximizing submodular set functions, 1978. */
#include "engine/plan/plan_inside.h"
#include <math.h>
#include <string.h>

enum {
    AIMS = 8,          // how often the aim is lowered because of gaps
    TRIES = 24,        // maximum number of layouts for one move
    FLOPS_A_BYTE = 10, // of a device while it moves a byte: CPUs of some
                       // cores 5 to 10, GPUs in f32 14. Fixed, so that all
                       // machines choose alike
};
static const double STEP = 0.97; // factor of a small step
// a candidate that reaches this fraction of the best bound is accepted
static const double ENOUGH = 0.95;

/* A value that might be dropped, or kept again. */
typedef struct Candidate {
    int node;
    size_t bytes; /* that it occupies between `from` and `to` */
    int from, to; /* calls, exclusive                         */
    double rank;  /* bound of the drop in pressure per time   */
} Candidate;

typedef struct Search {
    Plan *p;
    double *use; /* bytes in use at each call, (room) */
    int room;
    Candidate *candidate;
    bool *best;  /* (nodes) dropped in the plan with the least memory */
    double most; /* maximum of use                                    */
    double time; /* of recomputation, in FLOPs                        */
} Search;

/* Returns the cost of a call as FLOPs that take equally long. */
static double time_of(const Plan *p, int c)
{
    LaunchPart cost = plan_cost(p, c, false);
    return fmax(cost.flops, FLOPS_A_BYTE * cost.bytes);
}

/* Makes calls and buffers for the current dropped set; computes use and
 * cost. */
static bool lay_out(Search *s)
{
    Plan *p = s->p;
    plan_calls_make(p);
    if (!plan_lifetimes(p)) return false;
    CHECK(p->calls < s->room);
    memset(s->use, 0, ((size_t)p->calls + 1) * sizeof *s->use);

    // each buffer is added at its first call and removed after its last
    for (int i = 0; i < p->buffers; i++) {
        const Buffer *b = &p->buffer[i];
        s->use[b->first < 0 ? 0 : b->first] += (double)b->bytes;
        if (b->last < p->calls) s->use[b->last + 1] -= (double)b->bytes;
    }

    double now = 0;
    s->most = s->time = 0;

    for (int c = 0; c < p->calls; c++) {
        s->use[c] = now += s->use[c];
        s->most = fmax(s->most, now);
        // a copy counts with the call that reads it
        if (c >= p->forward && !is_backward(&p->call[c]))
            s->time += time_of(p, c);
    }
    return true;
}

/* == pressure ========================================================== */

static double power(double share)
{
    double p = share * share;
    p *= p, p *= p;
    return p * p;
}

static double pressure(const Search *s, double aim)
{
    double sum = 0;
    for (int c = 0; c < s->p->calls; c++) sum += power(s->use[c] / aim);
    return sum;
}

/* == candidates ======================================================== */

/* Is node i dropped by choice? */
static bool is_dropped(const PlanNode *q)
{
    return q->read ? q->dropped : q->saves_again;
}

static void set_dropped(PlanNode *q, bool dropped)
{
    *(q->read ? &q->dropped : &q->saves_again) = dropped;
}

static size_t bytes_of(const Plan *p, int buffer)
{
    return buffer < 0 ? 0 : p->buffer[buffer].bytes;
}

/* Computes the memory that dropping node i could free and when; false if it
 * cannot be dropped. A value that no backward call reads may still have saved
 * memory for its own backward call. */
static bool candidate_of(const Plan *p, int i, Candidate *out)
{
    const PlanNode *q = &p->node[i];
    const PlanValue *m = &q->first;
    if (!q->used || q->alias_of != i || m->call < 0 || is_dropped(q))
        return false;

    // recomputed for other values: its own saved bytes are needed only then
    if (!q->read && q->recomputed.call >= 0) return false;
    const int flags = op_info[node_of(p, i)->attr.op].flags;

    // a loss is one number, and ranks would need another all-reduce for it
    if (flags & LOSS) return false;
    bool stays = q->bwd < 0 || (flags & SAVES_ONCE);
    size_t saved = stays ? 0 : bytes_of(p, p->saved[m->call]);
    *out = (Candidate){i, saved, m->call, q->bwd, 0};

    if (q->read) {
        if (plan_keeps(p, i) || m->late < 0) return false;
        out->bytes += bytes_of(p, m->value) + bytes_of(p, m->half_value);
        out->from = m->early > m->call ? m->early : m->call;
        out->to = m->late;
    }
    return out->bytes > 0 && out->to > out->from + 1;
}

/* Finds all values that could be dropped, with bounds of their effect; returns
 * their number. */
static int find_candidates(Search *s, double aim)
{
    int count = 0;
    for (int i = 0; i < s->p->nodes; i++) {
        Candidate *a = &s->candidate[count];
        if (!candidate_of(s->p, i, a)) continue;
        const double bytes = (double)a->bytes;
        for (int c = a->from + 1; c < a->to; c++)
            a->rank += power(s->use[c] / aim) -
                       power(fmax(s->use[c] - bytes, 0) / aim);
        a->rank /= time_of(s->p, s->p->node[i].first.call);
        count++;
    }
    return count;
}

/* Returns the candidate with the highest bound; -1: none is left. */
static int highest(const Candidate *a, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (a[i].rank > 0 && (best < 0 || a[i].rank > a[best].rank)) best = i;
    return best;
}

/* == moves ============================================================= */

/* Computes the drop in pressure from `now` when node i is dropped or kept
 * instead; then changes it back. */
static bool try_one(Search *s, int i, double aim, double now, double *gain)
{
    PlanNode *q = &s->p->node[i];
    set_dropped(q, !is_dropped(q));
    bool ok = lay_out(s);
    set_dropped(q, !is_dropped(q));
    *gain = now - pressure(s, aim);
    return ok;
}

/* Finds the value to drop that lowers the pressure most per time; -1: none. */
static bool best_drop(Search *s, double aim, int *best)
{
    const double now = pressure(s, aim), time = s->time;
    int count = find_candidates(s, aim), i;
    double rank = 0, gain;

    *best = -1;
    for (int tries = 0; tries < TRIES || *best < 0; tries++) {
        i = highest(s->candidate, count);
        // the bounds of all others are lower than the measured value
        if (i < 0 || (*best >= 0 && ENOUGH * s->candidate[i].rank <= rank))
            break;
        s->candidate[i].rank = 0;
        if (!try_one(s, s->candidate[i].node, aim, now, &gain)) return false;
        if (gain <= 0 || gain / (s->time - time) <= rank) continue;
        rank = gain / (s->time - time);
        *best = s->candidate[i].node;
    }
    return true;
}

/* Finds the value to keep again that lowers the pressure most; -1: none. */
static bool best_keep(Search *s, double aim, int *best)
{
    double most = 0, gain;
    const double now = pressure(s, aim);
    *best = -1;

    for (int i = 0; i < s->p->nodes; i++) {
        const PlanNode *q = &s->p->node[i];
        if (q->recomputed.call < 0 || !is_dropped(q)) continue;
        if (!try_one(s, i, aim, now, &gain)) return false;
        if (gain > most) most = gain, *best = i;
        // lays out again for the next: the calls are those of the last try
        if (!lay_out(s)) return false;
    }
    return true;
}

/* Moves until no call uses more than `aim`; *there: it was reached. */
static bool reach(Search *s, double aim, bool *there)
{
    int i = 0;
    while (s->most > aim && i >= 0) {
        if (!best_drop(s, aim, &i) || !lay_out(s)) return false;
        if (i < 0 && !best_keep(s, aim, &i)) return false;
        if (i >= 0) set_dropped(&s->p->node[i], !is_dropped(&s->p->node[i]));
        if (!lay_out(s)) return false;
    }
    *there = s->most <= aim;
    return true;
}

/* Keeps the most expensive values again as far as `budget` allows, and
 * places. */
static bool give_back(Search *s, size_t budget)
{
    Plan *p = s->p;
    int count = 0, i;
    for (int k = 0; k < p->nodes; k++)
        if (is_dropped(&p->node[k]) && p->node[k].recomputed.call >= 0)
            s->candidate[count++] = (Candidate){
                .node = k, .rank = time_of(p, p->node[k].recomputed.call)};

    while ((i = highest(s->candidate, count)) >= 0) {
        PlanNode *q = &p->node[s->candidate[i].node];
        s->candidate[i].rank = 0;
        set_dropped(q, false);
        if (!lay_out(s)) return false;
        bool fits = s->most <= (double)budget;
        if (fits && !plan_place(p)) return false;
        set_dropped(q, !fits || p->bytes > budget);
    }
    return lay_out(s) && plan_place(p);
}

/* == the search ======================================================== */

/* Store the current dropped set, and restore it. */
static void store(Search *s)
{
    for (int i = 0; i < s->p->nodes; i++)
        s->best[i] = is_dropped(&s->p->node[i]);
}

static bool restore(Search *s)
{
    for (int i = 0; i < s->p->nodes; i++)
        set_dropped(&s->p->node[i], s->best[i]);
    return lay_out(s);
}

/* Aims at the budget directly; *there: the plan fits in it. */
static bool go_straight(Search *s, size_t budget, bool *there)
{
    double aim = (double)budget;
    *there = false;
    for (int i = 0; i < AIMS && aim > 0; i++) {
        if (!reach(s, aim, there) || !plan_place(s->p)) return false;
        if (!*there) return true;
        *there = s->p->bytes <= budget;
        if (*there) return true;
        aim -= (double)(s->p->bytes - budget);
    }
    return true;
}

/* Lowers the target for the memory of the fullest call in small steps, starting
 * without dropped values, until the plan fits into `budget` or the target
 * cannot be reached. Then takes the plan with the least memory and keeps
 * dropped values again, as far as they fit into the larger of that memory and
 * the budget. */
static bool go_slowly(Search *s, size_t budget)
{
    bool there = true;
    size_t least = SIZE_MAX;
    if (!restore(s)) return false;

    while (there && least > budget) {
        if (!plan_place(s->p)) return false;
        if (s->p->bytes < least) {
            least = s->p->bytes;
            store(s);
        }
        if (!reach(s, STEP * s->most, &there)) return false;
    }
    return restore(s) && give_back(s, least < budget ? budget : least);
}

/* Returns to the plan before: nothing is dropped, concats are implicit. */
static bool go_back(Search *s)
{
    for (int i = 0; i < s->p->nodes; i++)
        s->p->node[i].dropped = s->p->node[i].saves_again = false;
    plan_concat(s->p, true);
    return lay_out(s) && plan_place(s->p);
}

static bool search(Search *s)
{
    Plan *p = s->p;
    const size_t budget = p->spec.budget;
    bool there = false;

    if (!lay_out(s)) return false;
    store(s); // nothing is dropped

    // a budget below the memory of any single call is out of reach
    if (budget > p->kept_bytes / 64 && !go_straight(s, budget, &there))
        return false;
    if (there) return give_back(s, budget);
    if (!go_slowly(s, budget)) return false;

    // dropping saved little, and explicit concats take memory
    if (p->bytes > p->kept_bytes && !go_back(s)) return false;
    if (p->bytes <= budget || p->spec.least) return true;
    return fail_usage(
        "the arena of a training step takes %zu bytes, and at least %zu with "
        "recompute; the budget is %zu: raise it to %zu, or use a smaller batch",
        p->kept_bytes, p->bytes, budget, p->bytes);
}

bool plan_recompute(Plan *p)
{
    bool ok = false;
    // the maximum of all calls: two forward, one backward, three copies per
    // node
    size_t calls = 6 * (size_t)p->nodes + 2;
    Search s = {.p = p, .room = (int)calls};

    s.use = mem_alloc(calls * sizeof *s.use);
    s.best = mem_alloc((size_t)p->nodes * sizeof *s.best);
    s.candidate = mem_alloc((size_t)p->nodes * sizeof *s.candidate);
    TRY(s.use && s.best && s.candidate);

    // the operands of an explicit concat are freed after it and recomputed for
    // other readers; for an implicit concat they stay until its reader, which
    // prevents the smallest plans
    plan_concat(p, false);
    plan_calls_make(p);

    // memory of values without backward readers was reused before, too
    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        q->dropped = q->used && q->alias_of == i && !q->read &&
                     !plan_keeps(p, i) && node_of(p, i)->kind == NODE_OP;
    }

    TRY(search(&s));
    ok = true;

done:
    mem_free(s.use);
    mem_free(s.best);
    mem_free(s.candidate);
    return ok;
}
