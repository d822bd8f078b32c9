/* inspect.c -- contents of files and folders, for `inspect`: one volume of a
 * file, the series below a folder, the segments of a mask. */
#include "data/datasets/biwi.h"
#include "data/dicom/text.h"
#include "data/format/nifti.h"
#include "data/label.h"
#include "lua/bind/data.h"
#include <string.h>

/* data.read_nifti(path) -> volume, a fourth axis as channels; raises with the
 * file's name (kind data) */
static int l_read_nifti(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Volume *v = push_volume(L);
    const NiftiOptions how = {.channels = true};
    if (!nifti_read(path, &how, v, NULL)) return raise_error(L);
    charge_volume(L, v);
    return 1;
}

/* data.read_labels(path) -> volume of a NIfTI file of labels: numbers that are
 * nearly whole are whole (LABEL_ROUNDING); raises with the file's name (kind
 * data) */
static int l_read_labels(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Volume *v = push_volume(L);
    if (!nifti_read(path, &(NiftiOptions){.label = true}, v, NULL))
        return raise_error(L);
    charge_volume(L, v);
    float *x = v->voxels.type == F32 ? v->voxels.data : NULL;
    for (int64_t i = 0, n = numel(v->voxels.dim); x && i < n; i++)
        x[i] = (float)label_value((double)x[i]);
    return 1;
}

/* data.label_value(x) -> the label for a stored number, else the number itself
 * (LABEL_ROUNDING) */
static int l_label_value(lua_State *L)
{
    lua_pushnumber(L, label_value(luaL_checknumber(L, 1)));
    return 1;
}

/* data.read_biwi_depth(path) -> volume of one picture, mm; raises with the
 * file's name (kind data) */
static int l_read_biwi_depth(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Volume *v = push_volume(L);
    if (!biwi_depth_read(path, v)) return raise_error(L);
    charge_volume(L, v);
    return 1;
}

/* data.nifti_text(path) -> extents, channels if there are several, spacing,
 * axes and origin in one line, from the header alone; raises with the file's
 * name (kind data) */
static int l_nifti_text(lua_State *L)
{
    const NiftiOptions options = {.no_voxels = true, .channels = true};
    Volume v;
    if (!nifti_read(luaL_checkstring(L, 1), &options, &v, NULL))
        return raise_error(L);
    push_volume_text(L, &v);
    return 1;
}

/* data.nifti_is_name(path) -> whether this is a valid name of a NIfTI file */
static int l_nifti_is_name(lua_State *L)
{
    lua_pushboolean(L, nifti_stem(luaL_checkstring(L, 1)) > 0);
    return 1;
}

/* data.segment_name(name, number) -> true when this is a valid name for segment
 * `number` of a SEG, or false and the reason */
static int l_segment_name(lua_State *L)
{
    size_t bytes;
    const char *name = luaL_checklstring(L, 1, &bytes);
    const int32_t number = (int32_t)check_int(L, 2, "number", 1, INT32_MAX);
    const bool ok = segment_name_check(name, bytes, number);
    lua_pushboolean(L, ok);
    lua_pushstring(L, ok ? "" : err_text());
    return 2;
}

/* data.dicom_ready() -> true, or false and how to install DCMTK */
static int l_dicom_ready(lua_State *L)
{
    bool ok = dicom_ready();
    lua_pushboolean(L, ok);
    lua_pushstring(L, ok ? "" : err_text());
    return 2;
}

/* data.dicom_is_file(path) -> true when it begins like a DICOM file */
static int l_dicom_is_file(lua_State *L)
{
    lua_pushboolean(L, dicom_is_file(luaL_checkstring(L, 1)));
    return 1;
}

typedef struct Scan {
    Arena mem; /* holds all of the index */
    DicomIndex index;
} Scan;

static int scan_gc(lua_State *L)
{
    arena_release(&((Scan *)luaL_checkudata(L, 1, "seg.scan"))->mem);
    return 0;
}

/* data.scan(path, skip_damaged) -> scan, { {patient=, study=, series=,
 * description=, modality=, kind=, rows=, cols=, count=, frames=, number=,
 * folder=, damaged=}, ... }, the files that were left out, as ds:left_out():
 * every series below a folder, or of one file; `count` is the number of files,
 * all texts are from the headers; damaged: with skip_damaged why the series
 * lacks a file, else nil */
