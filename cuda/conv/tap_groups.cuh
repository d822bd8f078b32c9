/* tap_groups.cuh -- the tap groups of an axis: taps that read one box of the
 * source. Shared by igemm_tile and wgrad_tile.
 *
 * With stride `step`, position j of an axis reads source position j*step + base
 * + i*tap through tap i: taps with the same (base + i*tap) mod step read a box
 * of the source, sampled at every step-th position. Such taps form a tap group
 * of the axis. */
#ifndef SEG_CUDA_CONV_TAP_GROUPS_H
#define SEG_CUDA_CONV_TAP_GROUPS_H
#include "cuda/conv/igemm_operands.cuh"

enum { TILE_GROUPS = 4 }; // tap groups of one axis, at most

/* One tap group of an axis. Halo position h of a box that begins at position f
 * reads source position (f + h)*IgemmAxis.step + origin. The i-th tap of the
 * group is tap first + i*every of the filter; for the box's first position it
 * reads halo position at + i*step. Halo positions `own` .., as many as the box
 * has, belong to the box: over all boxes and groups of a class they are each
 * source position exactly once (for the store of norm backward on load). */
struct IgemmTaps {
    int first, every, count, at, step, reach, origin; // reach: farthest shift
    int own;
};

template <int GROUPS> struct IgemmAxis {
    int count, size, step, out_step, out_base; // as in ConvAxis
    int groups;
    IgemmTaps group[GROUPS];
};

static inline int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

/* Sorts the taps of an axis into tap groups; false: more than GROUPS. */
template <int GROUPS>
static inline bool tap_groups_of(const ConvAxis &x, IgemmAxis<GROUPS> *out)
{
    const int tap = x.tap < 0 ? -x.tap : x.tap;
    const int period = x.step / gcd(tap, x.step);
    *out = {};
    out->count = x.count, out->size = x.size, out->step = x.step;
    out->out_step = x.out_step, out->out_base = x.out_base;
    out->groups = (int)least(period, x.taps);
    if (out->groups > GROUPS) return false;

    for (int i = 0; i < out->groups; i++) {
        IgemmTaps *t = &out->group[i];
        const int meets = x.base + i * x.tap;
        const int rest = (meets % x.step + x.step) % x.step;
        t->first = x.first + i * x.every, t->every = period * x.every;
        t->count = (x.taps - i + period - 1) / period;
        t->step = period * x.tap / x.step;
        t->reach = (t->count - 1) * (t->step < 0 ? -t->step : t->step);
        t->at = t->step < 0 ? t->reach : 0;
        t->origin = (meets - rest) / x.step;
        t->origin = (t->origin - t->at) * x.step + rest;
        t->own = (int)most(0, ceil_div(-t->origin, x.step));
    }
    return true;
}
#endif
