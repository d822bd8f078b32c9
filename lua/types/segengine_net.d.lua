---@meta
-- segengine_net.d.lua -- networks ready to use, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

-- Networks: net ---------------------------------------------------------------

---Each function takes a node and one table of options and returns logits; `name` puts the parameters into a
---scope, so that a recipe may have two networks of a kind.

---@class seg.net
local net = {}

---A name, or a list of the name and its options: { "group", groups = 4 }.
---@alias seg.net.norm "batch"|"group"|"instance"|"layer"|"none"|table

---A name, or a list of the name and its number: { "leaky_relu", 0.2 }.
---@alias seg.net.act "relu"|"leaky_relu"|"gelu"|"silu"|"tanh"|"sigmoid"|"none"|table

---@class seg.net.unet
---@field out? integer = 1; channels of the result
---@field features? integer[] channels of each level, the finest first; or
---@field base? integer = 32; base, 2 base, 4 base, ...
---@field levels? integer = 4; for `levels` levels
---@field bottom? integer = twice the last level; channels of the bottom
---@field factors? integer|seg.extent[] = 2; downsampling, or a list by level: { { 1, 2, 2 }, 2, 2 } for thick slices
---@field stem? integer = 0; channels of one convolution before the first level
---@field blocks? integer|integer[] = 1; blocks of each level and the bottom, or a list, the bottom last
---@field convs? integer|integer[] = 2; convolutions of a block, or such a list
---@field decoder_convs? integer|integer[] = `convs`; of a block of the decoder, or a list by level
---@field kernel? seg.extent = 3; odd
---@field kernels? seg.extent[] instead of `kernel`: a list, the bottom last: { { 1, 3, 3 }, 3, 3 }
---@field dilation? seg.extent = 1
---@field dilations? seg.extent[] instead of `dilation`: a list, the bottom last
---@field bias? boolean of these convolutions; default: only without a norm
---@field norm? seg.net.norm = "batch"
---@field norms? seg.net.norm[] instead of `norm`: a list, the bottom last
---@field act? seg.net.act = "relu"
---@field residual? boolean|"encoder" = false; residual blocks (arXiv:1512.03385), or only those on the way down
---@field shortcut? "conv"|"pool" = "conv"; where channels or extents differ: a convolution of 1; pool: a mean, then a convolution of 1 without bias (arXiv:1812.01187)
---@field zero_last? boolean = false; the last norm of a residual block begins with weights of 0 (arXiv:1706.02677)
---@field squeeze? integer = 0; reduction of squeeze and excitation in each block (arXiv:1709.01507)
---@field gates? boolean = false; attention gates on the skips (arXiv:1804.03999)
---@field heads? integer = 0; heads of a self-attention after the bottom (arXiv:1706.03762)
---@field dropout? number = 0; of whole channels, after each block
---@field down? "maxpool"|"conv" = "maxpool"; conv: the first convolution of a block has a stride
---@field up? "upconv"|"linear"|"nearest" = "upconv"; else upsampling and a convolution of 1
---@field deep? integer = 0; logits of the next coarser levels for deep supervision
---@field pad? boolean = false; pads extents that do not divide with zeros at the end and cuts them off again
---@field init? seg.init
---@field name? string

---U-Net (arXiv:1505.04597, 3-D: arXiv:1606.06650) with convolutions that keep the extents. Each extent must be a multiple of the
---product of its factors, 16 for four levels. With `deep`, the second result is a list of coarser logits;
---`predict` and exports leave their weights out. Parameters: enc1 ..., bottom, up1 ..., dec1 ..., head; in a block conv1,
---norm1, conv2, norm2, squeeze.linear1, short, short_norm; gate1.skip, gate1.gate, gate1.psi, head2, mixer.attention1, stem.conv1;
---in levels of several blocks enc2.block1.conv1.
---@param x seg.node
---@param o? seg.net.unet
---@return seg.node logits
---@return seg.node[]? deep
function net.unet(x, o) end

