/* embed.h -- the Lua sources that the program carries inside itself.
 *
 * lua/embed.sh makes the table at build time from lua/ *.lua. `name` is what
 * `require` asks for ("seg", "nn", ...), `text` is the source, `size` bytes
 * long and closed by a zero. The row whose name is NULL ends the table. */
#ifndef SEG_LUA_BIND_EMBED_H
#define SEG_LUA_BIND_EMBED_H
#include <stddef.h>

struct EmbeddedLua {
    const char *name;
    const char *text;
    size_t size;
};

extern const struct EmbeddedLua embedded_lua[];
#endif
