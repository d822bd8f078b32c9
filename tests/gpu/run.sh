#!/bin/sh
# run.sh -- all tests and measurements that need a GPU, in one report.
#
#     sh tests/gpu/run.sh [PART ...]      in a checkout, or in the kit of
#                                         `make kit`; all parts by default
#
# Needs make, g++ and nvcc, unless BUILD has the programs without make's file
# `settings`: these are run as they are. PyTorch for the comparison. Parts, in their
# order:
#
#     build        the program without DICOM, for this machine's GPU
#     program      every operator on the CPU, to see that the build works
#     plan         the launch plan of a training step
#     primitives   each primitive of cuda/lib/ptx.cuh against known results
#     check        every operator on the GPU, in every precision
#     recipe:NAME  the check of recipe NAME on the GPU; one part each
#     sanitizer:TOOL:OP   memcheck, racecheck or initcheck of a share of the cases of
#                  an operator; one part each, `sanitizer` for all. One that does
#                  not end in SANITIZER seconds (60) is no finding
#     train        the demo twice: the same bits
#     losses       20 epochs in bf16 end within 1 % of f32; bf16 twice: the same bits
#     ranks        the demo on two GPUs, by NCCL and through the host, against one;
#                  needs two GPUs
#     rates        bandwidth and matrix rates of this GPU
#     overlap      steps of brain_unet with and without dependent launches, by turns
#     functions    a chain of functions of elements, in one program and each a call;
#                  in PyTorch, eager and compiled
#     trace:NAME   a whole step of recipe NAME, kernel by kernel, as a file for
#                  ui.perfetto.dev; in BUILD/trace, and beside REPORT if that is set
#     sweep        each convolution of two networks with each tile, and in PyTorch;
#     sweep_tile   the same without Hopper's kernels
#     bench:NAME   training steps and inferences of network NAME compared with
#                  PyTorch; one part each, `bench` for all
#
# The report ends with the table "Open on hardware" of docs/benchmarks.md, its column
# `now` filled from this run.
#
# Each part has LIMIT seconds (300). A part that cannot run prints the reason and
# does not fail; a wrong result, or a part that exceeds its time, fails. The report
# is written to REPORT, by default tests/gpu/reports/DATE-GPU.md; the exit code
# covers the parts before rates. BUILD, NVCC, PYTHON, JOBS select folder and tools.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/gpu} LIMIT=${LIMIT:-300} PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
SANITIZER=${SANITIZER:-60}
export BUILD LIMIT PYTHON JOBS NVCC SANITIZER
program=$BUILD/segengine
recipes=
for file in scripts/*.lua; do
    grep -q '^seg\.recipe {' "$file" || continue
    recipes="$recipes recipe:$(basename "$file" .lua)"
done
traces=" trace:brain_unet trace:openkbp_unet3d trace:sequence_cnn_lstm"
# the networks of tests/gpu/peer.py: headpose_cnn has two
benches="bench:brain_unet bench:openkbp_unet3d bench:sequence_cnn_lstm bench:headpose_cnn"
benches="$benches bench:headpose_resnet18 bench:hippocampus_unet3d bench:nfbs_unet"
sanitizers=
for tool in memcheck racecheck initcheck; do
    for op in relu maxpool bce_dice dice_loss batch_norm lstm linear upconv conv; do
        sanitizers="$sanitizers sanitizer:$tool:$op"
    done
done
parts="build program plan primitives check$recipes$sanitizers train losses ranks rates overlap functions$traces sweep sweep_tile $benches"
# CUDA numbers the GPUs in the order of nvidia-smi
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# == the parts, each a function in a process of its own =====================

# not_run WHY: ends a part
not_run() {
    echo "not run: $*"
    exit 77
}

# first_line COMMAND ...: the first line of its output, empty if it is not installed
first_line() { "$@" 2> /dev/null | head -n 1; }
# smi FIELD: a field of nvidia-smi for CUDA's first GPU
smi() {
    first_line nvidia-smi --id="$(echo "${CUDA_VISIBLE_DEVICES:-0}" | cut -d, -f1)" \
        --query-gpu="$1" --format=csv,noheader
}

# doctor's line about the GPU: ok, or the reason why there is none
gpu_line() { "$program" doctor | sed -n 's/^GPU  *//p'; }

