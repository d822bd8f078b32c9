---@meta
-- segengine_training.d.lua -- optimisers, schedules, phases, for editors: see
-- segengine.d.lua.
-- luacheck: ignore 212 241 631

-- Optimisers: optim -----------------------------------------------------------

---[training.md](training.md) explains groups, averages of weights and phases.

---@class seg.optimiser
---@field kind string
---@field lr number

---A group of parameters; a pattern that matches nothing is an error.
---@class seg.optim.group
---@field match string Lua pattern on names of parameters; the first group that matches counts
---@field lr_scale? number|fun(...: string): number factor of the rate, or a function of the captures
---@field decay? number

---@class seg.optim.common
---@field lr number
---@field decay? number weight decay, 0; of adamw 0.01
---@field clip_norm? number = 0; maximum norm of all gradients; 0: none
---@field groups? seg.optim.group[]
---@field decay_on? "all"|"weights" = "all"; weights: not biases and norms

---@class seg.optim.adam: seg.optim.common
---@field betas? number[] = { 0.9, 0.999 }
---@field beta1? number
---@field beta2? number
---@field eps? number = 1e-8

---@class seg.optim.sgd: seg.optim.common
---@field momentum? number = 0
---@field nesterov? boolean = false

---@class seg.optim
---@field constant seg.schedule
local optim = {}

---Decoupled weight decay.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.adamw(o) end

---The decay is added to the gradient.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.adam(o) end

---Rectified Adam; decay as Adam.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.radam(o) end

---@param o seg.optim.sgd
---@return seg.optimiser
function optim.sgd(o) end

-- Schedules -------------------------------------------------------------------

---The default is `optim.constant`. All but `chain`, `product` and `onecycle` take `warmup` and `by`. Rates equal those of
---PyTorch's schedulers.

---The place in the run: updates from 1, of the whole run, and the state of the schedule.
---@class seg.schedule.place
---@field step integer
---@field steps integer
---@field state? table<string, number>

---A schedule of your own is `{ name = "x", rate = function(lr, epoch, epochs, at) ... end }`, where `rate` depends on its
---arguments only.
---@class seg.schedule
---@field name string
---@field rate fun(lr: number, epoch: integer, epochs: integer, at?: seg.schedule.place): number rate of an update; `at.step` of `at.steps` counts updates

---@class seg.optim.timing
---@field warmup? number = 0; linear rise over so many epochs, or updates
---@field by? "epoch"|"step" = "epoch"; unit of all counts

---@class seg.optim.cosine: seg.optim.timing
---@field t_max? number = all epochs
---@field floor? number = 0
---@field clamp? boolean = false; stays at the floor after t_max instead of rising again

---@class seg.optim.step: seg.optim.timing
---@field every? number = 30
---@field at? number[] instead of every
---@field gamma? number = 0.1

---@class seg.optim.exponential: seg.optim.timing
---@field gamma? number = 0.95

---@class seg.optim.poly: seg.optim.timing
---@field power? number = 0.9

---@class seg.optim.onecycle
---@field rise? number = 0.3; share of the updates
---@field div? number = 25; lr / div is the first rate
---@field final_div? number = 1e4; lr / div / final_div is the last
---@field anneal? "cosine"|"linear" = "cosine"
---@field three_phase? boolean = false

---@class seg.optim.plateau: seg.optim.timing
---@field factor? number = 0.1
---@field patience? integer = 10; epochs
---@field threshold? number = 1e-4
---@field relative? boolean = true; the threshold is a share of the best
---@field cooldown? integer = 0
---@field floor? number = 0
---@field monitor? string default: that of `best`; a metric, "loss" or "train_loss"
---@field mode? "max"|"min"

---@param o? seg.optim.cosine
---@return seg.schedule
function optim.cosine(o) end

---@param o? seg.optim.step
---@return seg.schedule
function optim.step(o) end

---@param o? seg.optim.exponential
---@return seg.schedule
function optim.exponential(o) end

---(1 - share of the run)^power.
---@param o? seg.optim.poly
---@return seg.schedule
function optim.poly(o) end

---@param count number epochs
---@param o? { by?: "epoch"|"step" }
---@return seg.schedule
function optim.warmup(count, o) end

---@param o? seg.optim.onecycle
---@return seg.schedule
function optim.onecycle(o) end

---Lowers the rate when the metric has not improved.
---@param o? seg.optim.plateau
---@return seg.schedule
function optim.plateau(o) end

---One after another: `{ { epochs = 5, a }, { epochs = 20, b }, c }`, each from its own beginning.
---@param list (seg.schedule|{ epochs: integer, [1]: seg.schedule })[]
---@return seg.schedule
function optim.chain(list) end

---The product of the factors of several schedules.
---@param list seg.schedule[]
---@return seg.schedule
function optim.product(list) end

-- Parts of a recipe -----------------------------------------------------------

---Initial weights from a safetensors file.
---@class seg.recipe.init
---@field weights? string the file or folder of a run; --weights wins
---@field match? string Lua pattern: only parameters of the network with these names
---@field rename? string[][]|fun(name: string): string? pairs of pattern and replacement for names of the file

