---@meta
-- segengine_data.d.lua -- data sets, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

-- Data sets: data -------------------------------------------------------------

---A data set is a description; nothing is opened before it is used. [data.md](data.md) explains the
---readers, pairing, patients, splits and errors. The field names become the inputs of the network.

---@class seg.data
local data = {}

---@class seg.data.files
---@field root string folder; nil, as `cfg.data` without `--data`, fails when the set is opened
---@field image? string|string[] series or file pattern; several become channels
---@field mask? string
---@field labels? integer[]|"nonzero" mask values besides 0; they become 1, 2, ...; "nonzero": NIfTI only
---@field patient? "auto"|"folder"|"file"|string = "auto"; or a Lua pattern with the patient in brackets
---@field resample? boolean = false; resamples further channels to the grid of the first
---@field resample_mask? boolean = false; resamples a mask to the grid of the image
---@field skip_unmatched? boolean = false; leaves out images without mask and masks without image
---@field skip_bad? boolean = false; leaves out unreadable cases and names them

---@class seg.data.dicom: seg.data.files
---@field segments? string|string[] of a SEG or structure set, by name or "#NUMBER"; default: all, by number
---@field fractions? boolean = false; a channel from 0 to 1 for each segment instead of labels
---@field dose? string an RT dose: the field "dose" in Gy
---@field resample_dose? boolean = false; resamples the dose to the grid of the image
---@field partial? boolean = false; image slices without a mask slice are background
---@field contour_tolerance? number = 0; distance in mm of a contour from the nearest slice
---@field assume_hu? boolean = false; for CT without rescale tags
---@field resample_tilt? boolean = false; for a tilted gantry
---@field assume_implicit_le? boolean = false; for files without a transfer syntax
---@field position_tolerance? number = 0.02; deviation of a slice from the regular grid, as a share of the spacing

---@class seg.data.nifti: seg.data.files
---@field form? "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform" = "both"; the orientation to use where two disagree
---@field assume_spacing? boolean = false; accepts files without orientation as R A S
---@field channels? boolean = false; a fourth axis is channels

---@class seg.data.phantom
---@field format? "dicom"|"nifti"|"faces"|"openkbp"|"hippocampus"|"sequences" = "dicom"; FLAIR with a tumour; nifti: T1 with the brain as mask; openkbp: necks with plans; hippocampus: as the Decathlon; faces: as 300W-LP; sequences: speakers with classes that differ only in the order of syllables
---@field patients? integer = 28; of openkbp 12, of hippocampus 60
---@field people? integer = 40; of faces
---@field photos? integer = 30; of each face
---@field speakers? integer = 6; of sequences
---@field takes? integer = 10; repetitions of each class by each speaker
---@field classes? integer = 4; of sequences
---@field features? integer = 16; of sequences
---@field size? integer = 256; of faces 128
---@field slices? integer = 24
---@field seed? integer = 42
---@field noise? number = 0.03; of faces and openkbp 0.02, hippocampus 0.05, sequences 0.1
---@field beams? boolean = false; of openkbp
---@field margin? number of faces, as of data.w300lp
---@field pitch? "300wlp"|"biwi" of faces
---@field root? string

---Series below a folder.
---@param o seg.data.dicom
---@return seg.set
function data.dicom(o) end

---Files by patterns, where `*` is any text without a slash and pairs image and mask.
---@param o seg.data.nifti
---@return seg.set
function data.nifti(o) end

