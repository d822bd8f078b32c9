---@meta seg
-- segengine.d.lua -- the Lua API for editors (LuaCATS annotations).
--
-- Never run: for the library of your editor's Lua settings. Data sets are in
-- segengine_data.d.lua, networks in segengine_net.d.lua, training in
-- segengine_training.d.lua. More: docs/recipes.md.
-- luacheck: ignore 212 241 631

---@class seg
---@field nn seg.nn
---@field net seg.net
---@field op table<string, fun(...): seg.node> bare operators, as `segengine ops` lists them
---@field data seg.data
---@field optim seg.optim
---@field metric seg.metric
---@field version string
local seg = {}

-- Nodes -----------------------------------------------------------------------

---A value of the network; `..` joins channels, + - * / work on nodes and numbers.
---@class seg.node
---@field n integer
---@field c integer channels
---@field d integer
---@field h integer
---@field w integer
---@field rank integer how many of d, h, w there are; -2: one number, a loss
---@field shape integer[] (N,C,[D],[H],W)
---@field name string
---@field kind string
---@field where string the line of the script that made it
---@operator add(seg.node|number): seg.node
---@operator sub(seg.node|number): seg.node
---@operator mul(seg.node|number): seg.node
---@operator div(seg.node|number): seg.node
---@operator unm: seg.node
---@operator concat(seg.node): seg.node

---One number for all axes, or one for each.
---@alias seg.extent integer|integer[]

---@alias seg.init
---| "default"         uniform within 1/sqrt(fan_in), as PyTorch
---| "kaiming_uniform"
---| "kaiming_normal"
---| "kaiming_normal_out" the same by what goes out, as torchvision's ResNet
---| "xavier_uniform"
---| "xavier_normal"
---| "zero"

-- Config and recipe -----------------------------------------------------------

---Defaults that the preset, a resumed run and the command line override.
---`presets` is a table name = {...}. Reading or setting an unknown key is an error.
---@generic T: table
---@param defaults T
---@return T
function seg.config(defaults) end

---What `options` has under the word that a key of the config has; another word is an
---error that lists them.
---@generic T
---@param key string name of the key, for the message
---@param word string
---@param options table<string, T>
---@return T
function seg.pick(key, word, options) end

---The numbers of a list of the config one by one; another count of them is an error.
---@param key string name of the key, for the message
---@param list number[]
---@param count integer
---@return number ...
function seg.numbers(key, list, count) end

---@class seg.recipe.predict
---@field image? string|string[] series or pattern that is segmented; else what training took
---@field names? string[] of the segments in a DICOM SEG: UTF-8, 1 to 64 characters, no backslash
---@field threshold? number|"valid" of a single channel, 0.5; "valid": chosen on that set
---@field temperature? number|"valid" logits of a single channel are divided by it
---@field fractions? boolean write probabilities beside the labels
---@field output? string which of the outputs; the first by name
---@field as? "labels"|"values"|"dose"|"numbers"|"classes" what the output means
---@field overlap? number what windows share of their extents, 0 to 0.9, 0.5
---@field tta? "flips"|string[] the mean over mirrored images, along the axes of training or these
---@field keep? "largest"|integer pieces of each class that stay
---@field min_ml? number pieces of less go
---@field fill_holes? boolean|"slices" zeros inside a class become the class
---@field connect? 6|26 over what voxels hang together, 26: faces, edges and corners
---@field each? table<string|integer, seg.recipe.tidy> other such steps for one class

---@class seg.recipe.tidy
---@field keep? "largest"|integer
---@field min_ml? number
---@field fill_holes? boolean|"slices"
---@field connect? 6|26

