/* kit.h -- helpers of the .cu tests: a count of passes and failures, device
 * buffers, and a hash of results.
 *
 * Works with nvcc and under the emulator. A failed call of the runtime ends
 * the program, since later results would be meaningless. */
#ifndef EMU_KIT_H
#define EMU_KIT_H
#include "cuda/lib/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

static int kit_passed, kit_failed;

static inline void expect(bool ok, const char *what, int line)
{
    if (ok) {
        kit_passed++;
        return;
    }
    kit_failed++;
    printf("  line %d: %s\n", line, what);
}
#define EXPECT(e) expect((e), #e, __LINE__)

/* What is tested, for the message of a call that fails. */
static const char *kit_test = "start";

#define OK(call)                                                     \
    do {                                                             \
        const cudaError_t kit_error = (call);                        \
        if (kit_error == cudaSuccess) break;                         \
        printf("  %s, line %d: %s: %s\n", kit_test, __LINE__, #call, \
               cudaGetErrorName(kit_error));                         \
        exit(1);                                                     \
    } while (0)
/* after a LAUNCH: started and ended without an error */
#define OK_LAUNCH()                  \
    do {                             \
        OK(cudaGetLastError());      \
        OK(cudaDeviceSynchronize()); \
    } while (0)

/* Device memory with the bytes of a host vector. */
template <class T> struct Buffer {
    T *p;
    size_t n;
    explicit Buffer(size_t count) : p(nullptr), n(count)
    {
        OK(cudaMalloc(&p, n * sizeof(T)));
    }
    explicit Buffer(const std::vector<T> &v) : Buffer(v.size())
    {
        OK(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    Buffer(const Buffer &) = delete;
    ~Buffer()
    {
        cudaFree(p);
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* FNV-1a over the bytes */
static inline uint64_t hash_bytes(const void *p, size_t n)
{
    uint64_t h = 1469598103934665603u;
    const unsigned char *c = static_cast<const unsigned char *>(p);
    for (size_t i = 0; i < n; i++) h = (h ^ c[i]) * 1099511628211u;
    return h;
}

static inline int kit_result(void)
{
    printf("%d passed, %d failed, 0 skipped\n", kit_passed, kit_failed);
    return kit_failed != 0;
}
#endif
