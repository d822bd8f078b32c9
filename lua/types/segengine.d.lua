---@meta seg
-- segengine.d.lua -- the Lua interface for editors (LuaCATS annotations).
--
-- Never run: for the library of your editor's Lua settings, and the source of
-- docs/reference.md (tests/lua/reference.lua --write). A description that begins with
-- "= VALUE" gives the default. Losses made of nodes are in segengine_losses.d.lua, data sets in
-- segengine_data.d.lua, functions of nodes in segengine_functions.d.lua,
-- segengine_shapes.d.lua and segengine_indices.d.lua, networks in
-- segengine_net.d.lua, training in segengine_training.d.lua. A guide: docs/guide.md.
-- luacheck: ignore 212 241 631

---@class seg
---@field nn seg.nn
---@field net seg.net
---@field array seg.array.module
---@field op table<string, fun(...): seg.node> the bare operators, as `segengine ops` lists them
---@field data seg.data
---@field optim seg.optim
---@field metric seg.metric
---@field version string
local seg = {}

-- Config and recipe -----------------------------------------------------------

---Declares the options of the recipe with their defaults and returns their values. A value has the
---type of its default: `--size 128`, a list with commas (`--features 16,32,64`), a switch for
---`false` (`--slabs`). `presets = { NAME = { ... } }` holds sets of values. Later wins: the
---defaults, the preset, the config of a run that is resumed or whose weights are used, the command
---line from left to right. Without `--preset` it is `full` with `--data` and for `plan` and
---`bench`, else `demo`, if the recipe has that preset. `check` compares training steps of the
---preset `check`. Reading or setting an unknown key is an error.
---@generic T: table
---@param defaults T
---@return T
function seg.config(defaults) end

---The entry of `options` that the text `word` names; another word is an error that lists all.
---@generic T
---@param key string name of the option, for the message
---@param word string
---@param options table<string, T>
---@return T
function seg.pick(key, word, options) end

---The numbers of a list one by one: `local w, h, d = seg.numbers("size", cfg.size, 3)`. Fewer or
---more are an error.
---@param key string name of the option, for the message
---@param list number[]
---@param count integer
---@return number ...
function seg.numbers(key, list, count) end

---@class seg.recipe.fields
---@field inputs seg.node[] inputs, named as the fields of the data: "image", "mask"
---@field outputs table<string, seg.node> results by name, after sigmoid or softmax
---@field loss seg.node
---@field train seg.set
---@field optim seg.optimiser
---@field valid? seg.set
---@field test? seg.set
---@field schedule? seg.schedule = optim.constant
---@field metrics? table<string, seg.metric.one|seg.node> metrics by name; of a node the mean over samples
---@field loss_parts? seg.metric.loss_parts terms of the loss that each epoch also reports
---@field best? { [1]: string, [2]: "max"|"min" } = { "loss", "min" }; chooses the best epoch, also by a metric
---@field epochs? integer = cfg.epochs
---@field steps_per_epoch? integer updates of an epoch; default: one pass over the set
---@field valid_every? integer = 1; epochs between validations; the last epoch is validated too
---@field accumulate? integer = 1; batches in one update
---@field lr_scale? "batch"|{ batch: integer } multiplies the rate by samples of a step / batch; "batch": the batch that the script declares in seg.config, whatever `--batch` is
---@field frozen? string[] names of layers or parameters that are not trained
---@field ema? number = 0; decay of the moving average of weights; 0: none
---@field swa? { from?: number, lr?: number } stochastic weight averaging from an epoch (below 1: a share of all) at a constant rate
---@field stop? { patience?: integer, min_delta?: number, monitor?: string, mode?: "max"|"min" } early stopping
---@field init? seg.recipe.init initial weights
---@field phases? seg.recipe.phase[] stages with their own loss, data or optimiser
---@field clusters? seg.clusters rounds of clustering at the end
---@field on_batch? fun(at: seg.hook.batch) called before each training step
---@field on_valid? fun(at: seg.hook.valid) after each validation
---@field on_epoch? fun(at: seg.hook.epoch) after each epoch
---@field on_save? fun(at: seg.hook.save) when the checkpoint of an epoch is on the disk
---@field predict? seg.recipe.predict

