/* phantom.c -- data sets of synthetic patients, written once.
 *
 * The options are those of data.phantom in Lua; the same options give the same
 * folder name and the same files, so an existing set is used again. */
#include "data/phantom/phantom.h"
#include "lua/bind/bind.h"

/* The options of a Phantom in the table at `arg`; raises for invalid options
 * before anything is written. */
static Phantom read_phantom(lua_State *L, int arg)
{
    enum { COMMON = 4 };
    const char *known[COMMON + PHANTOM_NUMBERS + 1] = {"format", "seed",
                                                       "noise", "threads"};
    const PhantomForm *form =
        phantom_form(opt_string(L, arg, "format", "dicom"));
    if (!form) raise_error(L);
    for (int i = 0; i < PHANTOM_NUMBERS; i++)
        known[COMMON + i] = form->number[i].name;
    check_keys(L, arg, "data.phantom", known);
    Phantom how = {.form = form,
                   .seed = (uint64_t)opt_int(L, arg, "seed", 42, 0, INT64_MAX),
                   .noise = opt_number(L, arg, "noise", form->noise),
                   .threads = (int)opt_int(L, arg, "threads", 1, 1, 1024),
                   .stop = signal_stopping()};
    for (int i = 0; i < PHANTOM_NUMBERS && form->number[i].name; i++) {
        const PhantomNumber *n = &form->number[i];
        how.number[i] =
            (int)opt_int(L, arg, n->name, n->def, n->least, n->most);
    }

    if (!phantom_check(&how)) raise_error(L);
    return how;
}

/* data.phantom_forms() -> list of {format =, noise =, { name =, default = }
 * ...}: the numeric options of each format; the first is its number of units */
static int l_forms(lua_State *L)
{
    const PhantomForm *form;
    lua_newtable(L);

    for (int k = 0; (form = phantom_form_at(k)); k++) {
        lua_newtable(L);
        lua_pushstring(L, form->format);
        lua_setfield(L, -2, "format");
        lua_pushnumber(L, form->noise);
        lua_setfield(L, -2, "noise");
        for (int i = 0; i < PHANTOM_NUMBERS && form->number[i].name; i++) {
            lua_newtable(L);
            lua_pushstring(L, form->number[i].name);
            lua_setfield(L, -2, "name");
            lua_pushinteger(L, form->number[i].def);
            lua_setfield(L, -2, "default");
            lua_rawseti(L, -2, i + 1);
        }
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

/* data.phantom_name{options} -> name of the folder, such as
 * flair-28x256x24-aedfc4fe; the digits are a hash of all options */
static int l_name(lua_State *L)
{
    char name[PHANTOM_NAME];
    Phantom how = read_phantom(L, 1);
    lua_pushstring(L, phantom_name(&how, name));
    return 1;
}

/* data.phantom_write(folder, {options}) -> true when this call made the folder,
 * false when it existed. A folder that cannot be completed, because of a full
 * disk or a signal, is removed. */
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
    static const luaL_Reg functions[] = {{"phantom_forms", l_forms},
                                         {"phantom_name", l_name},
                                         {"phantom_write", l_write},
                                         {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
