/* graph.cc -- stream capture, CUDA graphs and their launch.
 *
 * While a stream is captured its work becomes nodes. A node comes after the
 * tips of its stream; recording an event keeps the tips, and a stream that
 * waits for such an event joins the capture. Recording and waiting make no
 * nodes, as in CUDA. A launch of the graph runs the nodes in an order that the
 * edges allow: the last captured first when streams run late, so that a missing
 * edge changes the result.
 *
 * A call that CUDA forbids during a capture fails with CUDA's error and
 * invalidates the capture, which cudaStreamEndCapture() then reports. */
#include "tests/cuda/emulator/work.h"

#include <set>

using emu::Nodes;

struct CUgraphNode_st {
    cudaGraphNodeType type;
};
struct CUgraph_st {
    std::shared_ptr<const Nodes> nodes;
    std::vector<CUgraphNode_st> handles;
};
struct CUgraphExec_st {
    std::shared_ptr<const Nodes> nodes;
    CUstream_st *stream; /* of the last launch; the next launch waits for it */
    uint64_t number;
};

namespace emu {

static std::vector<std::shared_ptr<Capture>> captures; /* not yet ended */
static Handles<CUgraph_st> graphs;
static Handles<CUgraphExec_st> execs;

size_t live_graphs()
{
    return graphs.live.size() + execs.live.size();
}

void graphs_reset()
{
    for (CUgraph_st &g : graphs.all) g.nodes = nullptr;
    for (CUgraphExec_st &x : execs.all) x.nodes = nullptr;
    graphs.live.clear();
    execs.live.clear();
}

void spoil(const std::shared_ptr<Capture> &capture)
{
    capture->spoilt = true;
}

cudaError_t capture_forbids()
{
    cudaError_t e = cudaSuccess;
    for (const auto &c : captures) {
        if (c->mode == cudaStreamCaptureModeRelaxed) continue;
        spoil(c);
        e = cudaErrorStreamCaptureUnsupported;
    }
    return e;
}

cudaError_t capture_implicit(CUstream_st *s)
{
    cudaError_t e = cudaSuccess;
    if (s != legacy_stream()) return e;
    for (CUstream_st *t : all_streams()) {
        if (!t->capture || !t->blocking) continue;
        spoil(t->capture);
        e = cudaErrorStreamCaptureImplicit;
    }
    return e;
}

cudaError_t capture_add(CUstream_st *s, Work &&work)
{
    Capture *c = s->capture.get();
    if (c->spoilt) return cudaErrorStreamCaptureInvalidated;
    c->nodes.push_back(Node{std::move(work), s->tips});
    s->tips.assign(1, (int)c->nodes.size() - 1);
    return cudaSuccess;
}

cudaError_t capture_wait(CUstream_st *s,
                         const std::shared_ptr<Capture> &capture,
                         const std::vector<int> &tips)
{
    if (!capture) { /* the event belongs to work outside the capture */
        spoil(s->capture);
        return cudaErrorStreamCaptureIsolation;
    }
    if (capture->ended) return cudaErrorCapturedEvent;
    if (capture->spoilt) return cudaErrorStreamCaptureInvalidated;
    if (s->capture && s->capture != capture) {
        spoil(s->capture);
        spoil(capture);
        return cudaErrorStreamCaptureMerge;
    }
    if (s == legacy_stream()) {
        spoil(capture);
        return cudaErrorStreamCaptureImplicit;
    }
    s->capture = capture;
    std::set<int> all(s->tips.begin(), s->tips.end());
    all.insert(tips.begin(), tips.end());
    s->tips.assign(all.begin(), all.end());
    return cudaSuccess;
}

/* Returns whether the tips of all other streams precede the tips of the stream
 * in which the capture began. */
static bool joined(const Capture &c)
{
    std::set<int> reached(c.origin->tips.begin(), c.origin->tips.end());
    for (int i = (int)c.nodes.size() - 1; i >= 0; i--)
        if (reached.count(i))
            reached.insert(c.nodes[(size_t)i].after.begin(),
                           c.nodes[(size_t)i].after.end());
    for (const CUstream_st *s : all_streams()) {
        if (s->capture.get() != &c) continue;
        for (int tip : s->tips)
            if (!reached.count(tip)) return false;
    }
    return true;
}

void run_graph(const Nodes &nodes)
{
    std::vector<int> missing(nodes.size());
    std::vector<std::vector<int>> act(nodes.size());
    std::set<int> ready;
    for (size_t i = 0; i < nodes.size(); i++) {
        missing[i] = (int)nodes[i].after.size();
        for (int a : nodes[i].after) act[(size_t)a].push_back((int)i);
        if (!missing[i]) ready.insert((int)i);
    }
    while (!ready.empty()) {
        auto it = streams_mode == STREAMS_EARLY ? ready.begin()
                                                : std::prev(ready.end());
        if (streams_mode == STREAMS_RANDOM)
            it = std::next(
                ready.begin(),
                (ptrdiff_t)(random_next(&streams_dice) % ready.size()));
        const int i = *it;
        ready.erase(it);
        Work work = nodes[(size_t)i].work;
        execute(work);
        for (int next : act[(size_t)i])
            if (!--missing[(size_t)next]) ready.insert(next);
    }
}

} // namespace emu

