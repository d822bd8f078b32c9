#!/bin/sh
# hopper.sh -- training on an emulated Hopper GPU, where kernels read weights through
# tensor maps: losses stay within 1 % of those of the other kernels after a checkpoint is
# loaded, averages are swapped in, weights are imported, a layer is frozen, and the
# memory of tensors moves.
#
#     tests/cuda/hopper.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
. tests/cuda/runs
export EMU_CC=90

cat > "$tmp/tiny.lua" <<'END'
local seg = require "seg"
local nn, data, optim, metric = seg.nn, seg.data, seg.optim, seg.metric
local cfg = seg.config { epochs = 2, averages = false, init = "", frozen = "" }
local set = data.phantom { patients = 2, size = 16, slices = 24 }
local train, valid = set:split { valid = 1, seed = 3 }
local function prepare(s, size)
  return s:fit { h = 16, w = 16 }:normalize {}:slices {}:batches { size = size }
end
-- the batches of validation need more memory than those of training
train, valid = prepare(train, 3), prepare(valid, 5)
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local mask = nn.input("mask", { c = 1, h = 16, w = 16 })
local h = nn.relu(nn.batch_norm(nn.conv(image, 64, 3, { name = "one" })))
h = nn.relu(nn.batch_norm(nn.conv(h, 64, 3, { name = "two" })))
local logits = nn.conv(h, 1, 1)
seg.recipe {
  inputs = { image, mask }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, mask), train = train, valid = valid,
  optim = optim.adamw { lr = 0.01 }, epochs = cfg.epochs,
  ema = cfg.averages and 0.9 or nil,
  init = cfg.init ~= "" and { weights = cfg.init } or nil,
  frozen = cfg.frozen ~= "" and { cfg.frozen } or nil,
  metrics = { dice = metric.dice(logits, mask, { empty = "one" }) }, best = { "dice", "max" },
}
END

# both NAME OPTION ...: a training with the kernels for Hopper, and one without
both() {
    name=$1
    shift
    train "$name" --precision bf16 "$@" || return 1
    with SEG_HOPPER=0 train "$name.other" --precision bf16 "$@"
}
# losses of training and validation, by epoch
losses() { cut -d, -f4,5 "$tmp/$1/tiny/001/metrics.csv" | tail -n +2 | tr '\n' ','; }
# near NAME: the losses of both differ by at most 1 %
near() {
    echo "$(losses "$1") and $(losses "$1.other")"
    echo "$(losses "$1")$(losses "$1.other")" | awk -F, '{
        n = (NF - 1) / 2
        for (i = 1; i <= n; i++) {
            d = $i - $(i + n)
            if ($i <= 0 || d > 0.01 * $i || -d > 0.01 * $i) exit 1
        }
        exit n < 2
    }'
}
last() { echo "$tmp/$1/tiny/001/checkpoint_last.safetensors"; }

step "a training" both plain
step "the losses of other kernels" near plain
step "its first epoch" train parts --precision bf16 --epochs 1
step "and the second, from the checkpoint" train parts --precision bf16 --resume "$tmp/parts/tiny/001" --epochs 2
step "the same losses" [ "$(losses plain)" = "$(losses parts)" ]
step "averages" both averages --averages
step "validation by averages, training by weights" near averages
step "imported weights, a frozen layer" both imported --init "$(last plain)" --frozen two
step "the losses of other kernels again" near imported
finish
