/* params.c -- the list of parameters, and their blocks on a device.
 *
 * The list is made first, without a device, so that a plan can be counted to
 * the byte. Then the values are allocated and initialised, and for training
 * gradients and moments. All blocks have one layout (Param.at), so the
 * optimiser and the gradient norm work on flat memory. */
#include "engine/plan/params.h"
#include "engine/base/rng.h"
#include <math.h>
#include <string.h>

/* total += elements, rounded up to PARAM_ALIGN; values, gradients and moments
 * together must be addressable, so that later products do not overflow. */
static bool grow(int64_t *total, int64_t elements)
{
    const int64_t most = PTRDIFF_MAX / ((2 + MAX_STATES) * sizeof(double));
    if (elements > most - PARAM_ALIGN - *total)
        return fail_usage("the parameters are more than this machine can "
                          "address");
    *total += (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    return true;
}

bool params_list(Params *p, const Graph *g, const int *root, int roots)
{
    bool ok = false;
    bool *used = mem_alloc((size_t)g->count + 1);
    *p = (Params){0}; // may be freed after any failure below
    TRY(used);
    graph_ancestors(g, root, roots, used);
    p->list = mem_alloc(((size_t)g->count + 1) * sizeof *p->list);
    TRY(p->list);

    for (int i = 0; i < g->count; i++) {
        const Node *n = &g->node[i];
        if (used[i] && n->kind == NODE_PARAM)
            p->list[p->count++] = (Param){.name = n->name,
                                          .node = i,
                                          .dim = n->y.dim,
                                          .rank = n->y.rank,
                                          .trained = n->trained,
                                          .decayed = n->decayed,
                                          .rate = 1,
                                          .decay = -1};
    }

    // pass 0: trained, pass 1: the others. Trained parameters come first, so
    // that the gradient block needs no gaps for the others
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < p->count; i++) {
            Param *q = &p->list[i];
            if (q->trained == (pass == 1)) continue;
            q->at = p->total;
            TRY(grow(&p->total, numel(q->dim)));
        }
        if (pass == 0) p->trained = p->total;
    }

    ok = true;

done:
    mem_free(used);
    if (!ok) params_free(p);
    return ok;
}

/* Returns the number of elements of all trained parameters, or of all
 * others. */
static int64_t elements(const Params *p, bool trained)
{
    int64_t sum = 0;
    for (int i = 0; i < p->count; i++)
        if (p->list[i].trained == trained) sum += numel(p->list[i].dim);
    return sum;
}

int64_t params_trained(const Params *p)
{
    return elements(p, true);
}

int64_t params_running(const Params *p)
{
    return elements(p, false);
}

/* == copies in 16 bits ================================================= */

void params_copied(Params *p, const Backend *be, Precision precision)
{
    const Dtype type = precision_copy(precision);
    p->copied = be->device_step && type != F32 ? type : F64;
}

bool params_has_copy(const Params *p, int i)
{
    return p->copied != F64 && p->list[i].trained;
}

Tensor params_copy(const Params *p, int i)
{
    const Param *q = &p->list[i];
    CHECK(p->copy && params_has_copy(p, i));
    return (Tensor){.dim = q->dim,
                    .type = p->copied,
                    .rank = q->rank,
                    .data = (char *)p->copy +
                            (size_t)q->at * dtype_bytes(p->copied)};
}

static size_t copy_bytes(const Params *p)
{
    return p->copied == F64 ? 0 : (size_t)p->trained * dtype_bytes(p->copied);
}

/* Updates the copy of parameter i from its current value. */
static bool renew(const Params *p, int i)
{
    if (!params_has_copy(p, i)) return true;
    Tensor x = params_tensor(p, i, PARAM_VALUE, 0), y = params_copy(p, i);
    return p->be->convert(&(Call){.dev = p->dev, .x = {&x}, .y = &y});
}

/* == counts and groups ================================================= */

