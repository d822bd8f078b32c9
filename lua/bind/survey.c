/* survey.c -- contents of the files of a data set, and of a file of prepared
 * cases, as Lua tables.
 *
 * core.data.survey loads every case once; `segengine doctor data` judges the
 * findings. Numbers of cases and slices count from 1 here. */
#include "data/preprocess/survey.h"
#include "data/preprocess/store.h"
#include "lua/bind/data.h"
#include "lua/bind/user_step.h"
#include <stdio.h>
#include <string.h>

typedef struct SurveyBox {
    Survey *s;
} SurveyBox;

static const Survey *check_survey(lua_State *L)
{
    SurveyBox *box = luaL_checkudata(L, 1, "seg.survey");
    if (!box->s) raise_usage(L, "this survey is closed");
    return box->s;
}

static int survey_gc(lua_State *L)
{
    SurveyBox *box = luaL_checkudata(L, 1, "seg.survey");
    survey_free(box->s);
    box->s = NULL;
    return 0;
}

static int check_case(lua_State *L, const Survey *s)
{
    return (int)check_int(L, 2, "case", 1, survey_dataset(s)->count) - 1;
}

/* data.survey(ds, steps, {threads=0, functions=}) -> survey: every case loaded
 * and counted, every error recorded. Raises without memory or when a signal
 * came. */
static int l_survey(lua_State *L)
{
    static const char *const known[] = {"threads", "functions", NULL};
    Steps steps;
    const Dataset *ds = check_dataset(L, 1);

    check_keys(L, 3, "survey", known);
    const SurveyOptions o = {.stop = signal_stopping(),
                             .threads =
                                 (int)opt_int(L, 3, "threads", 0, 0, 1024)};
    SurveyBox *box = new_object(L, "seg.survey", sizeof *box);
    read_steps(L, 2, 3, &steps);
    bool ok = survey_open(ds, &steps, &o, &box->s);
    drop_steps(L); // the survey has run all steps
    return ok ? 1 : raise_error(L);
}

static void push_field(lua_State *L, const DatasetField *field,
                       const SurveyField *f)
{
    int64_t shape[2 + RANK_MAX];
    lua_createtable(L, 0, 10);
    set_text(L, "name", field->name);
    set_text(L, "kind", field_kinds[field->kind]);
    set_integer(L, "rank", field->rank);
    set_text(L, "fault", f->fault);
    set_number(L, "lo", f->lo);
    set_number(L, "hi", f->hi);
    set_number(L, "mean", f->mean);
    set_number(L, "sd", f->sd);
    if (f->number) {
        push_numbers(L, f->numbers, f->number);
        lua_setfield(L, -2, "numbers");
    }
    if (!f->dim.w) return; // a step failed before the shape was known
    int axes = dims_to_user(f->dim, f->rank, shape);
    push_shape(L, axes - 1, shape + 1);
    lua_setfield(L, -2, "shape");
}

/* Extents, spacing and axes of the first field, where it was loaded. */
static void push_grid(lua_State *L, const Grid *g)
{
    Volume v = {.voxels = {.dim = {1, g->d, g->h, g->w, 1}}};
    char code[4];
    double spacing[3];
    const int64_t size[] = {g->w, g->h, g->d};
    memcpy(v.affine, g->affine, sizeof v.affine);
    volume_spacing_mm(&v, spacing);
    push_shape(L, 3, size);
    lua_setfield(L, -2, "size");
    push_numbers(L, 3, spacing);
    lua_setfield(L, -2, "spacing");
    set_text(L, "axes", volume_code(&v, code));
}

/* survey:case(i) -> {key=, patient=, slabs=, image= hash of the voxels, fields
 * = {{name=, kind=, rank=, fault=, lo=, hi=, mean=, sd=, numbers=, shape=}},
 * size={w,h,d}, spacing=, axes= (nil when not loaded), constant=, gaps=,
 * twice=, pair={a,b}, voxels={[class]=n}, foreground=, outside=, marked=,
 * left=, fault=, notes=}, as in survey.h */