---Declares the recipe; the program then executes the command of the command line. A script without
---it simply runs, with `arg` as in `lua`. Losses, averages, phases and early stopping are explained in
---[training.md](training.md).
---@param fields seg.recipe.fields
function seg.recipe(fields) end

---How `predict` and `evaluate` treat the output ([predict.md](predict.md)).
---@class seg.recipe.predict
---@field image? string|string[] series or file pattern to segment; default: that of training
---@field names? string[] of the classes, as segments of a DICOM SEG: UTF-8, 1 to 64 characters, no backslash
---@field threshold? number|"valid" = 0.5; of a single channel; "valid": chosen on that set when training ends
---@field temperature? number|"valid" = 1; divides logits of a single channel or of classes
---@field fractions? boolean = false; also writes probabilities
---@field output? string = the first by name; the output to write
---@field as? "labels"|"values"|"dose"|"numbers"|"classes" meaning of the output; default: by its kind
---@field overlap? number = 0.5; overlap of neighbouring windows, 0 to 0.9
---@field tta? "flips"|string[] mean over mirrored images, along the axes of training or of the list
---@field keep? "largest"|integer connected components of each class to keep
---@field min_ml? number smaller components are removed
---@field fill_holes? boolean|"slices" fills holes in each class, in 3-D or slice by slice
---@field connect? 6|26 = 26; neighbours of a voxel in a component
---@field each? table<string|integer, seg.recipe.tidy> the last four options by class

---@class seg.recipe.tidy
---@field keep? "largest"|integer
---@field min_ml? number
---@field fill_holes? boolean|"slices"
---@field connect? 6|26

---Declares the values that `segengine SCRIPT.lua search` tries; with `objective`, runs a search of
---that function and returns its result ([experiments.md](experiments.md)).
---@param o seg.search.options
---@return seg.search.found? found with an objective
function seg.search(o) end

-- Nodes -----------------------------------------------------------------------

---A value of the network. `a .. b` joins channels, a's first; `+ - * / ^ % //` work on nodes
---(extents equal or 1) and numbers. A skip connection is a variable. The rank comes from the input: every function
---works in 1-D, 2-D and 3-D. Parameters are called `scope.layer.tensor`, as `enc1.conv2.weight`: the layer
---is its kind and a number, or `name`; tensors have the names, shapes and order of PyTorch.
---@class seg.node
---@field n integer
---@field c integer channels
---@field d integer
---@field h integer
---@field w integer
---@field rank integer number of spatial axes; -2: one number, a loss
---@field shape integer[] (N,C,[D],[H],W)
---@field name string
---@field kind string name of the operator
---@field where string script and line that made it
---@operator add(seg.node|number): seg.node
---@operator sub(seg.node|number): seg.node
---@operator mul(seg.node|number): seg.node
---@operator div(seg.node|number): seg.node
---@operator pow(seg.node|number): seg.node
---@operator mod(seg.node|number): seg.node
---@operator idiv(seg.node|number): seg.node
---@operator unm: seg.node
---@operator concat(seg.node): seg.node

---One number for all axes, or a list with one for each.
---@alias seg.extent integer|integer[]

---Initial weights; "default": uniform within 1/sqrt(fan_in), as PyTorch; "kaiming_normal_out": by
---fan_out, as torchvision's ResNet.
---@alias seg.init
---| "default"
---| "kaiming_uniform"
---| "kaiming_normal"
---| "kaiming_normal_out"
---| "xavier_uniform"
---| "xavier_normal"
---| "zero"

-- Layers: nn ------------------------------------------------------------------

---@alias seg.nn.activation fun(x: seg.node): seg.node

---@class seg.nn
---@field relu seg.nn.activation
---@field sigmoid seg.nn.activation
---@field tanh seg.nn.activation
---@field gelu seg.nn.activation
---@field silu seg.nn.activation
---@field softmax fun(x: seg.node): seg.node over channels
---@field flatten fun(x: seg.node): seg.node (N, C*D*H*W), in PyTorch's order
local nn = {}

