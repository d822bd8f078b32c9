/* picture.c -- core.picture: a canvas for curves and slices.
 *
 *     local p = core.picture.canvas(640, 480, 0xffffff)
 *     p:line(x0, y0, x1, y1, width, color)
 *     p:save("x.png")
 *
 * Coordinates as in picture.h: pixels from 0 in the upper left corner, in
 * fractions of a pixel for lines; drawing outside of the canvas is clipped.
 * Colours are 0xrrggbb. lua/report/picture.lua draws curves and overlays with
 * these functions. */
#include "data/image/picture.h"
#include "lua/bind/bind.h"

static Picture *check_picture(lua_State *L)
{
    return luaL_checkudata(L, 1, "seg.picture");
}

/* Also p:close(); a closed canvas has no pixels and takes none. */
static int picture_gc(lua_State *L)
{
    picture_free(check_picture(L));
    return 0;
}

static uint32_t check_color(lua_State *L, int arg)
{
    return (uint32_t)check_int(L, arg, "color", 0, 0xffffff);
}

/* picture.canvas(w, h, color) -> canvas of w x h pixels of that colour; raises
 * when a side is not from 1 to PICTURE_SIDE */
static int l_canvas(lua_State *L)
{
    int w = (int)check_int(L, 1, "width", 1, PICTURE_SIDE);
    int h = (int)check_int(L, 2, "height", 1, PICTURE_SIDE);
    uint32_t color = check_color(L, 3);
    Picture *p = new_object(L, "seg.picture", sizeof *p);
    if (!picture_new(p, w, h, color)) return raise_error(L);
    charge_memory(L, 3 * (size_t)w * (size_t)h);
    return 1;
}

/* picture.text_width(dot, text) -> width of the text in pixels; the font is 7
 * dots high, a dot is a square of `dot` pixels */
static int l_text_width(lua_State *L)
{
    lua_pushnumber(L, picture_text_width(check_number(L, 1, "dot"),
                                         luaL_checkstring(L, 2)));
    return 1;
}

/* p:rect(x, y, w, h, color, cover = 1): a filled rectangle; cover is its
 * opacity, 0 .. 1 */
static int l_rect(lua_State *L)
{
    Picture *p = check_picture(L);
    picture_rect(p, check_number(L, 2, "x"), check_number(L, 3, "y"),
                 check_number(L, 4, "w"), check_number(L, 5, "h"),
                 check_color(L, 6), luaL_optnumber(L, 7, 1));
    return 0;
}

/* p:line(x0, y0, x1, y1, width, color): with round ends, so that a line of
 * length 0 is a dot */
static int l_line(lua_State *L)
{
    Picture *p = check_picture(L);
    picture_line(p, check_number(L, 2, "x0"), check_number(L, 3, "y0"),
                 check_number(L, 4, "x1"), check_number(L, 5, "y1"),
                 check_number(L, 6, "width"), check_color(L, 7));
    return 0;
}

/* p:text(x, y, dot, color, text): x, y is the upper left corner of the text */
static int l_text(lua_State *L)
{
    Picture *p = check_picture(L);
    picture_text(p, check_number(L, 2, "x"), check_number(L, 3, "y"),
                 check_number(L, 4, "dot"), check_color(L, 5),
                 luaL_checkstring(L, 6));
    return 0;
}

/* One slice of an array. */
typedef struct Plane {
    const float *data;
    int h, w;
} Plane;

/* Plane `number` (from 1) of the array at `arg`: its last two axes are h and
 * w, the others count planes. */
static Plane check_plane(lua_State *L, int arg, int number)
{
    Array *a = check_array(L, arg);
    if (a->axes < 2)
        raise_usage(L, "a picture needs an array of 2 axes or more, got %d",
                    a->axes);
    int64_t h = a->shape[a->axes - 2], w = a->shape[a->axes - 1];
    if (h > PICTURE_SIDE || w > PICTURE_SIDE)
        raise_usage(L, "a plane of %lld x %lld is too large for a picture",
                    (long long)w, (long long)h);
    int64_t k = check_int(L, number, "plane", 1, a->count / (h * w)) - 1;
    return (Plane){a->data + k * h * w, (int)h, (int)w};
}

enum { MOST_ZOOM = 64, FAR = 1 << 20 };

/* p:gray(x, y, zoom, array, plane, lo, hi): a plane in gray, lo black and hi
 * white, each number a square of zoom pixels, the first at x, y */
static int l_gray(lua_State *L)
{
    Picture *p = check_picture(L);
    int x = (int)check_int(L, 2, "x", -FAR, FAR);
    int y = (int)check_int(L, 3, "y", -FAR, FAR);
    int zoom = (int)check_int(L, 4, "zoom", 1, MOST_ZOOM);
    Plane a = check_plane(L, 5, 6);
    picture_gray(p, x, y, zoom, a.data, a.w, a.h, check_number(L, 7, "lo"),
                 check_number(L, 8, "hi"));
    return 0;
}

/* Number `key` of the list on top of the stack. */
static double list_number(lua_State *L, int key, const char *what)
{
    lua_rawgeti(L, -1, key);
    const double v = check_number(L, lua_gettop(L), what);
    lua_pop(L, 1);
    return v;
}