---Stages of one run. A field that a phase leaves out is that of the recipe.
---@class seg.recipe.phase
---@field name? string
---@field from? "last"|"best" = "last"; weights of the phase before
---@field inputs? seg.node[]
---@field outputs? table<string, seg.node>
---@field loss? seg.node
---@field train? seg.set
---@field valid? seg.set|false false: none
---@field test? seg.set|false
---@field optim? seg.optimiser
---@field schedule? seg.schedule
---@field metrics? table<string, seg.metric.one|seg.node>
---@field loss_parts? seg.metric.loss_parts
---@field best? { [1]: string, [2]: "max"|"min" }
---@field epochs? integer
---@field steps_per_epoch? integer
---@field valid_every? integer
---@field accumulate? integer
---@field lr_scale? "batch"|{ batch: integer }
---@field frozen? string[]
---@field ema? number
---@field swa? { from?: number, lr?: number }
---@field stop? { patience?: integer, min_delta?: number, monitor?: string, mode?: "max"|"min" }
---@field init? seg.recipe.init
---@field clusters? seg.clusters
---@field on_batch? fun(at: seg.hook.batch)
---@field on_valid? fun(at: seg.hook.valid)
---@field on_epoch? fun(at: seg.hook.epoch)
---@field on_save? fun(at: seg.hook.save)

-- Hooks -----------------------------------------------------------------------

---Functions of a recipe that training calls with a table `at`, which is valid during the call
---([training.md](training.md#hooks)). The commands `--on_finish`, `--on_nan` and `--on_stall` are programs of the shell
---instead.

---@class seg.hook.any
---@field epoch integer from 1
---@field epochs integer
---@field batches integer of the epoch
---@field step integer of the phase, from 1; on_valid, on_epoch: the last
---@field phase integer
---@field run string the run's folder
---@field state table numbers, texts, booleans and tables of these; kept in checkpoints
local at = {}

---Ends the training, or the phase, after this step or epoch.
---@param reason? string for the log: one line of at most 200 bytes
function at:stop(reason) end

---Names, shapes and whether trained.
---@return table<string, { name: string, shape: integer[], trained: boolean }>
function at:parameters() end

---A parameter; waits for the steps under way.
---@param name string
---@return seg.array
function at:get(name) end

---Sets a parameter or running statistic; waits for the steps under way.
---@param name string
---@param value seg.array of its shape, in PyTorch's order
function at:set(name, value) end

---In on_batch: the loss of the step before, nil before the first. It waits for the steps under way.
---@return number? loss
function at:loss() end

---In on_valid and on_epoch: a cell of metrics.csv and TensorBoard in the row of this epoch.
---@param name string letters, digits and _
---@param value number
function at:column(name, value) end

---@class seg.hook.batch: seg.hook.any
---@field batch integer from 1
---@field lr number of this step; may be set

---@class seg.hook.epoch: seg.hook.any
---@field lr number of the last step; set: of all steps of the next epoch
---@field train_loss number
---@field train table<string, number> metrics of training batches
---@field valid_loss? number nil: not validated
---@field metrics table<string, number> of valid
---@field best? number of the epochs before
---@field best_epoch? integer
---@field seconds number of training

---@class seg.hook.valid: seg.hook.epoch
---@field cases table<string, number[]> values of each metric by case

---@class seg.hook.save
---@field epoch integer
---@field epochs integer
---@field run string
---@field files string[] its names on the disk

-- Search ----------------------------------------------------------------------

---@class seg.search.options
---@field space table<string, table> option -> { lo, hi }, { lo, hi, log = true }, { lo, hi, step = 8 }, three values or more, or { list = { ... } }
---@field trials? integer = 20
---@field method? "tpe"|"random"|"halving" = "tpe"
---@field metric? { [1]: string, [2]: "max"|"min" } default: `best` of the recipe, of valid
---@field seed? integer = cfg.seed
---@field startup? integer = 10; random trials before tpe begins
---@field eta? integer = 3; halving: one of eta trials goes on
---@field least? integer = 1; halving: epochs of the first round
---@field objective? fun(values: table): number searches this function at once
---@field study? string with an objective: the file of the trials

---@class seg.search.found
---@field values? table nil: no trial had a value
---@field value? number
---@field trial? integer
---@field trials table[] trial, state, value, values (texts), reason

-- Without labels --------------------------------------------------------------

---Losses and clustering for representations learned without labels ([training.md](training.md#without-labels)).

---@class seg
local seg = {}

---@class seg.nn
local nn = {}

---@class seg.clusters

---@class seg.clusters.options
---@field embedding seg.node vectors (N,C)
---@field classifier fun(x: seg.node): seg.node logits of k classes; called twice
---@field k integer clusters
---@field starts? integer = 10; of k-means
---@field rounds? integer = 10; at most
---@field enough? number = 0.85; accuracy of the classifier on every fifth vector that ends the rounds
---@field learn_epochs? integer = 15; of the classifier
---@field learn_lr? number = the rate of the phase
---@field tune_epochs? integer = 5; of the encoder
---@field tune_lr? number = a tenth of the rate of the phase
---@field clip_norm? number = 1; of both
---@field truth? seg.node an input with class numbers, for the log

---Clusters the embedding in rounds at the end of a phase.
---@param o seg.clusters.options
---@return seg.clusters
---@return seg.node logits
function seg.clusters(o) end

---InfoNCE of two views (N,C) of the same samples; default temperature 0.1.
---@param a seg.node
---@param b seg.node
---@param o? { temperature?: number }
---@return seg.node
function nn.contrastive(a, b, o) end

---Distance of the vectors x (N,C) from mean and deviation of the sequences of the batch.
---@param x seg.node
---@param sequence seg.node
---@param o? { lengths?: seg.node }
---@return seg.node
function nn.statistics(x, sequence, o) end

---@class seg.nn.mask_steps
---@field steps? number = 0; share of the steps, in spans
---@field span? integer = 1; length of a span
---@field channels? number = 0; share of the channels
---@field numbers? number = 0; share of single values

---In training masks parts of a sequence (C,W): sets them to 0 and scales the rest, as dropout. w must be
---a multiple of `span`.
---@param x seg.node
---@param o? seg.nn.mask_steps
---@return seg.node
function nn.mask_steps(x, o) end

return optim