size_t params_bytes(const Params *p, Dtype real, bool train, int states)
{
    int64_t blocks = p->total + (train ? p->trained * (1 + states) : 0);
    return (size_t)blocks * dtype_bytes(real) + copy_bytes(p);
}

int params_find(const Params *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->list[i].name, name)) return i;
    return -1;
}

bool params_freeze(Params *p, const char *name)
{
    size_t n = strlen(name);
    int found = 0;

    for (int i = 0; i < p->count; i++) {
        Param *q = &p->list[i];
        // "enc10" is not below "enc1"
        bool below =
            !strncmp(q->name, name, n) && (!q->name[n] || q->name[n] == '.');
        if (!q->trained || !below) continue;
        q->frozen = true;
        found++;
    }

    return found ||
           fail_usage("frozen: no trained parameter is called \"%s\" or "
                      "begins with \"%s.\"",
                      name, name);
}

bool params_group(Params *p, const char *name, double rate, double decay)
{
    int i = params_find(p, name);
    if (i < 0 || !p->list[i].trained)
        return fail_usage("groups: no trained parameter is called \"%s\"",
                          name);
    if (!(rate >= 0 && rate < INFINITY) || !(decay < INFINITY))
        return fail_usage("groups: %s: its rate is %g and its decay %g, want "
                          "numbers of 0 or more",
                          name, rate, decay);
    p->list[i].rate = rate;
    p->list[i].decay = decay;
    return true;
}

/* Initialises the values of one parameter: element i of user order is draw i of
 * the stream named by the parameter. So a layer that is added to a network does
 * not change the initialisation of others. A draw has 32 bits for i: a
 * parameter of more than 2^32 elements would repeat itself. */
static void init_values(const Init *init, const Rng *r, int64_t n, double *v)
{
    const float bound = (float)init->value;
    float draw[4] = {0}; // as many as one word of the generator gives

    for (int64_t i = 0; i < n; i++) {
        const uint32_t at = (uint32_t)i;
        switch (init->kind) {
        case INIT_UNIFORM:
            // in float on every backend: ref and cpu get the same values
            if (i % 4 == 0) rng_range4(r, at / 4, -bound, bound, draw);
            v[i] = (double)draw[i % 4];
            break;
        case INIT_NORMAL:
            if (i % 2 == 0) rng_normal_pair(r, at / 2, draw);
            v[i] = init->value * (double)draw[i % 2];
            break;
        case INIT_CONST:
            v[i] = init->value;
            break;
        }
    }
}

bool params_room(Params *p, const Backend *be, void *dev)
{
    p->be = be;
    p->dev = dev;
    return (be->alloc(dev, (size_t)p->total * dtype_bytes(be->real),
                      &p->value) &&
            (p->copied == F64 || be->alloc(dev, copy_bytes(p), &p->copy))) ||
           within("parameters");
}

bool params_open(Params *p, const Graph *g, const Backend *be, void *dev,
                 uint64_t seed)
{
    bool ok = false;
    double *user = NULL;
    int64_t largest = 1;

    if (!params_room(p, be, dev)) return false;

    // one buffer, used for each in turn
    for (int i = 0; i < p->count; i++)
        if (numel(p->list[i].dim) > largest) largest = numel(p->list[i].dim);
    user = mem_alloc((size_t)largest * sizeof *user);
    TRY(user);

    for (int i = 0; i < p->count; i++) {
        const Param *q = &p->list[i];
        Rng r = {.seed = seed, .stream = RNG_INIT};
        r.sample = rng_hash(q->name);
        init_values(&g->node[q->node].init, &r, numel(q->dim), user);
        TRY(params_write(p, i, PARAM_VALUE, 0, user));
    }

    ok = true;

done:
    mem_free(user);
    return ok || within("parameters");
}

// after a failure params_free releases what was allocated
bool params_train(Params *p, int states)
{
    CHECK(states <= MAX_STATES);
    size_t bytes = (size_t)p->trained * dtype_bytes(p->be->real);
    p->states = states;
    if (!p->be->alloc(p->dev, bytes, &p->grad)) return within("gradients");
    for (int i = 0; i < states; i++)
        if (!p->be->alloc(p->dev, bytes, &p->state[i]))
            return within("optimiser state");
    return true;
}

