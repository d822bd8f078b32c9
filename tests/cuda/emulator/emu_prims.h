/* emu_prims.h -- host bodies behind cuda/lib/ptx.cuh.
 *
 * Fragment layouts follow PTX. mma adds in float, k ascending; real tensor
 * cores round differently from generation to generation, so results are
 * compared with a tolerance. A cp.async completes as late as CUDA allows (at
 * the wait; EMU_ASYNC=early, or a capability below 8.0, which has none: at
 * once), and until then its destination holds 0xFF. */
#ifndef EMU_PRIMS_H
#define EMU_PRIMS_H
#include "tests/cuda/emulator/emu_warp.h"

namespace emu {

bool has_sm80(); /* has the device capability 8.0 or more? */
[[noreturn]] void lacks_sm80(const char *what, const char *file, int line);

enum ProductType { PRODUCT_BF16, PRODUCT_F16, PRODUCT_TF32, PRODUCT_F16_K8 };
/* d (16x8) += a (16 x 16 or 8) b; the registers of one lane. m16n8k8 of f16
 * has two registers of a and one of b */
void mma(ProductType type, float (&d)[4], const uint32_t (&a)[4],
         const uint32_t (&b)[2], const char *file, int line);
/* Stops unless [p, p + n) is aligned and lies in one shared array. */
void shared_check(const void *p, size_t n, size_t align, const char *what,
                  const char *file, int line);
/* 8x8 matrices of 16 bits; lane 8i+r holds the address of row r of matrix i */
void ldmatrix_finish(uint32_t *r, int matrices, bool transposed,
                     const void *row, const char *file, int line);
inline void ldmatrix(uint32_t *r, int matrices, bool transposed,
                     const void *row, const char *file, int line)
{
    uint4 values{};
    if (lane_number() < 8 * matrices) {
        shared_check(row, 16, 16, "ldmatrix", file, line);
        values = *static_cast<const uint4 *>(row); /* checked by sanitizers */
    }
    ldmatrix_finish(r, matrices, transposed, &values, file, line);
}

/* `bytes` is 4, 8 or 16; not `valid`: zeros, and the source is not read */
void copy_issue(void *to, const void *from, int bytes, bool valid,
                const char *file, int line);
void copy_commit();
void copy_wait(int groups_left);

void grid_barrier(unsigned *word, const char *file, int line);
bool last_block(unsigned *word, unsigned count, const char *file, int line);

} // namespace emu
#endif
