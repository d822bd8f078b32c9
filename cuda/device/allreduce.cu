/* allreduce.cu -- all-reduce of values in device memory over the ranks.
 *
 * NCCL adds from GPU to GPU by its own kernels, in the order of the stream, so
 * an all-reduce is queued and captured like a launch. It needs libnccl.so.2 at
 * all ranks, and one GPU for each. The transport by the host is always
 * available: a download to pinned memory, a sum over the ranks (ranks.h), an
 * upload; the host waits, so such a step is not captured.
 *
 * Each transport gives the same bits on all ranks. NCCL chooses the order of a
 * sum by the connections of the GPUs, so the last bits may differ between
 * machines and from the transport by the host. */
#include "cuda/device/device.cuh"
#include "cuda/device/nccl.h"
extern "C" {
#include "engine/ranks/ranks.h"
}
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Transport {
    Ranks *ranks;
    Nccl nccl;
    struct ncclComm *comm; // NULL: transport by the host
    void *host;            // (bytes), pinned, for the transport by the host
    size_t bytes;
};

namespace {

enum { BLOCK = 256, BLOCKS = 1 << 12 };

__global__ void __launch_bounds__(BLOCK)
    allreduce_scale_kernel(float *v, int64_t n, float by)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        v[i] *= by;
}

// -- the library -------------------------------------------------------------

/* Opens NCCL and checks its version; false with the reason. The library stays
 * open. */