want_gpu() {
    [ -x "$program" ] || not_run "the program was not built"
    gpu=$(gpu_line)
    case $gpu in
    ok*) ;;
    *) not_run "$(echo "$gpu" | sed -e 's/^[-A-Z]* *none: //' \
        -e 's/; training runs.*//')" ;;
    esac
}

part_build() {
    if [ -x "$program" ] && [ ! -e "$BUILD/settings" ]; then
        echo "$BUILD: built elsewhere"
        "$program" --version
        return
    fi
    [ -x "$NVCC" ] || not_run "there is no nvcc"
    # a GPU newer than this nvcc runs the PTX of compute capability 8.0
    own=$(smi compute_cap | tr -d .)
    make -j"$JOBS" BUILD="$BUILD" DICOM=0 TIFF=0 NVCC="$NVCC" \
        GPUS="80 ${own:-90}" CU_LINES=-lineinfo gpu && "$program" --version
}

part_program() {
    [ -x "$program" ] || not_run "the program was not built"
    "$program" check --device cpu
}

part_plan() {
    [ -x "$program" ] || not_run "the program was not built"
    "$program" scripts/brain_unet.lua plan --device cuda --gpu h200
}

part_primitives() {
    want_gpu
    "$BUILD/tests/gpu/prims" || return 1
    case $(smi compute_cap) in
    9.0) "$BUILD/tests/gpu/prims_sm90" ;;
    esac
}

# at_precisions COMMAND ...: runs it as given, then in each other precision
at_precisions() {
    "$@" --device cuda || return 1
    for precision in tf32 bf16 f16; do
        "$@" --device cuda --precision "$precision" > "$BUILD/said" 2>&1
        status=$?
        if [ "$status" -eq 2 ]; then
            echo "precision $precision: not available"
            cat "$BUILD/said"
            continue
        fi
        echo "precision $precision:"
        cat "$BUILD/said"
        [ "$status" -eq 0 ] || return 1
    done
}

part_check() {
    want_gpu
    "$program" check --device cuda # in every precision
}

part_recipe() {
    want_gpu
    at_precisions "$program" "scripts/$1.lua" check
}

# part_sanitizer TOOL:OP. A tool makes a kernel 10 to 1000 times as slow
part_sanitizer() {
    want_gpu
    tool=$(command -v compute-sanitizer ||
        ls "$(dirname "$NVCC")/compute-sanitizer" 2> /dev/null)
    [ -n "$tool" ] || not_run "there is no compute-sanitizer"
    op=${1#*:}
    case $op in
    conv | upconv | linear) share=1/20 ;;
    batch_norm | lstm) share=1/6 ;;
    *) share=1/2 ;;
    esac
    timeout "$SANITIZER" "$tool" --tool "${1%%:*}" --error-exitcode 9 \
        "$program" check --device cuda --op "$op" --share "$share"
    status=$?
    [ "$status" -ne 124 ] || not_run "share $share of $op did not end in $SANITIZER s"
    return "$status"
}

part_train() {
    want_gpu
    rm -rf "$BUILD/train"
    for run in a b; do
        "$program" scripts/brain_unet.lua --preset demo --device cuda \
            --phantom "$BUILD/train/phantom" --out "$BUILD/train/$run" ||
            return 1
    done
    for name in last best; do
        cmp "$BUILD/train/a/brain_unet/001/checkpoint_$name.safetensors" \
            "$BUILD/train/b/brain_unet/001/checkpoint_$name.safetensors" ||
            return 1
    done
    echo "two runs: the same bits"
}

