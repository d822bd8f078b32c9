/* plan_rig.c -- see plan_rig.h. */
#include "tests/support/plan_rig.h"
#include "engine/base/rng.h"
#include <stdlib.h>

enum { CANARY = 0xA5, PAD = 512, NOTHING = 0xFF };

const Step plan_rig_step = {.seed = 9, .count = 3};

void plan_rig_open(PlanRig *r, Net *n, const Backend *be, int threads,
                   int count)
{
    int root[9];
    *r = (PlanRig){.net = n, .be = be};
    REQUIRE(be->open(0, threads, &r->dev));
    memcpy(root, n->root, sizeof n->root);
    root[n->roots] = n->loss;
    REQUIRE(params_list(&r->params, &n->g, root,
                        n->roots + (n->loss >= 0 ? 1 : 0)));
    REQUIRE(params_open(&r->params, &n->g, be, r->dev, 4));
    REQUIRE(params_train(&r->params, 0));

    // gamma = 1 and beta = 0 would hide a kernel that ignores them
    for (int i = 0; i < r->params.count; i++) {
        Tensor t = params_tensor(&r->params, i, PARAM_VALUE, 0);
        Rng g = {.seed = 8, .stream = RNG_TEST, .sample = (uint32_t)i};
        for (int64_t k = 0; t.rank == RANK_VECTOR && k < t.dim.c; k++)
            tensor_set(&t, k, (double)rng_range(&g, (uint32_t)k, 0.5f, 1.5f));
    }

    int inputs = net_extents(n, count, r->input);
    r->spec = (PlanSpec){.graph = &n->g,
                         .params = &r->params,
                         .be = be,
                         .threads = threads,
                         .root = n->root,
                         .roots = n->roots,
                         .loss = n->loss,
                         .train = true,
                         .input = r->input,
                         .inputs = inputs};
}

void *plan_rig_input(const PlanRig *r, int k, Arena *mem)
{
    Tensor t = {r->input[k].dim, r->be->real, 0, NULL};
    bool target = *r->net->g.node[r->input[k].node].name == 't';
    Rng g = {.seed = 7, .stream = RNG_TEST, .op = (uint16_t)k};
    REQUIRE(t.data = arena_alloc(mem, tensor_bytes(&t)));
    for (int64_t i = 0; i < numel(t.dim); i++)
        tensor_set(&t, i,
                   target ? rng_below(&g, (uint32_t)i, 2)
                          : (double)rng_normal(&g, (uint32_t)i));
    return t.data;
}

void plan_rig_fill(PlanRig *r)
{
    Arena mem = {NULL};
    for (int k = 0; k < r->spec.inputs; k++) {
        const Tensor *t = plan_value(r->plan, r->input[k].node);
        if (t) memcpy(t->data, plan_rig_input(r, k, &mem), tensor_bytes(t));
    }
    arena_release(&mem);
}

void plan_rig_plan(PlanRig *r, bool train)
{
    plan_free(r->plan);
    r->plan = NULL;
    r->spec.train = train;
    REQUIRE(plan_build(&r->spec, &r->plan));
    plan_rig_pool(r);
}

void plan_rig_pool(PlanRig *r)
{
    size_t bytes = plan_bytes(r->plan);
    mem_free(r->base);
    r->base = NULL;
    REQUIRE(r->base = mem_alloc(bytes + PAD));
    r->pool = r->base;
    memset(r->pool, NOTHING, bytes);
    memset(r->pool + bytes, CANARY, PAD);
    plan_bind(r->plan, r->pool, r->dev);
    plan_rig_fill(r);
}

int plan_rig_implicit_concats(const PlanRig *r)
{
    const PlanRow *row;
    int count = 0, rows = plan_rows(r->plan, &row);
    for (int i = 0; i < rows; i++) {
        const int first = row[i].ops.node[0];
        count += first != row[i].node &&
                 r->spec.graph->node[first].attr.op == OP_concat;
    }
    return count;
}

bool plan_rig_intact(const PlanRig *r)
{
    const unsigned char *end = (void *)(r->pool + plan_bytes(r->plan));
    for (int i = 0; i < PAD; i++)
        if (end[i] != CANARY) return false;
    return true;
}

void plan_rig_run(PlanRig *r, bool backward, bool accumulate, double seed_grad)
{
    PlanRun run = {.step = plan_rig_step,
                   .backward = backward,
                   .accumulate = accumulate,
                   .seed_grad = seed_grad};
    REQUIRE(plan_run(r->plan, &run));
}

double plan_rig_value(const PlanRig *r, int node, int64_t i)
{
    const Tensor *t = plan_value(r->plan, node);
    REQUIRE(t);
    return tensor_get(t, i);
}

double plan_rig_grad(const PlanRig *r, int64_t i)
{
    Tensor t = {{1, 1, 1, 1, 1}, r->be->real, RANK_VECTOR, r->params.grad};
    return tensor_get(&t, i);
}

void plan_rig_drop(PlanRig *r)
{
    plan_rig_close(r);
    net_free(r->net);
}

void plan_rig_close(PlanRig *r)
{
    plan_free(r->plan);
    mem_free(r->base);
    params_free(&r->params);
    r->be->close(r->dev);
}
