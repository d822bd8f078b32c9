/* result.c -- volumes as results: connected components and holes of labels, and
 * result files other than NIfTI and SEG (volume.c). */
#include "data/datasets/openkbp.h"
#include "data/format/npy.h"
#include "data/format/zip.h"
#include "data/image/picture.h"
#include "data/metrics/components.h"
#include "lua/bind/data.h"
#include <string.h>

static Volume *check_labels(lua_State *L, const char *what)
{
    Volume *v = check_volume(L, 1);
    if (v->voxels.type != U8) raise_usage(L, "%s is for labels", what);
    return v;
}

/* v:channels() -> the number of channels */
static int l_channels(lua_State *L)
{
    lua_pushinteger(L, check_volume(L, 1)->voxels.dim.c);
    return 1;
}

/* v:extents() -> d, h, w */
static int l_extents(lua_State *L)
{
    const Dims d = check_volume(L, 1)->voxels.dim;
    lua_pushinteger(L, d.d);
    lua_pushinteger(L, d.h);
    lua_pushinteger(L, d.w);
    return 3;
}

/* v:is_labels() -> whether its numbers are class numbers */
static int l_is_labels(lua_State *L)
{
    lua_pushboolean(L, check_volume(L, 1)->unit == UNIT_LABEL);
    return 1;
}

/* v:reach() -> first and last slice, from 1, with a number above 0; nothing
 * when there is none */
static int l_reach(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const Dims n = v->voxels.dim;
    const int64_t plane = (int64_t)n.h * n.w * n.c;
    int32_t low = -1, high = -1;

    for (int32_t d = 0; d < n.d; d++)
        for (int64_t i = d * plane; i < (d + 1) * plane; i++)
            if (volume_value(v, i) > 0) {
                low = low < 0 ? d : low, high = d;
                break;
            }

    if (low < 0) return 0;
    lua_pushinteger(L, low + 1);
    lua_pushinteger(L, high + 1);
    return 2;
}

/* v:tidy{class=, connect=26, keep=0, min_ml=0, fill_holes=false} -> {pieces=,
 * pieces_gone=, voxels_gone=, voxels_filled=}: removes connected components and
 * fills holes of labels in place (components.h); fill_holes may be "slices". A
 * component of exactly min_ml stays. */
static int l_tidy(lua_State *L)
{
    static const char *const known[] = {"class",  "connect",    "keep",
                                        "min_ml", "fill_holes", NULL};
    Volume *v = check_labels(L, "tidy");
    check_keys(L, 2, "tidy", known);
    const Dims d = v->voxels.dim;
    const int32_t n[3] = {d.w, d.h, d.d};
    double mm[3];
    Tidy how = {.value = (uint8_t)opt_int(L, 2, "class", 1, 1, 255),
                .connect = (int)opt_int(L, 2, "connect", 26, 6, 26),
                .keep = (int32_t)opt_int(L, 2, "keep", 0, 0, INT32_MAX)};
    if (how.connect != 6 && how.connect != 26)
        raise_usage(L, "connect must be 6 or 26, got %d", how.connect);
    volume_spacing_mm(v, mm);
    how.least = labels_least(opt_number(L, 2, "min_ml", 0), mm);
    if (lua_getfield(L, 2, "fill_holes") == LUA_TSTRING)
        how.fill_slices = !strcmp(lua_tostring(L, -1), "slices");
    else
        how.fill = lua_toboolean(L, -1);
    TidyDone done;
    if (!labels_tidy(v->voxels.data, n, &how, &done)) return raise_error(L);
    lua_createtable(L, 0, 4);
    set_integer(L, "pieces", done.pieces);
    set_integer(L, "pieces_gone", done.pieces_gone);
    set_integer(L, "voxels_gone", done.voxels_gone);
    set_integer(L, "voxels_filled", done.voxels_filled);
    return 1;
}

/* v:write_png(path): one slice and channel as an 8-bit grey image with unscaled
 * values; a value outside 0 .. 255 is an error (kind data) */
static int l_write_png(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2);
    const Dims d = v->voxels.dim;
    const int64_t n = (int64_t)d.h * d.w;

    if (d.c != 1 || d.d != 1)
        raise_usage(L, "a PNG is of one slice and channel, this has %d and %d",
                    (int)d.d, (int)d.c);
    uint8_t *grey = lua_newuserdatauv(L, (size_t)n, 0);

    for (int64_t i = 0; i < n; i++) {
        const double x = volume_value(v, i);
        if (!(x >= 0 && x <= 255)) {
            fail_data("%s: a PNG of 8 bits holds 0 to 255, got %g", path, x);
            return raise_error(L);
        }
        grey[i] = (uint8_t)x;
    }

    if (!grey_save(grey, d.w, d.h, path)) return raise_error(L);
    return 0;
}