---A field of data.cases and data.csv; options of a reader are options of the field.
---@class seg.data.field
---@field name string
---@field kind? "image"|"value"|"label"|"numbers"|"length" = "image"; value: a quantity, never normalised; label: class numbers; numbers: of the case, no step moves them; length: of a sequence before padding
---@field read? "nifti"|"dicom"|"npy"|"image"|"openkbp_ct"|"openkbp_structures"|"openkbp_possible"|"openkbp_dose"|"openkbp_beams" = "nifti"; format of the file
---@field rank? integer = 3; 3 volume, 2 picture, 1 sequence along w; default: that of reader or `axes`
---@field axes? string of arrays: d, h, w and c in their order in the file, as "chw"
---@field count? integer = 1; of kind numbers
---@field form? "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform" of nifti
---@field assume_spacing? boolean of nifti
---@field channels? boolean of nifti
---@field alpha? "refuse"|"drop" = "refuse"; of photographs: an alpha channel
---@field exif? "refuse"|"apply"|"ignore" = "refuse"; of photographs: an orientation other than 1
---@field trailing? boolean = false; of photographs: ignores bytes behind the image
---@field page? integer of a TIFF
---@field same_grid? boolean = false; arrays, photographs: the voxels are those of the first field, one by one
---@field assume_hu? boolean of dicom
---@field resample_tilt? boolean of dicom
---@field assume_implicit_le? boolean of dicom
---@field position_tolerance? number of dicom
---@field segments? string|string[] of dicom
---@field partial? boolean of dicom
---@field contour_tolerance? number of dicom
---@field resample_dose? boolean of dicom

---@class seg.data.case
---@field key string
---@field patient string
---@field [string] string|string[]|number|number[]

---@class seg.data.cases
---@field fields seg.data.field[]
---@field cases seg.data.case[]|fun(): seg.data.case[] each with key, patient and, by field name, a path, paths (channels) or numbers; as a function, `plan` needs no data
---@field labels? integer[]|"nonzero"
---@field resample? boolean = false
---@field resample_mask? boolean = false
---@field skip_bad? boolean = false

---Cases listed by the script.
---
---```lua
---local cases = data.cases {
---  fields = { { name = "x", read = "npy", rank = 1 }, -- (time, features)
---             { name = "pose", kind = "numbers", count = 3 },
---             { name = "length", kind = "length" } },
---  cases = { { key = "a1", patient = "a", x = "a1.npy", pose = { 0, 10, -5 } } },
---}
---```
---@param o seg.data.cases
---@return seg.set
function data.cases(o) end

---@class seg.data.nnunet
---@field root string
---@field patient string "file", or a Lua pattern with the patient in brackets
---@field images? string = "imagesTr"
---@field masks? string|false = "labelsTr"; false: images alone
---@field resample? boolean
---@field resample_mask? boolean
---@field form? "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform"
---@field assume_spacing? boolean
---@field skip_bad? boolean

---A folder of nnU-Net. Options without text: as of data.nifti.
---@param o seg.data.nnunet
---@return seg.set
function data.nnunet(o) end

---A field of data.csv.
---@class seg.data.column: seg.data.field
---@field column? string of paths, or of one number
---@field columns? string[] of several numbers
---@field box? fun(row: table): number, number, number, number crops a picture to x, y, width, height in pixels; outside of it is 0

---@class seg.data.csv
---@field root string
---@field table string file below root
---@field patient string a column, or "file"
---@field fields seg.data.column[] as of data.cases, and columns
---@field key? string = the column of the first field; names the cases
---@field separator? string = ","
---@field where? fun(row: table): boolean keeps a row; row.NAME is text, row:number(NAME) a number
---@field labels? integer[]|"nonzero"
---@field resample? boolean = false
---@field resample_mask? boolean = false
---@field skip_bad? boolean = false

---A table; each row is a case.
---@param o seg.data.csv
---@return seg.set
function data.csv(o) end

---@class seg.data.openkbp
---@field root string
---@field dose? boolean = true
---@field beams? boolean = false; an estimate of the dose from the targets
---@field skip_bad? boolean = false

---Folders pt_N of the OpenKBP challenge: ct, structures, possible, dose, beams.
---@param o seg.data.openkbp
---@return seg.set
function data.openkbp(o) end

---@class seg.data.pictures
---@field alpha? "refuse"|"drop" = "refuse"
---@field exif? "refuse"|"apply"|"ignore" = "refuse"
---@field page? integer
---@field trailing? boolean = false
---@field skip_bad? boolean = false

