/* segengine.c -- the C API on top of graph, checkpoint and session.
 *
 * A weights file holds its network as text (`graph`), the names of its outputs
 * (`outputs`, in the order of the text's roots) and its parameters; a model
 * combines the three with a session that cannot train. All arguments of the
 * caller are checked here and give a reason, as a CHECK further down would
 * abort the caller's program. Plans are made per input shape and kept by the
 * session, so calls with one shape plan once. */
#include "engine/api/segengine_inside.h"
#include "engine/check/auto_device.h"
#include "engine/checkpoint/checkpoint.h"
#include <string.h>

const char *seg_error(void)
{
    return err_text();
}

const char *seg_version(void)
{
    return SEG_VERSION;
}

/* Splits "mask,edge" into the names of the roots, in their order. */
static bool name_outputs(seg_model *m, const char *names)
{
    // cut into names in place: they live as long as the model
    char *text = arena_strdup(&m->mem, names), *rest = text, *name;
    int n = 0;

    if (!text) return false;
    while (n < m->outputs && (name = strtok_r(rest, ",", &rest)))
        m->output_name[n++] = name;
    if (n < m->outputs || strtok_r(rest, ",", &rest))
        return fail_data("%d outputs, but the names \"%s\"", m->outputs, names);

    // outputs are selected by name, so a duplicate would be unreachable
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(m->output_name[i], m->output_name[k]))
                return fail_data("two outputs are called \"%s\"",
                                 m->output_name[i]);
    return true;
}

/* Opens the session, in the precision of a bundle; in f32 if the device does
 * not support that precision, which is closest to the trained results. */
static bool open_session(seg_model *m, const char *device, int threads)
{
    const Precision trained = m->bundle ? m->bundle->precision : PRECISION_f32;
    AutoDevice chosen = {.why = ""};
    if (!device || !strcmp(device, "auto")) {
        auto_device(backend_gpu(), 0, trained, &chosen);
        device = chosen.device;
    }
    SessionSpec spec = {.graph = &m->graph,
                        .root = m->output,
                        .roots = m->outputs,
                        .loss = -1,
                        .device = device,
                        .threads = threads};
    spec.precision = trained;
    spec.no_winograd = m->bundle && m->bundle->no_winograd;
    bool ok = session_open(&spec, &m->session);
    if (!ok && trained != PRECISION_f32) {
        spec.precision = PRECISION_f32;
        ok = session_open(&spec, &m->session);
    }
    // seg_error() says why "auto" is the CPU
    if (ok && *chosen.why)
        err_set(ERR_DEVICE, *chosen.warning ? chosen.warning : chosen.why);
    return ok;
}

/* Does the network have the input and output names of the bundle? */
static bool bundle_fits(const seg_model *m)
{
    const Bundle *b = m->bundle;
    bool output = false;
    for (int i = 0; i < m->outputs; i++)
        output |= !strcmp(m->output_name[i], b->output);

    for (int i = 0; i < b->inputs; i++) {
        int node = graph_find(&m->graph, b->input[i]);
        if (node < 0 || m->graph.node[node].kind != NODE_INPUT)
            return fail_data("bundle: its network has no input \"%.60s\"",
                             b->input[i]);
    }

    return (output && b->inputs == m->inputs) ||
           fail_data("bundle: its network has other inputs, or no output "
                     "\"%.60s\"",
                     b->output);
}

/* Fills in a zeroed model; after a failure seg_close frees it. The header is
 * read twice, once for the network and once with the weights. */
static bool open_model(seg_model *m, const char *path, const char *device,
                       int threads)
{
    Meta meta;
    if (!checkpoint_meta(path, &m->mem, &meta)) return false;
    const char *network = meta_get(&meta, "graph");
    const char *names = meta_get(&meta, "outputs");
    if (!network || !names)
        return fail_data("%s: holds weights but no network; save it with "
                         "segengine's train or seg.model:save",
                         path);
    if (!graph_parse(network, &m->graph, m->output, &m->outputs, MAX_OUTPUTS) ||
        !name_outputs(m, names))
        return within("%s", path);

    for (int i = 0; i < m->graph.count; i++) {
        if (m->graph.node[i].kind != NODE_INPUT) continue;
        if (m->inputs == MAX_INPUTS)
            return fail_data("%s: more than %d inputs", path, MAX_INPUTS);
        m->input[m->inputs++] = i;
    }

    const char *rows = meta_get(&meta, "bundle");
    if ((rows && !(bundle_read(rows, &m->mem, &m->bundle) && bundle_fits(m))) ||
        !open_session(m, device, threads))
        return within("%s", path);
    return checkpoint_load(path, m->session, false, &m->mem, &meta);
}

// `threads` 0 reaches the backend as "the default of this machine"
seg_model *seg_open(const char *path, const char *device, int threads)
{
    if (!path) {
        fail_usage("seg_open: path is NULL");
        return NULL;
    }
    seg_model *m = mem_alloc(sizeof *m);
    if (m && !open_model(m, path, device, threads)) {
        seg_close(m);
        m = NULL;
    }
    return m;
}

