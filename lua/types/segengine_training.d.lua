---@meta
-- segengine_training.d.lua -- optimisers, schedules, phases, for editors: see
-- segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg.optimiser
---@field kind string
---@field lr number

---What a schedule may go by beside the epoch: updates from 1 and of the whole run,
---and what it remembers.
---@class seg.schedule.place
---@field step integer
---@field steps integer
---@field state? table<string, number>

---The rate of an update. A function of its arguments only.
---@class seg.schedule
---@field name string
---@field rate fun(lr: number, epoch: integer, epochs: integer, at?: seg.schedule.place): number

---@class seg.optim
---@field constant seg.schedule
local optim = {}

---Parameters that are updated differently; the first that matches counts.
---@class seg.optim.group
---@field match string Lua pattern on names of parameters
---@field lr_scale? number|fun(...: string): number times the rate; of the captures
---@field decay? number

---@class seg.optim.common
---@field lr number
---@field decay? number
---@field clip_norm? number 0: none
---@field groups? seg.optim.group[]
---@field decay_on? "all"|"weights" weights: not biases and norms

---@class seg.optim.adam: seg.optim.common
---@field betas? number[] {0.9, 0.999}
---@field beta1? number
---@field beta2? number
---@field eps? number 1e-8

---@class seg.optim.sgd: seg.optim.common
---@field momentum? number
---@field nesterov? boolean

---Decoupled weight decay, 0.01.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.adamw(o) end

---Decay is added to the gradient.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.adam(o) end

---Adam whose rate is held back while its variance is not known yet.
---@param o seg.optim.adam
---@return seg.optimiser
function optim.radam(o) end

---@param o seg.optim.sgd
---@return seg.optimiser
function optim.sgd(o) end

---@class seg.optim.timing
---@field warmup? number linear rise over so many epochs, or updates
---@field by? "epoch"|"step" what is counted

---@class seg.optim.cosine: seg.optim.timing
---@field t_max? number
---@field floor? number
---@field clamp? boolean

---@class seg.optim.step: seg.optim.timing
---@field every? number
---@field at? number[] instead of every
---@field gamma? number

---@class seg.optim.exponential: seg.optim.timing
---@field gamma? number

---@class seg.optim.poly: seg.optim.timing
---@field power? number

---@class seg.optim.onecycle
---@field rise? number share of the updates, 0.3
---@field div? number 25
---@field final_div? number 1e4
---@field anneal? "cosine"|"linear"
---@field three_phase? boolean

---@class seg.optim.plateau
---@field factor? number 0.1
---@field patience? integer epochs, 10
---@field threshold? number 1e-4
---@field relative? boolean a share of the best, true
---@field cooldown? integer
---@field floor? number
---@field warmup? number
---@field monitor? string a metric, "loss" or "train_loss"
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

---@param o? seg.optim.poly
---@return seg.schedule
function optim.poly(o) end

---@param count number
---@param o? { by?: "epoch"|"step" }
---@return seg.schedule
function optim.warmup(count, o) end

---@param o? seg.optim.onecycle
---@return seg.schedule
function optim.onecycle(o) end

---@param o? seg.optim.plateau
---@return seg.schedule
function optim.plateau(o) end

---One after another: { epochs = 5, schedule }, and the last one alone.
---@param list (seg.schedule|{ epochs: integer, [1]: seg.schedule })[]
---@return seg.schedule
function optim.chain(list) end

---Times each other.
---@param list seg.schedule[]
---@return seg.schedule
function optim.product(list) end

---Weights of a safetensors file.
---@class seg.recipe.init
---@field weights? string the file; --weights wins
---@field match? string Lua pattern on names here: only these
---@field rename? string[][]|fun(name: string): string? pairs of pattern and replacement

---What a phase has of its own; the rest is the recipe's.
---@class seg.recipe.phase
---@field name? string
---@field from? "last"|"best" which weights of the phase before
---@field inputs? seg.node[]
---@field outputs? table<string, seg.node>
---@field loss? seg.node
---@field train? seg.set
---@field valid? seg.set|false false: none, whatever the recipe has
---@field test? seg.set|false
---@field optim? seg.optimiser
---@field schedule? seg.schedule
---@field metrics? table<string, seg.metric.one>
---@field loss_parts? seg.metric.loss_parts
---@field best? { [1]: string, [2]: "max"|"min" }
---@field epochs? integer
---@field accumulate? integer
---@field frozen? string[]
---@field ema? number
---@field swa? { from?: number, lr?: number }
---@field stop? { patience?: integer, min_delta?: number, monitor?: string, mode?: "max"|"min" }
---@field init? seg.recipe.init
---@field clusters? seg.clusters

-- Without labels --------------------------------------------------------------

---@class seg
local seg = {}

---@class seg.nn
local nn = {}

---@class seg.clusters

---@class seg.clusters.options
---@field embedding seg.node vectors (N,C)
---@field classifier fun(x: seg.node): seg.node logits of k classes; called twice
---@field k integer clusters
---@field starts? integer of k-means, 10
---@field rounds? integer at most, 10
---@field enough? number what the classifier knows of every fifth vector, 0.85
---@field learn_epochs? integer of the classifier, 15
---@field learn_lr? number the phase's rate
---@field tune_epochs? integer of the encoder, 5
---@field tune_lr? number a tenth of the phase's rate
---@field clip_norm? number of both, 1
---@field truth? seg.node an input with class numbers, for the log

---Classes without labels, found in rounds at the end of a phase.
---@param o seg.clusters.options
---@return seg.clusters
---@return seg.node logits
function seg.clusters(o) end

---Two views (N,C) of the same samples: each finds its partner in the batch (InfoNCE).
---@param a seg.node
---@param b seg.node
---@param o? { temperature?: number } 0.1
---@return seg.node
function nn.contrastive(a, b, o) end

---How far mean and deviation of the vectors x (N,C) are from those of the sequences.
---@param x seg.node
---@param sequence seg.node
---@param o? { lengths?: seg.node }
---@return seg.node
function nn.statistics(x, sequence, o) end

---In training shares of a sequence become 0: stretches of `span` steps, channels, numbers.
---@param x seg.node
---@param o? { steps?: number, span?: integer, channels?: number, numbers?: number }
---@return seg.node
function nn.hide(x, o) end

---Key of the config -> { lo, hi }, { lo, hi, log = true }, { lo, hi, step = 8 }, three values or
---more, or { list = { ... } }.
---@class seg.search.options
---@field space table<string, table>
---@field trials? integer 20
---@field method? "tpe"|"random"|"halving"
---@field metric? { [1]: string, [2]: "max"|"min" } of valid; else best of the recipe
---@field seed? integer that of the config
---@field startup? integer 10 random trials before tpe begins
---@field eta? integer 3; halving: one of so many goes on
---@field least? integer 1; halving: epochs of the first round
---@field objective? fun(values: table): number search a function, now
---@field study? string with an objective: the file that keeps the trials

---@class seg.search.found
---@field values? table nil: no trial had a value
---@field value? number
---@field trial? integer
---@field trials table[] trial, state, value, values (texts), reason

return optim
