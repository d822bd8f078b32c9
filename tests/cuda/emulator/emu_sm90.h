/* emu_sm90.h -- host bodies behind cuda/lib/ptx_sm90.cuh (Hopper): mbarriers,
 * copies by the tensor memory accelerator (TMA), wgmma.
 *
 * As cp.async, a tma_load arrives as late as CUDA allows (when a thread asks
 * for its mbarrier; EMU_ASYNC=early: at once), and until then its destination
 * holds 0xFF. A tma_store reads shared memory when the thread waits for that,
 * and writes when it waits for that; products are made in wgmma_wait, and until
 * then registers of D hold NaN. Operands of a product and sources of a store
 * are copied at the issue, too, and must not have changed since. */
#ifndef EMU_SM90_H
#define EMU_SM90_H
#include "tests/cuda/emulator/emu_prims.h"

namespace emu {

enum { MAP_AXES = 5 };
enum MapType { MAP_BF16, MAP_F16, MAP_F32 };
/* stands for the CUtensorMap of the device; see TensorMapSpec */
struct TensorMap {
    uint64_t mark; /* set by tensor_map_encode */
    uintptr_t data;
    int64_t extent[MAP_AXES], stride[MAP_AXES]; /* elements, bytes */
    int box[MAP_AXES], swizzle;
    MapType type;
    int element; /* bytes */
};
bool tensor_map_encode(const void *data, const int64_t *extent,
                       const int64_t *stride, const int *box, int swizzle,
                       TensorMap *out, MapType type = MAP_BF16, EMU_AT);

void mbarrier_init(uint64_t *bar, int arrivals, const char *file, int line);
void mbarrier_arrive(uint64_t *bar, int count, const char *file, int line);
void mbarrier_expect(uint64_t *bar, uint32_t bytes, const char *file, int line);
bool mbarrier_test(uint64_t *bar, uint32_t parity, const char *file, int line);
void mbarrier_wait(uint64_t *bar, uint32_t parity, const char *file, int line);
void fence_async_shared();
void named_barrier(int id, int threads, const char *file, int line);
void setmaxnreg(int count, bool more, EMU_AT);
void grid_dependency_wait();

void tma_load(void *to, const TensorMap *map, const int *at, uint64_t *bar,
              const char *file, int line);
void tma_store(const TensorMap *map, const void *from, const int *at,
               const char *file, int line);
void tma_reduce_add(const TensorMap *map, const void *from, const int *at,
                    const char *file, int line);
void tma_store_commit();
void tma_store_wait_read(int groups_left);
void tma_store_wait(int groups_left);

/* Returns in `to`, 16 bytes, the row that this lane stores. */
void stmatrix_rows(void *to, const uint32_t *v, bool transposed,
                   const char *file, int line);
inline void stmatrix(void *row, const uint32_t *v, int matrices,
                     bool transposed, const char *file, int line)
{
    uint32_t all[4] = {};
    uint4 values;
    memcpy(all, v, 4 * (size_t)matrices);
    stmatrix_rows(&values, all, transposed, file, line);
    if (lane_number() >= 8 * matrices) return;
    shared_check(row, 16, 16, "stmatrix", file, line);
    *static_cast<uint4 *>(row) = values; /* checked by sanitizers */
}

/* the 18 bits of an address in a descriptor */
uint32_t shared_offset(const void *p, EMU_AT);
void wgmma_fence();
void wgmma_commit(EMU_AT);
void wgmma_wait(int groups_left, EMU_AT);
/* d: the calling thread's n / 2 registers */
void wgmma(float *d, int n, ProductType type, bool a_mn_major, bool b_mn_major,
           uint64_t a, uint64_t b, bool add, const char *file, int line);

} // namespace emu
#endif
