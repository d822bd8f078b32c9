---@meta
-- segengine_losses.d.lua -- losses made of other nodes, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg.nn
local nn = {}

-- Losses of classes and regions -----------------------------------------------

---These losses and the next two groups are nodes around existing operators; [losses.md](losses.md)
---has formulas, sources and advice. Sums run over a sample, and the loss is the mean over samples.

---@class seg.nn.softmax_focal: seg.nn.loss
---@field gamma? number = 2
---@field class_weights? number[] one for each channel; the loss is a weighted mean
---@field ignore? number = -100; targets with this number do not count

---Focal loss of several classes; the target (N,1,...) holds class numbers from 0.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.softmax_focal
---@return seg.node
function nn.softmax_focal(x, t, o) end

---@class seg.nn.topk: seg.nn.loss
---@field share? number = 0.1; share of the positions of a sample, rounded up
---@field class_weights? number[] one for each channel; the loss is a weighted mean
---@field ignore? number = -100; targets with this number do not count

---Cross entropy of the positions of each sample where it is largest.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.topk
---@return seg.node
function nn.topk_cross_entropy(x, t, o) end

---@class seg.nn.lovasz_softmax
---@field mask? seg.node elements with 0 do not count
---@field class_weights? number[] one for each channel; the loss is a weighted mean over classes
---@field ignore? number targets with this number do not count
---@field background? boolean = true; includes class 0
---@field empty? "skip"|"count" = "skip"; "skip": leaves out samples and classes without ground truth

---Lovász extension of 1 - Jaccard index at the errors abs(t - p), of each sample and class.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.lovasz_softmax
---@return seg.node
function nn.lovasz_softmax(x, t, o) end

---@class seg.nn.lovasz_hinge
---@field mask? seg.node elements with 0 do not count
---@field class_weights? number[] one for each channel; the loss is a weighted mean over channels
---@field ignore? number targets with this number do not count
---@field empty? "skip"|"count" = "count"; "skip": leaves out samples and channels without ground truth

---Lovász extension of 1 - Jaccard index at the hinge errors max(0, 1 - x (2 t - 1)), of each sample and
---channel; the target (N,C,...) has channels that are 0 or 1 each.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.lovasz_hinge
---@return seg.node
function nn.lovasz_hinge(x, t, o) end

---@class seg.nn.skeletons
---@field mask? seg.node elements with 0 do not count
---@field class_weights? number[] one for each channel; the loss is a weighted mean over classes
---@field ignore? number targets with this number do not count
---@field background? boolean = false; includes class 0
---@field empty? "count"|"skip" = "count"; "skip": leaves out samples and classes without ground truth
---@field steps? integer = 3; erosions, at least the largest radius of a vessel in voxels
---@field eps? number = 1; added to numerator and denominator

---@class seg.nn.overlaps: seg.nn.loss
---@field class_weights? number[] one for each channel; the loss is a weighted mean over classes
---@field ignore? number targets with this number do not count
---@field background? boolean = false; includes class 0
---@field empty? "count"|"skip" = "count"; "skip": leaves out samples and classes without ground truth

---@class seg.nn.generalized_dice: seg.nn.overlaps
---@field eps? number = 1e-5; added to numerator and denominator, in voxels of the smallest class

---Dice of all classes together, each weighted by the inverse square of its volume.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.generalized_dice
---@return seg.node
function nn.generalized_dice(x, t, o) end

---@class seg.nn.focal_tversky: seg.nn.overlaps
---@field gamma? number = 4/3; above 1 the loss is steeper where the index is near 1
---@field alpha? number = 0.3; weight of false positives
---@field beta? number = 0.7; weight of false negatives
---@field eps? number = 1; added to numerator and denominator

---(1 - Tversky index)^(1 / gamma) of each sample and class, averaged.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.focal_tversky
---@return seg.node
function nn.focal_tversky(x, t, o) end

---clDice: overlap of soft skeletons, for tubes whose connections matter.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.skeletons
---@return seg.node
function nn.cldice(x, t, o) end

-- Losses of distances and images ----------------------------------------------

---@class seg.nn.boundary: seg.nn.loss
---@field class_weights? number[] one for each channel of x; the loss is a weighted mean

---Mean of probability times signed distance from the boundary of the ground truth, in mm. The distances
---(N,K,...) have a channel for each channel of x, or for all but the background. Below 0 for a good
---prediction.
---@param x seg.node
---@param distance seg.node
---@param o? seg.nn.boundary
---@return seg.node
function nn.boundary_loss(x, distance, o) end

---@class seg.nn.hausdorff: seg.nn.boundary
---@field alpha? number = 2; power of the distance
---@field ignore? number targets with this number do not count

---Mean of squared error times distance^alpha: a smooth, one-sided estimate of the Hausdorff distance.
---@param x seg.node
---@param t seg.node
---@param distance seg.node as for boundary_loss
---@param o? seg.nn.hausdorff
---@return seg.node
function nn.hausdorff_loss(x, t, distance, o) end

---@class seg.nn.ssim
---@field range? number = 1; largest minus smallest intensity
---@field window? integer = 11; width of the Gaussian window in voxels, odd
---@field sigma? number = 1.5; of the window in voxels
---@field k1? number = 0.01
---@field k2? number = 0.03

---1 - structural similarity of two images (N,C,W) to (N,C,D,H,W), averaged over channels and windows.
---@param x seg.node
---@param t seg.node
---@param o? seg.nn.ssim
---@return seg.node
function nn.ssim_loss(x, t, o) end

---@class seg.nn.variation
---@field isotropic? boolean = false; the length of the gradient instead of the sum over axes
---@field eps? number = 1e-3; smooths the length of a gradient of 0

---Mean absolute difference of neighbours, summed over axes.
---@param x seg.node
---@param o? seg.nn.variation
---@return seg.node
function nn.total_variation(x, o) end

---@class seg.nn.perceptual
---@field weights? number[] one for each feature; default: 1
---@field distance? "mse"|"mae" = "mse"
---@field name? string = "perceptual"; scope of the network's parameters

---Distance of the features of x and t in a network f whose parameters are not trained. f(image)
---returns a node or a list of nodes; it runs in a frozen scope, so load its parameters by `init`.
---@param x seg.node
---@param t seg.node
---@param f fun(image: seg.node): seg.node
---@param o? seg.nn.perceptual
---@return seg.node
function nn.perceptual_loss(x, t, f, o) end

-- Terms and sums of losses ----------------------------------------------------

---@class seg.nn.kl
---@field per? "sample"|"element" = "sample"; the sum over the numbers of a sample, or their mean

---Kullback-Leibler divergence of the normal distribution (mean, exp(logvar)) from N(0, 1), for
---variational autoencoders.
---@param mean seg.node
---@param logvar seg.node
---@param o? seg.nn.kl
---@return seg.node
function nn.gaussian_kl(mean, logvar, o) end

---@class seg.nn.uncertainty
---@field kinds? ("classification"|"regression")[] one for each loss; default: classification
---@field init? number = 0; logarithm of the variance at the start
---@field name? string

---Sum of losses of several tasks with learnt weights: exp(-s) L + s / 2 each, with half the first term
---for a regression.
---@param losses seg.node[]
---@param o? seg.nn.uncertainty
---@return seg.node
function nn.uncertainty_loss(losses, o) end

return nn