# the preset for a first run, on synthetic patients
part_losses() {
    want_gpu
    rm -rf "$BUILD/losses"
    for run in f32 bf16 again:bf16; do
        "$program" scripts/brain_unet.lua --preset quick --epochs 20 --t_max 20 \
            --device cuda --precision "${run#*:}" --phantom "$BUILD/losses/phantom" \
            --out "$BUILD/losses/${run%:*}" || return 1
        tail -n 1 "$BUILD/losses/${run%:*}/brain_unet/001/metrics.csv" |
            cut -d, -f4 > "$BUILD/losses/${run%:*}.loss"
    done
    cmp "$BUILD/losses/bf16/brain_unet/001/checkpoint_last.safetensors" \
        "$BUILD/losses/again/brain_unet/001/checkpoint_last.safetensors" || return 1
    echo "two runs in bf16: the same bits"
    paste "$BUILD/losses/f32.loss" "$BUILD/losses/bf16.loss" | awk '{
        d = $1 - $2; if (d < 0) d = -d
        printf "loss after 20 epochs: f32 %s, bf16 %s, off by %.2f %%\n", $1, $2, 100 * d / $1
        exit !($1 > 0 && d <= 1e-2 * $1) }'
}

# losses of one GPU and of two, which differ in the order of sums
part_ranks() {
    want_gpu
    "$program" doctor | grep -q '^GPU 1 ' || not_run "there is one GPU, and it wants two"
    # the NCCL of a PyTorch from PyPI is outside the loader's search path
    : "${SEGENGINE_NCCL:=$("$PYTHON" -c 'import nvidia.nccl as n; print(n.__path__[0])' \
        2> /dev/null)/lib/libnccl.so.2}"
    [ ! -e "$SEGENGINE_NCCL" ] || export SEGENGINE_NCCL
    rm -rf "$BUILD/ranks"
    for run in one:0 host:0,1 nccl:0,1; do
        name=${run%:*}
        allreduce=$name
        [ "$name" != one ] || allreduce=auto
        "$program" scripts/brain_unet.lua --preset demo --device cuda \
            --devices "${run#*:}" --allreduce "$allreduce" --workers 1 \
            --phantom "$BUILD/train/phantom" --out "$BUILD/ranks/$name" > "$BUILD/said" 2>&1
        status=$?
        cat "$BUILD/said"
        grep -q 'allreduce nccl: rank .*NCCL was not found' "$BUILD/said" && {
            echo "through the host alone: there is no NCCL"
            continue
        }
        [ "$status" -eq 0 ] || return 1
        # the first epoch's loss: rounding makes later losses diverge
        cut -d, -f4 "$BUILD/ranks/$name/brain_unet/001/metrics.csv" | sed -n 2p \
            > "$BUILD/ranks/$name.loss"
        paste "$BUILD/ranks/one.loss" "$BUILD/ranks/$name.loss" | awk '{
            d = $1 - $2; if (d < 0) d = -d
            print "loss of the first epoch: " $1 ", one GPU, and " $2
            exit !(d <= 1e-2 * $1) }' || return 1
    done
    "$program" scripts/brain_unet.lua bench --device cuda --devices 0,1
}

part_rates() {
    want_gpu
    "$BUILD/tests/gpu/rates"
}

# dependent launches (LAUNCH_DEPENDENT of cuda/lib/gpu.h) run on Hopper GPUs only
part_overlap() {
    want_gpu
    for round in 1 2 3; do
        for on in 1 0; do
            ms=$(SEG_OVERLAP=$on "$program" scripts/brain_unet.lua bench --device cuda \
                --preset full --batch 16 --precision bf16 |
                sed -n 's/^training step.*: \([0-9.]* ms\).*/\1/p')
            [ -n "$ms" ] || return 1
            echo "round $round, SEG_OVERLAP=$on: $ms"
        done
    done
}

