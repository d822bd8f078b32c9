/* panel.c -- see panel.h. Packing moves a number once for each time that the
 * matrix is used by a block of rows, so it is kept simple: a line of the
 * source after the other where columns are neighbours, else tiles of a cache
 * line's width. */
#include "panel.h"
#include "correlate.h"
#include <string.h>

enum { LINE = 16 }; // floats of a cache line

void panel_pack(const Simd *s, const Matrix *m, int64_t b, float *panels)
{
    int64_t from = b * s->panel, co = least(s->panel, m->out - from);
    int64_t width = round_up(co, s->lanes);
    // all panels before this one are full
    float *to = panels + from * m->in;
    const float *at = m->at + from * m->ld_out;
    for (int64_t i0 = 0; i0 < m->in; i0 += LINE) {
        int64_t i1 = least(i0 + LINE, m->in);
        if (m->ld_out == 1) {
            for (int64_t i = i0; i < i1; i++)
                memcpy(to + i * width, at + i * m->ld_in,
                       (size_t)co * sizeof *to);
        } else {
            for (int64_t j = 0; j < co; j++)
                for (int64_t i = i0; i < i1; i++)
                    to[i * width + j] = at[i * m->ld_in + j * m->ld_out];
        }
        // product multiplies the lanes beyond the last column, too
        for (int64_t i = i0; i < i1; i++)
            for (int64_t j = co; j < width; j++) to[i * width + j] = 0;
    }
}

void panel_pack_all(const Simd *s, const Matrix *m, float *panels)
{
    for (int64_t b = 0; b < panel_count(s, m->out); b++)
        panel_pack(s, m, b, panels);
}

void panel_multiply(const Simd *s, const float *panels, int64_t in, int64_t out,
                    const PanelRows *r)
{
    for (int64_t k = 0; k < in; k += CHAIN)
        for (int64_t from = 0; from < out; from += s->panel) {
            Run run = {r->x + k, k};
            Product p = {.run = &run,
                         .runs = 1,
                         .len = least(CHAIN, in - k),
                         .panel = panels + from * in,
                         .y = r->y + from,
                         .cols = r->rows,
                         .lda = r->ldx,
                         .ldy = r->ldy,
                         .co = (int)least(s->panel, out - from),
                         .add = r->add || k > 0};
            s->product(&p);
        }
}