void seg_close(seg_model *m)
{
    if (!m) return;
    session_close(m->session);
    graph_free(&m->graph);
    arena_release(&m->mem);
    mem_free(m);
}

/* Sets name and shape of a node for one sample. */
static void describe(const seg_model *m, int node, const char *name,
                     seg_tensor *out)
{
    const Tensor *y = &m->graph.node[node].y;
    *out = (seg_tensor){.name = name};
    out->axes = dims_to_user(y->dim, y->rank, out->shape);
}

// with max 0 these only count
int seg_inputs(const seg_model *m, seg_tensor *out, int max)
{
    if (!m) return 0;
    for (int i = 0; i < m->inputs && i < max; i++)
        describe(m, m->input[i], m->graph.node[m->input[i]].name, &out[i]);
    return m->inputs;
}

int seg_outputs(const seg_model *m, seg_tensor *out, int max)
{
    if (!m) return 0;
    for (int i = 0; i < m->outputs && i < max; i++)
        describe(m, m->output[i], m->output_name[i], &out[i]);
    return m->outputs;
}

/* Converts the extents of t, which must have as many axes as input n; the
 * planner checks whether the network accepts them. */
static bool shape_fits(const seg_tensor *t, const Node *n, Dims *out)
{
    char want[DIMS_TEXT];
    dims_text(n->y.dim, n->y.rank, want);
    int64_t shape[SEG_MAX_AXES];
    if (t->axes != dims_to_user(n->y.dim, n->y.rank, shape))
        return fail_usage("input \"%s\" has %d axes, want %s", n->name, t->axes,
                          want);
    for (int i = 0; i < t->axes; i++)
        if (t->shape[i] < 1 || t->shape[i] > INT32_MAX)
            return fail_usage("input \"%s\": axis %d has %lld elements, want "
                              "%s",
                              n->name, i, (long long)t->shape[i], want);
    return dims_from_user(t->shape, t->axes, n->y.rank, out);
}

/* Matches the caller's arrays to the inputs of the network: plan[i] and data[i]
 * belong to m->input[i]. An unknown name is an error, as then the intended
 * input is missing. */
static bool match_inputs(const seg_model *m, const seg_tensor *in, int inputs,
                         PlanInput *plan, const float **data)
{
    for (int k = 0; k < inputs; k++) {
        bool known = false;
        for (int i = 0; in[k].name && i < m->inputs; i++)
            known |= !strcmp(in[k].name, m->graph.node[m->input[i]].name);
        if (!known)
            return fail_usage("the network has no input \"%s\"",
                              in[k].name ? in[k].name : "(NULL)");
    }

    for (int i = 0; i < m->inputs; i++) {
        const Node *n = &m->graph.node[m->input[i]];
        const seg_tensor *t = NULL;
        for (int k = 0; k < inputs; k++)
            if (in[k].name && !strcmp(in[k].name, n->name)) t = &in[k];
        if (!t) return fail_usage("input \"%s\" is missing", n->name);
        if (!t->data) return fail_usage("input \"%s\" has no data", n->name);
        plan[i].node = m->input[i];
        data[i] = t->data;
        if (!shape_fits(t, n, &plan[i].dim)) return false;
    }
    return true;
}

/* Sets shapes of the requested outputs, and values if the caller has room. */
static bool give_outputs(seg_model *m, Plan *p, seg_tensor *out, int outputs)
{
    for (int k = 0; k < outputs; k++) {
        int found = -1;
        for (int i = 0; out[k].name && i < m->outputs; i++)
            if (!strcmp(out[k].name, m->output_name[i])) found = i;
        if (found < 0)
            return fail_usage("the network has no output \"%s\"",
                              out[k].name ? out[k].name : "(NULL)");
        const Tensor *t = plan_value(p, m->output[found]);
        out[k].axes = dims_to_user(t->dim, t->rank, out[k].shape);
        if (out[k].data &&
            !session_read(m->session, p, m->output[found], out[k].data))
            return false;
    }
    return true;
}

int seg_run(seg_model *m, const seg_tensor *in, int inputs, seg_tensor *out,
            int outputs)
{
    PlanInput plan[MAX_INPUTS];
    const float *data[MAX_INPUTS];
    Plan *p;
    bool wanted = false;

    if (!m) {
        fail_usage("seg_run: the model is NULL");
        return -1;
    }

    // a call that only asks for shapes makes a plan, but does not run
    for (int k = 0; k < outputs; k++) wanted |= out[k].data != NULL;
    if (!match_inputs(m, in, inputs, plan, data) ||
        !session_plan(m->session, false, plan, m->inputs, &p))
        return -1;

    if (wanted) {
        if (!session_bind(m->session, p)) return -1;
        // an input that no output needs is not in the plan
        for (int i = 0; i < m->inputs; i++)
            if (plan_value(p, plan[i].node) &&
                !session_feed(m->session, p, plan[i].node, data[i]))
                return -1;
        if (!session_run(m->session, p)) return -1;
    }
    return give_outputs(m, p, out, outputs) ? 0 : -1;
}
