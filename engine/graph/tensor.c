/* tensor.c -- names of element types, and conversion between axis orders.
 *
 * Memory is (N,D,H,W,C), user order is (N,C,D,H,W). For each sample the
 * conversion transposes a matrix of positions by channels; all copies below do
 * that. */
#include "engine/graph/precision.h"
#include <stdio.h>
#include <string.h>

static const struct {
    size_t bytes;
    const char *name;
} dtypes[DTYPE_COUNT] = {
#define X(id, size, text) [id] = {size, text},
    DTYPES(X)
#undef X
};

size_t dtype_bytes(Dtype t)
{
    CHECK((unsigned)t < DTYPE_COUNT);
    return dtypes[t].bytes;
}

const char *dtype_name(Dtype t)
{
    CHECK((unsigned)t < DTYPE_COUNT);
    return dtypes[t].name;
}

// types outside this table (I64, say) have no kernel: safetensors.c reads them
bool dtype_find(const char *name, Dtype *out)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (strcmp(name, dtypes[t].name)) continue;
        *out = (Dtype)t;
        return true;
    }
    return false;
}

// divides the available size instead of multiplying extents, which could
// overflow
bool dims_valid(Dims s, Dtype t)
{
    int32_t extent[] = {s.n, s.d, s.h, s.w, s.c};
    int64_t room = PTRDIFF_MAX / (int64_t)dtype_bytes(t);
    for (int i = 0; i < 5; i++) {
        if (extent[i] < 1) return false;
        room /= extent[i];
    }
    // floor(floor(a / b) / c) == floor(a / (b * c)): room is exact
    return room > 0;
}

char *dims_text(Dims s, int rank, char text[DIMS_TEXT])
{
    static const char *axes[2 + RANK_MAX + 1] = {
        "", "(C)", "(N,C)", "(N,C,W)", "(N,C,H,W)", "(N,C,D,H,W)",
    };
    int64_t shape[2 + RANK_MAX];
    int count = dims_to_user(s, rank, shape), at = 0;

    if (!count) {
        snprintf(text, DIMS_TEXT, "() scalar");
        return text;
    }

    // five extents of ten digits and the longest name are 66 characters
    for (int i = 0; i < count; i++)
        at += snprintf(text + at, (size_t)(DIMS_TEXT - at), "%s%lld",
                       i ? "x" : "", (long long)shape[i]);
    snprintf(text + at, (size_t)(DIMS_TEXT - at), " %s",
             axes[rank - RANK_SCALAR]);
    return text;
}

// rank 1 has axis w, rank 2 h and w, rank 3 d, h and w
int dims_to_user(Dims s, int rank, int64_t shape[2 + RANK_MAX])
{
    CHECK(rank >= RANK_SCALAR && rank <= RANK_MAX);
    if (rank == RANK_SCALAR) return 0;
    if (rank == RANK_VECTOR) {
        shape[0] = s.c;
        return 1;
    }
    const int32_t spatial[RANK_MAX] = {s.d, s.h, s.w};
    shape[0] = s.n;
    shape[1] = s.c;
    for (int i = 0; i < rank; i++) shape[2 + i] = spatial[RANK_MAX - rank + i];
    return 2 + rank;
}

// checks that each extent fits 32 bits; dims_valid checks their product
bool dims_from_user(const int64_t *shape, int axes, int rank, Dims *out)
{
    CHECK(rank >= RANK_SCALAR && rank <= RANK_MAX);
    int wanted = rank == RANK_SCALAR ? 0 : rank == RANK_VECTOR ? 1 : 2 + rank;
    if (axes != wanted) return false;
    for (int i = 0; i < axes; i++)
        if (shape[i] < 1 || shape[i] > INT32_MAX) return false;
    Dims s = {1, 1, 1, 1, 1};
    int32_t *spatial[RANK_MAX] = {&s.d, &s.h, &s.w};
    if (rank == RANK_VECTOR) s.c = (int32_t)shape[0];
    if (rank >= 0) {
        s.n = (int32_t)shape[0];
        s.c = (int32_t)shape[1];
    }
    for (int i = 0; i < rank; i++)
        *spatial[RANK_MAX - rank + i] = (int32_t)shape[2 + i];
    *out = s;
    return true;
}

/* user[n,c,p] = t[n,p,c] or the inverse, for one pair of element types. One
 * side is accessed with a stride of nc or np elements, so a few positions are
 * done at a time: their cache lines stay in L1 while the loop runs over
 * channels. */
#define REORDER(Mem, User)                                       \
    do {                                                         \
        Mem *mem = (Mem *)t->data + n * nc * np;                 \
        User *out = (User *)user + n * nc * np;                  \
        for (int64_t at = from, end; at < to; at = end) {        \
            end = to - at < near ? to : at + near;               \
            for (int64_t c = 0; c < nc; c++)                     \
                for (int64_t p = at; p < end; p++)               \
                    if (to_user)                                 \
                        out[c * np + p] = (User)mem[p * nc + c]; \
                    else                                         \
                        mem[p * nc + c] = (Mem)out[c * np + p];  \
        }                                                        \
    } while (0)