/* v:write_npy(path, rank): its numbers in their type, (H,W) for rank 2; several
 * channels are the first axis, of a sequence the last */
static int l_write_npy(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2);
    const int rank = (int)check_int(L, 3, "rank", 1, 3);
    const Tensor *t = &v->voxels;
    const int64_t n = positions(t->dim),
                  extent[] = {t->dim.d, t->dim.h, t->dim.w};
    int64_t shape[4];
    int axes = 0;
    const int c = t->dim.c;

    if (c > 1 && rank > 1) shape[axes++] = c;
    for (int a = 3 - rank; a < 3; a++) shape[axes++] = extent[a];
    if (c > 1 && rank == 1) shape[axes++] = c;
    const void *data = t->data;

    if (c > 1 && rank > 1) {
        if (t->type != F32) raise_usage(L, "labels have one channel");
        float *y = lua_newuserdatauv(L, tensor_bytes(t), 0);
        const float *x = t->data;
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < c; k++) y[k * n + i] = x[i * c + k];
        data = y;
    }

    if (!npy_write_numbers(path, t->type, axes, shape, data))
        return raise_error(L);
    return 0;
}

/* v:write_openkbp(path): the first channel as a dose in the format of the
 * OpenKBP challenge, whose grid it must have */
static int l_write_openkbp(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2);
    const Dims d = v->voxels.dim;

    if (v->voxels.type != F32 || d.d != OPENKBP_EDGE || d.h != OPENKBP_EDGE ||
        d.w != OPENKBP_EDGE)
        raise_usage(L,
                    "a dose of OpenKBP has %d x %d x %d voxels, got "
                    "%d x %d x %d",
                    OPENKBP_EDGE, OPENKBP_EDGE, OPENKBP_EDGE, (int)d.d,
                    (int)d.h, (int)d.w);

    if (!openkbp_write_dose(path, v)) return raise_error(L);
    return 0;
}

/* v:write_dose(path, dataset, case): the first channel, in Gy, as an RT Dose of
 * the case's series, which must be DICOM (dicom.h) */
static int l_write_dose(lua_State *L)
{
    const Volume *v = check_volume(L, 1);
    const char *path = luaL_checkstring(L, 2);
    const Dataset *ds = check_dataset(L, 3);
    const int item = (int)check_int(L, 4, "case", 1, ds->count) - 1;
    const DicomSeries *series = case_series(ds, item);
    if (v->voxels.type != F32) raise_usage(L, "labels are not a dose");
    if (!series) raise_usage(L, "the case does not come from DICOM");
    if (!dicom_write_dose(path, v, 0, series)) return raise_error(L);
    return 0;
}

/* data.load_image(dataset, case) -> volume of the first field of a case as in
 * its files; raises errors of reading */
static int l_load_image(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const int item = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    Volume *v = push_volume(L);
    if (!case_load(ds, item, 0, NULL, v, NULL)) return raise_error(L);
    charge_volume(L, v);
    return 1;
}

/* data.zip(path, files): a zip archive of these files, each stored under its
 * name without folders (zip.h) */
static int l_zip(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    const int n = (int)luaL_len(L, 2);
    ZipMember *member =
        lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *member, 0);

    for (int i = 0; i < n; i++) {
        // the table keeps the text alive
        lua_rawgeti(L, 2, i + 1);
        member[i].path = luaL_checkstring(L, -1);
        const char *slash = strrchr(member[i].path, '/');
        member[i].name = slash ? slash + 1 : member[i].path;
        lua_pop(L, 1);
    }

    if (!zip_write(path, member, n)) return raise_error(L);
    return 0;
}

void bind_result(lua_State *L)
{
    static const luaL_Reg methods[] = {{"channels", l_channels},
                                       {"extents", l_extents},
                                       {"is_labels", l_is_labels},
                                       {"reach", l_reach},
                                       {"tidy", l_tidy},
                                       {"write_png", l_write_png},
                                       {"write_npy", l_write_npy},
                                       {"write_openkbp", l_write_openkbp},
                                       {"write_dose", l_write_dose},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"load_image", l_load_image}, {"zip", l_zip}, {NULL, NULL}};
    luaL_getmetatable(L, "seg.volume");
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
