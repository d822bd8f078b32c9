-- attack_recipes.lua -- a careless or unlucky user of the recipes of scripts/: more folds than
-- patients, more classes than sequences, rates that are too high, data with holes. One clear line
-- with the right code, and as early as the mistake can be noticed.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

-- The command line of a recipe on small synthetic data of its own.
local function line(recipe, words)
  return string.format("scripts/%s.lua %s --preset check --threads 1 --phantom %s/made "
                       .. "--out %s/runs", recipe, words, folder, folder)
end

local function says(recipe, words, code, part) return t.says(line(recipe, words), code, part) end

local function silent(said, part)
  t.check(not said:find(part, 1, true), "it says \"%s\": %s", part, said)
end

t.test("folds that cannot be are refused before the first is trained", function()
  silent(says("headpose_cnn", "folds --folds 7", 3, "7 folds of 6 patients: some folds would "
              .. "validate no patient"),
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
              .. "30 clusters need 30 or more; more data, or fewer clusters"), "epoch 1/1")
  -- a loss whose target is computed: not a wrong class number of a file
  says("sequence_cnn_lstm", "--learn contrastive --lr 1e30 --epochs 3", 5, "lower the learning")
  says("sequence_cnn_lstm", "--learn statistics --lr 1e30", 5, "the encoder has diverged")
  says("sequence_cnn_lstm", "--learn statistics --lr 1e3", 5, "sequences the same vector")
  says("sequence_cnn_lstm", "--learn_lr 1e38", 5, "3 steps in a row of the classifier")
end)

t.test("patches larger than memory end before data is opened", function()
  silent(says("hippocampus_unet3d", "--size 4000,4000,4000", 1, "no memory: training needs "),
         "train: ")
  t.says(line("hippocampus_unet3d", "--size 4000,4000,4000"), 1, "options that need less")
end)

-- A copy, named `as`, of the synthetic data `made` of a recipe; its path.
local function copied(made, as)
  local path = folder .. "/" .. as
  t.check(os.execute(string.format("cp -r %s/made/%s-* %s", folder, made, path)), made)
  return path
end

t.test("photographs and patients that are left out are counted", function()
  says("headpose_cnn", "--steps 1", 0, "stopped after 1 step")
  local faces = copied("faces", "holes")
  os.remove(faces .. "/PHANTOM_001_0.mat")
  os.remove(faces .. "/PHANTOM_002_0.jpg")
  local said = says("headpose_cnn", "--steps 1 --data " .. faces, 0,
                    "note: left out of 300W-LP: 1 photograph without a .mat")
  t.check(said:find("300W-LP: 1 photograph missing, whose .mat is there", 1, true), said)
  -- a landmark file may hold it, but nobody can learn from it: a single angle
  local mat = faces .. "/PHANTOM_003_0.mat"
  local text = t.read(mat)
  local at = text:find("Pose_Para", 1, true) + 24 -- its name is padded, then comes a tag
  local function pose(v)
    t.write(mat, text:sub(1, at - 1) .. string.pack("<f", v) .. text:sub(at + 4))
  end
  pose(0 / 0)
  says("headpose_cnn", "--steps 1 --data " .. faces, 3, "PHANTOM_003_0.mat: Pose_Para: number 1")
  pose(3)
  says("headpose_cnn", "--steps 1 --data " .. faces, 0,
       "1 photograph of angles beyond most_degrees = 99")
end)

t.test("a folder of OpenKBP that is no patient's name is counted", function()
  says("openkbp_unet3d", "--size 16 --steps 1", 0, "stopped after 1 step")
  local all = copied("dose", "provided")
  os.execute(string.format("cd %s && mkdir train-pats validation-pats test-pats && mv pt_1 pt_2 "
    .. "train-pats && mv pt_3 validation-pats && mv pt_4 test-pats && "
    .. "mv train-pats/pt_2 'train-pats/pt 2'", all))
  says("openkbp_unet3d", "--size 16 --steps 1 --data " .. all, 0,
       "note: left out of OpenKBP: 1 folder not called pt_N")
end)

t.test("numbers and words of a recipe that cannot be are refused by their names", function()
  for _, case in ipairs {
    { "brain_unet", "--optim constant", 'optim is "constant", wanted one of adam, adamw, radam,' },
    { "brain_unet", "--schedule adam", 'schedule is "adam", wanted one of constant, cosine' },
    { "brain_unet", "--rotate -1", "affine: rotate is {1, -1}" },
    { "brain_unet", "--elastic -1", "elastic: amplitude" },
    { "brain_unet", "--noise -1", "noise: sigma is -1" },
    { "brain_unet", "--patience -1", "patience" }, { "nfbs_unet", "--patience -1", "patience" },
    { "nfbs_unet", "--plateau -1", "patience" },
    { "openkbp_unet3d", "--coarse 0", "the kernel must be 1" },
    { "openkbp_unet3d", "--t_max -1", "t_max must be a number >= 1" },
    { "openkbp_unet3d", "--ema -1", "ema must be a number from 0" },
    { "hippocampus_unet3d", "--flip -1", "flip: p is -1" },
    { "hippocampus_unet3d", "--size 16", "size: wanted 3 numbers, with commas" },
    { "headpose_cnn", "--jitter 0.5", "jitter: wanted 4 numbers" },
    { "headpose_cnn", "--margin -1 --layout pointing04 --data .", "margin must be a number" },
    { "sequence_cnn_lstm", "--dropout 0.5", "dropout: wanted 3 numbers" },
    { "sequence_cnn_lstm", "--bands 0.1", "bands: wanted 4 numbers" },
    { "sequence_cnn_lstm", "--level -5", "crop: within" },
  } do
    silent(says(case[1], case[2], 2, case[3]), "epoch 1")
  end
end)

t.test("weights of another recipe are called that", function()
  says("hippocampus_unet3d", "", 0, "done:")
  local run = folder .. "/runs/hippocampus_unet3d/001"
  t.says(string.format("scripts/brain_unet.lua predict --weights %s --in %s --out %s/p", run,
                       folder, folder), 2, 'weights of the recipe "hippocampus_unet3d" ('
         .. run .. '/checkpoint_best.safetensors), not of "brain_unet": --size takes a whole')
end)

t.test("names with what a terminal obeys are shown without it", function()
  local head = folder .. "/head" -- of the run above
  os.execute(string.format("mkdir %s && cp $(ls %s/made/hippocampus-*/imagesTr/* | head -1) "
    .. "\"%s/$(printf 'x\\033[31m\\ny').nii.gz\"", head, folder, head))
  local words = string.format("scripts/hippocampus_unet3d.lua predict --weights "
    .. "%s/runs/hippocampus_unet3d/001 --in %s --out %s/shown ", folder, head, folder)
  local said = t.says(words, 0, "x?[31m?y ")
  -- whole, and cut off
  os.execute(string.format("for f in %s/*; do truncate -s 3000 \"$f\"; done", head))
  said = said .. t.says(words, 3, "x?[31m?y.nii.gz: nifti: gzip data ends early")
  t.check(not said:find("\27", 1, true), "%s", said)
end)

t.test("weights that cannot be saved end the run at once, as diverged", function()
  local said = says("sequence_cnn_lstm", "--noise 1e30", 5, "running_var is not finite")
  t.check(said:find("; fix: a lower learning rate", 1, true), said)
  silent(said, "trying again")
end)

remove()
t.finish()
