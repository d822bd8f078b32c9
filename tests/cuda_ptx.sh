#!/bin/sh
# cuda_ptx.sh -- what nvcc makes of the kernels.
#
# A sum that depends on the order of threads would be a float atomic: there
# must be none in the PTX of any kernel. (Integers may be added in any order.)
# A convolution that keeps its sums in memory instead of registers is several
# times slower, and nothing else would tell. And nvcc must have no complaints.
cd "$(dirname "$0")/.." || exit 1
. tests/steps

NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$NVCC" > /dev/null || skip "there is no nvcc"
compile() {
    "$NVCC" -std=c++17 -O3 -Iengine -Icuda -DSEG_CUDA "$@"
}

# silent FILE: compiles to PTX without a word
silent() {
    compile -arch=compute_80 -ptx -o "$tmp/ptx" "$1" > "$tmp/said" 2>&1
    status=$?
    cat "$tmp/said"
    [ "$status" -eq 0 ] && [ ! -s "$tmp/said" ]
}
no_float_atomics() {
    ! grep -nE '\b(atom|red)(\.[a-z_]+)*\.(f16|f16x2|bf16|bf16x2|f32|f64)' \
        "$tmp/ptx"
}
# no_spills FILE GPU
no_spills() {
    compile -gencode "arch=compute_$2,code=sm_$2" -Xptxas -v -cubin \
        -o "$tmp/cubin" "$1" > "$tmp/said" 2>&1 || return 1
    cat "$tmp/said"
    grep -q 'bytes spill stores' "$tmp/said" &&
        ! grep -E '[1-9][0-9]* bytes spill' "$tmp/said"
}
# registers MOST: a thread, of what no_spills compiled last
registers() {
    ! sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$tmp/said" |
        awk -v most="$1" '$1 > most { found = 1 } END { exit !found }'
}

# compiles FILE GPU: to code of that family
compiles() {
    compile -gencode "arch=compute_$2,code=sm_$2" -cubin -o "$tmp/cubin" "$1"
}

# the families that every run looks at, and those of the long one (all that
# GPUS=all builds, three minutes)
gpus='80 90'
[ -z "${SEG_SOAK:-}" ] || gpus=$(sed -n 's/^GPUS_ALL := //p' Makefile)
for gpu in $gpus; do
    step "nvcc knows sm_$gpu" sh -c "$NVCC --list-gpu-code | grep -qx sm_$gpu"
done
for file in cuda/*.cu; do
    step "$file, a word of nvcc" silent "$file"
    step "$file, a float atomic" no_float_atomics
    for gpu in $gpus; do
        case $file in
        cuda/corr* | cuda/dropout.cu | cuda/pool_close.cu)
            step "$file, a spill on sm_$gpu" no_spills "$file" "$gpu"
            ;;
        cuda/tile* | cuda/few.cu | cuda/entrance.cu | cuda/gateway.cu | \
            cuda/exit*.cu | cuda/twin.cu)
            step "$file, a spill on sm_$gpu" no_spills "$file" "$gpu"
            step "$file, registers on sm_$gpu" registers 128
            ;;
        *) [ -z "${SEG_SOAK:-}" ] ||
            step "$file for sm_$gpu" compiles "$file" "$gpu" ;;
        esac
    done
done
# the search finds one where there is one
cat > "$tmp/bad.cu" << 'END'
__global__ void f(float *x) { atomicAdd(x, 1.0f); }
END
step "an atomic, compiled" silent "$tmp/bad.cu"
found() { ! no_float_atomics; }
step "an atomic, found" found
cat > "$tmp/spill.cu" << 'END'
__global__ void __launch_bounds__(1024, 2) f(float *x, int n)
{
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i + 7) % 64] + 1;
    for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = v[i];
}
END
spilled() { ! no_spills "$tmp/spill.cu" 80 && grep -q 'bytes spill' "$tmp/said"; }
step "a spill, found" spilled
crowded() { registers 255 && ! registers 8; }
step "registers are counted" crowded
finish
