/* length.cu -- mask_length sets positions beyond a sample's length to 0;
 * last_step takes the last position within it.
 *
 * Both copy: each thread moves one vector of the result (forward) or of dx.
 * Each thread reads the length of its sample; the cache has it.
 *
 * Bound by memory: 8 bytes an element of x, 12 to add to dx; backward of
 * last_step writes zeros, 4 bytes an element; half as much in 16 bits. */
#include "cuda/lib/vec.cuh"
#include "cuda/ops/length.cuh"

namespace {

struct Mask {
    const void *from;
    const float *lengths;
    void *to;
    Vecs vecs;
    Divisor positions;
    bool fresh;
};

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    length_mask_kernel(const __grid_constant__ Mask p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        uint32_t n = row_of(p.vecs, i, &c);
        const int at = (int)split(&n, p.positions);
        Vec<V> x = {};
        // elements beyond the length become 0, even if they are not finite
        if (at < own_count(p.lengths, n, (int)p.positions.by))
            x = load<V, D>((const Element<D> *)p.from + i * V);
        store_vec<V, D>((Element<D> *)p.to + i * V, x, p.fresh);
    }
}

bool mask(const Call *c, const Tensor *from, const Tensor *to, bool fresh)
{
    const Dims s = c->y->dim;
    const int v = vec_width(s.c);
    if (!to) return true;
    if (!countable(c, rows(s))) return false;
    Mask p = {from->data,    values(c->x[1]),       to->data,
              vecs_of(s, v), divisor(positions(s)), fresh};
    LAUNCH_STORED(to->type, v, length_mask_kernel, blocks_for(p.vecs.count), c,
                  p);
    return gpu_launched("mask_length");
}

/* Forward: from x to y (N,C). Backward: from dy to dx. */
struct Last {
    const void *from;
    const float *lengths;
    void *to;
    Vecs vecs; // of `to`
    Divisor positions;
    int channels;
    bool back, fresh;
};

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    last_position_kernel(const __grid_constant__ Last p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        uint32_t n = row_of(p.vecs, i, &c);
        const int at = p.back ? (int)split(&n, p.positions) : 0;
        const int last = own_count(p.lengths, n, (int)p.positions.by) - 1;
        const int64_t row = p.back ? n : (int64_t)n * p.positions.by + last;
        Vec<V> x = {};
        if (last >= 0 && (!p.back || at == last))
            x = load<V, D>((const Element<D> *)p.from + row * p.channels +
                           c * V);
        store_vec<V, D>((Element<D> *)p.to + i * V, x, p.fresh);
    }
}

bool last(const Call *c, bool back)
{
    const Dims s = c->x[0]->dim;
    const int v = vec_width(s.c);
    const Tensor *to = back ? c->dx[0] : c->y;

    if (!to) return true;
    if (!countable(c, rows(s))) return false;
    Last p = {(back ? c->dy : c->x[0])->data,
              values(c->x[1]),
              to->data,
              vecs_of(to->dim, v),
              divisor(positions(s)),
              s.c,
              back,
              !back || is_fresh(c, 0)};
    LAUNCH_STORED(to->type, v, last_position_kernel, blocks_for(p.vecs.count),
                  c, p);
    return gpu_launched("last_step");
}

} // namespace

extern "C" {

bool cuda_mask_length_fwd(const Call *c)
{
    return mask(c, c->x[0], c->y, true);
}

bool cuda_mask_length_bwd(const Call *c)
{
    return mask(c, c->dy, c->dx[0], is_fresh(c, 0));
}

bool cuda_last_step_fwd(const Call *c)
{
    return last(c, false);
}

bool cuda_last_step_bwd(const Call *c)
{
    return last(c, true);
}
}
