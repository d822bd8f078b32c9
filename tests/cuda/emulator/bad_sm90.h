/* bad_sm90.h -- planted faults with the primitives of Hopper.
 *
 * Included by bad.cu only. One kernel, which loads an operand by TMA, writes
 * the other one, multiplies and stores, has all the faults. */
#ifndef EMU_BAD_SM90_H
#define EMU_BAD_SM90_H
#include "cuda/lib/ptx_sm90.cuh"

#include <emu_control.h>

enum Fault {
    NO_FAULT,
    MANY_ARRIVALS,
    FEW_BYTES,
    MANY_BYTES,
    UNSHOWN_BARRIER,
    NO_BARRIER_AFTER_INIT,
    NO_INIT,
    OVERWRITTEN_BARRIER,
    NO_ARRIVAL,
    TWO_PHASES,
    READ_EARLY,
    MULTIPLY_EARLY,
    NEVER_AWAITED,
    MISALIGNED_LOAD,
    OVERLAPPING_LOADS,
    UNSHOWN_OPERAND,
    NO_BARRIER_BEFORE_PRODUCT,
    NO_FENCE_BEFORE_PRODUCT,
    OUTSIDE,
    DIFFERENT_PRODUCTS,
    REFILL_EARLY,
    READ_IN_FLIGHT,
    RETURN_IN_FLIGHT,
    PART_OF_REGISTERS,
    UNSHOWN_STORE,
    NO_BARRIER_BEFORE_STORE,
    WRONG_COUNT,
    OVERWRITTEN_STORE,
    NO_WAIT_READ,
    BAD_STRIDE,
    BAD_BOX,
    PAST_TENSOR,
    OLD_DEVICE,
    NO_GRID_WAIT,
    PART_OF_GRID_WAIT
};

enum {
    TILE_A = 64 * 128, /* 64 rows of 64 numbers, swizzled as all of these */
    TILE_B = 32 * 128,
    ROOM = TILE_A + 2 * TILE_B
};
struct Flow {
    emu::TensorMap a, d;
};