/* p:wash(x, y, zoom, array, plane, {{value, color, cover}, ...}): a plane as a
 * colour overlay, at the position of p:gray; the values of the stops ascend,
 * cover is the opacity, 0 .. 1 */
static int l_wash(lua_State *L)
{
    enum { MOST_STOPS = 64 };
    Stop stop[MOST_STOPS];
    Picture *p = check_picture(L);
    int x = (int)check_int(L, 2, "x", -FAR, FAR);
    int y = (int)check_int(L, 3, "y", -FAR, FAR);
    int zoom = (int)check_int(L, 4, "zoom", 1, MOST_ZOOM);
    Plane a = check_plane(L, 5, 6);
    luaL_checktype(L, 7, LUA_TTABLE);
    const int n = (int)lua_rawlen(L, 7);
    if (n < 1 || n > MOST_STOPS)
        raise_usage(L, "a wash has 1 to %d colours, got %d", MOST_STOPS, n);

    for (int k = 0; k < n; k++) {
        if (lua_rawgeti(L, 7, k + 1) != LUA_TTABLE)
            raise_usage(L, "colour %d must be {value, color, cover}", k + 1);
        const double value = list_number(L, 1, "value");
        const double color = list_number(L, 2, "color");
        const double cover = list_number(L, 3, "cover");
        lua_pop(L, 1);
        if (!(color >= 0 && color <= 0xffffff && cover >= 0 && cover <= 1))
            raise_usage(L,
                        "colour %d: need a color of 0 to 0xffffff and a cover "
                        "of 0 to 1, got %g and %g",
                        k + 1, color, cover);
        if (k && !(value > stop[k - 1].value))
            raise_usage(L, "colour %d: the values must grow, got %g after %g",
                        k + 1, value, stop[k - 1].value);
        stop[k] = (Stop){value, (uint32_t)color, cover};
    }

    picture_wash(p, x, y, zoom, a.data, a.w, a.h, stop, n);
    return 0;
}

/* p:contour(x, y, zoom, array, plane, level, width, color): the isoline of the
 * plane at this level, at the position of p:gray */
static int l_contour(lua_State *L)
{
    Picture *p = check_picture(L);
    int x = (int)check_int(L, 2, "x", -FAR, FAR);
    int y = (int)check_int(L, 3, "y", -FAR, FAR);
    int zoom = (int)check_int(L, 4, "zoom", 1, MOST_ZOOM);
    Plane a = check_plane(L, 5, 6);
    picture_contour(p, x, y, zoom, a.data, a.w, a.h,
                    check_number(L, 7, "level"), check_number(L, 8, "width"),
                    check_color(L, 9));
    return 0;
}

/* picture.window(array, plane, low, high) -> lo, hi for gray(): the quantiles
 * `low` and `high` of the plane */
static int l_window(lua_State *L)
{
    double lo, hi, low = check_number(L, 3, "low");
    double high = check_number(L, 4, "high");
    Plane a = check_plane(L, 1, 2);
    if (low < 0 || low > 1 || high < 0 || high > 1)
        raise_usage(L, "shares must be from 0 to 1, got %g and %g", low, high);
    if (!picture_window(a.data, (int64_t)a.h * a.w, low, high, &lo, &hi))
        return raise_error(L);
    lua_pushnumber(L, lo);
    lua_pushnumber(L, hi);
    return 2;
}

/* picture.overlap(a, plane, b, plane) -> how many numbers are above 0.5 in a,
 * in b, in both: the counts of the Dice coefficient */
static int l_overlap(lua_State *L)
{
    Plane a = check_plane(L, 1, 2), b = check_plane(L, 3, 4);
    int64_t in_a = 0, in_b = 0, both = 0;
    if (a.h != b.h || a.w != b.w)
        raise_usage(L, "planes of %d x %d and %d x %d do not overlap", a.w, a.h,
                    b.w, b.h);
    for (int64_t i = 0, n = (int64_t)a.h * a.w; i < n; i++) {
        bool p = a.data[i] > 0.5f, q = b.data[i] > 0.5f;
        in_a += p, in_b += q, both += p && q;
    }
    lua_pushinteger(L, in_a);
    lua_pushinteger(L, in_b);
    lua_pushinteger(L, both);
    return 3;
}

/* p:save(path): an RGB PNG, written completely or not at all; raises errors */
static int l_save(lua_State *L)
{
    Picture *p = check_picture(L);
    if (!picture_save(p, luaL_checkstring(L, 2))) return raise_error(L);
    return 0;
}

void bind_picture(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"rect", l_rect}, {"line", l_line},      {"text", l_text},
        {"gray", l_gray}, {"wash", l_wash},      {"contour", l_contour},
        {"save", l_save}, {"close", picture_gc}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"canvas", l_canvas},
                                         {"text_width", l_text_width},
                                         {"window", l_window},
                                         {"overlap", l_overlap},
                                         {NULL, NULL}};
    new_type(L, "seg.picture", methods, picture_gc);
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "picture");
}
