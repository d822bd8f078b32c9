/* cuda_graph.cu -- CUDA graphs of training steps, and times.
 *
 * A training step is some hundreds of launches, and a launch costs the host
 * about as much time as a small kernel takes. Captured as one CUDA graph, the
 * step is one launch. All values that change from step to step (learning rate,
 * count, loss scale, inputs) are therefore in device memory.
 *
 * Times are differences of CUDA events between calls that are launched one by
 * one. A call of several kernels is one interval; an interval shorter than its
 * launches measures the host's launch time. */
#include "cuda/device/device.cuh"

bool gpu_capture(void *dev)
{
    Gpu *g = (Gpu *)dev;
    return gpu_good(
        cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
        "capturing a step");
}

/* Tries again without the staging buffers of finished copies if memory is
 * short. */
static cudaError_t instantiate(Gpu *g, cudaGraph_t graph, cudaGraphExec_t *exec)
{
    cudaError_t e = cudaGraphInstantiate(exec, graph, 0);
    if (e != cudaErrorMemoryAllocation || !gpu_trim(g, NULL)) return e;
    (void)cudaGetLastError();
    return cudaGraphInstantiate(exec, graph, 0);
}

// the graph is not needed once it is instantiated
bool gpu_instantiate(void *dev, void **out)
{
    Gpu *g = (Gpu *)dev;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool ok =
        gpu_good(cudaStreamEndCapture(g->stream, &graph), "capturing a step") &&
        (!out || gpu_good(instantiate(g, graph, &exec),
                          "instantiating the graph of a step"));
    if (graph) (void)cudaGraphDestroy(graph);
    if (out) *out = ok ? exec : NULL;
    return ok;
}

bool gpu_launch_graph(void *dev, void *graph)
{
    return gpu_good(
        cudaGraphLaunch((cudaGraphExec_t)graph, ((Gpu *)dev)->stream),
        "launching a step");
}

// CUDA frees a graph that still runs when it is done
void gpu_destroy_graph(void *dev, void *graph)
{
    (void)dev;
    if (graph) (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
    (void)cudaGetLastError();
}

bool gpu_mark(void *dev, int i)
{
    Gpu *g = (Gpu *)dev;
    CHECK(i <= g->marks);

    if (i == g->marks) {
        // grows by one, which is rare: a plan has as many calls each time
        size_t bytes = ((size_t)i + 1) * sizeof *g->mark;
        cudaEvent_t *more = (cudaEvent_t *)mem_realloc(g->mark, bytes);
        if (!more) return false;
        g->mark = more;
        if (!gpu_good(cudaEventCreate(&g->mark[i]), "an event")) return false;
        g->marks++;
    }
    return gpu_good(cudaEventRecord(g->mark[i], g->stream), "recording a time");
}

bool gpu_elapsed(void *dev, int i, double *ms)
{
    Gpu *g = (Gpu *)dev;
    float time = 0;
    bool ok = gpu_good(cudaEventElapsedTime(&time, g->mark[i], g->mark[i + 1]),
                       "recording a time");
    *ms = (double)time;
    return ok;
}

// -- times of single launches ------------------------------------------------

namespace {

__thread Gpu *timed; // the device of the launches that are timed
__thread int marked; // two marks a launch: before and after it
__thread bool timer_failed;

/* The launch_timer. A copy has no block, and its bytes in `shared`. */
void time_launch(const char *kernel, dim3 grid, dim3 block, size_t shared)
{
    if (kernel) {
        Launch l = {};
        l.name = kernel;
        l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
        l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
        (block.x ? l.shared : l.bytes) = shared;
        launch_log_add(l);
    }
    timer_failed = !gpu_mark(timed, marked++) || timer_failed;
}

} // namespace

bool gpu_time_launches(void *dev)
{
    CHECK(!launch_hook && !launch_timer);
    timed = (Gpu *)dev, marked = 0, timer_failed = false;
    launch_timer = time_launch;
    return true;
}

bool gpu_launch_times(void *dev, LaunchLog *log)
{
    Gpu *g = (Gpu *)dev;
    launch_timer = NULL;
    if (timer_failed || !gpu_sync(dev)) return false;
    CHECK(log->failed || 2 * log->launches == marked);

    for (int i = 0; i < log->launches; i++) {
        double *const at[2] = {&log->launch[i].from_ms, &log->launch[i].to_ms};
        for (int k = 0; k < 2; k++) {
            float ms = 0;
            if (!gpu_good(
                    cudaEventElapsedTime(&ms, g->mark[0], g->mark[2 * i + k]),
                    "the time of a launch"))
                return false;
            *at[k] = (double)ms;
        }
    }
    return true;
}

void gpu_drop_marks(Gpu *g)
{
    for (int i = 0; i < g->marks; i++) (void)cudaEventDestroy(g->mark[i]);
    mem_free(g->mark);
}
