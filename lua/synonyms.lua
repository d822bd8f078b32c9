-- synonyms.lua -- the names of options in PyTorch scripts, Lightning, MONAI and nnU-Net, with their
-- equivalents in this program.

local util = require "seg.util"

local M = {}

-- Words of other programs, with _ for -, and the equivalent options. Recipes name the same option
-- differently (`base`, `features`), so the first option in the list that the recipe has is
-- proposed. A text in place of the list is the answer itself.
local table_of_words = {
  { "batch_size bs b train_batch_size per_device_train_batch_size", { "batch" } },
  { "num_workers n_workers loader_workers dataloader_num_workers j", { "workers" } },
  { "num_threads n_threads nthreads omp_num_threads n_jobs num_jobs", { "threads" } },
  { "learning_rate base_lr init_lr initial_lr max_lr", { "lr" } },
  { "weight_decay wd l2", { "decay" } },
  { "max_epochs num_epochs n_epochs epoch e", { "epochs" } },
  { "max_steps num_steps iterations num_iterations iters max_iters limit_train_batches",
    { "steps" } },
  { "use_amp amp fp16 half mixed_precision dtype amp_dtype autocast bf16", { "precision" } },
  { "gpus gpu_id gpu_ids gpu cuda accelerator use_gpu no_cuda device_id", { "device" } },
  { "num_gpus n_gpus ngpus world_size nproc nproc_per_node num_processes", { "ranks" } },
  { "device_ids", { "devices" } },
  { "strategy ddp distributed", "several processes train together by --ranks N or --devices 0,1" },
  { "data_dir data_path dataset_dir data_root dataroot root root_dir datadir d", { "data" } },
  { "dataset data_type", { "layout", "data" } },
  { "output_dir out_dir save_dir log_dir logdir default_root_dir results_dir workdir work_dir",
    { "out" } },
  { "input input_dir in_dir input_folder i images", { "in" } },
  { "output output_folder o", { "out" } },
  { "checkpoint ckpt ckpt_path checkpoint_path pretrained pretrained_weights load load_from "
    .. "model_path model_dir finetune init_weights", { "weights" } },
  { "resume_from resume_from_checkpoint continue c continue_training auto_resume", { "resume" } },
  { "img_size image_size input_size imgsz resize roi_size spatial_size", { "size" } },
  { "patch_size crop_size patch_shape roi", { "patch", "size" } },
  { "num_classes n_classes out_channels nclasses", { "classes" } },
  { "base features filters base_channels base_filters init_features init_filters num_filters "
    .. "width base_num_features hidden channels", { "base", "features", "filters", "channels" } },
  { "dropout_rate drop drop_rate p_dropout dropout_prob", { "dropout" } },
  { "manual_seed random_seed random_state global_seed", { "seed" } },
  { "optimizer optimiser opt", { "optim" } },
  { "scheduler lr_scheduler lr_schedule sched", { "schedule" } },
  { "early_stopping early_stop early_stopping_patience", { "patience" } },
  { "save_freq save_interval save_period every_n_epochs checkpoint_interval", { "save_every" } },
  { "save_top_k save_total_limit max_keep", { "keep_last" } },
  { "val val_split val_frac valid_split validation_split val_size val_ratio", { "valid" } },
  { "test_split test_size test_ratio test_frac", { "test" } },
  { "k_folds kfold n_folds num_folds n_splits cv", { "folds" } },
  { "image_key modality sequence", { "image" } },
  { "label labels label_key mask_key seg", { "mask" } },
  { "sw_overlap step_size tile_step_size", { "overlap" } },
  { "test_time_augmentation use_mirroring mirroring tta_flips", { "tta" } },
  { "overfit_batches overfit_one_batch", { "overfit" } },
  { "fast_dev_run dry_run smoke_test debug", { "quick" } },
  { "profile profiler", { "trace" } },
  { "cache_rate cache_num cache", { "cache_mb" } },
  { "prefetch_factor prefetch", { "prefetch_mb" } },
  { "max_vram vram_gb gpu_memory memory_limit", { "vram" } },
  { "gradient_checkpointing checkpointing use_checkpoint", { "recompute" } },
  { "auto_lr_find lr_find find_lr", "segengine SCRIPT lr_range finds a learning rate" },
  { "npp nps num_processes_preprocessing num_processes_segmentation_export", { "workers" } },
  { "disable_tta no_tta", "images are not mirrored unless --tta asks for it" },
  { "deterministic cudnn_deterministic use_deterministic_algorithms",
    "runs are deterministic always; nothing has to be set" },
  { "cudnn_benchmark benchmark", { "autotune" } },
  { "compile torch_compile", "networks are planned, not compiled; nothing has to be set" },
  { "pin_memory persistent_workers non_blocking",
    "batches are made ahead and copied aside always; nothing has to be set" },
  { "accumulate grad_accum gradient_accumulation_steps accumulate_grad_batches accum_steps",
    "the script says it: seg.recipe { accumulate = N, ... }" },
  { "clip_norm grad_clip clip_grad clip_grad_norm gradient_clip_val max_grad_norm max_norm",
    "the script says it: optim.adamw { clip_norm = X, ... }" },
  { "ema ema_decay", "the script says it: seg.recipe { ema = 0.999, ... }" },
  { "augment augmentation no_augment data_augmentation",
    "the script says it: :augment { ... } on the set of training" },
  { "val_interval check_val_every_n_epoch eval_every val_every validate_every",
    "a run validates after each epoch" },
  { "log_every_n_steps log_interval print_freq logging_steps",
    "metrics.csv has a line an epoch" },
  { "tensorboard use_tensorboard logger",
    "each run writes events for TensorBoard; nothing has to be set" },
  { "wandb use_wandb mlflow", "runs write metrics.csv, summary.json and events for TensorBoard" },
}