---@class seg.recipe.fields
---@field inputs seg.node[] named as the fields of the data: "image", "mask"
---@field outputs table<string, seg.node>
---@field loss seg.node
---@field train seg.set
---@field optim seg.optimiser
---@field valid? seg.set
---@field test? seg.set
---@field schedule? seg.schedule
---@field metrics? table<string, seg.metric.one>
---@field loss_parts? seg.metric.loss_parts what the loss is made of, beside it in each epoch
---@field best? { [1]: string, [2]: "max"|"min" } a metric or "loss"
---@field epochs? integer the config's when left out
---@field accumulate? integer batches to an update, 1
---@field frozen? string[] names of layers or parameters that keep their weights
---@field ema? number average of every step that keeps so much of itself; 0: none
---@field swa? { from?: number, lr?: number } mean over the epochs from this one on
---@field stop? { patience?: integer, min_delta?: number, monitor?: string, mode?: "max"|"min" }
---@field init? seg.recipe.init weights to begin with
---@field phases? seg.recipe.phase[]
---@field clusters? seg.clusters rounds of clusters at the end
---@field predict? seg.recipe.predict

---Declares the recipe; the program then does what the command says.
---@param fields seg.recipe.fields
function seg.recipe(fields) end

---What `segengine SCRIPT.lua search` tries; with an objective the search itself.
---@param o seg.search.options
---@return seg.search.found? found with an objective
function seg.search(o) end

-- Layers ----------------------------------------------------------------------

---@class seg.nn
---@field flatten fun(x: seg.node): seg.node (N, C*D*H*W), in PyTorch's order
---@field relu fun(x: seg.node): seg.node
---@field sigmoid fun(x: seg.node): seg.node
---@field tanh fun(x: seg.node): seg.node
---@field gelu fun(x: seg.node): seg.node
---@field silu fun(x: seg.node): seg.node
---@field softmax fun(x: seg.node): seg.node over channels
---@field layer_norm fun(x: seg.node, o?: seg.nn.norm): seg.node
---@field instance_norm fun(x: seg.node, o?: seg.nn.norm): seg.node
---@field bce fun(x: seg.node, t: seg.node, o?: seg.nn.bce): seg.node
---@field dice_loss fun(x: seg.node, t: seg.node, o?: seg.nn.region): seg.node
---@field bce_dice fun(x: seg.node, t: seg.node, o?: seg.nn.bce_dice): seg.node
---@field tversky fun(x: seg.node, t: seg.node, o?: seg.nn.tversky): seg.node
---@field focal fun(x: seg.node, t: seg.node, o?: seg.nn.focal): seg.node
---@field mae fun(x: seg.node, t: seg.node, o?: seg.nn.loss): seg.node
---@field mse fun(x: seg.node, t: seg.node, o?: seg.nn.loss): seg.node
---@field huber fun(x: seg.node, t: seg.node, o?: seg.nn.huber): seg.node
local nn = {}

---The keys given say the rank: {c}, {c,w}, {c,h,w}, {c,d,h,w}.
---@param name string
---@param o { c: integer, d?: integer, h?: integer, w?: integer }
---@return seg.node
function nn.input(name, o) end

---@class seg.nn.conv
---@field stride? seg.extent 1
---@field pad? seg.extent|"same" keeps the size of odd kernels at stride 1
---@field dilation? seg.extent 1
---@field groups? integer 1
---@field bias? boolean true
---@field init? seg.init
---@field name? string

---@param x seg.node
---@param filters integer
---@param kernel seg.extent
---@param o? seg.nn.conv
---@return seg.node
function nn.conv(x, filters, kernel, o) end

---@class seg.nn.upconv: seg.nn.conv
---@field stride? seg.extent 2
---@field pad? seg.extent|"same" (kernel - stride) / 2
---@field out_pad? seg.extent 0

---Transposed convolution.
---@param x seg.node
---@param filters integer
---@param kernel seg.extent
---@param o? seg.nn.upconv
---@return seg.node
function nn.upconv(x, filters, kernel, o) end

---On the channels of each position.
---@param x seg.node
---@param width integer
---@param o? { bias?: boolean, init?: seg.init, name?: string }
---@return seg.node
function nn.linear(x, width, o) end

---@param x seg.node
---@param o? { eps?: number, momentum?: number, affine?: boolean, name?: string }
---@return seg.node
function nn.batch_norm(x, o) end

---@param x seg.node
---@param o? { groups?: integer, eps?: number, affine?: boolean, name?: string }
---@return seg.node
function nn.group_norm(x, o) end