---@class seg.net.nnunet
---@field out? integer = 1; channels of the result
---@field encoder? "residual"|"plain" = "residual"; blocks of a level: 1, 3, 4, 6, 6, ... residual ones, or one of two convolutions
---@field spacing_mm? number|number[] = 1; along {w, h, d}, as of `:resample`
---@field base? integer = 32; channels of the first level, doubled at each level
---@field limit? integer = 320, in 2-D 512; most channels
---@field deep? boolean = true; logits of all coarser levels for deep supervision
---@field init? seg.init = "kaiming_normal"
---@field name? string

---The U-Net that nnU-Net plans for these extents (doi:10.1038/s41592-020-01008-z; residual encoder: arXiv:2404.09556). An axis is
---halved while it has 8 positions or more (12, if no other axis is) and its spacing is below twice the smallest; along an axis
---with a larger spacing kernels are 1, else 3 and 3 at the bottom. The presets ResEnc M, L and XL are this network for the patches of `net.nnunet_patch`. Parameters: those
---of `net.unet`, of which this is one call. nnU-Net's loss leaves out the coarsest result: `table.remove(deep)` before
---`net.deep_loss`.
---
---```lua
---local spacing = { 0.71, 0.71, 2 }
---local size = net.nnunet_patch { d = 103, h = 488, w = 488, spacing_mm = spacing, out = 16, preset = "M" }
---local patch = nn.input("patch", { c = 1, d = size.d, h = size.h, w = size.w }) -- 40 x 224 x 192
---local logits, deep = net.nnunet(patch, { out = 16, spacing_mm = spacing })
---```
---@param x seg.node
---@param o? seg.net.nnunet
---@return seg.node logits
---@return seg.node[]? deep
function net.nnunet(x, o) end

---@class seg.net.nnunet_patch
---@field d? integer median extents of the cases at this spacing; without d: of slices
---@field h integer
---@field w integer
---@field spacing_mm? number|number[] = 1; along {w, h, d}, as of `:resample`
---@field out? integer = 2; classes with the background
---@field preset? "plain"|"M"|"L"|"XL" = "L"; plain: for the plain encoder; for GPUs of 8, 8, 24, 40 GB

---Extents of a patch as nnU-Net's planners choose them, { d =, h =, w = }, and the number of patches in a batch, which `plain` also
---limits to 5 % of the voxels of the data set.
---@param o seg.net.nnunet_patch
---@return table patch
---@return integer batch
function net.nnunet_patch(o) end

---The function from a name in nnU-Net's weights to the name in `net.nnunet`, for `rename`; stages: `n_stages` of its plans.
---
---```lua
---local rename = net.nnunet_names(6)
---print(rename "encoder.stages.1.blocks.0.conv1.conv.weight") -- enc2.block1.conv1.weight
---```
---@param stages integer
---@return fun(name: string): string?
function net.nnunet_names(stages) end

---Deep supervision: the weighted sum of a loss over both results of a U-Net with `deep`, against the target
---subsampled to each grid. Default weights are those of nnU-Net: 1, 1/2, 1/4, ... divided by their sum.
---
---```lua
---local logits, deep = net.unet(image, { out = 4, deep = 2 })
---local loss = net.deep_loss(logits, deep, truth, function(x, t)
---  return nn.cross_entropy(x, t, { ignore = 255 }) + nn.dice_loss(x, t)
---end, { weights = { 1, 0.5, 0.25 } })
---```
---@param logits seg.node
---@param deep seg.node[]
---@param target seg.node
---@param loss fun(x: seg.node, target: seg.node): seg.node
---@param o? { weights?: number[] }
---@return seg.node
function net.deep_loss(logits, deep, target, loss, o) end