---An input without N; its keys give the rank: {c}, {c,w}, {c,h,w} or {c,d,h,w}.
---@param name string
---@param o { c: integer, d?: integer, h?: integer, w?: integer }
---@return seg.node
function nn.input(name, o) end

---@class seg.nn.conv
---@field stride? seg.extent = 1
---@field pad? seg.extent|"same" default: keeps the size of odd kernels at stride 1; "same": TensorFlow's
---@field dilation? seg.extent = 1
---@field groups? integer = 1
---@field bias? boolean = true
---@field init? seg.init = "default"
---@field name? string

---Convolution.
---@param x seg.node
---@param filters integer
---@param kernel seg.extent
---@param o? seg.nn.conv
---@return seg.node
function nn.conv(x, filters, kernel, o) end

---@class seg.nn.upconv: seg.nn.conv
---@field stride? seg.extent = 2
---@field pad? seg.extent|"same" = (kernel - stride) / 2; a kernel of 2 or 4 doubles the size
---@field out_pad? seg.extent = 0

---Transposed convolution.
---@param x seg.node
---@param filters integer
---@param kernel seg.extent
---@param o? seg.nn.upconv
---@return seg.node
function nn.upconv(x, filters, kernel, o) end

---@class seg.nn.linear
---@field bias? boolean = true
---@field init? seg.init = "default"
---@field name? string

---Fully connected layer over the channels of each position.
---@param x seg.node
---@param width integer
---@param o? seg.nn.linear
---@return seg.node
function nn.linear(x, width, o) end

---@class seg.nn.embedding
---@field count integer vectors in the table
---@field size integer numbers of a vector
---@field init? number|table = { normal = 1 }; as of nn.param
---@field name? string

---A learnt vector for each index, rounded, from 0 to count - 1: (N,1,...) to (N,size,...). Any other
---index gives NaN, as in seg.gather.
---@param index seg.node
---@param o seg.nn.embedding
---@return seg.node
function nn.embedding(index, o) end

---@class seg.nn.norm
---@field eps? number = 1e-5
---@field affine? boolean = true
---@field weight? number = 1; first value of the weights
---@field name? string

---@class seg.nn.batch_norm: seg.nn.norm
---@field momentum? number = 0.1

---@param x seg.node
---@param o? seg.nn.batch_norm
---@return seg.node
function nn.batch_norm(x, o) end

---@class seg.nn.group_norm: seg.nn.norm
---@field groups? integer = 8

---@param x seg.node
---@param o? seg.nn.group_norm
---@return seg.node
function nn.group_norm(x, o) end

---@param x seg.node
---@param o? seg.nn.norm
---@return seg.node
function nn.instance_norm(x, o) end

---@param x seg.node
---@param o? seg.nn.norm
---@return seg.node
function nn.layer_norm(x, o) end

---@class seg.nn.pool
---@field stride? seg.extent = kernel
---@field pad? seg.extent|"same" = 0

---@param x seg.node
---@param kernel seg.extent
---@param o? seg.nn.pool
---@return seg.node
function nn.maxpool(x, kernel, o) end

---@class seg.nn.avgpool: seg.nn.pool
---@field count? "all"|"valid" = "all"; "valid": divides by the number of positions inside

---@param x seg.node
---@param kernel seg.extent
---@param o? seg.nn.avgpool
---@return seg.node
function nn.avgpool(x, kernel, o) end

---@class seg.nn.global_pool
---@field mode? "mean"|"max"|"last"|"ends" = "mean"; "last": the last step; "ends": the last step of each direction of a bidirectional LSTM
---@field lengths? seg.node

---Reduces all positions (those within `lengths`); the result has rank 0.
---@param x seg.node
---@param o? seg.nn.global_pool
---@return seg.node
function nn.global_pool(x, o) end

---@class seg.nn.upsample
---@field mode? "nearest"|"linear" = "nearest"
---@field align_corners? boolean = false

---@param x seg.node
---@param factor seg.extent
---@param o? seg.nn.upsample
---@return seg.node
function nn.upsample(x, factor, o) end

---@param ... seg.node
---@return seg.node
function nn.concat(...) end