-- Options of readers, which are given in the script, and the reader of each.
local of_readers = {
  patient = "dicom", labels = "dicom", resample = "dicom", resample_mask = "dicom",
  skip_unmatched = "dicom", skip_bad = "dicom", segments = "dicom", fractions = "dicom",
  partial = "dicom", resample_dose = "dicom", resample_tilt = "dicom", assume_hu = "dicom",
  assume_implicit_le = "dicom", contour_tolerance = "dicom", position_tolerance = "dicom",
  form = "nifti", assume_spacing = "nifti" }

local meaning = {}
for _, row in ipairs(table_of_words) do
  for word in row[1]:gmatch "%S+" do meaning[word] = row[2] end
end

-- The equivalent of the option `word` of another program, if `names`, a list of options, has it:
-- "here that is --batch", or another answer; nil for a word that is not in the table. A leading no_
-- is ignored.
function M.meaning(word, names)
  word = word:lower()
  local means = meaning[word] or meaning[word:match "^no_(.+)$" or ""]
  if type(means) ~= "table" then return means end
  local has = {}
  for _, name in ipairs(names) do has[name] = true end
  for _, name in ipairs(means) do
    if has[name] and name ~= word then return "here that is --" .. name end
  end
end

-- A hint for an option that is not among `names`: its equivalent here, else the nearest name of
-- this or other programs; nil if none is near. For an option of a reader the hint names the script.
function M.hint(word, names)
  local said = M.meaning(word, names)
  if said then return said end
  local reader = of_readers[word]
  if reader then
    return string.format("it is an option of data.%s { ... } in the script, and none of the "
                         .. "command line", reader)
  end
  local others = {}
  for other in pairs(meaning) do
    if #other > 3 and M.meaning(other, names) then others[#others + 1] = other end
  end
  table.sort(others)
  local near, letters = util.nearest(word, names)
  local other, more = util.nearest(word, others)
  if other and not (near and letters <= more) then return M.meaning(other, names) end
  return near and string.format('did you mean "%s"?', near)
end

return M