---@class seg.net.mednext
---@field out? integer = 1; channels of the result
---@field size? "S"|"B"|"M"|"L" = "S"; of the paper: blocks and expansions
---@field filters? integer = 32; channels of the first level, doubled at each level
---@field kernel? seg.extent = 3; odd; of the depthwise convolutions
---@field blocks? integer[] of each level, the bottom last
---@field expansions? integer[] of the channels inside the blocks of each level, the bottom last
---@field norm? seg.net.norm = "instance"; the paper's group norm of one channel a group
---@field deep? boolean = false; logits of all coarser levels and the bottom for deep supervision
---@field init? seg.init
---@field name? string

---MedNeXt (arXiv:2303.09975): a U-shaped network of `net.mednext_block`, whose skips are added. Each extent must be a multiple
---of 2 for each level, 16 for the sizes of the paper. Parameters: stem, enc1.block1.conv1, norm1, conv2, conv3, down1 ..., bottom,
---up1 (upconv1, short), dec1 ..., head, head2.
---@param x seg.node
---@param o? seg.net.mednext
---@return seg.node logits
---@return seg.node[]? deep
function net.mednext(x, o) end

---@class seg.net.encoder
---@field layers? integer = 12
---@field heads? integer = 12; of attention; divide the channels
---@field mlp? integer = 4 times the channels; width between the two linear layers
---@field act? seg.net.act = "gelu"
---@field eps? number = 1e-6; of the layer norms
---@field qkv_bias? boolean = true; bias of queries, keys and values
---@field dropout? number = 0; of the tokens and behind each linear layer
---@field attention_dropout? number = 0; of the attention weights
---@field name? string

---@class seg.net.unetr: seg.net.encoder
---@field out? integer = 1; channels of the result
---@field width? integer = 768; channels of the tokens
---@field features? integer = 16; channels of the finest level, doubled at each level
---@field skips? integer[] = { 4, 7, 10 }; layers whose results are skips, the finest level first
---@field eps? number = 1e-5
---@field qkv_bias? boolean = false
---@field norm? seg.net.norm = { "instance", affine = false }; of the convolutions
---@field init? seg.init of the convolutions

---UNETR (arXiv:2103.10504): a transformer over boxes of an image or volume as the encoder of a U-shaped network. n skips are
---for boxes of 2^(n + 1) positions along each axis, 16 for the default; extents are multiples of this. The defaults are MONAI's;
---the paper has skips of layers 3, 6 and 9.
---Parameters: patch, position, layer1 ..., norm, enc1 ..., up1 ..., dec1 ..., head; in enc2 up1, up2, block2, up3, block3.
---@param x seg.node
---@param o? seg.net.unetr
---@return seg.node
function net.unetr(x, o) end

---@class seg.net.vit: seg.net.encoder
---@field out? integer = 1000; 0: the features before the last linear layer
---@field patch? seg.extent = 16; the box of positions that is one token
---@field width? integer = 768; channels of the tokens
---@field token? "class"|"mean" = "class"; mean: over all tokens, without a class token
---@field init? seg.init of the first convolution

---Vision transformer (arXiv:2010.11929) for sequences, images and volumes: a classifier. The defaults are torchvision's
---`vit_b_16`. Parameters: patch, class_token, position, layer1.norm1, layer1.attention1, layer1.norm2, layer1.linear1,
---layer1.linear2, ..., norm, head.
---
---```lua
---local scan = nn.input("scan", { c = 1, d = 32, h = 64, w = 64 })
---local classes = net.vit(scan, { patch = { 4, 8, 8 }, width = 96, layers = 4, heads = 4, out = 3 })
---```
---@param x seg.node
---@param o? seg.net.vit
---@return seg.node
function net.vit(x, o) end

---@class seg.net.pix2pix
---@field out? integer = 1; channels of the result
---@field filters? integer = 64; of the first convolution
---@field levels? integer = 6; extents are multiples of 2^levels
---@field slope? number = 0.2; of leaky ReLU in the encoder
---@field dropout? number = 0.2; of whole channels, in every second block of the decoder
---@field squeeze? integer = 0; reduction of squeeze and excitation, from the fourth level on
---@field smooth? integer = 3; odd width of the mean filter at the end; 1: none
---@field final? seg.net.act = "relu"
---@field norm? seg.net.norm = { "batch", eps = 1e-3, momentum = 0.01 }
---@field init? seg.init = "xavier_uniform"
---@field name? string

