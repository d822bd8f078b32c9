#include "engine/check/opfused.h"
#include "engine/check/ophalf.h"

/* Does the backend fuse an operator with these attributes into this case, and
 * with `back` its backward pass, too? */
static bool is_fused(const OpCheck *check, const OpCase *c, const Attr *act,
                     bool back)
{
    Tensor x[MAX_IN], y;
    Call call = {.attr = &c->attr, .act = act, .train = !c->eval, .y = &y};
    if (back) call.dy = &y;
    if (op_info[act->op].in != 1 || !opcase_shape(c, &y)) return false;
    for (int i = 0; i < MAX_IN; i++) {
        x[i] = (Tensor){c->x[i], check->be->real, c->rank, NULL};
        if (c->x[i].n) call.x[i] = &x[i];
    }
    return backend_fusions(check->be, &call).epilogue;
}

/* Runs both operators separately: returns y of the second, and all else of the
 * first, whose dy is the second's gradient of the dy of `v`. */
static bool run_unfused(const OpCase *c, const OpCheck *check, const Attr *act,
                        const OpValues *v, OpOptions how, Arena *mem,
                        OpValues *out)
{
    Tensor y;
    OpValues first, second, masked = *v;
    OpOptions forward = {.forward_only = true, .narrow = how.narrow};
    const OpOptions activation = {.narrow =
                                      how.narrow & NARROW_Y ? NARROW_Y | 1 : 0};

    if (!opcase_shape(c, &y) ||
        !opcase_run(c, check, 2, v, forward, mem, &first))
        return false;
    OpCase after = {.attr = *act, .rank = y.rank, .x = {y.dim}, .wrt = 1};
    OpValues between = {.x = {first.y},
                        .dy = v->dy,
                        .count = {v->results},
                        .results = v->results};
    if (!opcase_run(&after, check, 2, &between, activation, mem, &second))
        return false;
    masked.dy = second.dx[0];
    if (!opcase_run(c, check, 2, &masked, how, mem, out)) return false;
    out->y = second.y;
    return true;
}

/* Checks that the fused run has the same bits: stored, added, or with dx[0] in
 * dy where allowed, depending on the number of the case. */
static void fused_with(const OpCase *c, OpCheck *check, const Attr *act,
                       unsigned bits)
{
    const bool over = op_info[c->attr.op].flags & INPLACE_GRAD && c->wrt & 1;
    const int turn = (int)((c->number + act->op) % (2 + over));
    OpOptions how = {
        .accumulate = turn == 1, .inplace_grad = turn == 2, .narrow = bits};
    Arena mem = {0};
    OpValues v, unfused, fused;
    bool ok = false;

    TRY(opnarrow_values(c, check, bits, &mem, &v));
    TRY(run_unfused(c, check, act, &v, how, &mem, &unfused));
    how.act = act;
    TRY(opcase_run(c, check, 3, &v, how, &mem, &fused));
    opcase_same(check, c, &unfused, &fused, op_info[act->op].name);
    ok = true;

done:
    if (!ok)
        opcheck_report(check, c, "%s, %s: %s", check->be->name,
                       op_info[act->op].name, err_text());
    arena_release(&mem);
}

void opfused_agree(const OpCase *c, OpCheck *check, unsigned bits)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const Attr act = op_default((Op)op);
        OpCase forward = *c;
        forward.wrt = 0;
        if (is_fused(check, c, &act, true))
            fused_with(c, check, &act, bits);
        else if (is_fused(check, c, &act, false))
            fused_with(&forward, check, &act, bits);
    }
}