bool find_nccl(Nccl *n)
{
    const char *given = getenv(NCCL_VARIABLE);
    const char *file = given ? given : NCCL_FILE;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail_device("NCCL was not found (%s): install libnccl2 from "
                           "NVIDIA's repository for this CUDA version, or set "
                           "%s to the %s of another package",
                           dlerror(), NCCL_VARIABLE, NCCL_FILE);
#define F(name, arguments)                           \
    *(void **)&n->name = dlsym(library, #name);      \
    if (!n->name)                                    \
        return fail_device("%s has no %s: it is not" \
                           " NCCL 2.10 or later",    \
                           file, #name);
    NCCL_FUNCTIONS(F)
    F(ncclGetErrorString, (int))
#undef F
    if (n->ncclGetVersion(&n->version) || n->version < NCCL_LEAST)
        return fail_device("%s is NCCL version %d, want 2.10 or later", file,
                           n->version);
    return true;
}

bool nccl_good(const Nccl *n, int code, const char *what)
{
    if (!code) return true;
    return fail_device("NCCL: %s: %s (NCCL_DEBUG=INFO in the environment shows "
                       "more; --allreduce host works without NCCL)",
                       what, n->ncclGetErrorString(code));
}

// -- choice of the transport -------------------------------------------------

/* Each rank sends its own to the others before the choice. */
struct RankInfo {
    char host[64], gpu[32]; // gpu: PCI address
    int version;            // of NCCL; 0: none
    char why[152];          // if version is 0
};

bool make_rank_info(Gpu *g, RankInfo *out)
{
    cudaDeviceProp p;
    if (!gpu_good(cudaGetDeviceProperties(&p, g->number),
                  "querying its properties"))
        return false;
    if (gethostname(out->host, sizeof out->host - 1)) *out->host = 0;
    snprintf(out->gpu, sizeof out->gpu, "%04x:%02x:%02x", p.pciDomainID,
             p.pciBusID, p.pciDeviceID);
    return true;
}

/* Rejects two ranks on one GPU, unless the user asked for `host`. */
bool check_devices(const RankInfo *info, int ranks, const char *how)
{
    for (int i = 0; i < ranks && strcmp(how, "host"); i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(info[i].host, info[k].host) &&
                !strcmp(info[i].gpu, info[k].gpu))
                return fail_usage(
                    "ranks %d and %d have the same GPU (%s of %s): they would "
                    "share its speed and its memory, and NCCL accepts one rank "
                    "a GPU; give each rank its own GPU (--devices 0,1), or use "
                    "--allreduce host to test several ranks on one GPU",
                    k, i, info[i].gpu, info[i].host);
    return true;
}

/* Chooses NCCL, or with "auto" the host and the reason in *out->text. False if
 * the user asked for NCCL and a rank lacks it. */
bool choose(const RankInfo *info, int ranks, const char *how, bool *nccl,
            Allreduce *out)
{
    *nccl = strcmp(how, "host") != 0;
    snprintf(out->text, sizeof out->text, "the host");

    for (int i = 0; i < ranks && *nccl; i++) {
        char why[192];
        if (!info[i].version)
            snprintf(why, sizeof why, "rank %d: %s", i, info[i].why);
        else if (info[i].version != info[0].version)
            snprintf(why, sizeof why,
                     "rank %d has NCCL version %d and rank 0 %d", i,
                     info[i].version, info[0].version);
        else
            continue;
        *nccl = false;
        if (strcmp(how, "auto"))
            return fail_device("--allreduce nccl: %s", why);
        snprintf(out->text, sizeof out->text, "the host (%s)", why);
    }
    return true;
}

bool allreduce_nccl(Transport *c)
{
    const Nccl *n = &c->nccl;
    Ranks *r = c->ranks;
    NcclId id = {};
    // an error of rank 0 is reported after the gather, at which the others wait
    int code = r->rank ? 0 : n->ncclGetUniqueId(&id);
    NcclId *all = (NcclId *)mem_alloc((size_t)r->count * sizeof *all);
    bool ok =
        all && ranks_gather(r, &id, sizeof id, all) &&
        nccl_good(n, code, "beginning") &&
        nccl_good(n, n->ncclCommInitRank(&c->comm, r->count, all[0], r->rank),
                  "joining the ranks");
    mem_free(all);
    return ok;
}

// -- transport by the host ---------------------------------------------------

/* Grows the host buffer, after the last upload from it. */
bool host_room(Gpu *g, size_t bytes)
{
    Transport *c = g->transport;
    if (bytes <= c->bytes) return true;
    if (c->host && !gpu_sync(g)) return false;
    if (c->host) (void)cudaFreeHost(c->host);
    c->host = NULL, c->bytes = 0;
    if (!gpu_good(cudaMallocHost(&c->host, bytes), "memory of the host"))
        return false;
    c->bytes = bytes;
    return true;
}

/* All copies are in one stream, so the previous upload has left `host` before
 * the next download. */
bool allreduce_host(Gpu *g, void *v, Dtype type, int64_t count)
{
    Transport *c = g->transport;
    const size_t bytes = (size_t)count * dtype_bytes(type);
    const char *what = "copying for other ranks";
    return gpu_use(g) && host_room(g, bytes) &&
           gpu_good(cudaMemcpyAsync(c->host, v, bytes, cudaMemcpyDeviceToHost,
                                    g->stream),
                    what) &&
           gpu_sync(g) && ranks_sum_values(c->ranks, c->host, type, count) &&
           gpu_good(cudaMemcpyAsync(v, c->host, bytes, cudaMemcpyHostToDevice,
                                    g->stream),
                    what);
}

} // namespace

// -- the functions of Backend ------------------------------------------------

bool gpu_allreduce_open(void *dev, Ranks *r, const char *how, Allreduce *out)
{
    Gpu *g = (Gpu *)dev;
    bool ok = false, nccl;
    static const char *const ways[] = {"auto", "nccl", "host"};
    int known = 0;

    for (const char *way : ways) known += !strcmp(how, way);
    if (!known)
        return fail_usage("--allreduce %s: want auto, nccl or host", how);
    RankInfo own = {}, *info = NULL;
    Transport *c = (Transport *)mem_alloc(sizeof *c);
    if (!c) return false;
    g->transport = c;
    c->ranks = r;
    TRY(make_rank_info(g, &own));

    if (!strcmp(how, "host"))
        snprintf(own.why, sizeof own.why, "not asked for");
    else if (find_nccl(&c->nccl))
        own.version = c->nccl.version;
    else
        snprintf(own.why, sizeof own.why, "%s", err_text());

    info = (RankInfo *)mem_alloc((size_t)r->count * sizeof *info);
    TRY(info && ranks_gather(r, &own, sizeof own, info));
    TRY(check_devices(info, r->count, how));
    TRY(choose(info, r->count, how, &nccl, out));

    if (nccl) {
        TRY(gpu_use(dev) && allreduce_nccl(c));
        out->queues = true;
        const int v = own.version;
        snprintf(out->text, sizeof out->text, "NCCL %d.%d.%d", v / 10000,
                 v / 100 % 100, v % 100);
    }

    ok = true;

done:
    mem_free(info);
    return ok;
}

bool gpu_allreduce(void *dev, void *v, Dtype type, int64_t count, double by)
{
    Gpu *g = (Gpu *)dev;
    Transport *c = g->transport;
    CHECK(type == F32 || type == F64);
    if (gpu_dry_runs(dev) || count == 0) return true;
    CHECK(c);

    if (!c->comm) {
        if (!allreduce_host(g, v, type, count)) return false;
    } else if (!nccl_good(&c->nccl,
                          c->nccl.ncclAllReduce(v, v, (size_t)count,
                                                type == F32 ? NCCL_FLOAT32
                                                            : NCCL_FLOAT64,
                                                NCCL_SUM, c->comm, g->stream),
                          "adding up"))
        return false;

    if (by == 1) return true;
    CHECK(type == F32);
    const int64_t wanted = (count + BLOCK - 1) / BLOCK, most = BLOCKS;
    const unsigned blocks = (unsigned)(wanted < most ? wanted : most);
    LAUNCH(allreduce_scale_kernel, blocks, BLOCK, 0, g->stream, (float *)v,
           count, (float)by);
    return gpu_launched("mean over ranks");
}

// after an error of a rank its operations never finish, so abort without a wait
void gpu_allreduce_close(Gpu *g)
{
    Transport *c = g->transport;
    if (!c) return;
    int error = 0;

    if (c->comm) {
        bool fine = !c->nccl.ncclCommGetAsyncError(c->comm, &error) && !error &&
                    cudaStreamQuery(g->stream) == cudaSuccess;
        (void)(fine ? c->nccl.ncclCommDestroy(c->comm)
                    : c->nccl.ncclCommAbort(c->comm));
    }

    if (c->host) (void)cudaFreeHost(c->host);
    (void)cudaGetLastError();
    mem_free(c);
    g->transport = NULL;
}