---Generator of pix2pix (arXiv:1611.07004) as in the OpenKBP baseline (doi:10.1002/mp.14845). Parameters: x1.conv1, x1.norm1, ...,
---x5b.upconv1, ...
---@param x seg.node
---@param o? seg.net.pix2pix
---@return seg.node
function net.pix2pix(x, o) end

---@class seg.net.resnet
---@field depth? 18|34|50 = 18
---@field out? integer = 1000; 0: the features (8 base, for depth 50 32 base)
---@field base? integer = 64; channels of the first stage
---@field stem? "large"|"small" = "large"; small: a convolution of 3 that keeps the extents
---@field norm? seg.net.norm = "batch"
---@field init? seg.init = "kaiming_normal_out"
---@field name? string

---ResNet (arXiv:1512.03385). Parameters have torchvision's names, so its weights, saved as safetensors, load:
---
---```lua
---local m = seg.model { outputs = { y = net.resnet(image, { depth = 18 }) } }
---m:load("resnet18.safetensors")
---```
---@param x seg.node
---@param o? seg.net.resnet
---@return seg.node
function net.resnet(x, o) end

---@class seg.net.pose_resnet
---@field out? integer = 3
---@field depth? 18|34|50 = 18
---@field base? integer = 64
---@field shared? integer = 1024
---@field face? integer[] = { 768, 1404 }
---@field pose? integer[] = { 256, 99 }
---@field face_encoder? integer[] = { 512, 256 }
---@field pose_encoder? integer[] = { 128, 64 }
---@field fusion? integer = 256
---@field hidden? integer = 128
---@field dropout? number[] = { 0.3, 0.2, 0.1, 0.05 }; of the shared layer, the groups, encoders and fusion, the last layer
---@field init? seg.init of the ResNet
---@field name? string

---Angles of a head: a ResNet, two groups of numbers (landmarks of face and body), their encoders and a fusion.
---@param x seg.node
---@param o? seg.net.pose_resnet
---@return seg.node
function net.pose_resnet(x, o) end

---@class seg.net.pose_cnn
---@field out? integer = 3
---@field features? integer[] = { 32, 64, 128, 256 }
---@field hidden? integer = 128
---@field norm? seg.net.norm = "batch"
---@field act? seg.net.act = "relu"
---@field dropout? number = 0; before the last layer
---@field init? seg.init
---@field name? string

---Stages of two convolutions, the first with stride 2, the mean over positions and two linear layers.
---@param x seg.node
---@param o? seg.net.pose_cnn
---@return seg.node
function net.pose_cnn(x, o) end

---@class seg.net.cnn_lstm
---@field lengths? seg.node the steps that count
---@field features? integer[] = { 64, 128, 256 }; of the convolutions, each with norm, activation, pool, dropout
---@field kernel? integer = 3; odd
---@field pool? integer = 2; 1: none
---@field bias? boolean = true
---@field norm? seg.net.norm = "batch"
---@field act? seg.net.act = "relu"
---@field dropout? number = 0.2; after each convolution
---@field hidden? integer = 256; of the LSTM
---@field layers? integer = 2
---@field bidirectional? boolean = true
---@field lstm_dropout? number = 0.3; between its layers
---@field project? integer = 512; width of the linear layer at each step
---@field project_dropout? number = 0.3
---@field out? integer = 512
---@field init? seg.init of the convolutions
---@field name? string

---One vector for a sequence (C,W): convolutions, an LSTM, a linear layer at each step, maximum and mean over the steps, a
---linear layer. With `lengths` the vector does not depend on the padding in evaluation (in training batch norm counts all
---positions). Parameters: cnn.conv1, cnn.norm1, ..., lstm1, project.linear1, project.norm1, head.
---
---```lua
---local x = nn.input("x", { c = 1024, w = 500 })
---local length = nn.input("length", { c = 1 })
---local vector = net.cnn_lstm(x, { lengths = length })
---local classes = net.mlp(vector, { hidden = { 256, 128 }, dropout = 0.4, out = 5, name = "classifier" })
---```
---@param x seg.node
---@param o? seg.net.cnn_lstm
---@return seg.node
function net.cnn_lstm(x, o) end

