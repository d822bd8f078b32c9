/* emu.h -- CUDA on the CPU, for tests: the part of CUDA for kernel sources.
 *
 * A kernel source includes cuda/lib/gpu.h, and gpu.h includes this file when
 * the compiler is not nvcc. The threads of a block are fibers on one OS thread;
 * blocks run one after another (interleaved in a cooperative launch). A kernel
 * can use only the features of these headers. Absent are plain __shared__ (use
 * SMEM), float atomics, cooperative_groups, textures, __CUDA_ARCH__, inline
 * PTX.
 *
 *     emu_types.h   qualifiers, dim3, vector types
 *     emu_launch.h  threadIdx, LAUNCH, SMEM, barriers
 *     emu_warp.h    shuffles, votes, reductions
 *     emu_atomic.h  integer atomics
 *     emu_math.h    intrinsics
 *     emu_half.h    f16, bf16
 *     emu_prims.h   mma, ldmatrix, cp.async
 *     emu_sm90.h    mbarrier, TMA, wgmma
 *     emu_api.h     the runtime
 *
 * Settings in the environment are listed in emu_control.h. */
#ifndef EMU_H
#define EMU_H
#include "tests/cuda/emulator/emu_types.h"

#include "tests/cuda/emulator/emu_api.h"
#include "tests/cuda/emulator/emu_atomic.h"
#include "tests/cuda/emulator/emu_half.h"
#include "tests/cuda/emulator/emu_launch.h"
#include "tests/cuda/emulator/emu_math.h"
#include "tests/cuda/emulator/emu_prims.h"
#include "tests/cuda/emulator/emu_sm90.h"
#include "tests/cuda/emulator/emu_warp.h"
#endif
