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
no_spills() {
    compile -gencode arch=compute_80,code=sm_80 -Xptxas -v -cubin \
        -o "$tmp/cubin" "$1" > "$tmp/said" 2>&1 || return 1
    cat "$tmp/said"
    grep -q 'bytes spill stores' "$tmp/said" &&
        ! grep -E '[1-9][0-9]* bytes spill' "$tmp/said"
}

for file in cuda/*.cu; do
    step "$file, a word of nvcc" silent "$file"
    step "$file, a float atomic" no_float_atomics
    case $file in
    cuda/corr*) step "$file, a spill" no_spills "$file" ;;
    esac
done
# the search finds one where there is one
cat > "$tmp/bad.cu" << 'END'
__global__ void f(float *x) { atomicAdd(x, 1.0f); }
END
step "an atomic, compiled" silent "$tmp/bad.cu"
found() { ! no_float_atomics; }
step "an atomic, found" found
finish