---@class seg.nn.norm
---@field eps? number 1e-5
---@field affine? boolean true
---@field name? string

---@param x seg.node
---@param kernel seg.extent
---@param o? { stride?: seg.extent, pad?: seg.extent|"same" }
---@return seg.node
function nn.maxpool(x, kernel, o) end

---@param x seg.node
---@param kernel seg.extent
---@param o? { stride?: seg.extent, pad?: seg.extent|"same", count?: "all"|"valid" }
---@return seg.node
function nn.avgpool(x, kernel, o) end

---Over all positions or those within lengths; the result has rank 0.
---@param x seg.node
---@param o? { mode?: "mean"|"max"|"last"|"ends", lengths?: seg.node }
---@return seg.node
function nn.global_pool(x, o) end

---@class seg.nn.lstm
---@field layers? integer 1
---@field bidirectional? boolean false; twice the channels, forward first
---@field dropout? number between layers, 0
---@field lengths? seg.node one number a sample: nn.input("length", { c = 1 })
---@field bias? boolean true
---@field name? string

---Over the steps of a sequence (C,W); 0 beyond the lengths.
---@param x seg.node
---@param hidden integer
---@param o? seg.nn.lstm
---@return seg.node
function nn.lstm(x, hidden, o) end

---@class seg.nn.attention
---@field heads? integer 1
---@field lengths? seg.node of a sequence (C,W)
---@field dropout? number of the weights, 0
---@field bias? boolean true
---@field name? string

---Multi-head self-attention of all positions; 0 beyond the lengths.
---@param x seg.node
---@param o? seg.nn.attention
---@return seg.node
function nn.attention(x, o) end

---x, but 0 beyond the lengths.
---@param x seg.node
---@param lengths seg.node
---@return seg.node
function nn.mask_length(x, lengths) end

---Lengths behind a pool or convolution along w.
---@param lengths seg.node
---@param kernel integer
---@param o? { stride?: integer, pad?: integer, dilation?: integer } stride: the kernel
---@return seg.node
function nn.length_after(lengths, kernel, o) end

---@param x seg.node
---@param factor seg.extent
---@param o? { mode?: "nearest"|"linear", align_corners?: boolean }
---@return seg.node
function nn.upsample(x, factor, o) end

---@param ... seg.node
---@return seg.node
function nn.concat(...) end

---A box of x: {c={from, size}, ...}, from counted from 1.
---@param x seg.node
---@param box { c?: integer[], d?: integer[], h?: integer[], w?: integer[] }
---@return seg.node
function nn.slice(x, box) end

---A border: {w={before, after}, ...}.
---@param x seg.node
---@param border { d?: integer[], h?: integer[], w?: integer[] }
---@param o? { value?: number }
---@return seg.node
function nn.pad(x, border, o) end

---@param x seg.node
---@param slope? number 0.01
---@return seg.node
function nn.leaky_relu(x, slope) end

---@param x seg.node
---@param p? number 0.5; 0 is x itself
---@return seg.node
function nn.dropout(x, p) end

---Whole channels of a sample.
---@param x seg.node
---@param p? number 0.5
---@return seg.node
function nn.spatial_dropout(x, p) end

---Run f inside a scope of parameter names and return what it returns.
---@generic T
---@param name string
---@param f fun(): T
---@param o? { share?: boolean }
---@return T
function nn.scope(name, f, o) end

-- Losses: logits x, target t --------------------------------------------------

---@class seg.nn.loss
---@field mask? seg.node who counts
---@field weight? seg.node how much

---@class seg.nn.region: seg.nn.loss
---@field per? "batch"|"sample"
---@field eps? number 1
---@field empty? "count"|"skip"
---@field background? boolean

---@class seg.nn.bce: seg.nn.loss
---@field pos_weight? number 1

---@class seg.nn.bce_dice: seg.nn.region
---@field bce? number 1
---@field dice? number 1
---@field pos_weight? number 1

---@class seg.nn.tversky: seg.nn.region
---@field alpha? number 0.5
---@field beta? number 0.5

---@class seg.nn.cross_entropy: seg.nn.loss
---@field ignore? integer -100

