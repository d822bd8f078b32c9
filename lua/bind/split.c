/* split.c -- data sets cut into parts: by patient, in folds, by slabs. */
#include "data/dataset/split.h"
#include "lua/bind/data.h"
#include <string.h>

enum { MAX_NAMES = 1024 };

/* Empty boxes for three data sets on the stack, so that an owner exists before
 * the data set. */
static void push_parts(lua_State *L)
{
    for (int i = 0; i < PARTS; i++)
        new_object(L, "seg.dataset", sizeof(Dataset *));
}

/* Fill the boxes on top of the stack; a part that was not requested becomes
 * nil. Returns the number of results. */
static int give_parts(lua_State *L, Dataset *const part[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        Dataset **box = lua_touserdata(L, i - PARTS);
        *box = part[i];
        if (part[i]) continue;
        lua_pushnil(L);
        lua_replace(L, i - PARTS - 1);
    }
    return PARTS;
}

/* The rule of one part: a fraction below 1, a number of patients, or a list of
 * names, for which `name` has room for MAX_NAMES. Absent: all zero. */
static struct SplitRule read_rule(lua_State *L, int arg, const char *key,
                                  const char **name)
{
    struct SplitRule r = {0};
    int type = lua_getfield(L, arg, key);
    if (type == LUA_TNUMBER) r.share = check_number(L, lua_gettop(L), key);
    if (r.share >= 1) {
        r.count = (int)check_int(L, lua_gettop(L), key, 1, INT32_MAX);
        r.share = 0;
    }
    lua_pop(L, 1);
    if (type != LUA_TNUMBER) {
        r.name_count = read_names(L, arg, key, name, MAX_NAMES);
        r.names = r.name_count ? name : NULL;
    }
    return r;
}

/* data.split(ds, {seed=0, train=, valid=, test=}) -> train, valid, test, each a
 * data set, or nil for a part that was not requested; patients stay whole. */
static int l_split(lua_State *L)
{
    static const char *const known[] = {"seed", "train", "valid", "test", NULL};
    static const char *const part_name[PARTS] = {"train", "valid", "test"};
    const Dataset *ds = check_dataset(L, 1);
    Dataset *part[PARTS] = {NULL};
    SplitOptions how = {0};

    check_keys(L, 2, "split", known);
    how.seed = (uint64_t)opt_int(L, 2, "seed", 0, 0, INT64_MAX);
    const char **names =
        lua_newuserdatauv(L, PARTS * MAX_NAMES * sizeof *names, 0);
    for (int i = 0; i < PARTS; i++)
        how.part[i] = read_rule(L, 2, part_name[i], names + i * MAX_NAMES);
    push_parts(L);
    if (!dataset_split(ds, &how, part)) return raise_error(L);
    return give_parts(L, part);
}

/* Two numbers {lo, hi} in field `key` into v, which is unchanged without it. */
static void read_range(lua_State *L, int arg, const char *key, double v[2])
{
    if (lua_getfield(L, arg, key) == LUA_TTABLE)
        for (int i = 0; i < 2; i++) {
            lua_rawgeti(L, -1, i + 1);
            v[i] = check_number(L, lua_gettop(L), key);
            lua_pop(L, 1);
        }
    lua_pop(L, 1);
}

/* data.slabs(ds, {valid={lo,hi}, test={lo,hi}, gap=0}) -> train, valid, test:
 * the same cases with different slices; the ranges are fractions of the number
 * of slices */
static int l_slabs(lua_State *L)
{
    static const char *const known[] = {"valid", "test", "gap", NULL};
    const Dataset *ds = check_dataset(L, 1);
    Dataset *part[PARTS] = {NULL};
    SplitSlabs how = {.gap = opt_number(L, 2, "gap", 0)};
    check_keys(L, 2, "slabs", known);
    read_range(L, 2, "valid", how.valid);
    read_range(L, 2, "test", how.test);
    push_parts(L);
    if (!dataset_split_slabs(ds, &how, part)) return raise_error(L);
    return give_parts(L, part);
}

/* data.fold(ds, seed, k, fold) -> train, valid: patient i of a random order is
 * in fold i mod k, counted from 1 here */
static int l_fold(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    Dataset *part[PARTS] = {NULL};
    uint64_t seed = (uint64_t)check_int(L, 2, "seed", 0, INT64_MAX);
    int k = (int)check_int(L, 3, "k", 2, 1 << 20);
    int fold = (int)check_int(L, 4, "fold", 1, k);
    Dataset **train = new_object(L, "seg.dataset", sizeof *train);
    Dataset **valid = new_object(L, "seg.dataset", sizeof *valid);
    if (!dataset_fold(ds, seed, k, fold - 1, part)) return raise_error(L);
    *train = part[TRAIN_PART], *valid = part[VALID_PART];
    return 2;
}

void bind_split(lua_State *L)
{
    static const luaL_Reg splits[] = {
        {"split", l_split}, {"slabs", l_slabs}, {"fold", l_fold}, {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, splits, 0);
    lua_pop(L, 1);
}