---A box of x: `{ c = { from, size }, ... }`, counted from 1.
---@param x seg.node
---@param box { c?: integer[], d?: integer[], h?: integer[], w?: integer[] }
---@return seg.node
function nn.slice(x, box) end

---A border, `{ w = { before, after }, ... }`, of a value, by default 0.
---@param x seg.node
---@param border { d?: integer[], h?: integer[], w?: integer[] }
---@param o? { value?: number }
---@return seg.node
function nn.pad(x, border, o) end

---@param x seg.node
---@param slope? number = 0.01
---@return seg.node
function nn.leaky_relu(x, slope) end

---@param x seg.node
---@param p? number = 0.5; 0 returns x itself
---@return seg.node
function nn.dropout(x, p) end

---Dropout of whole channels of a sample.
---@param x seg.node
---@param p? number = 0.5
---@return seg.node
function nn.spatial_dropout(x, p) end

---Runs f inside a scope of parameter names and returns its results. Entering a scope twice is an
---error, unless `share = true`, which uses its parameters and those of all inner scopes again. With
---`frozen = true` none of them is trained, batch norms use their running statistics and dropout does
---nothing.
---@generic T
---@param name string
---@param f fun(): T
---@param o? { share?: boolean, frozen?: boolean }
---@return T
function nn.scope(name, f, o) end

---@class seg.nn.param.options
---@field init? number|{ normal: number }|{ uniform: number } = 0; all equal, or drawn with this standard deviation, or within this bound
---@field trained? boolean = true
---@field decay? boolean = true; weight decay applies to it

---A tensor that is learnt. `{ C }` has a number for each channel, `{ 1, C, H, W }` one for each
---position too; as an operand it is repeated along axes of 1.
---@param name string unique within its scope
---@param shape integer[] { C }, or { 1, C, [D], [H], [W] }: 1 for the batch
---@param o? seg.nn.param.options
---@return seg.node
function nn.param(name, shape, o) end

-- Layers of sequences ---------------------------------------------------------

---`lengths` is `nn.input("length", { c = 1 })`, filled by a field of kind `length`: position p,
---from 0, counts where p < length. Positions beyond it do not influence the result of `lstm`, `attention` and
---`global_pool`, and are 0 in the result of the first two. A convolution reads across the end: put
---`mask_length` before it. Batch and instance norm count the padding. LSTM gates have the order i, f, g,
---o; a `state_dict` of `nn.LSTM` or `nn.MultiheadAttention` loads.

---@class seg.nn.lstm
---@field layers? integer = 1
---@field bidirectional? boolean = false; twice the channels, forward first
---@field dropout? number = 0; between layers
---@field lengths? seg.node
---@field bias? boolean = true
---@field name? string

---LSTM over the steps of a sequence (C,W); `hidden` channels at every step.
---@param x seg.node
---@param hidden integer
---@param o? seg.nn.lstm
---@return seg.node
function nn.lstm(x, hidden, o) end

---@class seg.nn.attention
---@field heads? integer = 1
---@field lengths? seg.node
---@field dropout? number = 0; of the attention weights
---@field bias? boolean = true
---@field qkv_bias? boolean = `bias`; of queries, keys and values
---@field name? string

---Multi-head self-attention over all positions.
---@param x seg.node
---@param o? seg.nn.attention
---@return seg.node
function nn.attention(x, o) end

---x with 0 beyond the lengths.
---@param x seg.node
---@param lengths seg.node
---@return seg.node
function nn.mask_length(x, lengths) end

---@class seg.nn.length_after
---@field stride? integer = kernel
---@field pad? integer = 0
---@field dilation? integer = 1

---The lengths after a pool or convolution along w.
---@param lengths seg.node
---@param kernel integer
---@param o? seg.nn.length_after
---@return seg.node
function nn.length_after(lengths, kernel, o) end

-- Losses ----------------------------------------------------------------------

---A loss takes a prediction x, a target t and options; [numerics.md](numerics.md) has the formulas. Those from
---`bce` to `focal` take logits: a sigmoid or softmax as operand is an error, and so is the target in
---front. Losses add up: `nn.cross_entropy(x, t) + 0.5 * nn.dice_loss(x, t)`.