part_functions() {
    want_gpu
    "$program" tests/bench/functions.lua --device cuda || return 1
    ! "$PYTHON" -c 'import torch' 2> /dev/null ||
        "$PYTHON" tests/pytorch/functions.py --device cuda
}

# shapes_of RECIPE BATCH: writes the convolutions of the program's plan
shapes_of() {
    "$program" "scripts/$1.lua" plan --json --device cpu --preset full \
        --batch "$2" > "$BUILD/sweep/$1.json"
}

# takes seconds on a large GPU; the limits are for a small one
part_sweep() {
    want_gpu
    mkdir -p "$BUILD/sweep"
    shapes_of brain_unet 16 && shapes_of openkbp_unet3d 2 || return 1
    rate=$("$BUILD/tests/gpu/rates" | awk '/^bf16, tensor/ { print $4 }')
    "$BUILD/tests/gpu/sweep" --seconds $((LIMIT * 2 / 5)) \
        "$BUILD"/sweep/*.json > "$BUILD/sweep/lines" || return 1
    if command -v "$PYTHON" > /dev/null; then
        "$PYTHON" tests/gpu/sweep.py "$BUILD/sweep/lines" \
            --rate "${rate:-0}" --seconds $((LIMIT * 2 / 5))
    else
        cat "$BUILD/sweep/lines" # no table: print its data
    fi
}

part_sweep_tile() {
    SEG_HOPPER=0
    export SEG_HOPPER
    part_sweep
}

part_trace() {
    want_gpu
    mkdir -p "$BUILD/trace"
    case $1 in
    brain_unet) set -- "$1" --batch 16 ;;
    openkbp_unet3d) set -- "$1" --batch 2 ;;
    *) set -- "$1" --batch 64 --learn supervised ;;
    esac
    name=$1
    shift
    "$program" "scripts/$name.lua" bench --device cuda --preset full --precision bf16 \
        --trace "$BUILD/trace/trace.$name.json" "$@" || return 1
    [ -n "${REPORT:-}" ] || return 0
    mkdir -p "$(dirname "$REPORT")" && cp "$BUILD/trace/trace.$name.json" "$(dirname "$REPORT")/"
}

part_bench() {
    want_gpu
    "$PYTHON" -c 'import torch' 2> /dev/null ||
        not_run "$PYTHON has no PyTorch (PYTHON= names another)"
    "$PYTHON" tests/gpu/peer.py --program "$program" --only "$1" --seconds $((LIMIT - 20))
}

if [ "${1:-}" = --part ]; then
    case $2 in
    recipe:* | bench:* | sanitizer:* | trace:*) "part_${2%%:*}" "${2#*:}" ;;
    *) "part_$2" ;;
    esac
    exit
fi

# == one after the other, and the report ====================================

asked="sh tests/gpu/run.sh${*:+ $*}"
[ $# -gt 0 ] || eval "set -- $parts"
for part; do
    shift
    case $part in
    bench) part=$benches ;;
    trace) part=$traces ;;
    recipe) part=$recipes ;;
    sanitizer) part=$sanitizers ;;
    esac
    # shellcheck disable=SC2086  # these stand for several parts
    set -- "$@" $part
done
for part; do
    case " $parts " in
    *" $part "*) ;;
    *) echo "run.sh: no such part: $part; there are: $parts" >&2; exit 2 ;;
    esac
done
logs=$BUILD/log
mkdir -p "$logs" || exit 1
failed=0
: > "$logs/table"
for part; do
    log=$logs/$part
    began=$(date +%s)
    timeout -k 10 "$LIMIT" sh tests/gpu/run.sh --part "$part" > "$log" 2>&1 < /dev/null
    status=$?
    took=$(($(date +%s) - began))
    case $status in
    0) said=ok ;;
    77) said=$(tail -n 1 "$log") ;;
    124 | 137) said="FAILED: not done after $LIMIT s" ;;
    *) said="FAILED: status $status" ;;
    esac
    case $part:$said in
    rates:* | sweep:* | sweep_tile:* | trace:* | bench:*) ;;
    *FAILED*) failed=1 ;;
    esac
    echo "| $part | $said | $took |" >> "$logs/table"
    printf '%-30s %4d s  %s\n' "$part" "$took" "$said"
    case $said in FAILED*) tail -n 40 "$log" | sed 's/^/    /' ;; esac
done

gpu=$(smi name)
name=$(echo "${gpu:-no-gpu}" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
report=${REPORT:-tests/gpu/reports/$(date +%F)-$name.md}
mkdir -p "$(dirname "$report")" || exit 1
commit=$(first_line cat commit)
[ -n "$commit" ] || commit=$(first_line git describe --always --dirty)

# section NAME LINES: the last lines of a part's output
section() {
    [ -s "$logs/$1" ] && grep -q "^| $1 | [^n]" "$logs/table" || return
    printf '\n## %s\n\n```\n' "$1"
    tail -n "$2" "$logs/$1"
    printf '```\n'
}

# now PART: its figure in this run. A row of a bench, "bench:NAME BATCH PRECISION MODE",
# has milliseconds, the ratio to the fastest variant of PyTorch, and MB; any other part
# has its result
now() {
    log=$logs/${1%% *}
    [ -s "$log" ] || return
    case $1 in
    *" "*)
        awk -F ' *[|] *' -v row="${1#bench:}" '
            $2 " " $3 " " $4 " " $5 == row { printf "%s ms, %s times, %s MB", $10, $11, $13 }' "$log"
        ;;
    *) awk -F ' *[|] *' -v part="$1" '$2 == part { printf "%s", $3 }' "$logs/table" ;;
    esac
}

# the rows of the table in docs/benchmarks.md: figure, wanted, last measured, part
open_on_hardware() {
    printf '\n## Open on hardware\n\n| figure | wanted | last measured | now |\n|---|---|---|---|\n'
    # shellcheck disable=SC2016  # the backquotes are of Markdown
    sed -n '/^### Open on hardware/,/^##* [^O]/p' docs/benchmarks.md | grep '`[^`]*` |$' |
        while IFS='|' read -r _ figure wanted last part _; do
            part=$(echo "$part" | tr -d '`' | sed -e 's/^ *//' -e 's/ *$//')
            echo "|$figure|$wanted|$last| $(now "$part") |"
        done
}

