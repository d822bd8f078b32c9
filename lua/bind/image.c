/* image.c -- photographs and mask images in Lua. */
#include "lua/bind/data.h"
#include <string.h>

/* The index in `words` (NULL-terminated) of the string in field `key`; 0 when
 * the field is nil. */
static int opt_word(lua_State *L, int arg, const char *key,
                    const char *const *words)
{
    const char *word = opt_string(L, arg, key, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(word, words[i])) return i;
    raise_usage(L, "%s is \"%s\", need \"%s\", \"%s\"%s%s%s", key, word,
                words[0], words[1], words[2] ? " or \"" : "",
                words[2] ? words[2] : "", words[2] ? "\"" : "");
    return 0;
}

ImageOptions read_image_options(lua_State *L, int arg)
{
    static const char *const alpha[] = {"refuse", "drop", NULL};
    static const char *const exif[] = {"refuse", "apply", "ignore", NULL};
    return (ImageOptions){
        .drop_alpha = opt_word(L, arg, "alpha", alpha),
        .trailing = opt_bool(L, arg, "trailing", false),
        .exif = (ImageExif)opt_word(L, arg, "exif", exif),
        .page = (int)opt_int(L, arg, "page", 0, 0, INT32_MAX),
    };
}

/* The table at `arg`, or nil. */
static ImageOptions opt_image(lua_State *L, int arg)
{
    static const char *const keys[] = {"label", "alpha", "trailing",
                                       "exif",  "page",  NULL};
    check_keys(L, arg, "image", keys);
    ImageOptions o = read_image_options(L, arg);
    o.label = opt_bool(L, arg, "label", false);
    return o;
}

/* data.image_format(path) -> name of the format by its first bytes, and whether
 * this program reads it; nil for a file that is no image */
static int l_image_format(lua_State *L)
{
    bool read;
    lua_pushstring(L, image_file_format(luaL_checkstring(L, 1), &read));
    lua_pushboolean(L, read);
    return 2;
}

/* data.image_probe(path, {options}) -> {format=, w=, h=, channels=, bits=,
 * kind=, palette=, alpha=, orientation=, pages=}; raises with the file's name
 * (kind data) */
static int l_image_probe(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const ImageOptions o = opt_image(L, 2);
    ImageInfo info;

    if (!image_probe(path, &o, &info)) return raise_error(L);
    lua_createtable(L, 0, 10);
    set_text(L, "format", info.format);
    set_integer(L, "w", info.w);
    set_integer(L, "h", info.h);
    set_integer(L, "channels", info.channels);
    set_integer(L, "bits", info.bits);
    set_text(L, "kind", (const char[]){info.kind, 0});
    set_bool(L, "palette", info.palette);
    set_bool(L, "alpha", info.alpha);
    set_integer(L, "orientation", info.orientation);
    set_integer(L, "pages", info.pages);
    return 1;
}

/* data.read_image(path, {label=, alpha="drop", trailing=, exif="apply" or
 * "ignore", page=}) -> volume; raises with the file's name (kind data) */
static int l_read_image(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const ImageOptions o = opt_image(L, 2);
    Volume *v = push_volume(L);
    if (!image_read(path, &o, v)) return raise_error(L);
    charge_memory(L, tensor_bytes(&v->voxels));
    return 1;
}

void bind_image(lua_State *L)
{
    static const luaL_Reg functions[] = {{"image_format", l_image_format},
                                         {"image_probe", l_image_probe},
                                         {"read_image", l_read_image},
                                         {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
