/* array_file.c -- arrays in files: .npy, and named arrays in .npz and .mat.
 *
 * Adds to the table of array.c. The extension of a file (in any case) selects
 * the format; the reader of the format reports errors. */
#include "data/format/mat.h"
#include "data/format/npz.h"
#include "lua/bind/bind.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

_Static_assert((int)MAX_AXES >= (int)NPY_AXES, "every file fits an array");

/* One open file of any of the formats; a zeroed one is closed, and closing a
 * closed one is allowed. */
typedef struct ArrayFile {
    NpyFile npy;
    Npz npz;
    Mat mat;
} ArrayFile;

static void file_close(ArrayFile *f)
{
    npy_close(&f->npy);
    npz_close(&f->npz);
    mat_close(&f->mat);
}

static int file_gc(lua_State *L)
{
    file_close(luaL_checkudata(L, 1, "seg.array_file"));
    return 0;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcasecmp(path + n - m, end);
}

/* An open file on the stack; the collector closes it when an error is raised
 * before file_close. */
static ArrayFile *push_file(lua_State *L, const char *path)
{
    ArrayFile *f = new_object(L, "seg.array_file", sizeof *f);
    bool ok = ends_with(path, ".npz")   ? npz_open(path, &f->npz)
              : ends_with(path, ".mat") ? mat_open(path, &f->mat)
                                        : npy_open(path, &f->npy);
    if (!ok) raise_error(L);
    return f;
}

/* t[i] = {name=, type=, shape=, why=}; `axes` extents of at most NPY_AXES */
static void push_entry(lua_State *L, int i, const char *name, const char *type,
                       int axes, const int64_t *shape, const char *why)
{
    lua_createtable(L, 0, 4);
    set_text(L, "name", name);
    set_text(L, "type", type);
    push_shape(L, axes, shape);
    lua_setfield(L, -2, "shape");
    set_text(L, "why", why);
    lua_rawseti(L, -2, i);
}

/* array.list(path) -> list of {name, type, shape, why} in the order of the
 * file; a .npy is one entry without a name. `why` is the reason when an array
 * of an archive has no readable header or is not numeric; no numbers are read.
 * Raises for a file that is damaged as a whole. */
static int array_list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    ArrayFile *f = push_file(L, path);
    NpyHeader h;

    lua_newtable(L);
    if (f->npy.numbers)
        push_entry(L, 1, "", npy_type_name(&f->npy.header), f->npy.header.axes,
                   f->npy.header.shape, NULL);

    for (int i = 0; i < f->npz.entries; i++) {
        bool ok = npz_about(&f->npz, i, &h);
        push_entry(L, i + 1, f->npz.entry[i].name,
                   ok ? npy_type_name(&h) : NULL, h.axes, h.shape,
                   ok ? NULL : err_text());
    }

    for (int i = 0; i < f->mat.variables; i++) {
        const MatVariable *v = &f->mat.variable[i];
        int kept = v->axes < NPY_AXES ? v->axes : NPY_AXES;
        char type[32];
        snprintf(type, sizeof type, "%s%s", v->complex ? "complex " : "",
                 v->class_name);
        push_entry(L, i + 1, v->name, type, kept, v->shape, mat_refused(v));
    }

    file_close(f);
    return 1;
}

/* array.load(path, name = nil) -> array of numbers of any type, as f32; the
 * name for .npz and .mat, which hold several. Raises with the file's name
 * (kind data). */
static int array_load(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const char *name = luaL_optstring(L, 2, NULL);
    bool archive = ends_with(path, ".npz") || ends_with(path, ".mat");

    if (archive != (name != NULL))
        raise_usage(L,
                    archive ? "load: %s may hold several arrays: give the name "
                              "of one, load(path, name)"
                            : "load: %s is one array, it has no names",
                    path);

    Array *a = new_object(L, "seg.array", sizeof *a);
    NpyArray npy = {0};

    if (!archive) {
        if (!npy_read(path, &npy)) return raise_error(L);
    } else {
        ArrayFile *f = push_file(L, path);
        if (!(f->npz.entries ? npz_read(&f->npz, name, 0, &npy)
                             : mat_read(&f->mat, name, 0, &npy)))
            return raise_error(L);
        file_close(f);
    }

    // from here on the userdata owns the memory
    a->data = npy.data;
    a->axes = npy.axes;
    a->count = npy.count;
    for (int i = 0; i < npy.axes; i++) a->shape[i] = npy.shape[i];
    lua_pushvalue(L, archive ? -2 : -1);
    charge_memory(L, (size_t)npy.count * sizeof(float));
    return 1;
}

/* array.save(path, array): a .npy, whole or not at all */
static int array_save(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    Array *a = check_array(L, 2);
    if (!npy_write(path, a->axes, a->shape, a->data)) return raise_error(L);
    return 0;
}

void bind_array_file(lua_State *L)
{
    static const luaL_Reg methods[] = {{NULL, NULL}};
    static const luaL_Reg functions[] = {{"list", array_list},
                                         {"load", array_load},
                                         {"save", array_save},
                                         {NULL, NULL}};
    new_type(L, "seg.array_file", methods, file_gc);
    lua_getfield(L, -1, "array");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
