---@meta
-- segengine_net.d.lua -- networks ready to use, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

-- Networks --------------------------------------------------------------------

---Each takes a node and one table of options; `name` puts its parameters into a
---scope, so that a recipe may have two of a kind. More: docs/networks.md.
---@class seg.net
local net = {}

---A name, or a list of the name and its options: { "group", groups = 4 }.
---@alias seg.net.norm "batch"|"group"|"instance"|"layer"|"none"|table

---A name, or a list of the name and its number: { "leaky_relu", 0.2 }.
---@alias seg.net.act "relu"|"leaky_relu"|"gelu"|"silu"|"tanh"|"sigmoid"|"none"|table

---@class seg.net.unet
---@field out? integer channels of the result, 1
---@field features? integer[] channels of each level, the finest first
---@field base? integer without features: base, 2 base, 4 base, ...; 32
---@field levels? integer of so many levels, 4
---@field bottom? integer channels below the last level, twice its own
---@field factors? integer|seg.extent[] between grids: 2, or one for each level
---@field convs? integer convolutions a block, 2
---@field kernel? seg.extent odd, 3
---@field bias? boolean of these convolutions; true without a norm
---@field norm? seg.net.norm "batch"
---@field act? seg.net.act "relu"
---@field residual? boolean blocks add what goes in
---@field squeeze? integer squeeze and excitation in each block, by this reduction
---@field gates? boolean skips through attention gates
---@field heads? integer self-attention of so many heads behind the bottom, 0
---@field dropout? number of whole channels, after each block
---@field down? "maxpool"|"conv"
---@field up? "upconv"|"linear"|"nearest"
---@field deep? integer results of so many coarser levels
---@field pad? boolean extents that do not divide: zeros at the far end, cut off again
---@field init? seg.init
---@field name? string

---Logits of x's extents, and with `deep` those of the next coarser levels.
---@param x seg.node
---@param o? seg.net.unet
---@return seg.node logits
---@return seg.node[]? deep
function net.unet(x, o) end

---Weighted sum of a loss over both results of a U-Net with `deep`; weights 1, 1/2, 1/4, ...
---divided by their sum, or as given.
---@param logits seg.node
---@param deep seg.node[]
---@param target seg.node
---@param loss fun(x: seg.node, target: seg.node): seg.node
---@param o? { weights?: number[] }
---@return seg.node
function net.deep_loss(logits, deep, target, loss, o) end

---@class seg.net.pix2pix
---@field out? integer channels of the result, 1
---@field filters? integer of the first step, 64
---@field levels? integer 6; extents are multiples of 2^levels
---@field slope? number of leaky ReLU on the way down, 0.2
---@field dropout? number of whole channels, in every second step up, 0.2
---@field squeeze? integer squeeze and excitation from the fourth step down on, by this reduction; 0
---@field smooth? integer the mean over so many voxels an axis at the end, 3; 1: none
---@field final? seg.net.act "relu"
---@field norm? seg.net.norm { "batch", eps = 1e-3, momentum = 0.01 }
---@field init? seg.init "xavier_uniform"
---@field name? string

---The generator of OpenKBP's baseline.
---@param x seg.node
---@param o? seg.net.pix2pix
---@return seg.node
function net.pix2pix(x, o) end

---@class seg.net.resnet
---@field depth? 18|34|50
---@field out? integer 1000; 0: the features
---@field base? integer channels of the first stage, 64
---@field stem? "large"|"small"
---@field norm? seg.net.norm "batch"
---@field init? seg.init "kaiming_normal_out"
---@field name? string

---Names of parameters are torchvision's.
---@param x seg.node
---@param o? seg.net.resnet
---@return seg.node
function net.resnet(x, o) end

---@class seg.net.pose_resnet
---@field out? integer 3
---@field depth? 18|34|50
---@field base? integer 64
---@field shared? integer 1024
---@field face? integer[] { 768, 1404 }
---@field pose? integer[] { 256, 99 }
---@field face_encoder? integer[] { 512, 256 }
---@field pose_encoder? integer[] { 128, 64 }
---@field fusion? integer 256
---@field hidden? integer 128
---@field dropout? number[] { 0.3, 0.2, 0.1, 0.05 }
---@field init? seg.init of the ResNet
---@field name? string

---@param x seg.node
---@param o? seg.net.pose_resnet
---@return seg.node
function net.pose_resnet(x, o) end

---@class seg.net.pose_cnn
---@field out? integer 3
---@field features? integer[] { 32, 64, 128, 256 }
---@field hidden? integer 128
---@field norm? seg.net.norm "batch"
---@field act? seg.net.act "relu"
---@field dropout? number before the last layer
---@field init? seg.init
---@field name? string

---@param x seg.node
---@param o? seg.net.pose_cnn
---@return seg.node
function net.pose_cnn(x, o) end

---@class seg.net.cnn_lstm
---@field lengths? seg.node one number a sample: the steps that count
---@field features? integer[] { 64, 128, 256 }
---@field kernel? integer odd, 3
---@field pool? integer 2; 1: none
---@field bias? boolean true
---@field norm? seg.net.norm "batch"
---@field act? seg.net.act "relu"
---@field dropout? number behind each convolution, 0.2
---@field hidden? integer of the LSTM, 256
---@field layers? integer 2
---@field bidirectional? boolean true
---@field lstm_dropout? number between its layers, 0.3
---@field project? integer width of the layer at each step, 512
---@field project_dropout? number 0.3
---@field out? integer 512
---@field init? seg.init of the convolutions
---@field name? string

---One vector for a sequence (C,W).
---@param x seg.node
---@param o? seg.net.cnn_lstm
---@return seg.node
function net.cnn_lstm(x, o) end

---@class seg.net.lstm_decoder
---@field like seg.node a sequence, for the number of steps
---@field lengths? seg.node one number a sample: the steps that count
---@field hidden? integer 128
---@field layers? integer 1
---@field out? integer channels; those of `like`
---@field name? string

---A sequence from a vector.
---@param x seg.node
---@param o seg.net.lstm_decoder
---@return seg.node
function net.lstm_decoder(x, o) end

---@class seg.net.mlp
---@field out? integer 1
---@field hidden? integer[] {}
---@field norm? seg.net.norm "batch"
---@field act? seg.net.act "relu"
---@field dropout? number 0
---@field late? boolean the activation before the norm
---@field name? string

---Linear layers.
---@param x seg.node
---@param o? seg.net.mlp
---@return seg.node
function net.mlp(x, o) end

-- Blocks ----------------------------------------------------------------------

---Channels times factors that are found from their means.
---@param x seg.node
---@param o? { reduction?: integer, name?: string } 16
---@return seg.node
function net.squeeze_excite(x, o) end

---x times a map from 0 to 1 that is found with the coarser `gate`.
---@param x seg.node
---@param gate seg.node
---@param o? { width?: integer, name?: string }
---@return seg.node
function net.attention_gate(x, gate, o) end

---What all positions make of each other, added to x.
---@param x seg.node
---@param o? { heads?: integer, dropout?: number, name?: string } 4, 0
---@return seg.node
function net.self_attention(x, o) end

return net
