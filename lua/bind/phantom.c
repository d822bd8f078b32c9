/* phantom.c -- data sets of made-up patients, written once.
 *
 * The options are those of data.phantom in Lua; the same options give the same
 * folder name and the same files, so a set that is there is used again. */
#include "phantom.h"
#include "bind/bind.h"
#include <string.h>

/* The options of phantom.h in the table at `arg`; raises on what a phantom
 * cannot be made of, before anything is written. */
static Phantom read_phantom(lua_State *L, int arg)
{
    static const char *const known[] = {"format",  "patients", "size",
                                        "slices",  "seed",     "noise",
                                        "threads", NULL};
    check_keys(L, arg, "data.phantom", known);
    const char *format = opt_string(L, arg, "format", "dicom");
    if (strcmp(format, "dicom") && strcmp(format, "nifti"))
        raise_usage(L,
                    "data.phantom: format must be \"dicom\" or \"nifti\", "
                    "got \"%s\"",
                    format);
    Phantom how = {.stop = signal_stopping(),
                   .kind = strcmp(format, "dicom") ? PHANTOM_T1 : PHANTOM_FLAIR,
                   .patients = (int)opt_int(L, arg, "patients", 28, 1, 999),
                   .size = (int)opt_int(L, arg, "size", 256, 16, 1024),
                   .slices = (int)opt_int(L, arg, "slices", 24, 2, 1024),
                   .seed = (uint64_t)opt_int(L, arg, "seed", 42, 0, INT64_MAX),
                   .noise = opt_number(L, arg, "noise", 0.03),
                   .threads = (int)opt_int(L, arg, "threads", 1, 1, 1024)};
    if (!phantom_check(&how)) raise_error(L);
    return how;
}

/* data.phantom_name{options} -> name of their folder, as
 * flair-28x256x24-aedfc4fe; the digits are a hash of all options */
static int l_name(lua_State *L)
{
    char name[PHANTOM_NAME];
    Phantom how = read_phantom(L, 1);
    lua_pushstring(L, phantom_name(&how, name));
    return 1;
}

/* data.phantom_write(folder, {options}) -> true when it was not there and is
 * now. A folder that could not be finished, for a full disk or a signal, is
 * removed. */
static int l_write(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    Phantom how = read_phantom(L, 2);
    bool made;
    if (!phantom_write(folder, &how, &made)) return raise_error(L);
    lua_pushboolean(L, made);
    return 1;
}

void bind_phantom(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"phantom_name", l_name}, {"phantom_write", l_write}, {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