---@class seg.nn.focal: seg.nn.loss
---@field gamma? number 2
---@field alpha? number -1: both cases alike

---@class seg.nn.huber: seg.nn.loss
---@field delta? number 1

---Target (N,1,...): class numbers from 0.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.cross_entropy
---@return seg.node
function nn.cross_entropy(x, t, o) end

---How far two dose-volume histograms are apart, over the structures of every sample.
---@param x seg.node predicted dose, one channel
---@param t seg.node true dose
---@param structures seg.node a channel each
---@param o? { width?: number, steep?: number, bins?: integer } distance of bins (1), their edge (1), 80
---@return seg.node
function nn.dvh_loss(x, t, structures, o) end

---Counts (both, predicted, true) of each class a sample.
---@param x seg.node
---@param t seg.node
---@param o? { mask?: seg.node, threshold?: number }
---@return seg.node
function nn.overlap(x, t, o) end

-- Metrics ---------------------------------------------------------------------

---@class seg.metric.one
---@field kind string
---@field way? "counts"|"volume"|"numbers" how it is measured; metric.lua says more
---@field better? "max"|"min"
---@field unit? string
---@field when? "epoch"|"end"
---@field node? seg.node of counts
---@field rule string printed with every value
---@field value? fun(sums: number[], voxels: number?): number?, number[]? of counts

---@class seg.metric.any
---@field when? "epoch"|"end" after every epoch too, or on the test set and by evaluate only
---@field names? string[] of the classes or numbers

---@class seg.metric.options: seg.metric.any
---@field threshold? number 0.5
---@field mask? seg.node voxels where it is 0 do not count
---@field empty? "skip"|"one" a class that neither truth nor prediction has

---@class seg.metric.surface: seg.metric.options
---@field missing? "diagonal"|"skip" a class that only one of them has
---@field both? "max"|"union" of hd95: the larger direction, or percentile of both together
---@field tolerance? number of surface_dice: mm (1)

---@class seg.metric.volume: seg.metric.options
---@field unit? "ml"|"%"
---@field signed? boolean predicted less true

---@class seg.metric.numbers: seg.metric.any
---@field mask? seg.node
---@field scale? number both are multiplied by it
---@field unit? string printed

---@class seg.metric.dvh: seg.metric.numbers
---@field structures seg.node a channel of 0 and 1 for each
---@field targets? integer[] channels that are to be irradiated

---@class seg.metric.rotation: seg.metric.any
---@field form? "euler"|"yaw pitch"|"matrix"|"6d"|"quaternion" of the output
---@field truth? "euler"|"yaw pitch"|"matrix"|"6d"|"quaternion" of the target; that of the output

---The options of nn.bce_dice, for metric.loss_parts.
---@class seg.metric.parts
---@field bce? number
---@field dice? number
---@field pos_weight? number
---@field per? "batch"|"sample"
---@field eps? number
---@field empty? "count"|"skip"

---For `loss_parts` of a recipe, of logits with one channel: bce, dice_fg, dice_empty.
---@class seg.metric.loss_parts

---@alias seg.metric.make fun(x: seg.node, t: seg.node, o?: seg.metric.options): seg.metric.one
---@alias seg.metric.far fun(x: seg.node, t: seg.node, o?: seg.metric.surface): seg.metric.one

---@class seg.metric
---@field dice seg.metric.make
---@field iou seg.metric.make
---@field sensitivity seg.metric.make
---@field specificity seg.metric.make
---@field precision seg.metric.make
---@field accuracy seg.metric.make
---@field confusion seg.metric.make
---@field groups seg.metric.make groups that were found against classes, best one to one
---@field auc seg.metric.make
---@field hd95 seg.metric.far
---@field hd seg.metric.far
---@field assd seg.metric.far
---@field surface_dice seg.metric.far
---@field volume_error fun(x: seg.node, t: seg.node, o?: seg.metric.volume): seg.metric.one
---@field mae fun(x: seg.node, t: seg.node, o?: seg.metric.numbers): seg.metric.one
---@field dose_score fun(x: seg.node, t: seg.node, o: seg.metric.numbers): seg.metric.one
---@field dvh_score fun(x: seg.node, t: seg.node, o: seg.metric.dvh): seg.metric.one
---@field loss_parts fun(x: seg.node, t: seg.node, o?: seg.metric.parts): seg.metric.loss_parts
---@field geodesic fun(x: seg.node, t: seg.node, o?: seg.metric.rotation): seg.metric.one
---@field summary fun(values: number[], owners?: string[]): table mean, median, sd, n, low, high
---@field interval fun(n: integer, owners?: string[], f: fun(places: integer[]): number?): number?

