/* sm90_host.cuh -- host code of the Hopper kernels: the problems that they
 * take, boxes and halos, the taps that read a halo, tensor maps. */
#ifndef SEG_CUDA_CONV_SM90_HOST_H
#define SEG_CUDA_CONV_SM90_HOST_H
#include "cuda/conv/igemm_sm90.cuh"

/* The taps of a pass, by result class and halo. In fprop the source has residue
 * classes, one for each remainder by the stride, in dgrad the result. */
struct Sm90Taps {
    int source_classes, result_classes, groups, taps;
    int residue[SM90_CLASSES][3]; // (d, h, w) of a class, source or result
    Sm90Class cls[SM90_CLASSES];  // of the result
    Sm90Group group[SM90_GROUPS];
    struct {
        int h, w, filter; // from the halo's start; the tap of the filter
    } tap[SM90_TAPS];
    int span_h, span_w; // positions of a halo beyond the box
};

/* The boxes of a result and the halos that TMA loads for them. A position of a
 * problem of pairs is a pair. */
struct Sm90Boxes {
    Dims result; // of a residue class
    Sm90Grid grid;
    int count; // of all boxes
    int pitch, halo_h;
    Sm90Taps taps;
};

/* The positions of a halo, in bytes of rows of `row` bytes. */
static inline int sm90_halo_bytes(const Sm90Boxes *b, int row)
{
    return b->pitch * b->halo_h * sm90_planes(b->grid) * row;
}

/* Do 16 bits, channels, strides and the GPU allow the family? Chunks of 64
 * channels may be padded with zeros, up to twice the products in all. */
bool sm90_takes(const ConvProblem *r);
/* The same for a pass in tf32 with f32 tensors: the source has chunks of 32
 * channels, the result of 64. */
bool sm90_takes_tf32(const ConvProblem *r, bool dgrad);
/* Is it a pass in tf32, with this GPU, to a result of 32 channels, with the
 * window, strides and width of a problem of pairs? */
bool sm90_takes_pairs_tf32(const ConvProblem *r, bool dgrad);
/* Is the problem one of pairs, with this GPU? All tensors have 32 channels, an
 * even width, and the window is 3 wide, padded by 1, with stride 1. */
bool sm90_takes_pairs(const ConvProblem *r);
/* Is it a first layer for wgrad, with this GPU: a convolution in 16 bits of at
 * most 16 input channels without a deferred norm, with 32 filters or more, in
 * multiples of 8? */
bool sm90_takes_thin(const ConvProblem *r);
/* The multiprocessors of the GPU; in a dry run those of an H100. */
int sm90_processors(const ConvProblem *r);
/* The first tensor's channels of an implicit concat on the side of the input or
 * the output; 0: one tensor. */
int sm90_border(const ConvProblem *r, bool input);
/* The boxes, halos and taps of fprop and wgrad, or of dgrad; lines: of a box, a
 * power of two from 4 on. False: too many taps, groups or boxes, or more than
 * half of the positions of the boxes of a sample are outside of the result. */
bool sm90_boxes_of(const ConvProblem *r, bool dgrad, bool pairs, int lines,
                   Sm90Boxes *out);
/* The map of every s-th position of a tensor of extents `size` from `residue`
 * on, with axes (c, w, d, n, h) and boxes of `channels` channels and w x h
 * positions of the planes of a box of the grid. position, line: as in
 * ConvProblem. Sets *extent. False with the reason. */
bool sm90_map(const void *data, Dtype type, Dims size, const int (&s)[3],
              const int (&residue)[3], const Sm90Grid &grid, int w, int h,
              TensorMap *out, Sm90Extent *extent, int channels = SM90_CHANNELS,
              int64_t position = 0, int64_t line = 0);

/* The side of c channels, the first `border` (0: all) in the first tensor. */
static inline Sm90Side sm90_side(int border, int c, int size = SM90_CHANNELS)
{
    Sm90Side s = {};
    s.size = size;
    s.channels[0] = border ? border : c;
    s.channels[1] = c - s.channels[0];
    s.border = (int)ceil_div(s.channels[0], s.size);
    s.chunks = s.border + (int)ceil_div(s.channels[1], s.size);
    return s;
}

/* The extents of tensor 0 or 1 of a side of extents `all`; pairs are 64
 * channels of half as many positions. */
static inline Dims sm90_part(const Sm90Side &side, Dims all, int tensor)
{
    all.c = side.channels[tensor];
    if (side.size == SM90_CHANNELS / 2) all.c *= 2, all.w /= 2;
    return all;
}

#endif