---@class seg.nn.loss
---@field mask? seg.node elements with 0 do not count
---@field weight? seg.node factor of each element

---@class seg.nn.classes: seg.nn.loss
---@field class_weights? number[] one for each channel; the loss is a weighted mean over classes, and of overlap losses needs per = "sample"
---@field ignore? number targets with this number do not count

---@class seg.nn.region: seg.nn.classes
---@field per? "batch"|"sample" = "batch"; sums over the batch, or by sample
---@field eps? number = 1; added to numerator and denominator
---@field empty? "count"|"skip" = "count"; "skip": leaves out samples and classes without ground truth
---@field background? boolean = false; includes class 0

---@class seg.nn.bce: seg.nn.classes
---@field pos_weight? number = 1

---@class seg.nn.bce_dice: seg.nn.region
---@field bce? number = 1; weight of the cross entropy
---@field dice? number = 1; weight of the Dice loss
---@field pos_weight? number = 1

---@class seg.nn.tversky: seg.nn.region
---@field alpha? number = 0.5; weight of false positives
---@field beta? number = 0.5; weight of false negatives

---@class seg.nn.cross_entropy: seg.nn.loss
---@field class_weights? number[] one for each class, as PyTorch's `weight`
---@field label_smoothing? number = 0; share of the target that is spread evenly over all classes
---@field ignore? integer = -100; targets with this number do not count

---@class seg.nn.focal: seg.nn.classes
---@field gamma? number = 2
---@field alpha? number = -1; weight of the positive class; below 0: none

---@class seg.nn.huber: seg.nn.loss
---@field delta? number = 1

---@class seg.nn
---@field bce fun(x: seg.node, t: seg.node, o?: seg.nn.bce): seg.node
---@field dice_loss fun(x: seg.node, t: seg.node, o?: seg.nn.region): seg.node
---@field bce_dice fun(x: seg.node, t: seg.node, o?: seg.nn.bce_dice): seg.node
---@field tversky fun(x: seg.node, t: seg.node, o?: seg.nn.tversky): seg.node
---@field focal fun(x: seg.node, t: seg.node, o?: seg.nn.focal): seg.node
---@field mae fun(x: seg.node, t: seg.node, o?: seg.nn.loss): seg.node
---@field mse fun(x: seg.node, t: seg.node, o?: seg.nn.loss): seg.node
---@field huber fun(x: seg.node, t: seg.node, o?: seg.nn.huber): seg.node

---The target (N,1,...) holds class numbers from 0.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.cross_entropy
---@return seg.node
function nn.cross_entropy(x, t, o) end

---@class seg.nn.dvh_loss
---@field width? number = 1; distance of the bins in Gy
---@field steep? number = 1; steepness of their edges
---@field bins? integer = 80

---Difference of the dose-volume histograms of all structures of every sample. No mask, no weight.
---@param x seg.node predicted dose, one channel
---@param t seg.node true dose
---@param structures seg.node a channel for each
---@param o? seg.nn.dvh_loss
---@return seg.node
function nn.dvh_loss(x, t, structures, o) end

---Counts (both, predicted, true) of each class and sample; not a loss.
---@param x seg.node
---@param t seg.node
---@param o? { mask?: seg.node, threshold?: number }
---@return seg.node
function nn.overlap(x, t, o) end

-- Metrics ---------------------------------------------------------------------

