#!/bin/sh
# kit.sh -- the archive for a machine with a GPU, and its run.sh without one.
#
# `tests/chroot kit` tests it completely, in a bare system with nvcc. Here a script
# replaces the program, so that every outcome of a part is tested.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
command -v git > /dev/null || skip "git is not installed (sh vendor/fetch ci)"
git rev-parse --git-dir > /dev/null 2>&1 || skip "this is not a checkout"

step "make kit" vendor/kit segengine-kit "$tmp"
tar -xzf "$tmp/segengine-kit.tar.gz" -C "$tmp" || exit 1
kit=$tmp/segengine-kit
for file in Makefile tests/gpu/run.sh tests/gpu/sweep.py tests/cuda/emulator/prims.cu \
    tests/cuda/build.mk tests/pytorch/unet_torch.py scripts/brain_unet.lua commit \
    vendor/prefix/licenses/zlib1g-dev; do
    step "the kit has $file" test -s "$kit/$file"
done
for file in liblua5.4.a libz.a; do
    step "the kit has $file" test -s "$kit/vendor/prefix/usr/lib/$file"
done
step "checksums" sh -c "cd $kit && sha256sum --quiet -c SHA256SUMS"

# run PART ...: run.sh in the kit with the program below; its exit code
run() {
    (cd "$kit" && BUILD=$tmp/build NVCC=/nowhere/nvcc SANITIZER=1 PATH=$tmp/tools:$PATH \
        PYTHON=${python:-/nowhere/python} LIMIT=${limit:-20} REPORT=$tmp/report sh tests/gpu/run.sh "$@") \
        > "$tmp/said" 2>&1
}
# code WANT PART ...
code() {
    want=$1
    shift
    run "$@"
    got=$?
    cat "$tmp/said"
    [ "$got" -eq "$want" ]
}
says() { grep -F "$1" "$tmp/report"; }
# program BODY: the script that replaces segengine
program() {
    mkdir -p "$tmp/build"
    printf '#!/bin/sh\n%s\n' "$1" > "$tmp/build/segengine"
    chmod +x "$tmp/build/segengine"
}
# shellcheck disable=SC2016  # for the shell of that script
no_gpu='case $1 in doctor) echo "GPU        -   none: no such thing; training runs on the CPU"; exit ;; esac'
# shellcheck disable=SC2016
gpu='case $1 in doctor) echo "GPU        ok  one"; exit ;; esac'

step "no such part" code 2 chek
step "no nvcc, no program: nothing runs, nothing is wrong" code 0
step "why the build did not run" says '| build | not run: there is no nvcc |'
step "why the check did not" says '| check | not run: the program was not built |'
program "$no_gpu"
step "a program from another machine" code 0 build
step "needs no nvcc" says '| build | ok |'
step "no GPU" code 0 program check rates bench
step "the program's reason" says '| check | not run: no such thing |'
step "a part that passes" says '| program | ok |'
program "$no_gpu; echo 3 wrong; exit 1"
step "a wrong result" code 1 program
step "is in the report" says '| program | FAILED: status 1 |'
step "with what was said" says '3 wrong'
program "$no_gpu; sleep 30"
limit=1
step "no end" code 1 program
step "is in the report too" says '| program | FAILED: not done after 1 s |'
limit=
program "$gpu; case \$* in *f16*) exit 2 ;; esac; echo \"ran \$*\""
step "on a GPU" code 0 check recipe:brain_unet bench
step "every operator" says 'ran check --device cuda'
step "other precisions" says \
    'ran scripts/brain_unet.lua check --device cuda --precision tf32'
step "one that is not there" says 'precision bf16: not available'
step "a recipe" says 'ran scripts/brain_unet.lua check --device cuda'
# sanitizer BODY: a script that replaces compute-sanitizer, in the PATH
sanitizer() {
    mkdir -p "$tmp/tools"
    printf '#!/bin/sh\n%s\n' "$1" > "$tmp/tools/compute-sanitizer"
    chmod +x "$tmp/tools/compute-sanitizer"
    code "$2" sanitizer:racecheck:conv
}
# shellcheck disable=SC2016  # for the shell of that script
step "a sanitizer" sanitizer 'echo "$@"; exit 0' 0
step "runs a share of the cases" grep -q -- \
    '--tool racecheck .* check --device cuda --op conv --share 1/20' "$tmp/build/log/sanitizer:racecheck:conv"
