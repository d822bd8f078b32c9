/* pool.c -- max pooling of a row of windows, with channels along the vectors.
 *
 * The winning tap is saved as one byte an element. The first of equal elements
 * wins, and a NaN wins over everything, the last one if there are several, as
 * in the plain loops. One vector of channels at a time: a load, two compares
 * and two selects a tap. A chain is only as long as the window (4 or 8 taps),
 * so the processor overlaps neighbouring windows without blocking here. */
#include "cpu/simd/vec.h"

typedef uint8_t Vb __attribute__((vector_size(LANES)));
typedef uint8_t Vbu __attribute__((vector_size(LANES), aligned(1), may_alias));

/* Maximum of lanes at .. at+n-1 over the taps, n <= LANES, and the tap of each.
 * If all elements are -inf, it is the first tap inside. */
INLINE V best(const PoolRow *p, ptrdiff_t at, int n, Vi *which)
{
    V top = v_set(-INFINITY);
    Vi win = (Vi){0} + p->number[0];
    for (int t = 0; t < p->taps; t++) {
        const float *x = p->x[t] + at;
        V v = n == LANES ? v_load(x) : v_load_part(x, n);
        Vi wins = (Vi)(v > top) | (Vi)(v != v);
        top = v_select(wins, v, top);
        win = (wins & p->number[t]) | (~wins & win);
    }
    *which = win;
    return top;
}

void ISA_NAME(pool_max)(const PoolRow *p, float *y, uint8_t *which);
/* Window after window, all channels of each: results are written in order. */
void ISA_NAME(pool_max)(const PoolRow *p, float *y, uint8_t *which)
{
    for (int64_t i = 0; i < p->cols; i++) {
        int64_t c = 0;
        Vi win;
        for (; c + LANES <= p->channels; c += LANES) {
            v_store(y + c, best(p, i * p->step + c, LANES, &win));
            *(Vbu *)(which + c) = __builtin_convertvector(win, Vb);
        }
        int rest = (int)(p->channels - c);
        if (rest) {
            v_store_part(y + c, best(p, i * p->step + c, rest, &win), rest);
            Vb bytes = __builtin_convertvector(win, Vb);
            memcpy(which + c, &bytes, (size_t)rest);
        }
        y += p->channels, which += p->channels;
    }
}

void ISA_NAME(pool_max_grad)(const PoolRow *p, const float *dy,
                             const uint8_t *which, bool add);
void ISA_NAME(pool_max_grad)(const PoolRow *p, const float *dy,
                             const uint8_t *which, bool add)
{
    // every tap of a window is written, the losers with 0 (or with 0 added), so
    // dx need not be cleared before
    for (int64_t i = 0; i < p->cols; i++) {
        for (int64_t c = 0; c < p->channels; c += LANES) {
            int n = p->channels - c < LANES ? (int)(p->channels - c) : LANES;
            Vb bytes = {0};
            if (n == LANES)
                bytes = *(const Vbu *)(which + c);
            else
                memcpy(&bytes, which + c, (size_t)n);
            Vi win = __builtin_convertvector(bytes, Vi);
            V g = n == LANES ? v_load(dy + c) : v_load_part(dy + c, n);
            for (int t = 0; t < p->taps; t++) {
                float *dx = p->dx[t] + i * p->step + c;
                V v = v_select(win == p->number[t], g, v_zero());
                if (n == LANES)
                    v_store(dx, add ? v_load(dx) + v : v);
                else
                    v_store_part(dx, add ? v_load_part(dx, n) + v : v, n);
            }
        }
        dy += p->channels, which += p->channels;
    }
}