---@class seg.data.images: seg.data.pictures
---@field root string
---@field image? string = "*"
---@field mask? string
---@field classes? string[] folders; their numbers, from 0, are the field "class"
---@field patient string "folder", "file", or a pattern
---@field labels? integer[]|"nonzero"

---PNG, JPEG, BMP and TIFF.
---@param o seg.data.images
---@return seg.set
function data.images(o) end

---@class seg.data.npy
---@field root string
---@field image? string = "*"
---@field mask? string
---@field classes? string[]
---@field patient string
---@field labels? integer[]|"nonzero"
---@field rank? integer = 3
---@field axes? string
---@field length? boolean = false; adds the field "length"
---@field skip_bad? boolean = false

---Arrays; options as of data.images and data.cases.
---@param o seg.data.npy
---@return seg.set
function data.npy(o) end

---@class seg.data.w300lp: seg.data.pictures
---@field root string
---@field flips? boolean = false; also reads the mirrored copies
---@field margin? number = 0.35; border of the face, as a share of its box
---@field most_degrees? number = 99; larger angles are left out
---@field pitch? "300wlp"|"biwi" = "300wlp"; sign of the pitch

---300W-LP and AFLW2000: the field "pose" is yaw, pitch, roll in degrees.
---@param o seg.data.w300lp
---@return seg.set
function data.w300lp(o) end

---@class seg.data.biwi: seg.data.pictures
---@field root string
---@field pitch? "300wlp"|"biwi" = "300wlp"
---@field same? table<string, string>|string sequences of the same person, as "12=07,14=08"
---@field face_mm? number = 0; crops a square of this size around the head; 0: the whole frame

---BIWI: pose as of data.w300lp.
---@param o seg.data.biwi
---@return seg.set
function data.biwi(o) end

---@class seg.data.pointing04: seg.data.pictures
---@field root string
---@field margin? number = 0.15
---@field pitch? "300wlp"|"biwi" = "300wlp"

---Pointing'04: pose = yaw, pitch in degrees.
---@param o seg.data.pointing04
---@return seg.set
function data.pointing04(o) end

---The cases of several sets with the same fields; the steps are those of the first.
---@param ... seg.set
---@return seg.set
function data.concat(...) end

---Synthetic data, written once below `root` (default: `phantom` below `--out`) as files of the format, then
---read like any other.
---@param o? seg.data.phantom
---@return seg.set
function data.phantom(o) end

-- Splits ----------------------------------------------------------------------

---Methods of a set return new sets. Splits keep all cases of a patient in one part.

---A description: source, part, steps.
---@class seg.set
local set = {}

---@alias seg.part number|string[]

---@class seg.set.split
---@field valid? seg.part = 0; a share below 1 (of the rest after test), a number of patients, a list of patients or case keys; 0: none
---@field test? seg.part = 0
---@field train? string[] default: the rest
---@field seed? integer = 0
---@field folds? integer = 0; above 0: train and valid of kfold with k = folds, and no test

---@param o seg.set.split
---@return seg.set train
---@return seg.set valid
---@return seg.set? test
function set:split(o) end

---@class seg.set.kfold
---@field k? integer = 5
---@field fold? integer = 1; `--fold` overrides it, the command `folds` runs all
---@field seed? integer = 0
---@field group? "patient"|fun(case: { key: string, patient: string }): string = "patient"; unit that stays together

---@param o seg.set.kfold
---@return seg.set train
---@return seg.set valid
function set:kfold(o) end

---@class seg.set.slabs
---@field valid? number[] fractions { lo, hi } of the slices
---@field test? number[]
---@field gap? number = 0.02; fraction left out between two parts

---For one subject: slabs of slices as parts.
---@param o seg.set.slabs
---@return seg.set train
---@return seg.set valid
---@return seg.set test
function set:slabs(o) end

---@param keep fun(case: { key: string, patient: string }): boolean
---@return seg.set
function set:filter(keep) end

---Renames cases and patients, as `function(case) return { key = case.key, patient =
---case.key:match "^%d+" } end`.
---@param change fun(case: { key: string, patient: string }): { key: string, patient: string }
---@return seg.set
function set:map(change) end