step "one that finds something" sanitizer 'exit 9' 1
step "fails" says '| sanitizer:racecheck:conv | FAILED: status 9 |'
step "one that does not end" sanitizer 'sleep 20' 0
step "finds nothing" says \
    '| sanitizer:racecheck:conv | not run: share 1/20 of conv did not end in 1 s |'
# losses LOSS: a program with this last loss in bf16, and 0.5 in f32
losses() {
    # shellcheck disable=SC2016  # for the shell of that script
    program "$gpu"'
while [ $# -gt 1 ]; do
    case $1 in --out) out=$2/brain_unet/001 ;; --precision) precision=$2 ;; esac
    shift
done
mkdir -p "$out"
echo "$precision" > "$out/checkpoint_last.safetensors"
case $precision in f32) loss=0.5 ;; *) loss='"$1"' ;; esac
printf "epoch,step,lr,train_loss\n1,9,1,0.9\n20,99,1,$loss\n" > "$out/metrics.csv"'
}
# shellcheck disable=SC2016  # for the shell of that script
program "$gpu"'; echo "training step, batch 16: 5.$SEG_OVERLAP ms (median of 5), 9 samples/s"'
step "steps with dependent launches" code 0 overlap
step "and without" says 'round 3, SEG_OVERLAP=0: 5.0 ms'
program "$gpu; exit 1"
step "a step that fails" code 1 overlap
# shellcheck disable=SC2016  # for the shell of that script
program "$gpu"'; echo "joined on $3"'
step "a chain of functions" code 0 functions
step "its times" says 'joined on cuda'
program "$gpu; exit 1"
step "a chain that fails" code 1 functions
losses 0.503
step "bf16 near f32" code 0 losses
step "how near" says 'f32 0.5, bf16 0.503, off by 0.60 %'
losses 0.52
step "not near" code 1 losses
program "$gpu; echo \"ran \$*\""
# with scripts in place of the timing programs, the table has their lines
mkdir -p "$tmp/build/tests/gpu"
cat > "$tmp/build/tests/gpu/rates" << 'END'
#!/bin/sh
echo "bf16, tensor cores          500.0 TFLOP/s"
END
cat > "$tmp/build/tests/gpu/sweep" << 'END'
#!/bin/sh
echo '{"net": "a", "layer": "b", "not_run": "no time left"}'
echo "asked: $* SEG_HOPPER=${SEG_HOPPER:-}" >&2
END
chmod +x "$tmp"/build/tests/gpu/*
step "a sweep without Python: its lines" code 0 sweep
step "are in the report" says '"not_run": "no time left"'
step "of both networks" says 'sweep/brain_unet.json'
step "the same without Hopper's kernels" code 0 sweep_tile
step "says so" says 'SEG_HOPPER=0'
python=$(command -v python3)
if [ -n "$python" ]; then
    step "with Python" code 0 sweep
    step "a table, shares of the rate that was measured" says '| of 500 |'
    step "and what is missing" says 'a b: not run: no time left'
fi
# a python that has PyTorch, and a line of peer.py
cat > "$tmp/python" << 'END'
#!/bin/sh
[ "$1" != -c ] || exit 0
echo "| brain_unet | 16 | bf16 | train | 9.50 | 8.50 | 7.50 | 6.40 | 4.00 | 1.60 | 4000 | 900 | 1911 |"
END
chmod +x "$tmp/python"
python=$tmp/python
step "a bench" code 0 bench:brain_unet
step "fills the figures open on hardware" says '| 4.00 ms, 1.60 times, 900 MB |'
python=
run bench
for name in brain_unet openkbp_unet3d sequence_cnn_lstm headpose_cnn headpose_resnet18 \
    hippocampus_unet3d nfbs_unet; do
    step "no PyTorch: $name" says "| bench:$name | not run: /nowhere/python has no PyTorch"
done
# started in another folder, on the GPU that CUDA lists first
elsewhere() {
    mkdir -p "$tmp/bin"
    cat > "$tmp/bin/nvidia-smi" << 'END'
#!/bin/sh
[ "$1" = --id=1 ] && case $2 in *=name) echo "The second" ;; *) echo "? $CUDA_DEVICE_ORDER" ;; esac
END
    chmod +x "$tmp/bin/nvidia-smi"
    (cd "$kit/tests" && CUDA_VISIBLE_DEVICES=1,0 PATH=$tmp/bin:$PATH BUILD=$tmp/build \
        LIMIT=20 REPORT=$tmp/report sh gpu/run.sh check)
}
step "started elsewhere" elsewhere
step "a part runs there" says '| check | ok |'
step "which GPU" says '| GPU | The second, ? PCI_BUS_ID'
finish
