---@meta
-- segengine_data.d.lua -- data sets, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

-- Data ------------------------------------------------------------------------

---@class seg.data
local data = {}

---@class seg.data.files
---@field root string
---@field image? string|string[] several become channels
---@field mask? string
---@field labels? integer[]|"nonzero" values beside 0; "nonzero" for NIfTI only
---@field patient? "auto"|"folder"|"file"|string a pattern: the patient in brackets
---@field resample? boolean further channels, onto the grid of the first
---@field resample_mask? boolean
---@field skip_unmatched? boolean
---@field skip_bad? boolean leave out cases that cannot be read, and name them

---@class seg.data.dicom: seg.data.files
---@field segments? string|string[] of a SEG or a structure set, by name or "#NUMBER"
---@field fractions? boolean a channel from 0 to 1 for each segment, instead of labels
---@field dose? string an RT dose: a field "dose" in Gy
---@field resample_dose? boolean bring the dose to the grid of the image
---@field partial? boolean image slices without a mask slice are background
---@field contour_tolerance? number mm that contours may lie off the nearest slice
---@field assume_hu? boolean
---@field resample_tilt? boolean
---@field assume_implicit_le? boolean
---@field position_tolerance? number how far a slice may be off the regular grid, as a share of the spacing; 0.02

---@class seg.data.nifti: seg.data.files
---@field form? "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform"
---@field assume_spacing? boolean
---@field channels? boolean a fourth axis is channels

---@class seg.data.phantom
---@field format? "dicom"|"nifti"|"faces"|"openkbp"|"hippocampus"|"sequences"
---@field patients? integer 28; of openkbp 12, of hippocampus 60; not of faces and sequences
---@field people? integer 40, of faces
---@field photos? integer 30, of each face
---@field speakers? integer 6, of sequences
---@field takes? integer 10, of sequences: how often each speaker utters each class
---@field classes? integer 4, of sequences
---@field features? integer 16, of sequences: numbers a frame
---@field size? integer 256; of faces 128
---@field slices? integer 24
---@field seed? integer 42
---@field noise? number 0.03; of faces 0.02, of sequences 0.1
---@field beams? boolean of openkbp: as data.openkbp
---@field margin? number of faces: as data.w300lp
---@field pitch? "300wlp"|"biwi" of faces: as data.w300lp
---@field root? string

---@param o seg.data.dicom
---@return seg.set
function data.dicom(o) end

---@param o seg.data.nifti
---@return seg.set
function data.nifti(o) end

---@class seg.data.field
---@field name string
---@field kind? "image"|"value"|"label"|"numbers"|"length" image
---@field read? "nifti"|"dicom"|"npy"|"image"|"openkbp_ct"|"openkbp_structures"|"openkbp_possible"|"openkbp_dose"|"openkbp_beams" of what lies on a grid; nifti
---@field rank? integer 3 volume, 2 picture, 1 sequence (along w); that of the reader or of axes, else 3
---@field axes? string of arrays: letters of d, h, w and c in their order in the file
---@field count? integer of kind numbers; 1
---@field form? "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform"
---@field assume_spacing? boolean
---@field channels? boolean a fourth axis is channels
---@field alpha? "refuse"|"drop" of photographs
---@field exif? "refuse"|"apply"|"ignore"
---@field trailing? boolean
---@field page? integer of a TIFF
---@field same_grid? boolean arrays, photographs: voxels are those of the first field, one by one
---@field assume_hu? boolean of DICOM
---@field resample_tilt? boolean
---@field assume_implicit_le? boolean
---@field position_tolerance? number how far a slice may be off the regular grid, as a share of the spacing; 0.02
---@field segments? string|string[] of a SEG or a structure set, by name or "#NUMBER"
---@field partial? boolean image slices without a mask slice are background
---@field contour_tolerance? number mm that contours may lie off the nearest slice
---@field resample_dose? boolean bring the dose to the grid of the image

---A case has key and patient, and under each field's name a path, paths (channels) or numbers.
---@class seg.data.case
---@field key string
---@field patient string
---@field [string] string|string[]|number|number[]

---Cases named one by one.
---@param o { fields: seg.data.field[], cases: seg.data.case[]|fun(): seg.data.case[], labels?: integer[]|"nonzero", resample?: boolean, resample_mask?: boolean, skip_bad?: boolean }
---@return seg.set
function data.cases(o) end

---A folder of nnU-Net.
---@param o { root: string, patient: string, images?: string, masks?: string|false, resample?: boolean, resample_mask?: boolean, form?: "both"|"sform"|"qform"|"sform_or_qform"|"qform_or_sform", assume_spacing?: boolean, skip_bad?: boolean }
---@return seg.set
function data.nnunet(o) end

