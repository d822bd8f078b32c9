/* panel.c -- see panel.h. Packing moves each number once for every use of the
 * matrix by a block of rows, so it is simple: row by row where the columns of
 * the source are contiguous, else tiles of a cache line's width. */
#include "cpu/conv/panel.h"
#include "cpu/conv/fprop_dgrad.h"
#include "cpu/conv/transpose.h"
#include <string.h>

void panel_pack(const Simd *s, const Matrix *m, int64_t b, float *panels)
{
    int64_t from = b * s->panel, co = least(s->panel, m->out - from);
    int64_t width = round_up(co, s->lanes);
    // all panels before this one are full
    float *to = panels + from * m->in;
    const float *at = m->at + from * m->ld_out;
    if (m->ld_out != 1) transpose_rows(at, m->ld_out, co, m->in, to, width);

    for (int64_t i = 0; i < m->in; i++) {
        if (m->ld_out == 1)
            memcpy(to + i * width, at + i * m->ld_in, (size_t)co * sizeof *to);
        // Simd.product multiplies the lanes beyond the last column, too
        if (co < width)
            memset(to + i * width + co, 0, (size_t)(width - co) * sizeof *to);
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
            PanelGemm p = {.run = &run,
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
