/* bind_data.c -- data sets and pipelines as Lua objects.
 *
 * Lua describes, C loads: the steps of a pipeline travel as text (steps.def
 * checks every attribute on the recipe's line), files are opened by worker
 * threads that never see the Lua state. Numbers of cases, slices and samples
 * count from 1 here and from 0 in the engine.
 *
 * Who holds whom: a data set that a split made shares its sources with the
 * one it came from, a pipeline holds its data set, a loader and a prediction
 * their pipeline; all by counting in C, so Lua may drop them in any order. */
#include "bind_data.h"
#include "bind_function.h"
#include "pipeline.h"
#include <stdio.h>
#include <string.h>

/* == steps ============================================================= */

/* data.steps() -> { {name=, phase="volume"|"slice"|"sample",
 *                    attrs={name, ...}}, ... }, the rows of steps.def */
static int l_steps(lua_State *L)
{
    static const char *const phase[] = {"volume", "slice", "sample"};
    lua_createtable(L, STEP_COUNT, 0);
    for (int i = 0; i < STEP_COUNT; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, step_info[i].name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, phase[step_info[i].phase]);
        lua_setfield(L, -2, "phase");
        lua_createtable(L, step_info[i].attrs, 0);
        for (int k = 0; k < step_info[i].attrs; k++) {
            lua_pushstring(L, step_info[i].attr[k].name);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "attrs");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Set attribute `name` from the value on top of the stack: a text for one of
 * its choices, a boolean, a number or a list of numbers. False when the row
 * does not take it; raises what is none of these. */
static bool set_attr(lua_State *L, DataStep *s, const char *name)
{
    double v[MAX_STEP_REALS];
    int n = 1;
    if (lua_type(L, -1) == LUA_TSTRING)
        return step_set_choice(s, name, lua_tostring(L, -1));
    const StepAttr *a = step_info[s->id].attr;
    while (strcmp(a->name, name)) a++; // it is one of them: check_keys
    if (a->kind == 'C')
        return fail_usage(
            "%s: %s is a %s, wanted one of %s", step_info[s->id].name, name,
            lua_istable(L, -1) ? "list" : luaL_typename(L, -1), a->choices);
    if (lua_isboolean(L, -1)) {
        // a row that has no truth value there would read it as a number
        if (a->kind != 'B')
            return fail_usage("%s: %s is %s, wanted numbers",
                              step_info[s->id].name, name,
                              lua_toboolean(L, -1) ? "true" : "false");
        v[0] = lua_toboolean(L, -1);
    } else if (lua_istable(L, -1)) {
        n = (int)lua_rawlen(L, -1);
        if (n > MAX_STEP_REALS)
            return fail_usage("%s: more than %d numbers", name, MAX_STEP_REALS);
        for (int i = 0; i < n; i++) {
            lua_rawgeti(L, -1, i + 1);
            v[i] = check_number(L, lua_gettop(L), name);
            lua_pop(L, 1);
        }
    } else {
        v[0] = check_number(L, lua_gettop(L), name);
    }
    return step_set(s, name, v, n);
}

/* data.add_step(text, name, {attributes}) -> longer text. Raises on unknown
 * attributes and values, and on a step that cannot follow those before. */
static int l_add_step(lua_State *L)
{
    Steps steps;
    Arena mem = {NULL};
    const char *text = luaL_checkstring(L, 1);
    const char *name = luaL_checkstring(L, 2);
    const char *known[MAX_STEP_ATTR + 1] = {NULL};
    StepId id = step_find(name);
    if (id == STEP_COUNT) raise_usage(L, "there is no step \"%s\"", name);
    DataStep s = step_default(id);
    for (int i = 0; i < step_info[id].attrs; i++)
        known[i] = step_info[id].attr[i].name;
    check_keys(L, 3, name, known);
    for (int i = 0; !lua_isnoneornil(L, 3) && i < step_info[id].attrs; i++) {
        if (lua_getfield(L, 3, known[i]) != LUA_TNIL &&
            !set_attr(L, &s, known[i]))
            return raise_error(L);
        lua_pop(L, 1);
    }
    if (!step_meant(&s) || !steps_parse(text, &steps) || !steps_add(&steps, &s))
        return raise_error(L);
    char *longer = steps_print(&steps, &mem);
    if (!longer) return raise_error(L);
    // if Lua has no memory for the copy the arena is lost, with the program
    lua_pushstring(L, longer);
    arena_release(&mem);
    return 1;
}

/* Push the text at 1 as `change` makes of its steps. */
static int change_steps(lua_State *L, Steps change(const Steps *all))
{
    Steps steps;
    Arena mem = {NULL};
    if (!steps_parse(luaL_checkstring(L, 1), &steps)) return raise_error(L);
    steps = change(&steps);
    char *text = steps_print(&steps, &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* data.prepare_steps(text) -> the text without augmentation: what goes into
 * checkpoints */
static int l_prepare_steps(lua_State *L)
{
    return change_steps(L, steps_without_augment);
}

/* data.predict_steps(text) -> that, of every slice: what prediction runs */
static int l_predict_steps(lua_State *L)
{
    return change_steps(L, steps_for_prediction);
}

/* == data sets ========================================================= */

const Dataset *check_dataset(lua_State *L, int arg)
{
    Dataset **box = luaL_checkudata(L, arg, "seg.dataset");
    if (!*box) raise_usage(L, "this data set is closed");
    return *box;
}

static int dataset_gc(lua_State *L)
{
    Dataset **box = luaL_checkudata(L, 1, "seg.dataset");
    dataset_free(*box);
    *box = NULL;
    return 0;
}

int read_names(lua_State *L, int arg, const char *key, const char **name,
               int most)
{
    int n = 0, type = raw_field(L, arg, key);
    if (type == LUA_TSTRING) {
        name[n++] = lua_tostring(L, -1);
    } else if (type == LUA_TTABLE) {
        while (lua_rawgeti(L, -1, n + 1) != LUA_TNIL) {
            if (lua_type(L, -1) != LUA_TSTRING)
                raise_usage(L, "%s must be names, got %s", key,
                            luaL_typename(L, -1));
            if (n == most) raise_usage(L, "%s: more than %d", key, most);
            name[n++] = lua_tostring(L, -1);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    } else if (type != LUA_TNIL) {
        raise_usage(L, "%s must be a name or a list of names", key);
    }
    lua_pop(L, 1);
    return n;
}

DatasetOptions read_dataset_options(lua_State *L, int arg)
{
    DatasetOptions o = {
        .resample = opt_bool(L, arg, "resample", false),
        .resample_mask = opt_bool(L, arg, "resample_mask", false),
        .skip_unmatched = opt_bool(L, arg, "skip_unmatched", false)};
    int type = lua_getfield(L, arg, "labels");
    o.nonzero = type == LUA_TSTRING && !strcmp(lua_tostring(L, -1), "nonzero");
    if (type != LUA_TNIL && type != LUA_TTABLE && !o.nonzero)
        raise_usage(L, "labels must be a list of values or \"nonzero\"");
    if (type == LUA_TTABLE) {
        int n = (int)lua_rawlen(L, -1);
        if (n > MAX_LABELS) raise_usage(L, "labels: more than %d", MAX_LABELS);
        for (int i = 0; i < n; i++) {
            lua_rawgeti(L, -1, i + 1);
            o.labels[i] = (int32_t)check_int(L, lua_gettop(L), "labels",
                                             INT32_MIN, INT32_MAX);
            lua_pop(L, 1);
        }
        o.label_count = n;
    }
    lua_pop(L, 1);
    return o;
}

int read_choice(lua_State *L, int arg, const char *key,
                const char *const names[3])
{
    const char *text = opt_string(L, arg, key, names[0]);
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) return i;
    return raise_usage(L, "%s must be \"%s\", \"%s\" or \"%s\", got \"%s\"",
                       key, names[0], names[1], names[2], text);
}

static PatientRule read_patient(lua_State *L, int arg)
{
    static const char *const names[] = {"auto", "folder", "file"};
    return (PatientRule)read_choice(L, arg, "patient", names);
}

NiftiForm read_form(lua_State *L, int arg)
{
    static const char *const names[] = {"both", "sform", "qform"};
    return (NiftiForm)read_choice(L, arg, "form", names);
}

/* data.open_dicom(root, {image=, mask=, segments=, ...}) -> data set. Finds the
 * series and pairs them; voxels are read later. What the options mean is in
 * docs/data.md. Raises what does not fit together (kind data). */
static int l_dicom(lua_State *L)
{
    static const char *const known[] = {
        "image",   "mask",      "segments",      "labels",
        "patient", "resample",  "resample_mask", "skip_unmatched",
        "partial", "assume_hu", "resample_tilt", "assume_implicit_le",
        "dose",    "fractions", "resample_dose", NULL};
    const char *segment[MAX_LABELS];
    DatasetDicom how = {0};
    const char *root = luaL_checkstring(L, 1);
    check_keys(L, 2, "data.dicom", known);
    how.all = read_dataset_options(L, 2);
    how.images = read_names(L, 2, "image", how.image, MAX_CHANNELS);
    how.mask = opt_string(L, 2, "mask", NULL);
    how.segment_count = read_names(L, 2, "segments", segment, MAX_LABELS);
    how.segments = segment;
    how.dose = opt_string(L, 2, "dose", NULL);
    how.partial = opt_bool(L, 2, "partial", false);
    how.fractions = opt_bool(L, 2, "fractions", false);
    how.resample_dose = opt_bool(L, 2, "resample_dose", false);
    how.patient = read_patient(L, 2);
    how.files = (DicomOptions){
        .assume_hu = opt_bool(L, 2, "assume_hu", false),
        .resample_tilt = opt_bool(L, 2, "resample_tilt", false),
        .assume_implicit_le = opt_bool(L, 2, "assume_implicit_le", false)};
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_dicom(root, &how, box)) return raise_error(L);
    return 1;
}

/* data.open_nifti(root, {image=, mask=, labels=, patient=, ...}) -> data set,
 * in the same way */
static int l_nifti(lua_State *L)
{
    static const char *const known[] = {
        "image",          "mask",     "labels",
        "patient",        "resample", "resample_mask",
        "skip_unmatched", "form",     "assume_spacing",
        "channels",       NULL};
    DatasetNifti how = {0};
    const char *root = luaL_checkstring(L, 1);
    check_keys(L, 2, "data.nifti", known);
    how.all = read_dataset_options(L, 2);
    how.images = read_names(L, 2, "image", how.image, MAX_CHANNELS);
    how.mask = opt_string(L, 2, "mask", NULL);
    how.patient = read_patient(L, 2);
    how.files.form = read_form(L, 2);
    how.files.assume_spacing = opt_bool(L, 2, "assume_spacing", false);
    how.files.channels = opt_bool(L, 2, "channels", false);
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_nifti(root, &how, box)) return raise_error(L);
    return 1;
}

/* ds:cases() -> { {key=, patient=}, ... }: what a case is called, and whose it
 * is; neither may leave the machine */
static int l_cases(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    lua_createtable(L, ds->count, 0);
    for (int i = 0; i < ds->count; i++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, ds->cases[i].key);
        lua_setfield(L, -2, "key");
        lua_pushstring(L, ds->cases[i].patient);
        lua_setfield(L, -2, "patient");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ds:patients() -> how many different patients the cases have */
static int l_patients(lua_State *L)
{
    lua_pushinteger(L, dataset_patients(check_dataset(L, 1)));
    return 1;
}

/* ds:fields() -> { "image", "mask" }, in the order of a batch's blocks */
static int l_fields(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    lua_createtable(L, ds->fields, 0);
    for (int i = 0; i < ds->fields; i++) {
        lua_pushstring(L, ds->field[i].name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ds:kinds() -> { "image", "label" }, of the fields in the same order */
static int l_kinds(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    lua_createtable(L, ds->fields, 0);
    for (int i = 0; i < ds->fields; i++) {
        lua_pushstring(L, field_kinds[ds->field[i].kind]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ds:numbers(case, field) -> the numbers of a field of that kind, places from
 * 1; raises what is wrong with them (kind data) */
static int l_numbers(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const int f = (int)check_int(L, 3, "field", 1, ds->fields) - 1;
    Volume v;
    if (ds->field[f].kind != FIELD_NUMBER)
        raise_usage(L, "%s is no field of numbers", ds->field[f].name);
    if (!case_load(ds, i, f, NULL, &v, NULL)) return raise_error(L);
    const int32_t n = v.voxels.dim.c;
    // room first: nothing between may raise while the volume is held
    lua_createtable(L, n, 0);
    for (int32_t k = 0; k < n; k++) {
        lua_pushnumber(L, (double)((const float *)v.voxels.data)[k]);
        lua_rawseti(L, -2, k + 1);
    }
    volume_free(&v);
    return 1;
}

/* ds:skipped() -> cases left out without a partner */
static int l_skipped(lua_State *L)
{
    lua_pushinteger(L, check_dataset(L, 1)->skipped);
    return 1;
}

/* ds:labels() -> the values of files that became classes 1, 2, ... */
static int l_labels(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    int32_t label[MAX_LABELS];
    const int n = dataset_labels(ds, label);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, label[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* == pipelines ========================================================= */

typedef struct PipelineBox {
    Pipeline *p;
} PipelineBox;

Pipeline *check_pipeline(lua_State *L, int arg)
{
    PipelineBox *box = luaL_checkudata(L, arg, "seg.pipeline");
    if (!box->p) raise_usage(L, "this pipeline is closed");
    return box->p;
}

static int pipeline_gc(lua_State *L)
{
    PipelineBox *box = luaL_checkudata(L, 1, "seg.pipeline");
    pipeline_free(box->p);
    box->p = NULL;
    return 0;
}

/* data.pipeline(ds, steps, {threads=0, cache_bytes=0, seed=0, store=,
 * functions=}) -> pipeline. Prepares every case once on `threads` threads, so
 * that each fault is found now, and keeps as many as cache_bytes hold; `seed`
 * is that of augmentation; store: a file that keeps them from one run to the
 * next; functions: those that steps name (functions.lua). Raises a case's fault
 * (kind data), or that a signal came. */
static int l_pipeline(lua_State *L)
{
    static const char *const known[] = {"threads", "cache_bytes", "seed",
                                        "store",   "functions",   NULL};
    Steps steps;
    const Dataset *ds = check_dataset(L, 1);
    check_keys(L, 3, "pipeline", known);
    PipelineOptions o = {
        .stop = signal_stopping(),
        .threads = (int)opt_int(L, 3, "threads", 0, 0, 1024),
        .cache_bytes = opt_int(L, 3, "cache_bytes", 0, 0, INT64_MAX),
        .store = opt_string(L, 3, "store", NULL),
        .seed = (uint64_t)opt_int(L, 3, "seed", 0, 0, INT64_MAX)};
    PipelineBox *box = new_object(L, "seg.pipeline", sizeof *box);
    read_steps(L, 2, 3, &steps);
    bool ok = pipeline_open(ds, &steps, &o, &box->p);
    drop_steps(L);
    return ok ? 1 : raise_error(L);
}

/* p:store() -> what became of the file of prepared cases, or nil without one */
static int l_store(lua_State *L)
{
    Arena mem = {NULL};
    char *text = pipeline_store(check_pipeline(L, 1), &mem);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* p:cache() -> {kept=, count=, made=, all_bytes=}: prepared volumes in memory,
 * all; how often one was prepared since opening; the bytes of all of them */
static int l_cache(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const CacheStats c = pipeline_cache(p);
    int64_t all = 0;
    for (int i = 0; i < c.count; i++) all += pipeline_facts(p, i)->bytes;
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, c.kept);
    lua_setfield(L, -2, "kept");
    lua_pushinteger(L, c.count);
    lua_setfield(L, -2, "count");
    lua_pushinteger(L, c.misses);
    lua_setfield(L, -2, "made");
    lua_pushinteger(L, all);
    lua_setfield(L, -2, "all_bytes");
    return 1;
}

/* p:samples() -> how many: slices, patches, or cases */
static int l_samples(lua_State *L)
{
    lua_pushinteger(L, pipeline_samples(check_pipeline(L, 1)));
    return 1;
}

/* The place of the field whose name is at `arg`; raises when there is none. */
static int check_field(lua_State *L, const Pipeline *p, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    int f = dataset_field(pipeline_dataset(p), name);
    if (f < 0) raise_usage(L, "the data set has no field \"%s\"", name);
    return f;
}

/* p:shape("image") -> {c, [d], h, w} common to all samples; raises when they
 * differ, naming two (kind data) */
static int l_shape(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    int64_t shape[2 + RANK_MAX];
    Dims d;
    int f = check_field(L, p, 2);
    if (!pipeline_dims(p, f, &d)) return raise_error(L);
    int axes = dims_to_user(d, pipeline_rank(p, f), shape);
    lua_createtable(L, axes - 1, 0);
    for (int i = 1; i < axes; i++) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

/* p:report() -> what was opened, lines of text; names no patient */
static int l_report(lua_State *L)
{
    Arena mem = {NULL};
    char *text = pipeline_report(check_pipeline(L, 1), &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* p:item(number) -> case of sample `number`, its slice; both from 1, slice 0
 * for a sample that is none */
static int l_item(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    int n = (int)check_int(L, 2, "sample", 1, pipeline_samples(p));
    SampleId id = pipeline_id(p, n - 1);
    lua_pushinteger(L, id.item + 1);
    lua_pushinteger(L, steps_slices(pipeline_steps(p)) ? id.part + 1 : 0);
    return 2;
}

/* p:facts(case) -> {slices=, foreground_slices=, highest=, depth=, patches=,
 * notes=, key=, patient=, image=}: of the slices used, those with foreground,
 * the highest class in them; all that
 * the prepared case has; how many patches it gives, nil without such a step;
 * what was unusual about its files; the hash of the voxels of its image, as 16
 * digits */
static int l_facts(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const Dataset *ds = pipeline_dataset(p);
    int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const CaseFacts *f = pipeline_facts(p, i);
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->hash);
    lua_createtable(L, 0, 8);
    lua_pushstring(L, hash);
    lua_setfield(L, -2, "image");
    lua_pushinteger(L, f->dim.d);
    lua_setfield(L, -2, "depth");
    lua_pushinteger(L, f->slices);
    lua_setfield(L, -2, "slices");
    lua_pushinteger(L, f->foreground_slices);
    lua_setfield(L, -2, "foreground_slices");
    int highest = f->voxels ? MAX_LABELS : 0;
    while (highest > 0 && !f->voxels[highest]) highest--;
    set_integer(L, "highest", highest);
    const DataStep *parts = steps_parts(pipeline_steps(p));
    if (parts && parts->id == STEP_patches) {
        lua_pushinteger(L, part_count(pipeline_steps(p), f->dim));
        lua_setfield(L, -2, "patches");
    }
    lua_pushstring(L, f->notes);
    lua_setfield(L, -2, "notes");
    lua_pushstring(L, ds->cases[i].key);
    lua_setfield(L, -2, "key");
    lua_pushstring(L, ds->cases[i].patient);
    lua_setfield(L, -2, "patient");
    return 1;
}

/* data.leaks{p1, p2, p3}: raises when two sides share a patient or voxels,
 * naming both cases (kind data) */
static int l_leaks(lua_State *L)
{
    const Pipeline *side[8];
    int n = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    while (n < 8 && lua_rawgeti(L, 1, n + 1) != LUA_TNIL) {
        side[n++] = check_pipeline(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    if (!pipeline_leaks(side, n)) return raise_error(L);
    return 0;
}

void bind_data(lua_State *L)
{
    static const luaL_Reg dataset[] = {
        {"cases", l_cases},     {"patients", l_patients},
        {"fields", l_fields},   {"skipped", l_skipped},
        {"labels", l_labels},   {"kinds", l_kinds},
        {"numbers", l_numbers}, {NULL, NULL}};
    static const luaL_Reg pipeline[] = {
        {"store", l_store}, {"cache", l_cache},     {"samples", l_samples},
        {"shape", l_shape}, {"report", l_report},   {"item", l_item},
        {"facts", l_facts}, {"close", pipeline_gc}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"steps", l_steps},
                                         {"add_step", l_add_step},
                                         {"prepare_steps", l_prepare_steps},
                                         {"predict_steps", l_predict_steps},
                                         {"open_dicom", l_dicom},
                                         {"open_nifti", l_nifti},
                                         {"pipeline", l_pipeline},
                                         {"leaks", l_leaks},
                                         {NULL, NULL}};
    new_type(L, "seg.dataset", dataset, dataset_gc);
    new_type(L, "seg.pipeline", pipeline, pipeline_gc);
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "data");
    bind_function(L);
    bind_cases(L);
    bind_split(L);
    bind_statistics(L);
    bind_loader(L);
    bind_resident(L);
    bind_volume(L);
    bind_image(L);
    bind_table(L);
    bind_survey(L);
    bind_phantom(L);
}