---@class seg.set.signed_distance
---@field of? string = "mask"; a field of class numbers
---@field name? string = "distance"; the new field

---Adds a field: the signed distance in mm from the boundary of each class, negative inside, a channel for
---each of classes 1, 2, ...; 0 without a boundary. For boundary_loss and hausdorff_loss.
---@param o? seg.set.signed_distance
---@return seg.set
function set:signed_distance(o) end

-- Steps of preprocessing ------------------------------------------------------

---Steps run in the order written, on loader threads. Those before `augment` are stored in the checkpoint
---and repeated by `predict`, on all slices or a grid of patches. `data/steps/steps.def` has the formulas.

---@class seg.set.orient
---@field plane? "axial"|"coronal"|"sagittal" = "axial"

---Permutes and mirrors axes to a view of the patient, without interpolation.
---@param o? seg.set.orient
---@return seg.set
function set:orient(o) end

---@class seg.set.resample
---@field spacing_mm number|number[] along {w, h, d}; 0 keeps an axis
---@field method? "linear"|"smooth"|"cubic" = "linear"; smooth, cubic: filters over all voxels, for large reductions; labels: nearest

---Another voxel spacing.
---@param o seg.set.resample
---@return seg.set
function set:resample(o) end

---@class seg.set.fit
---@field d? integer = 0; voxels; 0 keeps an axis
---@field h? integer = 0
---@field w? integer = 0
---@field at? "centre"|"start" = "centre"; at both ends, or at the end only, as for sequences

---Crops or pads by whole voxels.
---@param o seg.set.fit
---@return seg.set
function set:fit(o) end

---@class seg.set.crop
---@field to? "image"|"label" = "image"; voxels above the minimum of the image, or with a label
---@field margin? integer = 0; voxels around the box
---@field within? number = 0; above 0: only voxels less than this below the maximum

---Crops to the smallest box of the foreground.
---@param o? seg.set.crop
---@return seg.set
function set:crop(o) end

---@class seg.set.resize
---@field d? integer = 0; voxels; 0 keeps an axis
---@field h? integer = 0
---@field w? integer = 0
---@field method? "linear"|"smooth"|"cubic" = "linear"

---The whole field of view in another number of voxels; 8-bit photographs stay whole numbers.
---@param o seg.set.resize
---@return seg.set
function set:resize(o) end

---1 where the label is one of `o.labels`, else 0.
---@param o { labels: integer[] }
---@return seg.set
function set:select(o) end

---Clamps intensities to `o.range = { -1000, 1000 }`.
---@param o { range: number[] }
---@return seg.set
function set:clamp(o) end

---@class seg.set.scale
---@field from? number[] = { 0, 255 }
---@field to? number[] = { 0, 1 }

---Maps one range linearly to another, equally for all images.
---@param o? seg.set.scale
---@return seg.set
function set:scale(o) end

---@class seg.set.normalize
---@field method? "zscore"|"minmax"|"percentile" = "zscore"
---@field per? "volume"|"slice"|"patient" = "volume"; patient: mean and sd of each channel over all cases of the patient (zscore without clip and nonzero, one such step); `predict` takes all of `--in` as one patient unless DICOM or OpenKBP name it
---@field clip? number[] = { 0, 100 }; percentiles
---@field nonzero? boolean = false; statistics of nonzero voxels
---@field together? boolean = false; the same numbers for all channels

---@param o? seg.set.normalize
---@return seg.set
function set:normalize(o) end

---@class seg.set.standardize
---@field field? string = the first; a field of numbers: each number by itself, and `predict` turns results back
---@field of? "all"|"foreground" = "all"; foreground: voxels with a label
---@field clip? number[] = { 0, 100 }; percentiles of these voxels, cut first
---@field mean? number[] given with `sd` (and with `clip` `low` and `high`) instead of computed
---@field sd? number[]
---@field low? number[]
---@field high? number[]