-- The numerical face ----------------------------------------------------------

---float32, order (N,C,[D],[H],W), indices from 1.
---@class seg.array
---@field shape integer[]
---@field count integer
---@field distance fun(self: seg.array, b: seg.array): number, number sums of (self-b)^2 and of b^2
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

---Its different values, least first; nil when there are too many to be labels.
---@return number[]?
function array:values() end

---A copy of other shape with as many elements.
---@param shape integer[]
---@return seg.array
function array:reshape(shape) end

---@class seg.array.module
---@field zeros fun(shape: integer[]): seg.array
---@field random fun(shape: integer[], seed: integer, binary?: boolean): seg.array
---@field load fun(path: string, name?: string): seg.array name: of .npz and .mat
---@field list fun(path: string): { name: string, type?: string, shape: integer[], why?: string }[]
---@field save fun(path: string, a: seg.array)
---@overload fun(o: { shape: integer[], data?: table }): seg.array
seg.array = {}

---@class seg.model
local model = {}

---@param o { inputs?: seg.node[], outputs: table<string, seg.node>, device?: string, threads?: integer, seed?: integer, precision?: string, winograd?: boolean, fuse?: boolean }
---@return seg.model
function seg.model(o) end

---@param path string
---@param o? { rename?: fun(name: string): string? }
function model:load(path, o) end

---Weights, running statistics and the network.
---@param path string
function model:save(path) end

---The network with its weights as a file of ONNX.
---@param path string
---@param o? { probabilities?: boolean, any_size?: boolean }
---@return { nodes: integer, numbers: integer, bytes: integer, probabilities: integer, opset: integer }
function model:onnx(path, o) end

---In evaluation.
---@param inputs table<string, seg.array>
---@return table<string, seg.array>
function model:run(inputs) end

---@return table<string, { name: string, shape: integer[], trained: boolean }>
function model:parameters() end

---@param name string
---@return seg.array
function model:get(name) end

---@param name string
---@param value seg.array
function model:set(name, value) end

---@class seg.opened
local opened = {}

---@param path string
---@param o? { device?: string, threads?: integer }
---@return seg.opened
function seg.open(path, o) end

---@param inputs table<string, seg.array>
---@return table<string, seg.array>
function opened:run(inputs) end

---Of a bundle: class numbers of an image file into another file.
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
---@field applied boolean false: something was not finite, nothing changed
local step = {}

---@class seg.step.options
---@field frozen? string[] names of layers or parameters that keep their weights
---@field loss seg.node
---@field optim seg.optimiser
---@field outputs? table<string, seg.node>
---@field clip_norm? number 0: the optimiser's
---@field device? string
---@field precision? string "f32", "tf32", "bf16", "f16"
---@field winograd? boolean false: 3x3 convolutions are direct sums
---@field recompute? string|integer bytes of the arena, "2G": values computed twice for it
---@field fuse? boolean false: each row runs by itself, with the same bits
---@field threads? integer
---@field seed? integer

---@param o seg.step.options
---@return seg.step
function seg.step(o) end

---One training step: forward, backward, clip, update. `lr` among the inputs
---overrides the optimiser's.
---@param inputs table<string, seg.array|number>
---@return number loss before the update
---@return table<string, seg.array> outputs
function step:run(inputs) end

---Of the last run, before clipping and decay.
---@return table<string, seg.array>
function step:gradients() end

---A full checkpoint.
---@param path string
function step:save(path) end

---Everything of a checkpoint that save wrote.
---@param path string
function step:resume(path) end

return seg
