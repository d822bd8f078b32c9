#!/bin/sh
# cuda_ptx.sh -- checks of the PTX and the compiler messages of the kernels.
#
# A sum that depends on the order of threads would be a float atomic: the PTX of no kernel
# may contain one. (Integers may be added in any order.) A kernel that spills its
# accumulators to local memory is several times slower, and no other test would notice.
# And the compilers must print no warnings.
#
# A build with CI=1 has kept PTX and messages next to its objects ($BUILD/cuda/*.kept);
# missing ones are compiled here.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$NVCC" > /dev/null || skip "there is no nvcc"

# the architectures of every run, and in a soak all that GPUS=all builds
all='75 80 90'
[ -z "${SEG_SOAK:-}" ] || all=$(sed -n 's/^GPUS_ALL := //p' Makefile)
# of_file FILE: sets $gpus and $codes, the options of nvcc, as the Makefile does
of_file() {
    case $1 in
    *sm90*) gpus=90a ;;
    *_bf16.cu | *_tf32.cu) gpus=${all#75 } ;;
    *) gpus=$all ;;
    esac
    codes=
    for gpu in $gpus; do
        case $gpu in
        75 | 90a) from=$gpu ;;
        *) from=80 ;;
        esac
        codes="$codes -gencode arch=compute_$from,code=sm_$gpu"
    done
}
kept= # the folder with compiler messages and PTX of a file

# built FILE: $kept is newer than the source and its headers, and has all architectures
built() {
    of_file "$1"
    kept=$BUILD/${1%.cu}.kept
    ls "$kept"/*.ptx > /dev/null 2>&1 || return 1
    for gpu in $gpus; do
        ! grep -q 'Compiling entry' "$kept/said" ||
            grep -q "for 'sm_$gpu'" "$kept/said" || return 1
    done
    # newer than the messages, not than the object: a make without CI=1 makes a new object
    # and leaves the kept files
    # shellcheck disable=SC2046  # split on purpose: names of files
    [ -z "$(find $(sed 's/^[^:]*://; s/\\$//' "$BUILD/${1%.cu}.d") \
        -newer "$kept/said")" ]
}
# compiled FILE: fills $kept
compiled() {
    ! built "$1" || return 0
    kept=$tmp/kept
    rm -rf "$kept" && mkdir "$kept" || return 1
    # shellcheck disable=SC2086 # several options
    "$NVCC" -std=c++17 -O3 -fmad=false -I. -DSEG_CUDA -DSEG_SM90 \
        $codes -Xptxas -v --keep --keep-dir "$kept" -fatbin -o "$tmp/fatbin" "$1" > "$kept/said" 2>&1
}
# no messages but ptxas's resource usage of each kernel
silent() {
    ! grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame' "$kept/said"
}
no_float_atomics() {
    ls "$kept"/*.ptx > /dev/null &&
        ! grep -nE '\b(atom|red)(\.[a-z_]+)*\.(f16|f16x2|bf16|bf16x2|f32|f64)' \
            "$kept"/*.ptx
}
# the messages of ptxas, each with architecture and kernel in front
said_of() {
    awk '/Compiling entry function/ { of = $NF " " $(NF - 2) } { print of ": " $0 }' \
        "$kept/said"
}
# gpu_allows gives a block all shared memory of the GPU as dynamic memory, which leaves none
# for static arrays
dynamic='igemm_tile_kernel|igemm_sm90_kernel|wgrad_sm90_kernel|wgrad_tile_kernel|dgrad_wgrad_kernel'
dynamic="$dynamic|small_cin_kernel|upconv_head_[a-z]*_kernel|lstm_[a-z]*wd_kernel|planted_kernel"
no_static_memory() {
    ! said_of | grep -E "($dynamic).*bytes smem"
}
no_spills() {
    [ "$(grep -c 'bytes spill stores' "$kept/said")" -ge \
        "$(grep -c 'Compiling entry' "$kept/said")" ] &&
        ! said_of | grep -E '[1-9][0-9]* bytes spill'
}
# registers MOST: the limit of a thread
registers() {
    ! said_of | grep -E 'Used [0-9]+ registers' |
        awk -v most="$1" '{
            for (i = 1; i < NF; i++)
                if ($i == "Used" && $(i + 1) > most) { print; found = 1 }
        } END { exit !found }'
}

for gpu in $all; do
    step "nvcc knows sm_$gpu" sh -c "$NVCC --list-gpu-code | grep -qx sm_$gpu"
done
for file in cuda/*/*.cu; do
    step "$file, compiled" compiled "$file"
    step "$file, a word of the compilers" silent
    step "$file, a float atomic" no_float_atomics
    step "$file, a spill" no_spills
    step "$file, static shared memory" no_static_memory
    case $file in
    cuda/conv/igemm_tile* | cuda/conv/head.cu | cuda/conv/first.cu | \
        cuda/conv/small_cin.cu | cuda/conv/upconv_head* | cuda/conv/dgrad_wgrad.cu)
        step "$file, registers" registers 128
        ;;
    esac
done
# the search finds a planted float atomic
cat > "$tmp/bad.cu" << 'END'
__global__ void f(float *x) { atomicAdd(x, 1.0f); }
END
step "an atomic, compiled" compiled "$tmp/bad.cu"
found() { ! no_float_atomics; }
step "an atomic, found" found
cat > "$tmp/spill.cu" << 'END'
__global__ void __launch_bounds__(1024, 2) f(float *x, int n)
{
    float v[64], unused;
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i + 7) % 64] + 1;
    for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = v[i];
}
END
step "a spill, compiled" compiled "$tmp/spill.cu"
spilled() { ! no_spills > "$tmp/found" && grep -q 'sm_80.*bytes spill' "$tmp/found"; }
step "a spill, found" spilled
told() { ! silent > "$tmp/found" && grep -q '"unused"' "$tmp/found"; }
step "a word, found" told
cat > "$tmp/static.cu" << 'END'
__global__ void planted_kernel(float *x)
{
    __shared__ float v[64];
    v[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = v[63 - threadIdx.x];
}
END
step "static shared memory, compiled" compiled "$tmp/static.cu"
not_alone() { ! no_static_memory > "$tmp/found" && grep -q 'sm_80.*256 bytes smem' "$tmp/found"; }
step "static shared memory, found" not_alone
crowded() { registers 255 && ! registers 8; }
step "registers are counted" crowded
finish