static int l_scan(lua_State *L)
{
    static const char *const kind[] = {"image", "multi-frame", "SEG",
                                       "structure set", "dose"};
    const char *path = luaL_checkstring(L, 1);
    const DicomOptions how = {.skip_damaged = lua_toboolean(L, 2)};
    Scan *scan = new_object(L, "seg.scan", sizeof *scan);

    if (!dicom_scan(path, &how, &scan->mem, &scan->index))
        return raise_error(L);
    lua_createtable(L, scan->index.count, 0);

    for (int i = 0; i < scan->index.count; i++) {
        const DicomSeries *s = &scan->index.series[i];
        const struct {
            const char *key, *value;
        } text[] = {{"patient", s->patient_id}, {"study", s->study_uid},
                    {"series", s->series_uid},  {"description", s->description},
                    {"modality", s->modality},  {"kind", kind[s->kind]},
                    {"folder", s->folder},      {"damaged", s->damaged}};
        const struct {
            const char *key;
            int value;
        } number[] = {{"rows", s->rows},
                      {"cols", s->cols},
                      {"count", s->count},
                      {"frames", s->frames},
                      {"number", s->number}};
        lua_createtable(L, 0, 12);
        for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
            lua_pushstring(L, text[k].value);
            lua_setfield(L, -2, text[k].key);
        }
        for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
            lua_pushinteger(L, number[k].value);
            lua_setfield(L, -2, number[k].key);
        }
        lua_rawseti(L, -2, i + 1);
    }

    push_left_out(L, scan->index.left_out, scan->index.left_outs);
    return 3;
}

/* scan:load(i) -> volume of series i, and notes on unusual files, a line each;
 * raises with the file and tag at fault (kind data) */
static int l_scan_load(lua_State *L)
{
    Scan *scan = luaL_checkudata(L, 1, "seg.scan");
    int i = (int)check_int(L, 2, "series", 1, scan->index.count) - 1;
    Volume *v = push_volume(L);
    DicomNotes notes = {{NULL}, NULL, NULL, 0};
    const DicomSeries *s = &scan->index.series[i];

    if (s->damaged) {
        fail_data("%s", s->damaged);
        return raise_error(L);
    }
    bool ok = s->kind == DICOM_DOSE
                  ? dicom_load_dose(s, NULL, false, NULL, v, &notes)
                  : dicom_load(s, NULL, v, &notes);

    // if Lua has no memory for the text, the notes are lost
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (const DicomNote *n = notes.first; n; n = n->next) {
        luaL_addstring(&b, n->text);
        luaL_addchar(&b, '\n');
    }
    luaL_pushresult(&b);
    dicom_notes_free(&notes);
    if (!ok) return raise_error(L);
    charge_volume(L, v);
    return 2;
}

/* scan:segments(i) -> {grid=, type="BINARY"|"FRACTIONAL"|"LABELMAP"|"RTSTRUCT",
 * frames=}, { {number=, label=, frames=}, ... } of series i, a SEG or a
 * structure set; the latter has no grid, and its contours count as frames.
 * Raises with the file and tag at fault (kind data) */
static int l_scan_segments(lua_State *L)
{
    Scan *scan = luaL_checkudata(L, 1, "seg.scan");
    int i = (int)check_int(L, 2, "series", 1, scan->index.count) - 1;
    char text[VOLUME_TEXT];
    DicomSegInfo info;

    // its allocations live as long as the scan
    if (!dicom_seg_info(&scan->index.series[i], &scan->mem, &info))
        return raise_error(L);
    Volume v = {
        .voxels = {.dim = {1, info.grid.d, info.grid.h, info.grid.w, 1}}};
    memcpy(v.affine, info.grid.affine, sizeof v.affine);
    lua_createtable(L, 0, 3);
    if (info.has_grid) {
        set_text(L, "grid", volume_text(&v, text));
    }
    set_text(L, "type", info.type);
    set_integer(L, "frames", info.frames);
    lua_createtable(L, info.segments, 0);

    for (int k = 0; k < info.segments; k++) {
        lua_createtable(L, 0, 3);
        set_integer(L, "number", info.segment[k].number);
        set_text(L, "label", info.segment[k].label);
        set_integer(L, "frames", info.segment[k].frames);
        lua_rawseti(L, -2, k + 1);
    }
    return 2;
}

void bind_look(lua_State *L)
{
    static const luaL_Reg scan[] = {
        {"load", l_scan_load}, {"segments", l_scan_segments}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"read_nifti", l_read_nifti},
                                         {"read_labels", l_read_labels},
                                         {"label_value", l_label_value},
                                         {"read_biwi_depth", l_read_biwi_depth},
                                         {"nifti_text", l_nifti_text},
                                         {"nifti_is_name", l_nifti_is_name},
                                         {"segment_name", l_segment_name},
                                         {"dicom_ready", l_dicom_ready},
                                         {"dicom_is_file", l_dicom_is_file},
                                         {"scan", l_scan},
                                         {NULL, NULL}};
    new_type(L, "seg.scan", scan, scan_gc);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
