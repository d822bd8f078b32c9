/* channel_sums.cuh -- sums over all rows of what a call stores, of each
 * channel: those of y that a norm behind it wants, or those of gradients
 * (grad_sums.cuh).
 *
 * Blocks leave parts (parts, 2, channels), the last of them adds them up
 * (grid_reduce.cuh) and makes what the sums are for. */
#ifndef SEG_CUDA_NORM_CHANNEL_SUMS_H
#define SEG_CUDA_NORM_CHANNEL_SUMS_H
#include "cuda/norm/grad_sums.cuh"

struct Sums {
    double *parts;   // NULL: none are made
    bool ends;       // else parts are only left, for others to add
    unsigned *words; // where it ends
    Fold fold;
    int channels; // of a row of the result
    Keep keep;    // of y: sums are of v and v^2; keep.stat NULL: gradients
    double rows;  // of y
    Closing close, beside; // of dx; its channels below `border`, and the others
    int border;
};

/* Of `count` parts of `channels`; `scratch`: sums_room of them. */
static inline Sums sums_of(int count, int channels, void *scratch)
{
    Sums s = {};
    if (!count) return s;
    s.parts = (double *)scratch, s.channels = s.border = channels;
    s.fold = fold_of(count, 1);
    return s;
}

static inline size_t sums_room(int count, int channels)
{
    return (size_t)count * 2 * (size_t)channels * sizeof(double);
}

/* What they move: parts that are written and read. */
static inline double sums_bytes(const Sums &s)
{
    return s.parts ? 2.0 * (double)fold_moves(s.fold) *
                         (double)sums_room(1, s.channels)
                   : 0;
}

/* `columns` blocks that make one part have channels of their own. */
static inline void sums_by(const Call *c, int columns, Sums *s)
{
    if (!s->ends) return;
    s->fold = fold_of(s->fold.parts, columns);
    s->words = gpu_words(c->dev, (int64_t)columns * s->fold.words);
}

/* The block has left part `part` of channels first .. first + count - 1, which
 * it shares with the blocks of its column. pile: shared memory of at least 2
 * count numbers, and as many as it has threads. A function of its own, so that
 * the loop before it has all the registers. All threads come here. */
static inline __device__ __attribute__((noinline)) void sums_end(
    const Sums &s, int part, int column, int first, int count, double *pile)
{
    if (!s.words ||
        !fold_parts<2>(s.fold, part, s.words + column * s.fold.words,
                       s.parts + first, 2 * (int64_t)s.channels, s.channels,
                       count, pile))
        return;
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        const int c = first + i;
        const double sum = pile[i], other = pile[count + i];
        if (s.keep.stat)
            put_channel(s.keep, c, s.rows, sum, other);
        else if (c < s.border && s.close.runs)
            close_end(s.close, c, sum, other);
        else if (c >= s.border && s.beside.runs)
            close_end(s.beside, c - s.border, sum, other);
    }
}
#endif