---(x - mean) / sd with the statistics of all training cases, by channel (at most 64), as for CT. They are computed
---on `train` first, stored in the checkpoint, and used for valid, test, `evaluate`, `predict` and a resumed
---run. This reads the training cases once more. nnU-Net's CT normalisation: `{ of = "foreground", clip =
---{ 0.5, 99.5 } }`, except that nnU-Net takes mean and sd before the cut.
---@param o? seg.set.standardize
---@return seg.set
function set:standardize(o) end

---In a script: computes the statistics of the standardize steps on this set.
---@param o? { threads?: integer, cache_bytes?: integer, store?: string }
---@return seg.set
---@return string said lines of what was found
function set:fitted(o) end

---Takes the statistics of another set, or of the steps of a checkpoint.
---@param other seg.set|string
---@return seg.set
function set:fitted_as(other) end

---@class seg.set.slices
---@field axis? "axial"|"coronal"|"sagittal"|"stored" = "axial"
---@field keep? "all"|"foreground" = "all"
---@field range? number[] = { 0, 1 }; fractions of the slices

---2-D samples.
---@param o? seg.set.slices
---@return seg.set
function set:slices(o) end

---@class seg.set.patches
---@field d? integer = 0; voxels; 0: the whole axis; d = 1: 2-D samples
---@field h? integer = 0
---@field w? integer = 0
---@field at? "random"|"grid" = "random"; grid: covers the volume; the test set and `predict` always use the grid
---@field count? integer = 1; random patches of each case and epoch
---@field foreground? number = 0; probability that a patch is centred on a voxel of a class drawn from those of the case; nnU-Net: 0.33
---@field overlap? number = 0.5; share of their extents, of a grid

---Samples for volumes too large for the network. Smaller volumes are padded. A validation set of random
---patches has the same ones in every epoch; its metrics are of patches. `predict` blends overlapping patches with
---weights that decrease towards their border.
---@param o seg.set.patches
---@return seg.set
function set:patches(o) end

-- Augmentation and batches ----------------------------------------------------

---@class seg.set.augment
---@field flip? true|{ axis?: "w"|"h"|"d"|"hw"|"dhw", p?: number, negate?: integer[], swap?: integer[] } mirrors; with an odd number of axes `swap = { 1,2, 7,8 }` exchanges classes (without class numbers: channels of maps) and `negate = { 2 }` changes the sign of numbers of the first numbers field (0: all)
---@field affine? true|{ rotate?: number[], scale?: number[], shift?: number, p?: number, shear?: number[], about?: "all"|"w"|"h"|"d", step?: number } degrees, factor, share of each extent; a volume turns about all axes or the one of `about`; `step`: only multiples of it. One interpolation, in voxels: resample first if spacings differ. Labels: nearest; outside: the border voxel
---@field elastic? true|{ spacing?: number, amplitude?: number[], p?: number } voxels between control points and their displacement, at most 0.4 spacing
---@field timeshift? true|{ most?: integer, beyond?: "border"|"wrap", p?: number } shift along w
---@field jitter? true|{ brightness?: number, contrast?: number, saturation?: number, hue?: number, top?: number, p?: number } torchvision's ColorJitter for colours from 0 to `top`
---@field bias? true|{ by?: number, order?: integer, p?: number } smooth multiplicative field, as of an MR coil
---@field contrast? true|{ range?: number[], p?: number } factor about the mean
---@field brightness? true|{ by?: number, p?: number }
---@field gamma? true|{ range?: number[], p?: number }
---@field blur? true|{ sigma?: number[], p?: number } Gaussian, voxels, by channel
---@field lowres? true|{ factor?: number[], up?: "linear"|"cubic", p?: number } lower resolution
---@field rician? true|{ sigma?: number, p?: number } magnitude of complex noise
---@field noise? true|{ sigma?: number, p?: number } Gaussian
---@field cutout? true|{ boxes?: integer, size?: number[], p?: number } boxes set to the mean
---@field timemask? true|{ spans?: integer, most?: integer, fill?: "zero"|"mean", p?: number } spans of w
---@field bands? true|{ stretch?: number, shift?: number, tilt?: number, most?: integer, p?: number } channels as bands of a spectrum
---@field vary? seg.vary|table { f, name = constant, ... }: a function of the recipe

---Random changes of training samples, in this order; `true` takes the defaults. Sequences with a `length` field
---keep their padding. With timeshift, jitter, bias, blur, lowres, rician, cutout, timemask, bands, vary, random
---patches, or a flip with `negate`, `swap` or along w of such sequences, the loader makes the batches, not the GPU
---(`device_dataset`). `make gallery` draws a sheet of each.
---@param o seg.set.augment
---@return seg.set
function set:augment(o) end

---@class seg.set.batches
---@field size? integer|"auto" = 1; `cfg.batch`, which is "auto" with `--batch auto` until the recipe is declared
---@field shuffle? boolean = false; a new order in each epoch
---@field drop_last? boolean = false
---@field bucket? "length" batches of sequences of similar length, padded to their longest; the w of `nn.input` is the maximum. Images are padded with the minimum of the channel, other fields with 0. The last 16 lengths keep their plan
---@field multiple? integer = 1; of bucket: rounds the length up; a multiple of the network's reduction and of `span` of masking
---@field twice? table<string, string> { x = "other" }: a second input `other`, the same samples with other random changes

---The last step.
---@param o seg.set.batches
---@return seg.set
function set:batches(o) end

---For a loop of a script: `for batch, number, batches in set:epoch(n)` gives the batches of epoch n of a training run
---with the same set, `--seed` and `--batch`, as arrays by field. `--workers` threads make them ahead.
---@param number integer from 1
---@return function iterator gives arrays by field, the number of the batch from 1, and that of all
function set:epoch(number) end

-- Functions as steps ----------------------------------------------------------

---`change` runs on every case, `vary` on every training sample; both take the fields by name.
---[data.md](data.md#functions-as-steps) has an example and the rules. Further arguments of the methods restrict them
---to a channel or to voxels where a field is not 0: `x:fill(0, 1, mask)`.

---@class seg.case.field
---@field name string
---@field kind "image"|"value"|"label"|"numbers"
---@field c integer
---@field d integer
---@field h integer
---@field w integer
---@field shape integer[] {c, [d], h, w}
local field = {}

---@param ... integer (c, d, h, w) from 1, as many as the field has axes
---@return number
function field:get(...) end

---@param ... number (c, d, h, w, value)
---@return seg.case.field
function field:set(...) end

---@param x number|seg.case.field
---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return seg.case.field
function field:add(x, channel, where) end

---@param x number|seg.case.field
---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return seg.case.field
function field:mul(x, channel, where) end

---@param x number|seg.case.field
---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return seg.case.field
function field:fill(x, channel, where) end

---@param lo number
---@param hi number
---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return seg.case.field
function field:clamp(lo, hi, channel, where) end

---@param f fun(v: number): number
---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return seg.case.field
function field:apply(f, channel, where) end

---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return number
function field:mean(channel, where) end

---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return number
function field:std(channel, where) end

---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return number
function field:min(channel, where) end

---@param channel? integer|seg.case.field
---@param where? seg.case.field
---@return number
function field:max(channel, where) end

---Draws that depend on (seed, epoch, sample).
---@class seg.rng
local rng = {}

---@param lo? number = 0
---@param hi? number = 1
---@return number
function rng:uniform(lo, hi) end

---@param mean? number = 0
---@param sd? number = 1
---@return number
function rng:normal(mean, sd) end

---@param lo integer
---@param hi integer included
---@return integer
function rng:int(lo, hi) end

---@alias seg.case.fields table<string, seg.case.field>
---@alias seg.constants table<string, number|string|boolean|table>
---@alias seg.vary fun(sample: seg.case.fields, rng: seg.rng, constants?: seg.constants)

---Applies f to every case; f uses no local of the script.
---@param f fun(case: seg.case.fields, constants?: seg.constants)
---@param constants? seg.constants
---@return seg.set
function set:change(f, constants) end

return data