/* Reorders one sample; `wide`: user holds double. */
static void reorder(const Tensor *t, void *user, bool wide, bool to_user,
                    int64_t n, int64_t from, int64_t to)
{
    CHECK(t->type == F32 || t->type == F64);
    int64_t np = positions(t->dim), nc = t->dim.c;
    // cache lines that are a page apart compete for few sets of the cache
    const int64_t near = nc > 128 ? 8 : 64;
    if (t->type == F32 && !wide) REORDER(float, float);
    if (t->type == F32 && wide) REORDER(float, double);
    if (t->type == F64 && !wide) REORDER(double, float);
    if (t->type == F64 && wide) REORDER(double, double);
}

static void reorder_all(const Tensor *t, void *user, bool wide, bool to_user)
{
    for (int64_t n = 0; n < t->dim.n; n++)
        reorder(t, user, wide, to_user, n, 0, positions(t->dim));
}

void tensor_to_user(const Tensor *t, float *user)
{
    reorder_all(t, user, false, true);
}

void tensor_to_user_f64(const Tensor *t, double *user)
{
    reorder_all(t, user, true, true);
}

// only reads `user`: nothing is stored through the cast that drops const
void tensor_from_user(const float *user, const Tensor *t)
{
    reorder_all(t, (void *)user, false, false);
}

void tensor_from_user_f64(const double *user, const Tensor *t)
{
    reorder_all(t, (void *)user, true, false);
}

void tensor_part_to_user(const Tensor *t, float *user, int64_t n, int64_t from,
                         int64_t to)
{
    reorder(t, user, false, true, n, from, to);
}

void tensor_part_from_user(const float *user, const Tensor *t, int64_t n,
                           int64_t from, int64_t to)
{
    reorder(t, (void *)user, false, false, n, from, to);
}

// for tests, losses and error messages: too slow for kernels
void tensor_read(const Tensor *t, int64_t at, int64_t count, double *out)
{
    const Precision p = precision_of_type(t->type);
    CHECK(t->type == F32 || t->type == F64 || p != PRECISION_f32);
    const uint16_t *words = t->data;
    const float *floats = t->data;
    const double *doubles = t->data;

    if (p != PRECISION_f32)
        for (int64_t i = 0; i < count; i++)
            out[i] = precision_value(p, words[at + i]);
    else if (t->type == F32)
        for (int64_t i = 0; i < count; i++) out[i] = (double)floats[at + i];
    else
        memcpy(out, doubles + at, (size_t)count * sizeof *out);
}

void tensor_write(const Tensor *t, int64_t at, int64_t count, const double *v)
{
    const Precision p = precision_of_type(t->type);
    CHECK(t->type == F32 || t->type == F64 || p != PRECISION_f32);
    uint16_t *words = t->data;
    float *floats = t->data;
    double *doubles = t->data;

    if (p != PRECISION_f32)
        for (int64_t i = 0; i < count; i++)
            words[at + i] = precision_bits(p, v[i]);
    else if (t->type == F32)
        for (int64_t i = 0; i < count; i++) floats[at + i] = (float)v[i];
    else
        memcpy(doubles + at, v, (size_t)count * sizeof *v);
}

double tensor_get(const Tensor *t, int64_t i)
{
    double v;
    tensor_read(t, i, 1, &v);
    return v;
}

void tensor_set(const Tensor *t, int64_t i, double v)
{
    tensor_write(t, i, 1, &v);
}

void tensor_convert(const Tensor *from, const Tensor *to)
{
    for (int64_t i = 0, n = numel(to->dim); i < n; i++)
        tensor_set(to, i, tensor_get(from, i));
}

/* A block of fixed length lets the compiler vectorise. */
enum { BLOCK = 64 };

static void bytes_to_f32(const uint8_t *restrict x, int64_t n,
                         float *restrict y)
{
    const int64_t whole = n / BLOCK * BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK)
        for (int k = 0; k < BLOCK; k++) y[i + k] = x[i + k];
    for (int64_t i = whole; i < n; i++) y[i] = x[i];
}

static void words_to_f32(const int16_t *restrict x, int64_t n,
                         float *restrict y)
{
    const int64_t whole = n / BLOCK * BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK)
        for (int k = 0; k < BLOCK; k++) y[i + k] = x[i + k];
    for (int64_t i = whole; i < n; i++) y[i] = x[i];
}

void tensor_to_f32(const void *data, Dtype type, int64_t at, int64_t count,
                   float *out)
{
    CHECK(type == U8 || type == I16 || type == F32);
    if (type == U8)
        bytes_to_f32((const uint8_t *)data + at, count, out);
    else if (type == I16)
        words_to_f32((const int16_t *)data + at, count, out);
    else
        memcpy(out, (const float *)data + at, (size_t)count * sizeof *out);
}
