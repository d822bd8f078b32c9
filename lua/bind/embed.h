/* embed.h -- the Lua sources that the program carries inside itself.
 *
 * lua/embed.sh makes the table at build time from the files of lua/. `name` is
 * the argument of `require` ("seg.train.fit"), `file` the path below lua/,
 * `text` the source: `size` bytes and a zero. A row with the name NULL ends the
 * table. */
#ifndef SEG_LUA_BIND_EMBED_H
#define SEG_LUA_BIND_EMBED_H
#include <stddef.h>

struct EmbeddedLua {
    const char *name;
    const char *file;
    const char *text;
    size_t size;
};

extern const struct EmbeddedLua embedded_lua[];
#endif