using namespace emu;

/* Ends the capture in all its streams. */
void emu::capture_end(const std::shared_ptr<Capture> &c)
{
    const std::shared_ptr<Capture> held = c; /* `c` may be a stream's own */
    held->ended = true;
    for (CUstream_st *t : all_streams()) {
        if (t->capture != held) continue;
        t->capture = nullptr;
        t->tips.clear();
    }
    const auto it = std::find(captures.begin(), captures.end(), held);
    if (it != captures.end()) captures.erase(it);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode)
{
    BEGIN(CALL_FAILS);
    CUstream_st *s = find_stream(handle);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    if (s == legacy_stream())
        return call.end(cudaErrorStreamCaptureUnsupported);
    if (s->capture) return call.end(cudaErrorInvalidValue);
    s->capture =
        std::make_shared<Capture>(Capture{s, mode, false, false, Nodes()});
    s->tips.clear();
    captures.push_back(s->capture);
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    Call call(CALL_FAILS);
    CUstream_st *s = find_stream(handle);
    *graph = nullptr;
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<Capture> c = s->capture;
    if (!c) return call.end(call.error ? call.error : cudaErrorInvalidValue);
    cudaError_t e = call.error; /* the capture ends in any case */
    if (e) {
    } else if (c->spoilt) {
        e = cudaErrorStreamCaptureInvalidated;
    } else if (c->origin != s) {
        e = cudaErrorStreamCaptureUnmatched;
    } else if (!joined(*c)) {
        e = cudaErrorStreamCaptureUnjoined;
    }
    capture_end(c);
    if (e) return call.end(e);
    CUgraph_st *g = graphs.add();
    g->nodes = std::make_shared<const Nodes>(std::move(c->nodes));
    static const cudaGraphNodeType types[] = {
        cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy,
        cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost,
        cudaGraphNodeTypeHost,   cudaGraphNodeTypeHost,
        cudaGraphNodeTypeHost}; /* by kind of work; events make no node */
    for (const Node &n : *g->nodes) g->handles.push_back({types[n.work.kind]});
    *graph = g;
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus *status)
{
    BEGIN(CALL_PLAIN);
    CUstream_st *s = find_stream(handle);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    *status = !s->capture          ? cudaStreamCaptureStatusNone
              : s->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *count)
{
    BEGIN(CALL_PLAIN);
    if (!graphs.has(graph)) return call.end(cudaErrorInvalidValue);
    const size_t total = graph->handles.size();
    if (!nodes) {
        *count = total;
        return call.end(cudaSuccess);
    }
    for (size_t i = 0; i < *count; i++)
        nodes[i] = i < total ? &graph->handles[i] : nullptr;
    if (*count > total) *count = total;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type)
{
    BEGIN(CALL_PLAIN);
    if (!node) return call.end(cudaErrorInvalidValue);
    *type = node->type;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long)
{
    BEGIN(CALL_FAILS);
    if (!exec || !graphs.has(graph)) return call.end(cudaErrorInvalidValue);
    *exec = execs.add();
    (*exec)->nodes = graph->nodes;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle)
{
    BEGIN(CALL_FAILS);
    if (!execs.has(exec) || !find_stream(handle))
        return call.end(cudaErrorInvalidValue);
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    BEGIN(CALL_FAILS | CALL_LAUNCH);
    CUstream_st *s = find_stream(handle);
    if (!execs.has(exec)) return call.end(cudaErrorInvalidValue);
    if (!s) return call.end(cudaErrorInvalidResourceHandle);
    if (s->capture) { /* a graph within a graph is not offered */
        spoil(s->capture);
        return call.end(cudaErrorStreamCaptureUnsupported);
    }
    Work work(Work::GRAPH, "cudaGraphLaunch", 1);
    work.graph = exec->nodes;
    if (exec->stream) work.after.push_back({exec->stream, exec->number});
    const cudaError_t e = enqueue(std::move(work), s);
    if (!e) {
        exec->stream = s;
        exec->number = s->last;
    }
    return call.end(e);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    BEGIN(CALL_PLAIN);
    if (!execs.drop(exec)) return call.end(cudaErrorInvalidValue);
    exec->nodes = nullptr; /* a queued launch holds its own reference */
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    BEGIN(CALL_PLAIN);
    if (!graphs.drop(graph)) return call.end(cudaErrorInvalidValue);
    graph->nodes = nullptr;
    return call.end(cudaSuccess);
}
