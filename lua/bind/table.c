/* table.c -- tables, for data sets and `inspect`; and, for `inspect`, files of
 * OpenKBP (sparse grids) and of BIWI (poses, cameras).
 *
 * Each function for `inspect` reads one file or folder completely, pushes the
 * contents as plain Lua values, and closes the file. Its buffers are in a
 * userdata, so an allocation of Lua that fails midway leaks nothing. */
#include "data/format/table.h"
#include "data/datasets/biwi.h"
#include "data/datasets/openkbp.h"
#include "lua/bind/bind.h"
#include <math.h>
#include <string.h>

static int table_gc(lua_State *L)
{
    table_free(luaL_checkudata(L, 1, "seg.table"));
    return 0;
}

static int patient_gc(lua_State *L)
{
    openkbp_free(luaL_checkudata(L, 1, "seg.openkbp"));
    return 0;
}

static int grid_gc(lua_State *L)
{
    openkbp_grid_free(luaL_checkudata(L, 1, "seg.sparse_grid"));
    return 0;
}

/* The separator at `arg`, a comma without one. */
static char check_separator(lua_State *L, int arg)
{
    const char *text = luaL_optstring(L, arg, ",");
    if (!*text || text[1] || !strchr(",;\t", *text))
        raise_usage(L, "separator must be a comma, a semicolon or a tab");
    return *text;
}

/* == tables ============================================================ */

/* data.table_open(path, separator = ",") -> table, read whole */
static int l_table_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    TableOptions o = {.separator = check_separator(L, 2)};
    Table *t = new_object(L, "seg.table", sizeof *t);
    if (!table_read(path, &o, t)) return raise_error(L);
    return 1;
}

/* t:columns() -> { {name=, numbers=, empty=, whole=, min=, max=}, ... }, as
 * table_range() has it */