static __global__ void k_flow(const __grid_constant__ Flow f, const uint4 *b,
                              float *out, int fault)
{
    DYN_SMEM_1024(char, a_tile);
    SMEM(uint64_t, bars, [2]);
    char *b_tile = a_tile + TILE_A, *d_tile = b_tile + TILE_B;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    float d[16];
    if (fault != NO_GRID_WAIT && !(fault == PART_OF_GRID_WAIT && t == 77))
        grid_dependency_wait();
    if (t == 0) {
        if (fault != NO_INIT) mbarrier_init(&bars[0], 1);
        mbarrier_init(&bars[1], 4);
        if (fault != UNSHOWN_BARRIER) fence_async_shared();
    }
    if (fault != NO_BARRIER_AFTER_INIT) __syncthreads();
    if (fault != PART_OF_REGISTERS || warp) setmaxnreg_dec<64>();
    if (t == 0) {
        mbarrier_expect(&bars[0], fault == FEW_BYTES    ? TILE_A + 64
                                  : fault == MANY_BYTES ? TILE_A - 64
                                                        : TILE_A);
        tma_load(a_tile + (fault == MISALIGNED_LOAD ? 512 : 0), &f.a, 0, 0, 0,
                 0, 0, &bars[0]);
        if (fault == OVERLAPPING_LOADS)
            tma_load(a_tile + 1024, &f.a, 0, 0, 0, 0, 0, &bars[0]);
        if (fault == OVERWRITTEN_BARRIER) bars[1] = 0;
    }
    for (int i = t; i < TILE_B / 16; i += 128)
        reinterpret_cast<uint4 *>(b_tile)[i] = b[i];
    if (fault == NEVER_AWAITED) return;
    if (fault != UNSHOWN_OPERAND) fence_async_shared();
    if (fault == READ_EARLY) out[t] = reinterpret_cast<float *>(a_tile)[t];
    if (fault != MULTIPLY_EARLY) mbarrier_wait(&bars[0], 0);
    if (fault != NO_BARRIER_BEFORE_PRODUCT) __syncthreads();

    const uint64_t at_a = wgmma_descriptor(
        a_tile + (fault == OUTSIDE ? ROOM - 1024 : 0), 0, 1024, SWIZZLE_128);
    const uint64_t at_b = wgmma_descriptor(b_tile, 0, 1024, SWIZZLE_128);
    if (fault != NO_FENCE_BEFORE_PRODUCT) wgmma_fence();
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t moved = fault == DIFFERENT_PRODUCTS && t == 77 ? 32 : 0;
        WgmmaProduct<32, BF16, false, false>::issue(
            d, wgmma_advance(at_a, 32 * k),
            wgmma_advance(at_b, (32 * k + moved) % 128), k > 0);
    }
    wgmma_commit();
    if (fault == REFILL_EARLY && t == 0) {
        mbarrier_expect(&bars[0], TILE_A);
        tma_load(a_tile, &f.a, 0, 0, 0, 0, 0, &bars[0]);
    }
    if (fault == RETURN_IN_FLIGHT) return;
    const float early = d[0];
    wgmma_wait<0>();
    if (fault == READ_IN_FLIGHT) d[0] = early;

    if (fault == TWO_PHASES) {
        for (int i = 0; i < 2 && t == 64; i++) mbarrier_arrive(&bars[1], 4);
    } else if (lane == 0 && (fault != NO_ARRIVAL || warp < 3)) {
        mbarrier_arrive(&bars[1], fault == MANY_ARRIVALS ? 3 : 1);
    }
    while (t == 1 && !mbarrier_test(&bars[1], 0)) {
    }
    if (t > 1) mbarrier_wait(&bars[1], 0);

    for (int i = 0; i < 2; i++) {
        uint32_t v[4];
        for (int j = 0; j < 4; j++)
            v[j] = pack_bf16(d[8 * i + 2 * j], d[8 * i + 2 * j + 1]);
        const int row = i * 16 + lane / 16 * 8 + lane % 8;
        const int sixteen = (warp * 2 + lane / 8 % 2) ^ lane % 8;
        stmatrix_x4_trans(d_tile + row * 128 + sixteen * 16, v);
    }
    if (fault != UNSHOWN_STORE) fence_async_shared();
    if (fault != NO_BARRIER_BEFORE_STORE)
        named_barrier(1, fault == WRONG_COUNT && warp ? 96 : 128);
    if (t) return;
    tma_store(&f.d, d_tile, 0, 0, 0, 0, 0);
    tma_store_commit();
    if (fault == NO_WAIT_READ) return;
    if (fault == OVERWRITTEN_STORE) d_tile[300] = 1;
    tma_store_wait<0>();
}

static emu::TensorMap rows_of(const uint16_t *data, int rows, int64_t pitch,
                              int wide)
{
    emu::TensorMap map = {};
    const int64_t extent[] = {64, rows, 1, 1, 1};
    const int64_t stride[] = {2, pitch, 65536, 65536, 65536};
    const int box[] = {wide, rows, 1, 1, 1};
    emu::tensor_map_encode(data, extent, stride, box, 128, &map);
    return map;
}

