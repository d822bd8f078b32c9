#!/bin/sh
# training.sh -- training on the emulated GPU, where steps are queued before the
# results of earlier steps are known: stopped, resumed, accumulated, diverging.
#
#     tests/cuda/training.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
. tests/cuda/runs

cat > "$tmp/tiny.lua" <<'END'
local seg = require "seg"
local nn, data, optim = seg.nn, seg.data, seg.optim
local cfg = seg.config { epochs = 2, batch = 4, seed = 7, accumulate = 1, lr = 0.01 }
local set = data.phantom { patients = 3, size = 16, slices = 48 }
local train, valid = set:split { valid = 1, seed = 3 }
local function prepare(s) return s:fit { h = 8, w = 8 }:normalize {}:slices {} end
local image = nn.input("image", { c = 1, h = 8, w = 8 })
local mask = nn.input("mask", { c = 1, h = 8, w = 8 })
local x = nn.dropout(nn.relu(nn.batch_norm(nn.conv(image, 8, 3))), 0.2)
local logits = nn.conv(x, 1, 1)
seg.recipe {
  inputs = { image, mask }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, mask),
  train = prepare(train):batches { size = cfg.batch, shuffle = true },
  valid = prepare(valid):batches { size = cfg.batch },
  optim = optim.adamw { lr = cfg.lr }, epochs = cfg.epochs, accumulate = cfg.accumulate,
}
END

weights() { echo "$tmp/$1/tiny/001/checkpoint_last.safetensors"; }
same() { cmp "$(weights "$1")" "$(weights "$2")"; }
# the metadata at the start of the checkpoint contain TEXT
holds() { head -c 20000 "$(weights "$1")" | grep -q -- "$2"; }

step "a run" train whole
step "whose streams run at once" with EMU_STREAMS=early train early
step "the same bytes" same whole early
step "whose streams run in any order" with EMU_STREAMS=r5 train mixed
step "the same bytes again" same whole mixed

# numbers of steps below, at and above the number of steps that are queued ahead
for steps in 1 5 9 13; do
    step "$steps steps" train "at$steps" --steps "$steps"
    step "stopped where told" says "at$steps" "stopped after $steps step"
    step "the rest" train "at$steps" --resume "$tmp/at$steps/tiny/001"
    step "the same bytes after $steps" same whole "at$steps"
done

# the last step of an epoch has fewer batches
step "three batches a step" train parts --accumulate 3
step "of them five steps" train some --accumulate 3 --steps 5
step "the rest of them" train some --accumulate 3 --resume "$tmp/some/tiny/001"
step "the same bytes of parts" same parts some

# less memory: some values are recomputed, and there is no device dataset
step "values computed twice" train twice --recompute 26K
step "are told" says twice "^recompute: "
step "the same bytes from less memory" same whole twice
step "a bound on all" train bound --vram 50K
step "keeps no samples" says bound "train: from the loader"
step "the same bytes within it" same whole bound
step "batch auto" train found --batch auto --vram 1M --epochs 1
step "is found" says found "^batch: 96, all samples of the training set"

# a resumed run continues with the saved loss scale
step "f16" train half --precision f16
step "has a scale" holds half '"loss_scale":"65536"'
step "and its count" holds half '"loss_scale_steps":"[1-9]'
step "f16, part" train scaled --precision f16 --steps 7
step "f16, rest" train scaled --precision f16 --resume "$tmp/scaled/tiny/001"
step "the same bytes of f16" same half scaled
step "f32 has none" not holds whole loss_scale

# tiles of convolutions (see tests/cuda/kernels/igemm_tiles.c): measured once, saved, or set
cp "$tmp/tiny.lua" "$tmp/narrow.lua"
sed 's/nn.conv(image, 8, 3)/nn.conv(nn.conv(image, 16, 3), 16, 3, { name = "wide" })/' \
    "$tmp/narrow.lua" > "$tmp/tiny.lua"
tiles_of() { sed -n 's/^tiles = //p' "$tmp/$1/tiny/001/config.txt"; }
found() {
    case $(grep "^autotune:" "$tmp/tuned.txt") in
    *"none is faster"* | *"not worth it") [ -z "$(tiles_of tuned)" ] ;;
    *) grep -q "^autotune: .*: $(tiles_of tuned)$" "$tmp/tuned.txt" ;;
    esac
}
# one of three convolutions has tiles; its sums are too short for split-K
had() { case $(tiles_of tuned) in *,* | *split*) false ;; '' | wide=*) ;; *) false ;; esac; }
told() { [ "$(tiles_of "$1")" = wide=64x64/128x32 ]; }
step "tiles are measured" train tuned --precision bf16 --autotune
step "each of them" says tuned "^autotune: 3 convolutions measured with 8 tiles"
step "and what is found is kept" found
step "are tiles that it can have" had
step "tiles are told" train told --precision bf16 --tiles wide=64x64/128x32
step "and kept" told told
step "stopped" train cut --precision bf16 --tiles wide=64x64/128x32 --steps 5
step "and resumed" train cut --resume "$tmp/cut/tiny/001"
step "they are as told" told cut
step "with the same bytes" same told cut
step "measured no more" train cut --resume "$tmp/cut/tiny/001" --epochs 3 --autotune
step "as it says" says cut "^autotune: a resumed run keeps its tiles"
step "a tile that is none" ends 2 train none --precision bf16 --tiles wide=9x9/-
step "is named, with all" says none 'wide: cuda has no tile "9x9"; known: 128x128, .*-split'
step "f32 has no choice" train f32 --autotune --steps 1
step "as it says" says f32 "^autotune: nothing to choose on cuda in f32"
mv "$tmp/narrow.lua" "$tmp/tiny.lua"

# averages, accumulation and phases, interrupted and resumed in bf16 and f16
step "cuts in halves" env PROGRAM="$program" SEG_TEST_DEVICE=cuda \
    sh tests/shell/resume_training.sh

# the results of queued steps are collected before the program ends
interrupted() {
    "$program" "$tmp/tiny.lua" --device cuda --phantom "$tmp/phantom" \
        --out "$tmp/stopped" --epochs 400 > "$tmp/stopped.txt" 2>&1 &
    for _ in $(seq 200); do
        sleep 0.05
        grep -q "^epoch 2/" "$tmp/stopped.txt" && break
    done
    kill -TERM $!
    wait $!
}
step "SIGTERM" ends 143 interrupted
step "is said" says stopped "SIGTERM: saved at epoch"

# a rate at which training diverges
step "diverges" ends 5 train far --lr 1e30
step "names batch and node" says far "first not finite: .*tiny.lua:[0-9]"
step "ends after three" says far "3 steps in a row"
finish