static int table_columns(lua_State *L)
{
    const Table *t = luaL_checkudata(L, 1, "seg.table");
    lua_createtable(L, t->columns, 0);

    for (int k = 0; k < t->columns; k++) {
        TableRange r = table_range(t, k);
        lua_createtable(L, 0, 6);
        set_text(L, "name", table_name(t, k));
        set_integer(L, "numbers", r.numbers);
        set_integer(L, "empty", r.empty);
        set_bool(L, "whole", r.whole);
        set_number(L, "min", r.min);
        set_number(L, "max", r.max);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

/* t:rows() -> the number of rows below the header */
static int table_rows(lua_State *L)
{
    const Table *t = luaL_checkudata(L, 1, "seg.table");
    lua_pushinteger(L, t->rows);
    return 1;
}

/* The row and the column of a field at 2 and 3; rows count from 1 here. Raises
 * for an unknown column name. */
static int64_t check_place(lua_State *L, const Table *t, int *column)
{
    int64_t row = check_int(L, 2, "row", 1, t->rows);
    if (!table_column(t, luaL_checkstring(L, 3), column)) raise_error(L);
    return row - 1;
}

/* t:text(row, "name"), t:number(row, "name") -> the field; t:path(row, "name",
 * root) -> the file of that name below root. Raise with file, row and column.
 */
static int table_get_text(lua_State *L)
{
    const Table *t = luaL_checkudata(L, 1, "seg.table");
    int column;
    int64_t row = check_place(L, t, &column);
    lua_pushstring(L, table_text(t, row, column));
    return 1;
}

static int table_get_number(lua_State *L)
{
    const Table *t = luaL_checkudata(L, 1, "seg.table");
    int column;
    double v;
    int64_t row = check_place(L, t, &column);
    if (!table_number(t, row, column, &v)) return raise_error(L);
    lua_pushnumber(L, v);
    return 1;
}

static int table_get_path(lua_State *L)
{
    const Table *t = luaL_checkudata(L, 1, "seg.table");
    Arena mem = {NULL};
    int column;
    char *path;
    int64_t row = check_place(L, t, &column);
    bool ok = table_path(t, row, column, luaL_checkstring(L, 4), &mem, &path);
    if (ok) lua_pushstring(L, path);
    arena_release(&mem);
    return ok ? 1 : raise_error(L);
}

/* == sparse grids and poses ============================================ */

/* {voxels=} of a grid, and {min=, max=, mean=} of its values, pushed. */
static void push_grid(lua_State *L, const SparseGrid *g)
{
    lua_createtable(L, 0, 5);
    set_integer(L, "voxels", g->count);
    if (!g->value || !g->count) return;
    float lo = g->value[0], hi = lo;
    double sum = 0;
    for (int32_t i = 0; i < g->count; i++) {
        lo = fminf(lo, g->value[i]), hi = fmaxf(hi, g->value[i]);
        sum += (double)g->value[i];
    }
    set_number(L, "min", (double)lo);
    set_number(L, "max", (double)hi);
    set_number(L, "mean", sum / g->count);
}

/* data.openkbp(folder) -> {spacing={x,y,z}, bytes=, [k] = {name=, has=,
 * voxels=, min=, max=, mean=}}: the grids of a patient, with or without dose;
 * `bytes` is their memory */
static int l_openkbp(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    OpenkbpPatient *p = new_object(L, "seg.openkbp", sizeof *p);
    if (!openkbp_read(folder, OPENKBP_ALL, false, p)) return raise_error(L);
    lua_createtable(L, OPENKBP_GRIDS, 2);
    push_numbers(L, 3, p->spacing_mm);
    lua_setfield(L, -2, "spacing");
    set_integer(L, "bytes", (int64_t)openkbp_bytes(p));

    for (int k = 0; k < OPENKBP_GRIDS; k++) {
        push_grid(L, &p->grid[k]);
        set_text(L, "name", openkbp_name[k]);
        set_bool(L, "has", p->has[k]);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

/* data.openkbp_grid(path, mask) -> {voxels=, min=, max=, mean=} of one file */
static int l_openkbp_grid(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    OpenkbpKind kind = lua_toboolean(L, 2) ? OPENKBP_MASK : OPENKBP_VALUES;
    SparseGrid *g = new_object(L, "seg.sparse_grid", sizeof *g);
    if (!openkbp_grid_read(path, kind, g)) return raise_error(L);
    push_grid(L, g);
    return 1;
}

/* data.biwi_pose(path) -> {yaw=, pitch=, roll=, centre={x,y,z}} in degrees and
 * mm, pitch as in 300W-LP */
static int l_biwi_pose(lua_State *L)
{
    BiwiPose p;
    if (!biwi_pose_read(luaL_checkstring(L, 1), false, &p))
        return raise_error(L);
    lua_createtable(L, 0, 4);
    set_number(L, "yaw", p.yaw_deg);
    set_number(L, "pitch", p.pitch_deg);
    set_number(L, "roll", p.roll_deg);
    push_numbers(L, 3, p.centre_mm);
    lua_setfield(L, -2, "centre");
    return 1;
}

/* data.biwi_camera(path) -> {focal={fx,fy}, principal={cx,cy}, distortion={},
 * translation={x,y,z}, width=, height=}; width 0: not in the file */
static int l_biwi_camera(lua_State *L)
{
    BiwiCamera c;
    if (!biwi_camera_read(luaL_checkstring(L, 1), &c)) return raise_error(L);
    const double focal[2] = {c.intrinsics[0][0], c.intrinsics[1][1]};
    const double principal[2] = {c.intrinsics[0][2], c.intrinsics[1][2]};
    lua_createtable(L, 0, 6);
    push_numbers(L, 2, focal);
    lua_setfield(L, -2, "focal");
    push_numbers(L, 2, principal);
    lua_setfield(L, -2, "principal");
    push_numbers(L, c.distortions, c.distortion);
    lua_setfield(L, -2, "distortion");
    push_numbers(L, 3, c.translation_mm);
    lua_setfield(L, -2, "translation");
    set_integer(L, "width", c.width);
    set_integer(L, "height", c.height);
    return 1;
}

void bind_table(lua_State *L)
{
    static const luaL_Reg none[] = {{NULL, NULL}};
    static const luaL_Reg rows[] = {
        {"rows", table_rows},     {"columns", table_columns},
        {"text", table_get_text}, {"number", table_get_number},
        {"path", table_get_path}, {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"table_open", l_table_open},     {"openkbp", l_openkbp},
        {"openkbp_grid", l_openkbp_grid}, {"biwi_pose", l_biwi_pose},
        {"biwi_camera", l_biwi_camera},   {NULL, NULL}};

    new_type(L, "seg.table", rows, table_gc);
    new_type(L, "seg.openkbp", none, patient_gc);
    new_type(L, "seg.sparse_grid", none, grid_gc);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
