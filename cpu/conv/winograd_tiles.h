/* winograd_tiles.h -- planes of results cut into tiles of 4 x 4, each of which
 * reads 6 x 6 of the image through a window of 3 x 3.
 *
 * Tile number `at` of a plane is in row at / across and column at % across. The
 * last tiles of a row or column may have fewer than 4 results, and a tile may
 * reach beyond the image: Tile (simd.h) says which elements exist, so that
 * neither image nor result needs a border in memory. */
#ifndef SEG_CPU_CONV_WINOGRAD_TILES_H
#define SEG_CPU_CONV_WINOGRAD_TILES_H
#include "cpu/lib/simd.h"
#include "cpu/lib/window.h"

enum {
    TILE = 4,    /* results of a tile along an axis */
    PLANES = 36, /* numbers of a transformed tile */
    SQUARE = 9,  /* taps of a plane of the window */
    LINE = 16,   /* floats of a cache line */
};

/* Floats between the planes of `rows` x `width` numbers: a cache line more than
 * their size, because at a power of two all planes would map to the same sets
 * of L1. */
static inline int64_t plane_floats(int64_t rows, int64_t width)
{
    return round_up(rows * width, LINE) + LINE;
}

typedef struct Tiles {
    Dims image, result;
    int64_t lo_h, lo_w;   /* result (0, 0) reads from (-lo_h, -lo_w) */
    int64_t across, down; /* tiles of a plane */
} Tiles;

static inline Tiles tiles_of(Dims image, Dims result, int64_t lo_h,
                             int64_t lo_w)
{
    return (Tiles){.image = image,
                   .result = result,
                   .lo_h = lo_h,
                   .lo_w = lo_w,
                   .across = ceil_div(result.w, TILE),
                   .down = ceil_div(result.h, TILE)};
}

/* Tiles of a plane. */
static inline int64_t tiles_plane(const Tiles *t)
{
    return t->across * t->down;
}

/* Part from .. from+many-1 of an axis of `extent`, as indices of the part: the
 * first that exists, and the one after the last. */
static inline int tile_first(int64_t from)
{
    return (int)most(0, -from);
}
static inline int tile_end(int64_t from, int64_t many, int64_t extent)
{
    return (int)most(0, least(many, extent - from));
}

/* Channels from .. from+channels-1 of an image: one of the two inputs of an
 * implicit concat, or all channels. */
typedef struct Part {
    int64_t from, channels;
    bool second; /* the second input */
} Part;

/* The input with channel k of an image of `all` channels. */
static inline Part part_at(const ConcatInput *b, int64_t all, int64_t k)
{
    if (!b->from) return (Part){0, all, false};
    return k < b->from ? (Part){0, b->from, false}
                       : (Part){b->from, all - b->from, true};
}

/* The 6 x 6 of the image that tile `at` reads, in plane number `plane` (over
 * samples and depth) of a tensor of `channels`. *offset: floats from its start
 * to element (0, 0), which may lie before it. The caller sets the plane
 * distance and the channels of the tile. */
static inline Tile tile_image_at(const Tiles *t, int64_t plane, int64_t at,
                                 int64_t channels, int64_t *offset)
{
    const Dims s = t->image;
    int64_t h = at / t->across * TILE - t->lo_h;
    int64_t w = at % t->across * TILE - t->lo_w;
    *offset = ((plane * s.h + h) * s.w + w) * channels;
    return (Tile){.row = (ptrdiff_t)(s.w * channels),
                  .pixel = channels,
                  .r0 = tile_first(h),
                  .r1 = tile_end(h, 6, s.h),
                  .c0 = tile_first(w),
                  .c1 = tile_end(w, 6, s.w)};
}

/* Address of element `offset` of f32 or bf16 data at x. */
static inline const void *numbers_at(const void *x, bool half, int64_t offset)
{
    return (const char *)x + offset * (half ? 2 : 4);
}

/* Computes V of that tile, channels from .. end-1, into planes `step` floats
 * apart. The image is at x, f32 or bf16; its second input, if any, is in
 * `second`. */
static inline void tile_channels(const Tiles *t, const void *x, bool half,
                                 const ConcatInput *second, int64_t plane,
                                 int64_t at, int64_t from, int64_t end,
                                 int64_t step, float *v)
{
    while (from < end) {
        const Part s = part_at(second, t->image.c, from);
        int64_t offset;
        Tile tile = tile_image_at(t, plane, at, s.channels, &offset);
        tile.plane = step, tile.half = half;
        tile.channels = least(s.from + s.channels, end) - from;
        const void *at_x = s.second ? second->at : x;
        simd()->tile_image(&tile,
                           numbers_at(at_x, half, offset + from - s.from), v);
        from += tile.channels, v += tile.channels;
    }
}

/* The 4 x 4 of the result, in the same way. */
static inline Tile tile_result_at(const Tiles *t, int64_t plane, int64_t at,
                                  int64_t channels, int64_t *offset)
{
    const Dims s = t->result;
    int64_t h = at / t->across * TILE, w = at % t->across * TILE;
    *offset = ((plane * s.h + h) * s.w + w) * channels;
    return (Tile){.row = (ptrdiff_t)(s.w * channels),
                  .pixel = channels,
                  .r1 = tile_end(h, TILE, s.h),
                  .c1 = tile_end(w, TILE, s.w)};
}
#endif
