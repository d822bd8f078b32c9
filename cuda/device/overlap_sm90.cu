/* overlap_sm90.cu -- whether this driver takes programmatic dependent launches.
 *
 * A dependent launch (LAUNCH_DEPENDENT of gpu.h) begins before the launch ahead
 * of it has ended: its blocks take multiprocessors that the last blocks of that
 * launch leave idle, and set up barriers and tables there. Such launches are
 * tried once, inside of a CUDA graph as in a training step; where one fails the
 * kernels are launched as all others. */
#include "cuda/device/device.cuh"
#include "cuda/lib/ptx_sm90.cuh"
#include <stdlib.h>
#include <string.h>

namespace {

__global__ void wait_kernel(int)
{
    grid_dependency_wait();
}

/* Two dependent launches as the nodes of a graph. */
bool capture(cudaStream_t stream, cudaGraph_t *graph)
{
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) !=
        cudaSuccess)
        return false;
    for (int i = 0; i < 2; i++)
        LAUNCH_DEPENDENT(wait_kernel, 1, 32, 0, stream, i);
    const bool queued = cudaGetLastError() == cudaSuccess;
    return cudaStreamEndCapture(stream, graph) == cudaSuccess && queued;
}

} // namespace

void gpu_try_overlap(cudaStream_t stream)
{
    const char *wanted = getenv("SEG_OVERLAP");
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    launches_overlap = true; // of the two launches
    launches_overlap = !(wanted && !strcmp(wanted, "0")) &&
                       capture(stream, &graph) &&
                       cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess &&
                       cudaGraphLaunch(exec, stream) == cudaSuccess &&
                       cudaStreamSynchronize(stream) == cudaSuccess;
    if (exec) (void)cudaGraphExecDestroy(exec);
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
}
