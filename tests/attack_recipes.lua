-- attack_recipes.lua -- what a careless or unlucky user of the recipes of scripts/ does: more
-- folds than patients, classes than sequences, rates that are too high, data with holes. One
-- clear line with the right code, before time is lost where that can be known.

local t = dofile("tests/harness.lua")
local folder, remove = t.folder()

-- The line of a recipe on its own small made-up data.
local function line(recipe, words)
  return string.format("scripts/%s.lua %s --preset check --threads 1 --phantom %s/made "
                       .. "--out %s/runs", recipe, words, folder, folder)
end

local function says(recipe, words, code, part) return t.says(line(recipe, words), code, part) end

local function silent(said, part)
  t.check(not said:find(part, 1, true), "it says \"%s\": %s", part, said)
end

t.test("folds that cannot be are refused before the first is trained", function()
  silent(says("headpose_cnn", "folds --folds 7", 3, "7 folds of 6 patients: some would have none"),
         "fold_2")
  says("headpose_cnn", "--folds 7", 3, "fix: fewer folds")
  says("headpose_cnn", "folds", 2, "no set of this recipe is split by kfold; give --folds 5")
  silent(says("sequence_cnn_lstm", "folds --folds 3", 2, "the recipe has no valid set with these"),
         "fold_1")
end)

t.test("clusters without end or sense are refused, with what to do", function()
  says("sequence_cnn_lstm", "--epochs 1", 0, "done:")
  local made = " --data " .. folder .. "/made/sequences-*"
  silent(says("sequence_cnn_lstm", "--classes 30" .. made, 3, "clusters: 18 sequences to train on, "
              .. "30 clusters want 30 or more; more data, or fewer clusters"), "epoch 1/1")
  -- a loss whose target is computed: not a wrong class number of a file
  says("sequence_cnn_lstm", "--learn contrastive --lr 1e30 --epochs 3", 5, "lower the learning")
  says("sequence_cnn_lstm", "--learn statistics --lr 1e30", 5, "the encoder has diverged")
  says("sequence_cnn_lstm", "--learn statistics --lr 1e3", 5, "sequences the same vector")
  says("sequence_cnn_lstm", "--learn_lr 1e38", 5, "3 steps in a row of the classifier")
end)

t.test("patches larger than memory end before data is opened", function()
  silent(says("hippocampus_unet3d", "--size 4000,4000,4000", 1, "a training step of one sample "
              .. "wants "), "train: ")
  t.says(line("hippocampus_unet3d", "--size 4000,4000,4000"), 1, "what would take less")
end)

remove()
t.finish()
