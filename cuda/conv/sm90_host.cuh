/* sm90_host.cuh -- what the launchers of the Hopper kernels share: which
 * problems they take, the taps of a window by halo, tensor maps. */
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

/* Do precision, channels, strides and the GPU allow the family? */
bool sm90_takes(const ConvProblem *r);
/* False: too many taps or groups. */
bool sm90_taps_of(const ConvProblem *r, bool dgrad, Sm90Taps *out);
/* The box of 256 positions of a plane of these extents: 8 x 32 or 16 x 16,
 * whichever wastes less. False: more than half is waste. */
bool sm90_box(Dims result, int *w, int *h);
/* The map of every s-th position of a tensor of extents `size` from `residue`
 * on, with boxes of 64 channels and box[0] x box[1] (w, h) positions. Sets
 * *extent. False with the reason. */
bool sm90_map(const void *data, Dtype type, Dims size, const int (&s)[3],
              const int (&residue)[3], const int (&box)[2], TensorMap *out,
              Sm90Extent *extent);

/* Chunks of 64 channels of the first tensor; c: channels of all. */
static inline int sm90_border(int border, int c)
{
    return (border ? border : c) / SM90_CHANNELS;
}

/* The extents of tensor 0 or 1 of an implicit concat of extents `all`. */
static inline Dims sm90_part(int border, Dims all, int tensor)
{
    if (tensor)
        all.c -= border;
    else if (border)
        all.c = border;
    return all;
}

#endif
