/* rearrange.h -- flip, roll, repeats and permute as one formula.
 *
 * Along each axis of the written tensor, element i is element (start + sign i)
 * mod extent of an axis of the tensor that is read. The gradient of each
 * operator has the same form; that of repeats is a sum of `times` elements,
 * `again` apart. */
#ifndef SEG_ENGINE_GRAPH_REARRANGE_H
#define SEG_ENGINE_GRAPH_REARRANGE_H
#include "engine/base/host_device.h"
#include "engine/graph/op.h"

/* How an axis of the written tensor reads. */
typedef struct SourceAxis {
    int32_t extent, start; /* 0 <= start < extent                   */
    int32_t sign;          /* 1 or -1                               */
    int32_t times;         /* elements that are added               */
    int64_t step, again;   /* memory elements from one to the next  */
} SourceAxis;

/* Axes d, h, w, c of the written tensor. */
typedef struct Rearrange {
    SourceAxis axis[4];
    int64_t sample; /* elements of a sample of the tensor that is read */
    int64_t copies; /* elements that are added for one, over all axes  */
} Rearrange;

/* Number, not address, of the extents along d, h, w, c. */
static inline int32_t dims_axis(Dims s, int i)
{
    return i == 0 ? s.d : i == 1 ? s.h : i == 2 ? s.w : s.c;
}

/* Memory elements between neighbours along axis i. */
static inline int64_t dims_step(Dims s, int i)
{
    int64_t step = 1;
    for (int k = 3; k > i; k--) step *= dims_axis(s, k);
    return step;
}

/* The axis of x that axis i of the result of a permute shows. */
static inline int permute_source(const Attr *a, int i)
{
    return a->word[1 + i];
}

/* The axis of the result that shows axis i of x. */
static inline int permute_target(const Attr *a, int i)
{
    int k = 0;
    while (k < 3 && permute_source(a, k) != i) k++;
    return k;
}

/* The operator `a` on a tensor of extents `from`; back: its gradient, of the
 * extents `to`, from dy of the extents `from`. */
static inline Rearrange rearrange_of(const Attr *a, Dims from, Dims to,
                                     bool back)
{
    Rearrange r;
    r.sample = positions(from) * from.c, r.copies = 1;
    for (int i = 0; i < 4; i++) {
        const int32_t v = a->word[1 + i]; // the attribute of this axis
        int source = i;
        if (a->op == OP_permute)
            source = back ? permute_target(a, i) : permute_source(a, i);
        SourceAxis *x = &r.axis[i];
        x->extent = dims_axis(from, source), x->step = dims_step(from, source);
        x->start = 0, x->sign = 1, x->times = 1, x->again = 0;
        if (a->op == OP_flip && v) x->start = x->extent - 1, x->sign = -1;
        if (a->op == OP_roll) {
            const int64_t shift = (back ? (int64_t)v : -(int64_t)v) % x->extent;
            x->start = (int32_t)(shift < 0 ? shift + x->extent : shift);
        }
        if (a->op == OP_repeats && back) {
            x->extent = dims_axis(to, i), x->times = v;
            x->again = x->extent * x->step;
            r.copies *= v;
        }
    }
    return r;
}

/* Memory elements from the start of the axis to what element i reads first: i
 * is reduced before start is added, so that no sum exceeds 32 bits. */
HOST_DEVICE int64_t source_at(const SourceAxis *x, int32_t i)
{
    int32_t k = i < x->extent ? i : i % x->extent;
    k = x->sign < 0 ? x->start - k : k - (x->extent - x->start);
    return (k < 0 ? k + x->extent : k) * x->step;
}
#endif