---@class seg.data.column: seg.data.field
---@field column? string of files, or of one number
---@field columns? string[] of several numbers
---@field box? fun(row: table): number, number, number, number x, y, width, height in pixels

---@class seg.data.csv
---@field root string
---@field table string a file below root
---@field patient string a column, or "file"
---@field fields seg.data.column[]
---@field key? string a column; that of the first field
---@field separator? string
---@field where? fun(row: table): boolean row.NAME is text, row:number(NAME) a number
---@field labels? integer[]|"nonzero"
---@field resample? boolean
---@field resample_mask? boolean
---@field skip_bad? boolean

---A table of labels: a row is a case.
---@param o seg.data.csv
---@return seg.set
function data.csv(o) end

---Folders pt_N: ct, structures, possible, dose, beams.
---@param o { root: string, dose?: boolean, beams?: boolean, skip_bad?: boolean }
---@return seg.set
function data.openkbp(o) end

---@param o { root: string, image?: string, mask?: string, classes?: string[], patient: string, labels?: integer[]|"nonzero", alpha?: "refuse"|"drop", exif?: "refuse"|"apply"|"ignore", page?: integer, trailing?: boolean, skip_bad?: boolean }
---@return seg.set
function data.images(o) end

---A folder of arrays.
---@param o { root: string, image?: string, mask?: string, classes?: string[], patient: string, labels?: integer[]|"nonzero", rank?: integer, axes?: string, length?: boolean, skip_bad?: boolean }
---@return seg.set
function data.npy(o) end

---pose = yaw, pitch, roll in degrees.
---@param o { root: string, flips?: boolean, margin?: number, most_degrees?: number, pitch?: "300wlp"|"biwi", alpha?: "refuse"|"drop", exif?: "refuse"|"apply"|"ignore", page?: integer, trailing?: boolean, skip_bad?: boolean }
---@return seg.set
function data.w300lp(o) end

---@param o { root: string, pitch?: "300wlp"|"biwi", same?: table<string, string>|string, face_mm?: number, alpha?: "refuse"|"drop", exif?: "refuse"|"apply"|"ignore", page?: integer, trailing?: boolean, skip_bad?: boolean }
---@return seg.set
function data.biwi(o) end

---Pointing'04: pose = yaw, pitch in degrees.
---@param o { root: string, margin?: number, pitch?: "300wlp"|"biwi", alpha?: "refuse"|"drop", exif?: "refuse"|"apply"|"ignore", page?: integer, trailing?: boolean, skip_bad?: boolean }
---@return seg.set
function data.pointing04(o) end

---The cases of several sets with the same fields; the steps of the first.
---@param ... seg.set
---@return seg.set
function data.concat(...) end

---Made-up heads, written once as files.
---@param o? seg.data.phantom
---@return seg.set
function data.phantom(o) end

---A description: where from, which part, which steps. Methods give new sets.
---@class seg.set
local set = {}

---A share below 1, a number of patients, or names; 0: none.
---@alias seg.part number|string[]

---folds: above 0 train and valid of kfold instead, and no test.
---@param o { seed?: integer, train?: string[], valid?: seg.part, test?: seg.part, folds?: integer }
---@return seg.set train
---@return seg.set valid
---@return seg.set? test
function set:split(o) end

---One subject: fractions {lo, hi} of the slices.
---@param o { valid?: number[], test?: number[], gap?: number }
---@return seg.set train
---@return seg.set valid
---@return seg.set test
function set:slabs(o) end

---Fold number `fold` of k, by patient, or by what `group` names; --fold takes another.
---@param o { k?: integer, fold?: integer, seed?: integer, group?: "patient"|fun(case: { key: string, patient: string }): string }
---@return seg.set train
---@return seg.set valid
function set:kfold(o) end

---@param keep fun(case: { key: string, patient: string }): boolean
---@return seg.set
function set:filter(keep) end

---@param change fun(case: { key: string, patient: string }): { key: string, patient: string }
---@return seg.set
function set:map(change) end

---@param o? { plane?: "axial"|"coronal"|"sagittal" }
---@return seg.set
function set:orient(o) end

---@param o { spacing_mm: number|number[], method?: "linear"|"smooth"|"cubic" } along {w, h, d}; 0 keeps
---@return seg.set
function set:resample(o) end

---@param o { d?: integer, h?: integer, w?: integer, at?: "centre"|"start" } crop or pad; 0 keeps
---@return seg.set
function set:fit(o) end

---@param o? { to?: "image"|"label", margin?: integer, within?: number } the box of what is there
---@return seg.set
function set:crop(o) end

---@param o { d?: integer, h?: integer, w?: integer, method?: "linear"|"smooth"|"cubic" } the field of view; 0 keeps
---@return seg.set
function set:resize(o) end

---@param o { labels: integer[] }
---@return seg.set
function set:select(o) end