{
    echo "# ${gpu:-No GPU}, $(date +%F)"
    echo
    echo "\`$asked\` of segengine ${commit:-of unknown commit}."
    echo
    echo "| | |"
    echo "|---|---|"
    if [ -n "$gpu" ]; then
        echo "| GPU | $gpu, $(smi memory.total), capability $(smi compute_cap) |"
        echo "| driver | $(smi driver_version) |"
        echo "| clocks | $(smi clocks.max.sm), memory $(smi clocks.max.mem), limit $(smi power.limit) |"
    fi
    echo "| nvcc | $("$NVCC" --version 2> /dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p') |"
    echo "| compiler | $(first_line g++ --version) |"
    echo "| kernel | $(uname -sr) |"
    echo "| processor | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) threads |"
    echo "| PyTorch | $("$PYTHON" -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())' 2> /dev/null || echo none) |"
    echo
    echo "| part | result | seconds |"
    echo "|---|---|---|"
    cat "$logs/table"
    section rates 20
    section overlap 6
    section functions 6
    section sweep 300
    section sweep_tile 300
    for part in $traces $benches; do section "$part" 60; done
    section plan 4
    section program 6
    section primitives 4
    section check 100
    for part in $recipes; do section "$part" 12; done
    section train 30
    section losses 6
    section ranks 30
    open_on_hardware
} > "$report"
echo "report: $report"
exit "$failed"