---@class seg.net.lstm_decoder
---@field like seg.node a sequence that gives the number of steps
---@field lengths? seg.node the steps that count; 0 beyond
---@field hidden? integer = 128
---@field layers? integer = 1
---@field out? integer = channels of `like`
---@field name? string

---A sequence from a vector, which the LSTM gets at every step. Parameters: lstm1, head.
---@param x seg.node
---@param o seg.net.lstm_decoder
---@return seg.node
function net.lstm_decoder(x, o) end

---@class seg.net.mlp
---@field out? integer = 1
---@field hidden? integer[] = {}
---@field norm? seg.net.norm = "batch"
---@field act? seg.net.act = "relu"
---@field dropout? number = 0
---@field late? boolean = false; the activation before the norm
---@field name? string

---Linear layers.
---@param x seg.node
---@param o? seg.net.mlp
---@return seg.node
function net.mlp(x, o) end

-- Blocks ----------------------------------------------------------------------

---@class seg.net.mednext_block
---@field filters? integer = the channels of x
---@field expansion? integer = 4; channels inside the block over those of x
---@field kernel? seg.extent = 3; odd
---@field step? "down"|"up" halves or doubles the extents
---@field norm? seg.net.norm = "instance"
---@field residual? boolean = true; adds x, through a convolution of 1 where the grid changes
---@field init? seg.init
---@field name? string

---Block of MedNeXt (arXiv:2303.09975): a depthwise convolution, norm, a convolution of 1 to more channels, GELU, a convolution of 1.
---@param x seg.node
---@param o? seg.net.mednext_block
---@return seg.node
function net.mednext_block(x, o) end

---Channels times factors from 0 to 1 computed from the means of all; default reduction 16.
---@param x seg.node
---@param o? { reduction?: integer, name?: string }
---@return seg.node
function net.squeeze_excite(x, o) end

---@class seg.net.patch_embed
---@field width? integer = 768; channels of the tokens
---@field patch? seg.extent = 16; the box of positions that is one token
---@field position? boolean = true; adds a learnt tensor
---@field dropout? number = 0
---@field init? seg.init
---@field name? string

---Tokens of an image: a convolution with a stride as large as its kernel, plus a learnt tensor with a value for each position.
---Parameters: patch, position.
---@param x seg.node
---@param o? seg.net.patch_embed
---@return seg.node
function net.patch_embed(x, o) end

---@class seg.net.transformer: seg.net.encoder
---@field lengths? seg.node the tokens of a sequence that count; those beyond do not change the others

---Encoder of a transformer: layers of attention and two linear layers, each behind a layer norm, and a last layer norm. Every
---position of x is a token, whatever its axes; x must have information about positions. The second result has the results of
---all layers before the last norm. Parameters: layer1.norm1, layer1.attention1, layer1.norm2, layer1.linear1,
---layer1.linear2, ..., norm.
---
---```lua
---local tokens = net.patch_embed(image, { patch = 8, width = 64 })
---local y, states = net.transformer(tokens, { layers = 4, heads = 4 })
---```
---@param x seg.node
---@param o? seg.net.transformer
---@return seg.node y
---@return seg.node[] states
function net.transformer(x, o) end

---x times upsample(sigmoid(psi(relu(Wx x + Wg gate)))), for a coarser `gate`.
---@param x seg.node
---@param gate seg.node
---@param o? { width?: integer, name?: string }
---@return seg.node
function net.attention_gate(x, gate, o) end

---x plus its self-attention; default 4 heads.
---@param x seg.node
---@param o? { heads?: integer, dropout?: number, name?: string }
---@return seg.node
function net.self_attention(x, o) end

return net