---Metrics are computed per case, in 3-D also for networks of slices and patches;
---[numerics.md](numerics.md#metrics) has the definitions. A target is an input or computed. Several
---classes are printed one by one. `dice` to `accuracy` are counted on the device.

---@class seg.metric.one
---@field kind string
---@field way "counts"|"volume"|"numbers" how it is measured; metric.lua says more
---@field better? "max"|"min"
---@field unit? string
---@field when? "epoch"|"end"
---@field node? seg.node of counts
---@field rule string printed with every value
---@field value? fun(sums: number[], voxels: number?): number?, number[]? of counts

---@class seg.metric.any
---@field when? "epoch"|"end" "end": only on the test set and by `evaluate`, the default of distances, volumes and ROC curves of voxels unless `best` names them
---@field names? string[] names of the classes or numbers; default: those of `predict`

---@class seg.metric.counts: seg.metric.any
---@field threshold? number = 0.5
---@field mask? seg.node voxels with 0 do not count

---@class seg.metric.options: seg.metric.counts
---@field empty? "skip"|"one" = "skip"; a class that neither ground truth nor prediction has: left out, or 1

---@class seg.metric.surface: seg.metric.options
---@field missing? "diagonal"|"skip" = "diagonal"; a class that only one of them has

---@class seg.metric.hd95: seg.metric.surface
---@field both? "max"|"union" = "max"; the larger direction, or the percentile of both together

---@class seg.metric.surface_dice: seg.metric.surface
---@field tolerance? number = 1; mm

---@class seg.metric.volume_error: seg.metric.counts
---@field unit? "ml"|"%" = "ml"
---@field signed? boolean = false; predicted minus true

---@class seg.metric.auc: seg.metric.any
---@field mask? seg.node

---@class seg.metric.dose_score: seg.metric.any
---@field mask? seg.node
---@field scale? number = 1; factor of output and target

---@class seg.metric.mae: seg.metric.dose_score
---@field unit? string = ""; printed

---@class seg.metric.dvh_score: seg.metric.dose_score
---@field structures seg.node a channel of 0 and 1 for each
---@field targets? integer[] channels of the target volumes, as { 8, 9, 10 }

---@class seg.metric.rotation: seg.metric.any
---@field form? "euler"|"yaw pitch"|"matrix"|"6d"|"quaternion" = "euler"; of the output
---@field truth? "euler"|"yaw pitch"|"matrix"|"6d"|"quaternion" = form; of the target

---@class seg.metric.parts
---@field bce? number = 1
---@field dice? number = 1
---@field pos_weight? number = 1
---@field per? "batch"|"sample" = "batch"
---@field eps? number = 1
---@field empty? "count"|"skip" = "count"

---For `loss_parts` of a recipe.
---@class seg.metric.loss_parts

---@class seg.metric.own
---@field when? "epoch"|"end" = "epoch"
---@field better? "max"|"min" printed in summaries; `best` must agree
---@field unit? string = ""; printed

---@alias seg.metric.make fun(x: seg.node, t: seg.node, o?: seg.metric.options): seg.metric.one
---@alias seg.metric.distance fun(x: seg.node, t: seg.node, o?: seg.metric.surface): seg.metric.one
---@alias seg.metric.count fun(x: seg.node, t: seg.node, o?: seg.metric.counts): seg.metric.one

---@class seg.metric
---@field dice seg.metric.make
---@field iou seg.metric.make
---@field sensitivity seg.metric.make
---@field specificity seg.metric.make
---@field precision seg.metric.make
---@field accuracy seg.metric.count
---@field confusion seg.metric.count
---@field auc fun(x: seg.node, t: seg.node, o?: seg.metric.auc): seg.metric.one area under the ROC curve
---@field groups fun(x: seg.node, t: seg.node, o?: seg.metric.any): seg.metric.one accuracy of groups found without labels, under the best assignment to classes
---@field hd95 fun(x: seg.node, t: seg.node, o?: seg.metric.hd95): seg.metric.one
---@field hd seg.metric.distance
---@field assd seg.metric.distance
---@field surface_dice fun(x: seg.node, t: seg.node, o?: seg.metric.surface_dice): seg.metric.one
---@field volume_error fun(x: seg.node, t: seg.node, o?: seg.metric.volume_error): seg.metric.one
---@field mae fun(x: seg.node, t: seg.node, o?: seg.metric.mae): seg.metric.one of maps and of numbers
---@field geodesic fun(x: seg.node, t: seg.node, o?: seg.metric.rotation): seg.metric.one angle between rotations, degrees
---@field dose_score fun(x: seg.node, t: seg.node, o?: seg.metric.dose_score): seg.metric.one of OpenKBP, Gy
---@field dvh_score fun(x: seg.node, t: seg.node, o: seg.metric.dvh_score): seg.metric.one of OpenKBP, Gy
---@field loss_parts fun(x: seg.node, t: seg.node, o?: seg.metric.parts): seg.metric.loss_parts for `loss_parts` of a recipe with one channel of logits, without mask and weight: `bce`, `dice_fg` (mean Dice loss of samples with foreground) and `dice_empty` (of samples without), on train and valid
---@field mean fun(x: seg.node, o?: seg.metric.own): seg.metric.one of a node of any size: mean over samples, each counted once; of a loss the mean over batches by their samples
---@field case fun(x: seg.node, t: seg.node, f: fun(x: seg.array, t: seg.array, spacing: number[], used?: boolean[]): number, o?: seg.metric.own): seg.metric.one a function of prediction and truth of a whole case, (C,D,H,W), its voxel's edges in mm by axis, and whether the set has each slice (nil: all); of numbers (C) of a sample; NaN: the case has no value. Options: `metric.own`
---@field summary fun(values: number[], owners?: string[]): table mean, median, sd, n, low, high
---@field interval fun(n: integer, owners?: string[], f: fun(places: integer[]): number?): number? bootstrap interval of f over patients

-- Arrays and models in a script -----------------------------------------------

---For tests, comparison with other frameworks and training loops of your own. Arrays are float32 in the
---order (N,C,[D],[H],W); indices count from 1. N comes from the arrays and may change between calls. With
---`device = "ref"` all arithmetic is double.
---
---```lua
---local seg = require "seg"
---local nn, optim = seg.nn, seg.optim
---
---local x = nn.input("x", { c = 1, h = 8, w = 8 })
---local t = nn.input("t", { c = 1, h = 8, w = 8 })
---local y = nn.conv(x, 1, 3, { name = "head" })
---local a = seg.array.zeros { 2, 1, 8, 8 }
---a:set(1.5, 1, 1, 4, 4)
---print(a:get(1, 1, 4, 4), a.shape[1], a.count, a:stats())
---print(#a:values())
---seg.array.save("a.npy", a)
---local b = seg.array.load("a.npy") -- of .npz and .mat by name: load("x.npz", "name")
---local c = seg.array { shape = { 2, 2 }, data = { 1, 2, 3, 4 } }
---print(c:reshape { 1, 1, 4 })
---
---local s = seg.step { loss = nn.mse(y, t), outputs = { y = y }, device = "ref",
---                     optim = optim.sgd { lr = 0.1 }, clip_norm = 0, threads = 0, seed = 0 }
---local loss, out = s:run { x = a, t = b, lr = 1e-3 } -- forward, backward, clip, update
---print(loss, out.y, s.grad_norm, s.applied)          -- the loss before the update
---print(s:gradients()["head.weight"])                 -- before clipping and decay
---s:save("s.safetensors")                             -- full; s:resume(path) reads it
---
---local m = seg.model { outputs = { y = y }, device = "cpu", threads = 0, seed = 0 }
---m:load("s.safetensors")
---print(m:run { x = a }.y, m:get("head.bias"), m:parameters()["head.weight"].shape[1])
---m:save("m.safetensors")                             -- weights and the network
---
---local o = seg.open("m.safetensors", { device = "cpu", threads = 0 }) -- needs no nn
---print(o:run { x = a }.y, o:inputs().x[2], o:outputs().y[2])
---```

---@class seg.array
---@field shape integer[]
---@field count integer number of elements
---@field distance fun(self: seg.array, b: seg.array): number, number sums of (self - b)^2 and of b^2
local array = {}

---@param ... integer
---@return number
function array:get(...) end

---@param value number
---@param ... integer
function array:set(value, ...) end

---@return number least
---@return number largest
---@return number mean
function array:stats() end

---The distinct values, least first; nil when there are too many to be labels.
---@return number[]?
function array:values() end

---A copy with another shape and as many elements.
---@param shape integer[]
---@return seg.array
function array:reshape(shape) end

---@class seg.array.module
---@field zeros fun(shape: integer[]): seg.array
---@field random fun(shape: integer[], seed: integer, binary?: boolean): seg.array
---@field load fun(path: string, name?: string): seg.array .npy, or an array of .npz or .mat by name
---@field list fun(path: string): { name: string, type?: string, shape: integer[], why?: string }[]
---@field save fun(path: string, a: seg.array)
---@overload fun(o: { shape: integer[], data?: table }): seg.array
seg.array = {}

---@class seg.model
local model = {}

---@class seg.session.options
---@field device? string = "cpu"; or "ref", "cuda", "auto"
---@field threads? integer = 0; 0: all cores
---@field seed? integer = 0; of initial weights
---@field precision? string = "f32"; "tf32", "bf16", "f16"
---@field winograd? boolean = true
---@field fuse? boolean = true

---@class seg.model.options: seg.session.options
---@field outputs table<string, seg.node>
---@field inputs? seg.node[]

---@param o seg.model.options
---@return seg.model
function seg.model(o) end

---Loads weights by name.
---@param path string
---@param o? { rename?: fun(name: string): string? }
function model:load(path, o) end

---Writes weights, running statistics and the network.
---@param path string
function model:save(path) end

---Writes network and weights as ONNX.
---@param path string
---@param o? { probabilities?: boolean, any_size?: boolean }
---@return { nodes: integer, numbers: integer, bytes: integer, probabilities: integer, opset: integer } counts
function model:onnx(path, o) end

---Evaluation: no dropout, running statistics.
---@param inputs table<string, seg.array>
---@return table<string, seg.array> outputs
function model:run(inputs) end

---@return table<string, { name: string, shape: integer[], trained: boolean }>
function model:parameters() end

---@param name string
---@return seg.array
function model:get(name) end

---@param name string
---@param value seg.array
function model:set(name, value) end

---Parameters and running statistics that both networks have become decay x own + (1 - decay) x those of `from`: an
---exponential moving average, or with 0 a copy. Computed in double on the host, so on a GPU it waits for the step.
---@param from seg.step|seg.model
---@param decay? number = 0
---@param match? string Lua pattern on names of parameters
---@return integer count of the tensors that followed
function model:follow(from, decay, match) end

---@class seg.opened
local opened = {}

---Runs a file of `model:save`, a checkpoint or a bundle by the network stored in it, as `seg_open`
---does in C.
---@param path string
---@param o? { device?: string, threads?: integer }
---@return seg.opened
function seg.open(path, o) end

---@param inputs table<string, seg.array>
---@return table<string, seg.array> outputs
function opened:run(inputs) end

---Of a bundle: writes the class numbers of an image file into another file.
---@param input string
---@param output string
function opened:predict_file(input, output) end

---Shapes for one sample by name.
---@return table<string, integer[]>
function opened:inputs() end

---@return table<string, integer[]>
function opened:outputs() end

---@class seg.step: seg.model
---@field grad_norm number of the last run, before clipping
---@field applied boolean false: a value was not finite and nothing changed
local step = {}

---@class seg.step.options: seg.session.options
---@field loss seg.node
---@field optim seg.optimiser
---@field outputs? table<string, seg.node>
---@field frozen? string[] names of layers or parameters that are not trained
---@field clip_norm? number = 0; 0: the optimiser's
---@field accumulate? integer = 1; runs in one update, by their mean gradient
---@field recompute? string|integer limit of the arena, as "2G"; values are recomputed to keep within it

---A training session with the methods of a model, except `onnx`, and:
---@param o seg.step.options
---@return seg.step
function seg.step(o) end

---One training step: forward, backward, clip, update; with `accumulate = n` every n-th run updates. `lr` among the inputs overrides the
---optimiser's rate; schedules are not applied.
---@param inputs table<string, seg.array|number>
---@return number loss before the update
---@return table<string, seg.array> outputs
function step:run(inputs) end

---Limits the norm of all gradients together in the runs that follow, as `clip_norm` of an optimiser.
---@param norm number 0: none
function step:clip(norm) end

---Gradients of the last run, before clipping and decay.
---@return table<string, seg.array>
function step:gradients() end

---Writes a full checkpoint; with `accumulate` only after an update.
---@param path string
function step:save(path) end

---Restores a full checkpoint.
---@param path string
function step:resume(path) end

return seg