bool params_average(Params *p)
{
    size_t bytes = (size_t)p->total * dtype_bytes(p->be->real);
    if (!p->average && !p->be->alloc(p->dev, bytes, &p->average))
        return within("the average of the weights");
    return p->be->copy(p->dev, p->average, p->value, bytes);
}

// in pieces: there might be no room for a third copy of all weights
bool params_swap(Params *p)
{
    enum { PIECE = 1 << 20 };
    size_t bytes = (size_t)p->total * dtype_bytes(p->be->real);
    void *room;
    if (!p->be->alloc(p->dev, PIECE, &room)) return false;
    bool ok = true;

    for (size_t at = 0; ok && at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        char *a = (char *)p->value + at, *b = (char *)p->average + at;
        ok = p->be->copy(p->dev, room, a, n) && p->be->copy(p->dev, a, b, n) &&
             p->be->copy(p->dev, b, room, n);
    }

    for (int i = 0; ok && i < p->count; i++) ok = renew(p, i);
    ok = p->be->sync(p->dev) && ok; // the room is in use until then
    p->be->release(p->dev, room);
    return ok;
}

void params_free(Params *p)
{
    if (p->be) {
        p->be->release(p->dev, p->value);
        p->be->release(p->dev, p->average);
        p->be->release(p->dev, p->copy);
        p->be->release(p->dev, p->grad);
        for (int i = 0; i < MAX_STATES; i++)
            p->be->release(p->dev, p->state[i]);
    }
    mem_free(p->list);
    *p = (Params){0};
}

Tensor params_tensor(const Params *p, int i, ParamBlock block, int state)
{
    const Param *q = &p->list[i];

    // NULL: params_open or params_train was not called
    char *base = block == PARAM_VALUE     ? p->value
                 : block == PARAM_AVERAGE ? p->average
                 : block == PARAM_GRAD    ? p->grad
                                          : p->state[state];

    // running statistics have a value, and perhaps an average
    CHECK(base &&
          (block == PARAM_VALUE || block == PARAM_AVERAGE || q->trained));
    return (Tensor){.dim = q->dim,
                    .type = p->be->real,
                    .rank = q->rank,
                    .data = base + (size_t)q->at * dtype_bytes(p->be->real)};
}

/* Reading and writing use a host copy in memory order and real type; doubles in
 * user order are exact for both real types. */
static bool read_as(const Params *p, int i, ParamBlock block, int state,
                    Dtype type, void *user)
{
    Tensor t = params_tensor(p, i, block, state), host = t;
    size_t bytes = tensor_bytes(&t);
    host.data = mem_alloc(bytes);
    bool ok = host.data && p->be->download(p->dev, host.data, t.data, bytes);
    if (ok && type == F32) tensor_to_user(&host, user);
    if (ok && type == F64) tensor_to_user_f64(&host, user);
    mem_free(host.data);
    return ok || within("%s", p->list[i].name);
}

bool params_read(const Params *p, int i, ParamBlock block, int state,
                 double *user)
{
    return read_as(p, i, block, state, F64, user);
}

bool params_read_real(const Params *p, int i, ParamBlock block, int state,
                      void *user)
{
    return read_as(p, i, block, state, p->be->real, user);
}

bool params_write(const Params *p, int i, ParamBlock block, int state,
                  const double *user)
{
    Tensor t = params_tensor(p, i, block, state), host = t;
    size_t bytes = tensor_bytes(&t);
    host.data = mem_alloc(bytes);
    if (!host.data) return within("%s", p->list[i].name);
    tensor_from_user_f64(user, &host);
    bool ok = p->be->upload(p->dev, t.data, host.data, bytes) &&
              (block != PARAM_VALUE || renew(p, i));
    mem_free(host.data);
    return ok || within("%s", p->list[i].name);
}
