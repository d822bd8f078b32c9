/* mma.cc -- bodies of mma.sync, ldmatrix and stmatrix for a whole warp.
 *
 * Compiled without sanitizers, which have checked the operands already: each
 * lane reads its own row of a matrix before the collective, so that a message
 * about a race or an access out of bounds names the right lane. The layouts are
 * documented in cuda/lib/ptx.cuh. */
#include "tests/cuda/emulator/core.h"
#include "tests/cuda/emulator/emu_half.h"

namespace emu {

struct Fragment {
    uint32_t a[4], b[2];
    float d[4];
};
static_assert(sizeof(Fragment) <= sizeof(Lane::in), "fits a lane's slot");

static float f32_of_bf16(uint32_t r)
{
    return from_bf16((uint16_t)r);
}
static float f32_of_f16(uint32_t r)
{
    return from_f16((uint16_t)r);
}

/* d += a b with a in rows of K and b in rows of 8 */
template <int K>
static void multiply(float (&d)[16][8], const float (&a)[16][K],
                     const float (&b)[K][8])
{
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < 8; n++) d[row][n] += a[row][k] * b[k][n];
}

static void gather(float (&d)[16][8], int l, const Fragment &f)
{
    for (int i = 0; i < 4; i++)
        d[(l >> 2) + 8 * (i >> 1)][(l & 3) * 2 + (i & 1)] = f.d[i];
}
static void scatter(const float (&d)[16][8], Lane *lanes)
{
    for (int l = 0; l < 32; l++) {
        float out[4];
        for (int i = 0; i < 4; i++)
            out[i] = d[(l >> 2) + 8 * (i >> 1)][(l & 3) * 2 + (i & 1)];
        memcpy(lanes[l].out, out, sizeof out);
    }
}

static void need_all(uint32_t mask, const char *what)
{
    if (mask != ~0u)
        stop(block->warp[thread_number >> 5].site, "%s needs all 32 lanes",
             what);
}

/* operands of 16 bits, DEPTH 16 or 8 along k */
template <float (*f32)(uint32_t), int DEPTH>
static void body_mma_half(Lane *lanes, uint32_t mask)
{
    float a[16][DEPTH], b[DEPTH][8], d[16][8];
    need_all(mask, "mma");
    for (int l = 0; l < 32; l++) {
        const int g = l >> 2, t = l & 3;
        Fragment f;
        memcpy(&f, lanes[l].in, sizeof f);
        for (int i = 0; i < DEPTH / 4; i++) {
            float *row = a[g + 8 * (i & 1)] + 2 * t + 8 * (i >> 1);
            row[0] = f32(f.a[i] & 0xffff);
            row[1] = f32(f.a[i] >> 16);
        }
        for (int i = 0; i < DEPTH / 8; i++) {
            b[2 * t + 8 * i][g] = f32(f.b[i] & 0xffff);
            b[2 * t + 8 * i + 1][g] = f32(f.b[i] >> 16);
        }
        gather(d, l, f);
    }
    multiply(d, a, b);
    scatter(d, lanes);
}

/* the hardware reads only the upper 19 bits of a tf32 operand */
static void body_mma8(Lane *lanes, uint32_t mask)
{
    float a[16][8], b[8][8], d[16][8];
    need_all(mask, "mma");
    for (int l = 0; l < 32; l++) {
        const int g = l >> 2, t = l & 3;
        Fragment f;
        memcpy(&f, lanes[l].in, sizeof f);
        for (int i = 0; i < 4; i++)
            a[g + 8 * (i & 1)][t + 4 * (i >> 1)] =
                bits<float>(f.a[i] & 0xffffe000u);
        for (int i = 0; i < 2; i++)
            b[t + 4 * i][g] = bits<float>(f.b[i] & 0xffffe000u);
        gather(d, l, f);
    }
    multiply(d, a, b);
    scatter(d, lanes);
}

void mma(ProductType type, float (&d)[4], const uint32_t (&a)[4],
         const uint32_t (&b)[2], const char *file, int line)
{
    static const WarpBody bodies[] = {body_mma_half<f32_of_bf16, 16>,
                                      body_mma_half<f32_of_f16, 16>, body_mma8,
                                      body_mma_half<f32_of_f16, 8>};
    Fragment f;
    Lane &slot = lane_slot();
    memcpy(f.a, a, sizeof f.a);
    memcpy(f.b, b, sizeof f.b);
    memcpy(f.d, d, sizeof f.d);
    memcpy(slot.in, &f, sizeof f);
    collective(~0u, bodies[type], "mma", file, line);
    memcpy(d, slot.out, sizeof d);
}

template <int N, bool transposed>
static void body_ldmatrix(Lane *lanes, uint32_t mask)
{
    need_all(mask, "ldmatrix");
    for (int l = 0; l < 32; l++) {
        uint16_t out[2 * N];
        for (int i = 0; i < 2 * N; i++) {
            int row = l >> 2, column = (l & 3) * 2 + (i & 1);
            if (transposed) std::swap(row, column);
            memcpy(out + i, lanes[(i >> 1) * 8 + row].in + 2 * column, 2);
        }
        memcpy(lanes[l].out, out, sizeof out);
    }
}

void ldmatrix_finish(uint32_t *r, int matrices, bool transposed,
                     const void *row, const char *file, int line)
{
    static const WarpBody bodies[3][2] = {
        {body_ldmatrix<1, false>, body_ldmatrix<1, true>},
        {body_ldmatrix<2, false>, body_ldmatrix<2, true>},
        {body_ldmatrix<4, false>, body_ldmatrix<4, true>},
    };
    Lane &slot = lane_slot();
    memcpy(slot.in, row, 16);
    collective(~0u, bodies[matrices >> 1][transposed], "ldmatrix", file, line);
    memcpy(r, slot.out, 4 * (size_t)matrices);
}

/* lane 8i+r gets row r of matrix i */
template <bool transposed> static void body_stmatrix(Lane *lanes, uint32_t mask)
{
    need_all(mask, "stmatrix");
    for (int l = 0; l < 32; l++) {
        uint16_t out[8];
        for (int column = 0; column < 8; column++) {
            int a = l & 7, b = column; /* register halves lie along b */
            if (transposed) std::swap(a, b);
            const int from = a * 4 + (b >> 1);
            memcpy(out + column, lanes[from].in + 4 * (l >> 3) + 2 * (b & 1),
                   2);
        }
        memcpy(lanes[l].out, out, sizeof out);
    }
}

void stmatrix_rows(void *to, const uint32_t *v, bool transposed,
                   const char *file, int line)
{
    Lane &slot = lane_slot();
    sm90_needed({"stmatrix", file, line});
    memcpy(slot.in, v, 16);
    collective(~0u, transposed ? body_stmatrix<true> : body_stmatrix<false>,
               "stmatrix", file, line);
    memcpy(to, slot.out, 16);
}

} // namespace emu