static bool flow(Fault fault)
{
    std::vector<uint16_t> a, b(32 * 64);
    for (int i = 0; i < 64 * 64; i++)
        a.push_back(__float2bfloat16((float)(i * 5 % 7 - 3)).bits);
    for (int i = 0; i < 32 * 64; i++) {
        const int at = i ^ i / 64 % 8 * 8;
        b[(size_t)at] = __float2bfloat16((float)(i * 3 % 5 - 2)).bits;
    }
    emu_set_device(fault == OLD_DEVICE ? 80 : 90, 1, "ok", (size_t)1 << 30);
    Buffer<uint16_t> da(a), db(b), dd(32 * 64);
    Buffer<float> out(128);
    const Flow f = {rows_of(da.p, fault == PAST_TENSOR ? 66 : 64,
                            fault == BAD_STRIDE ? 136 : 128,
                            fault == BAD_BOX ? 32 : 64),
                    rows_of(dd.p, 32, 128, 64)};
    LAUNCH_DEPENDENT(k_flow, 1, 128, ROOM, 0, f,
                     reinterpret_cast<const uint4 *>(db.p), out.p, (int)fault);
    OK_LAUNCH();
    if (fault == READ_EARLY)
        for (float x : out.get())
            if (x != x) return false;
    const std::vector<uint16_t> d = dd.get();
    for (int n = 0; n < 32; n++)
        for (int m = 0; m < 64; m++) {
            float sum = 0;
            for (int k = 0; k < 64; k++)
                sum += (float)(((m * 64 + k) * 5 % 7 - 3) *
                               ((n * 64 + k) * 3 % 5 - 2));
            if (d[(size_t)(n * 64 + m)] != __float2bfloat16(sum).bits)
                return false;
        }
    return true;
}
template <Fault fault> static bool flows(bool broken)
{
    return flow(broken ? fault : NO_FAULT);
}

static const Case sm90_cases[] = {
    {70, "too many arrivals", flows<MANY_ARRIVALS>},
    {71, "fewer bytes than expected", flows<FEW_BYTES>},
    {72, "more bytes than expected", flows<MANY_BYTES>},
    {73, "no fence after mbarrier_init", flows<UNSHOWN_BARRIER>},
    {74, "no barrier after mbarrier_init", flows<NO_BARRIER_AFTER_INIT>},
    {75, "mbarrier not initialised", flows<NO_INIT>},
    {76, "mbarrier overwritten", flows<OVERWRITTEN_BARRIER>},
    {77, "an arrival is missing, one thread polls", flows<NO_ARRIVAL>},
    {78, "two phases end during one wait", flows<TWO_PHASES>},
    {79, "a thread reads a tile before it is loaded", flows<READ_EARLY>},
    {80, "wgmma reads a tile before it is loaded", flows<MULTIPLY_EARLY>},
    {81, "nobody waits for a load", flows<NEVER_AWAITED>},
    {82, "misaligned load", flows<MISALIGNED_LOAD>},
    {83, "overlapping loads", flows<OVERLAPPING_LOADS>},
    {84, "operand without fence_async_shared", flows<UNSHOWN_OPERAND>},
    {85, "no wgmma_fence", flows<NO_FENCE_BEFORE_PRODUCT>},
    {86, "operand past the end of shared memory", flows<OUTSIDE>},
    {87, "a thread with another descriptor", flows<DIFFERENT_PRODUCTS>},
    {88, "operand refilled before wgmma_wait", flows<REFILL_EARLY>},
    {89, "accumulator read before wgmma_wait", flows<READ_IN_FLIGHT>},
    {90, "return before wgmma_wait", flows<RETURN_IN_FLIGHT>},
    {91, "setmaxnreg by a part of a warpgroup", flows<PART_OF_REGISTERS>},
    {92, "store without fence_async_shared", flows<UNSHOWN_STORE>},
    {93, "store without a barrier", flows<NO_BARRIER_BEFORE_STORE>},
    {94, "named barrier with two counts", flows<WRONG_COUNT>},
    {95, "source of a store overwritten", flows<OVERWRITTEN_STORE>},
    {96, "return before a store was read", flows<NO_WAIT_READ>},
    {97, "stride no multiple of 16", flows<BAD_STRIDE>},
    {98, "row of a box unlike the swizzle", flows<BAD_BOX>},
    {99, "tensor larger than its memory", flows<PAST_TENSOR>},
    {100, "GPU without these primitives", flows<OLD_DEVICE>},
    {101, "operand without a barrier", flows<NO_BARRIER_BEFORE_PRODUCT>},
    {102, "load before the launch ahead has ended", flows<NO_GRID_WAIT>},
    {103, "a thread without grid_dependency_wait", flows<PART_OF_GRID_WAIT>},
};
#endif
