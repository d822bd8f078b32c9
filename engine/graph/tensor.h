/* tensor.h -- a tensor: extents, element type, address.
 *
 * Memory is always channels-last: element (n,d,h,w,c) of a dense block is at
 * (((n*D + d)*H + h)*W + w)*C + c. A 2-D image has d == 1, a sequence d == h ==
 * 1 (w is time), a vector only c. Weights of a convolution are
 * (Co,kd,kh,kw,Ci/groups), of a transposed convolution (Ci,kd,kh,kw,Co/groups),
 * of a linear layer (out,1,1,1,in).
 *
 * Users see PyTorch's order: (N,C,[D],[H],W) with `rank` spatial axes. Only
 * tensor_to_user and tensor_from_user convert.
 *
 * Names used everywhere: x operand, y result, dx dy gradients, w b weight and
 * bias, n d h w c extents, i flat index, ci co channels in and out, kd kh kw
 * kernel, lr learning rate, g graph, p plan, L Lua state. */
#ifndef SEG_ENGINE_GRAPH_TENSOR_H
#define SEG_ENGINE_GRAPH_TENSOR_H
#include "engine/base/mem.h"

/* Element types: name, bytes, safetensors name. */
#define DTYPES(X)      \
    X(F64, 8, "F64")   \
    X(F32, 4, "F32")   \
    X(BF16, 2, "BF16") \
    X(F16, 2, "F16")   \
    X(I16, 2, "I16")   \
    X(U8, 1, "U8")

typedef enum Dtype {
#define X(id, bytes, text) id,
    DTYPES(X)
#undef X
        DTYPE_COUNT
} Dtype;

/* Extents, slowest first; all >= 1 in a tensor that exists. */
typedef struct Dims {
    int32_t n, d, h, w, c;
} Dims;

/* Number of spatial axes in user order, and two special forms. */
enum {
    RANK_SCALAR = -2, /* ()  : a loss                                  */
    RANK_VECTOR = -1, /* (C) : a bias, running statistics              */
    RANK_MAX = 3,     /* 0: (N,C)  1: (N,C,W)  2: (N,C,H,W)  3: ...    */
};

typedef struct Tensor {
    Dims dim;
    Dtype type;
    int rank;   /* RANK_SCALAR .. RANK_MAX */
    void *data; /* dense, c fastest; not owned */
} Tensor;

size_t dtype_bytes(Dtype t);
const char *dtype_name(Dtype t); /* "F32": also the name in safetensors */
bool dtype_find(const char *name, Dtype *out);

static inline int64_t numel(Dims s)
{
    return (int64_t)s.n * s.d * s.h * s.w * s.c;
}

/* Positions of one sample: D*H*W. */
static inline int64_t positions(Dims s)
{
    return (int64_t)s.d * s.h * s.w;
}

static inline bool dims_equal(Dims a, Dims b)
{
    return a.n == b.n && a.d == b.d && a.h == b.h && a.w == b.w && a.c == b.c;
}

/* How often a tensor of extents `own`, equal to `all` or 1, is repeated along
 * each axis where it is broadcast to `all`. */
static inline Dims dims_repeats(Dims own, Dims all)
{
    if (own.n == all.n) all.n = 1;
    if (own.d == all.d) all.d = 1;
    if (own.h == all.h) all.h = 1;
    if (own.w == all.w) all.w = 1;
    if (own.c == all.c) all.c = 1;
    return all;
}

/* True if every axis that a user of `rank` does not see has extent 1. */
static inline bool dims_shown(Dims s, int rank)
{
    return (rank >= 3 || s.d == 1) && (rank >= 2 || s.h == 1) &&
           (rank >= 1 || s.w == 1) && (rank >= 0 || s.n == 1) &&
           (rank > RANK_SCALAR || s.c == 1);
}

static inline size_t tensor_bytes(const Tensor *t)
{
    return (size_t)numel(t->dim) * dtype_bytes(t->type);
}

/* True if extents are 1 or more and the size fits in PTRDIFF_MAX bytes. */
bool dims_valid(Dims s, Dtype t);

/* Writes user order, like "2x1x3x5 (N,C,H,W)", to `text`; returns text. */
enum { DIMS_TEXT = 96 };
char *dims_text(Dims s, int rank, char text[DIMS_TEXT]);

/* Converts to user order; returns the number of axes (0 for a scalar). */
int dims_to_user(Dims s, int rank, int64_t shape[2 + RANK_MAX]);
/* The inverse; false if `axes` does not fit `rank` or an extent is not in 1 ..
 * 2^31-1. */
bool dims_from_user(const int64_t *shape, int axes, int rank, Dims *out);

/* Copy between memory order in `t` and user order in `user`, and convert
 * between F64 and F32. */
void tensor_to_user(const Tensor *t, float *user);
void tensor_from_user(const float *user, const Tensor *t);
/* to = from, same extents and memory order, rounded to the type of `to`. */
void tensor_convert(const Tensor *from, const Tensor *to);
void tensor_to_user_f64(const Tensor *t, double *user);
void tensor_from_user_f64(const double *user, const Tensor *t);
/* The same for positions from .. to-1 of sample n, for work split over
 * threads. */
void tensor_part_to_user(const Tensor *t, float *user, int64_t n, int64_t from,
                         int64_t to);
void tensor_part_from_user(const float *user, const Tensor *t, int64_t n,
                           int64_t from, int64_t to);

/* out = elements at .. at + count - 1 of a flat U8, I16 or F32 block. */
void tensor_to_f32(const void *data, Dtype type, int64_t at, int64_t count,
                   float *out);

/* Elements at .. at + count - 1 of a flat F32, F64, BF16 or F16 block; a write
 * rounds to nearest. */
void tensor_read(const Tensor *t, int64_t at, int64_t count, double *out);
void tensor_write(const Tensor *t, int64_t at, int64_t count, const double *v);
/* The same for element i. */
double tensor_get(const Tensor *t, int64_t i);
void tensor_set(const Tensor *t, int64_t i, double v);
#endif