static int l_case(lua_State *L)
{
    const Survey *s = check_survey(L);
    const int item = check_case(L, s);
    const SurveyCase *c = survey_case(s, item);
    const Dataset *ds = survey_dataset(s);
    char hash[17];

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->hash);
    lua_createtable(L, 0, 20);
    set_text(L, "key", ds->cases[item].key);
    set_text(L, "patient", ds->cases[item].patient);
    set_bool(L, "slabs", ds->cases[item].slabs > 0);
    lua_createtable(L, ds->fields, 0);
    for (int f = 0; f < ds->fields; f++) {
        push_field(L, &ds->field[f], &c->field[f]);
        lua_rawseti(L, -2, f + 1);
    }
    lua_setfield(L, -2, "fields");
    if (c->grid.w) {
        push_grid(L, &c->grid);
        set_text(L, "image", hash);
    }
    set_integer(L, "constant", c->constant);
    set_integer(L, "gaps", c->gaps);
    set_integer(L, "twice", c->twice);
    if (c->twice) {
        const int64_t pair[] = {c->pair[0] + 1, c->pair[1] + 1};
        push_shape(L, 2, pair);
        lua_setfield(L, -2, "pair");
    }

    lua_newtable(L);
    for (int k = 0; k <= MAX_LABELS; k++)
        if (c->voxels[k]) {
            lua_pushinteger(L, c->voxels[k]);
            lua_rawseti(L, -2, k);
        }

    lua_setfield(L, -2, "voxels");
    set_integer(L, "foreground", c->foreground);
    set_integer(L, "outside", c->outside);
    set_integer(L, "marked", c->marked);
    set_integer(L, "left", c->left);
    set_text(L, "fault", c->fault);
    set_text(L, "notes", c->notes);
    return 1;
}

/* Picture and PNG are in a userdata while Lua makes a string of the PNG. */
typedef struct PngBox {
    Picture picture;
    void *png;
    size_t bytes;
} PngBox;

static int png_gc(lua_State *L)
{
    PngBox *box = luaL_checkudata(L, 1, "seg.png");
    picture_free(&box->picture);
    mem_free(box->png);
    box->png = NULL;
    return 0;
}

/* survey:png(i) -> the picture of a case as the bytes of a PNG, or nil */
static int l_png(lua_State *L)
{
    const Survey *s = check_survey(L);
    const int item = check_case(L, s);
    if (!survey_case(s, item)->gray) return 0;
    PngBox *box = new_object(L, "seg.png", sizeof *box);
    if (!survey_picture(s, item, &box->picture) ||
        !picture_png(&box->picture, &box->png, &box->bytes))
        return raise_error(L);
    lua_pushlstring(L, box->png, box->bytes);

    // at once, as pages have many pictures
    picture_free(&box->picture);
    mem_free(box->png);
    box->png = NULL;
    return 1;
}

/* data.is_store(path) -> whether it is a file of prepared cases */
static int l_is_store(lua_State *L)
{
    lua_pushboolean(L, store_is(luaL_checkstring(L, 1)));
    return 1;
}

/* data.store_stats(path) -> {cases=, bytes=, current=}, as of store_look */
static int l_store_stats(lua_State *L)
{
    StoreStats stats;
    bool current;
    if (!store_look(luaL_checkstring(L, 1), &stats, &current))
        return raise_error(L);
    lua_createtable(L, 0, 3);
    set_integer(L, "cases", stats.cases);
    set_integer(L, "bytes", stats.bytes);
    set_bool(L, "current", current);
    return 1;
}

void bind_survey(lua_State *L)
{
    static const luaL_Reg survey[] = {
        {"case", l_case}, {"png", l_png}, {"close", survey_gc}, {NULL, NULL}};
    static const luaL_Reg none[] = {{NULL, NULL}};
    new_type(L, "seg.survey", survey, survey_gc);
    new_type(L, "seg.png", none, png_gc);
    static const luaL_Reg functions[] = {{"survey", l_survey},
                                         {"is_store", l_is_store},
                                         {"store_stats", l_store_stats},
                                         {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
