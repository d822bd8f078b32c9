/* hash.c -- checksums and hashes of texts for Lua.
 *
 * crc32c detects damage, sha256 tells whether two files are equal, keyed_hash
 * makes names that cannot be guessed. Bytes in, a number or hex digits out. */
#include "engine/base/crc32c.h"
#include "engine/base/sha256.h"
#include "engine/base/siphash.h"
#include "lua/bind/bind.h"
#include <stdio.h>

/* core.crc32c(text) -> its CRC32C as a whole number */
static int l_crc32c(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    lua_pushinteger(L, crc32c(0, text, n));
    return 1;
}

/* core.sha256(text) -> 64 hex digits */
static int l_sha256(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    char hex[SHA256_TEXT];
    Sha256 s;
    sha256_begin(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, hex);
    lua_pushstring(L, hex);
    return 1;
}

/* core.sha256_file(path) -> SHA-256 of a file; raises when it cannot be read */
static int l_sha256_file(lua_State *L)
{
    char hex[SHA256_TEXT];
    if (!sha256_file(luaL_checkstring(L, 1), hex)) return raise_error(L);
    lua_pushstring(L, hex);
    return 1;
}

/* core.keyed_hash(16 bytes of secret, text) -> 16 hex digits: SipHash, so that
 * the text cannot be found by trying without the secret */
static int l_keyed_hash(lua_State *L)
{
    size_t n, bytes;
    const char *secret = luaL_checklstring(L, 1, &n);
    const char *text = luaL_checklstring(L, 2, &bytes);
    char hex[17];
    luaL_argcheck(L, n == 16, 1, "16 bytes");
    uint64_t h = siphash((const uint8_t *)secret, text, bytes);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)h);
    lua_pushstring(L, hex);
    return 1;
}

void bind_hash(lua_State *L)
{
    static const luaL_Reg functions[] = {{"crc32c", l_crc32c},
                                         {"sha256", l_sha256},
                                         {"sha256_file", l_sha256_file},
                                         {"keyed_hash", l_keyed_hash},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