---@param o { range: number[] }
---@return seg.set
function set:clamp(o) end

---@class seg.set.normalize
---@field method? "zscore"|"minmax"|"percentile"
---@field per? "volume"|"slice"|"patient"
---@field clip? number[] percentiles
---@field nonzero? boolean
---@field together? boolean

---@param o? seg.set.normalize
---@return seg.set
function set:normalize(o) end

---A field of a case or sample, in a function of change or vary.
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
---@param channel? integer|seg.case.field from 1; or where
---@param where? seg.case.field the voxels in which it is not 0
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

---Draws of (seed, epoch, sample).
---@class seg.rng
local rng = {}

---@param lo? number 0
---@param hi? number 1
---@return number
function rng:uniform(lo, hi) end

---@param mean? number 0
---@param sd? number 1
---@return number
function rng:normal(mean, sd) end

---@param lo integer
---@param hi integer included
---@return integer
function rng:int(lo, hi) end

---@alias seg.case.fields table<string, seg.case.field>
---@alias seg.constants table<string, number|string|boolean|table>
---@alias seg.vary fun(sample: seg.case.fields, rng: seg.rng, constants?: seg.constants)

---Whatever f does to every case; f uses nothing from outside itself.
---@param f fun(case: seg.case.fields, constants?: seg.constants)
---@param constants? seg.constants
---@return seg.set
function set:change(f, constants) end
---@class seg.set.standardize
---@field field? string the first one
---@field of? "all"|"foreground"
---@field clip? number[] percentiles
---@field mean? number[] given instead of found, with sd; with clip also low and high
---@field sd? number[]
---@field low? number[]
---@field high? number[]

---Mean and sd of the training cases.
---@param o? seg.set.standardize
---@return seg.set
function set:standardize(o) end

---With the numbers of its standardize steps, found on its cases.
---@param o? { threads?: integer, cache_bytes?: integer, store?: string }
---@return seg.set
---@return string said lines of what was found
function set:fitted(o) end

---With those of another set, or of the steps of a checkpoint.
---@param other seg.set|string
---@return seg.set
function set:fitted_as(other) end

---@class seg.set.scale
---@field from? number[]
---@field to? number[]

---@param o? seg.set.scale
---@return seg.set
function set:scale(o) end

---@class seg.set.slices
---@field axis? "axial"|"coronal"|"sagittal"|"stored"
---@field keep? "all"|"foreground"
---@field range? number[] fractions of the slices

---@param o? seg.set.slices
---@return seg.set
function set:slices(o) end

---@class seg.set.patches
---@field d? integer voxels; 0: the axis as it is
---@field h? integer
---@field w? integer
---@field at? "random"|"grid"
---@field count? integer of each case in an epoch, at random
---@field foreground? number share of them about a voxel with a label
---@field overlap? number share of their extents, of a grid

---@param o seg.set.patches
---@return seg.set
function set:patches(o) end

---@class seg.set.augment
---@field flip? true|{ axis?: "w"|"h"|"d"|"hw"|"dhw", p?: number, negate?: integer[], swap?: integer[] }
---@field affine? true|{ rotate?: number[], scale?: number[], shift?: number, p?: number, shear?: number[], about?: "all"|"w"|"h"|"d", step?: number }
---@field elastic? true|{ spacing?: number, amplitude?: number[], p?: number }
---@field timeshift? true|{ most?: integer, beyond?: "border"|"wrap", p?: number }
---@field jitter? true|{ brightness?: number, contrast?: number, saturation?: number, hue?: number, top?: number, p?: number }
---@field bias? true|{ by?: number, order?: integer, p?: number }
---@field contrast? true|{ range?: number[], p?: number }
---@field brightness? true|{ by?: number, p?: number }
---@field gamma? true|{ range?: number[], p?: number }
---@field blur? true|{ sigma?: number[], p?: number }
---@field lowres? true|{ factor?: number[], up?: "linear"|"cubic", p?: number }
---@field rician? true|{ sigma?: number, p?: number }
---@field noise? true|{ sigma?: number, p?: number }
---@field cutout? true|{ boxes?: integer, size?: number[], p?: number }
---@field timemask? true|{ spans?: integer, most?: integer, fill?: "zero"|"mean", p?: number }
---@field bands? true|{ stretch?: number, shift?: number, tilt?: number, most?: integer, p?: number }
---@field vary? seg.vary|table { f, name = constant, ... }

---@param o seg.set.augment
---@return seg.set
function set:augment(o) end

---bucket: samples of like length share a batch, as long as its longest, rounded up to a multiple;
---twice: of a field a second input of this name, changed by draws of its own
---@param o { size?: integer|"auto", shuffle?: boolean, drop_last?: boolean, bucket?: "length", multiple?: integer, twice?: table<string, string> }
---@return seg.set
function set:batches(o) end

return data
