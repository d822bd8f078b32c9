/* data.c -- data sets and their steps as Lua objects.
 *
 * Lua describes, C loads: the steps of a pipeline are passed as text (steps.def
 * checks every attribute on the recipe's line), and files are opened by worker
 * threads that never use the Lua state. Numbers of cases, slices and samples
 * count from 1 here and from 0 in the engine.
 *
 * Ownership: a data set that a split made shares its sources with the original,
 * a pipeline holds its data set, a loader and a prediction hold their pipeline.
 * All are counted references in C, so Lua may drop them in any order. */
#include "lua/bind/data.h"
#include "data/preprocess/pipeline.h"
#include "lua/bind/user_step.h"
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
        set_text(L, "name", step_info[i].name);
        set_text(L, "phase", phase[step_info[i].phase]);
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
 * its choices, a boolean, a number or a list of numbers. False when the step
 * does not accept it; raises for other types. */
static bool set_attr(lua_State *L, DataStep *s, const char *name)
{
    double v[MAX_STEP_REALS];
    int n = 1;
    if (lua_type(L, -1) == LUA_TSTRING)
        return step_set_choice(s, name, lua_tostring(L, -1));
    const StepAttr *a = step_info[s->id].attr;
    while (strcmp(a->name, name)) a++; // found: check_keys has checked it
    if (a->kind == 'C')
        return fail_usage(
            "%s: %s is a %s, wanted one of %s", step_info[s->id].name, name,
            lua_istable(L, -1) ? "list" : luaL_typename(L, -1), a->choices);

    if (lua_isboolean(L, -1)) {
        // an attribute that is not boolean would read it as a number
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

/* data.add_step(text, name, {attributes}) -> longer text. Raises for unknown
 * attributes and values, and for a step that cannot follow the steps before. */
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

    // if Lua cannot allocate the copy, the arena leaks; the program ends then
    lua_pushstring(L, longer);
    arena_release(&mem);
    return 1;
}

/* The text at 1 as steps. */
static Steps check_steps(lua_State *L)
{
    Steps steps;
    if (!steps_parse(luaL_checkstring(L, 1), &steps)) raise_error(L);
    return steps;
}

static int push_steps(lua_State *L, const Steps *steps)
{
    Arena mem = {NULL};
    char *text = steps_print(steps, &mem);
    if (!text) return raise_error(L);
    lua_pushstring(L, text);
    arena_release(&mem);
    return 1;
}

/* data.prepare_steps(text) -> the text without augmentation, as checkpoints
 * keep it */
static int l_prepare_steps(lua_State *L)
{
    const Steps all = check_steps(L), some = steps_without_augment(&all);
    return push_steps(L, &some);
}

/* data.part_rank(text, rank) -> the axes of samples of a field of `rank` */
static int l_part_rank(lua_State *L)
{
    Steps steps;
    if (!steps_parse(luaL_checkstring(L, 1), &steps)) return raise_error(L);
    lua_pushinteger(L, part_rank(&steps, (int)check_int(L, 2, "rank", 0, 3)));
    return 1;
}

/* data.predict_steps(text, overlap) -> the steps of prediction: no
 * augmentation, all slices, patches on a regular grid; patches share `overlap`
 * of their extents, nil: as much as the text says */
static int l_predict_steps(lua_State *L)
{
    double overlap = luaL_optnumber(L, 2, 0);
    if (!(overlap >= 0 && overlap <= 0.9))
        raise_usage(L, "overlap is %g, wanted 0 to 0.9", overlap);
    const Steps all = check_steps(L);
    Steps out = steps_for_prediction(&all);
    for (int i = 0; i < out.count && !lua_isnoneornil(L, 2); i++)
        if (out.step[i].id == STEP_patches)
            out.step[i].patches.overlap = overlap;
    return push_steps(L, &out);
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
                const char *const *names)
{
    const char *text = opt_string(L, arg, key, names[0]);
    char known[160] = "";

    for (int i = 0; names[i]; i++) {
        if (!strcmp(text, names[i])) return i;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"",
                 !i             ? ""
                 : names[i + 1] ? ", "
                                : " or ",
                 names[i]);
    }
    return raise_usage(L, "%s must be %s, got \"%s\"", key, known, text);
}

static PatientRule read_patient(lua_State *L, int arg)
{
    static const char *const names[] = {"auto", "folder", "file", NULL};
    return (PatientRule)read_choice(L, arg, "patient", names);
}

NiftiForm read_form(lua_State *L, int arg)
{
    static const char *const names[] = {
        "both", "sform", "qform", "sform_or_qform", "qform_or_sform", NULL};
    return (NiftiForm)read_choice(L, arg, "form", names);
}

double read_contour_tolerance(lua_State *L, int arg)
{
    const double mm = opt_number(L, arg, "contour_tolerance", 0);
    if (!(mm >= 0 && mm < 1000))
        raise_usage(L,
                    "contour_tolerance = %g, need millimetres from 0 on; 0 "
                    "allows for rounding alone",
                    mm);
    return mm;
}

double read_tolerance(lua_State *L, int arg)
{
    double share = opt_number(L, arg, "position_tolerance", 0);
    if (!(share >= 0 && share <= MOST_POSITION_TOLERANCE))
        raise_usage(L,
                    "position_tolerance is a share of the distance of slices, "
                    "from 0 to %g, got %g",
                    MOST_POSITION_TOLERANCE, share);
    return share;
}

/* data.open_dicom(root, {image=, mask=, segments=, ...}) -> data set. Finds the
 * series and pairs them; voxels are read later. docs/data.md documents the
 * options. Raises series that do not fit together (kind data). */
static int l_dicom(lua_State *L)
{
    static const char *const known[] = {"image",
                                        "mask",
                                        "segments",
                                        "labels",
                                        "patient",
                                        "resample",
                                        "resample_mask",
                                        "skip_unmatched",
                                        "partial",
                                        "assume_hu",
                                        "resample_tilt",
                                        "assume_implicit_le",
                                        "dose",
                                        "fractions",
                                        "resample_dose",
                                        "contour_tolerance",
                                        "position_tolerance",
                                        "skip_damaged",
                                        NULL};
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
    how.contour_tolerance_mm = read_contour_tolerance(L, 2);
    how.fractions = opt_bool(L, 2, "fractions", false);
    how.resample_dose = opt_bool(L, 2, "resample_dose", false);
    how.patient = read_patient(L, 2);
    how.files = (DicomOptions){
        .assume_hu = opt_bool(L, 2, "assume_hu", false),
        .resample_tilt = opt_bool(L, 2, "resample_tilt", false),
        .assume_implicit_le = opt_bool(L, 2, "assume_implicit_le", false),
        .position_tolerance = read_tolerance(L, 2),
        .skip_damaged = opt_bool(L, 2, "skip_damaged", false)};
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_dicom(root, &how, box)) return raise_error(L);
    return 1;
}

/* data.open_nifti(root, {image=, mask=, labels=, patient=, ...}) -> data set,
 * likewise, and the files that were ignored (dataset_ignored_files) */
static int l_nifti(lua_State *L)
{
    static const char *const known[] = {
        "image",          "mask",          "labels",         "patient",
        "resample",       "resample_mask", "skip_unmatched", "form",
        "assume_spacing", "channels",      "skip_damaged",   NULL};
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
    how.skip_damaged = opt_bool(L, 2, "skip_damaged", false);
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_nifti(root, &how, box)) return raise_error(L);
    int count;
    const char *const *ignored = dataset_ignored_files(*box, &count);
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushstring(L, ignored[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

int push_cases(lua_State *L, const Dataset *ds)
{
    lua_createtable(L, ds->count, 0);
    for (int i = 0; i < ds->count; i++) {
        lua_createtable(L, 0, 2);
        set_text(L, "key", ds->cases[i].key);
        set_text(L, "patient", ds->cases[i].patient);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ds:cases() -> its cases */
static int l_cases(lua_State *L)
{
    return push_cases(L, check_dataset(L, 1));
}

/* ds:patients() -> the number of different patients */
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

/* ds:kinds() -> { "image", "label" }, the kinds of the fields in that order */
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

/* ds:numbers(case, field) -> the numbers of a field of kind numbers; case and
 * field count from 1; raises errors of the numbers (kind data) */
static int l_numbers(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const int f = (int)check_int(L, 3, "field", 1, ds->fields) - 1;
    Volume v;

    if (ds->field[f].kind != FIELD_NUMBER)
        raise_usage(L, "%s is not a field of numbers", ds->field[f].name);
    if (!case_load(ds, i, f, NULL, &v, NULL)) return raise_error(L);
    const int32_t n = v.voxels.dim.c;

    // the table first: nothing may raise while the volume is held
    lua_createtable(L, n, 0);
    for (int32_t k = 0; k < n; k++) {
        lua_pushnumber(L, (double)((const float *)v.voxels.data)[k]);
        lua_rawseti(L, -2, k + 1);
    }
    volume_free(&v);
    return 1;
}

/* ds:skipped() -> the number of cases left out without a partner */
static int l_skipped(lua_State *L)
{
    lua_pushinteger(L, check_dataset(L, 1)->skipped);
    return 1;
}

void push_left_out(lua_State *L, const DicomLeftOut *list, int count)
{
    static const char *const kinds[] = {
        [DICOM_LEFT_DAMAGED] = "damaged",
        [DICOM_LEFT_FOREIGN] = "foreign",
        [DICOM_LEFT_NO_IMAGE] = "no image",
        [DICOM_LEFT_UNMATCHED] = "not taken",
    };
    lua_createtable(L, count, 0);

    for (int i = 0; i < count; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, kinds[list[i].kind]);
        lua_setfield(L, -2, "kind");
        lua_pushstring(L, list[i].path);
        lua_setfield(L, -2, "path");
        lua_pushstring(L, list[i].text);
        lua_setfield(L, -2, "why");
        lua_rawseti(L, -2, i + 1);
    }
}

/* ds:left_out() -> { {kind = "damaged", "foreign", "no image" or "not taken",
 * path=, why=}, ... }: files that were left out when the data set was opened */
static int l_left_out(lua_State *L)
{
    int count;
    const DicomLeftOut *list = dataset_left_out(check_dataset(L, 1), &count);
    push_left_out(L, list, count);
    return 1;
}

/* ds:labels() -> the label values in files that became classes 1, 2, ... */
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

void bind_data(lua_State *L)
{
    static const luaL_Reg dataset[] = {
        {"cases", l_cases},     {"patients", l_patients}, {"fields", l_fields},
        {"skipped", l_skipped}, {"labels", l_labels},     {"kinds", l_kinds},
        {"numbers", l_numbers}, {"left_out", l_left_out}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"steps", l_steps},
                                         {"add_step", l_add_step},
                                         {"prepare_steps", l_prepare_steps},
                                         {"predict_steps", l_predict_steps},
                                         {"part_rank", l_part_rank},
                                         {"open_dicom", l_dicom},
                                         {"open_nifti", l_nifti},
                                         {NULL, NULL}};
    new_type(L, "seg.dataset", dataset, dataset_gc);
    luaL_newlib(L, functions);
    lua_setfield(L, -2, "data");
    bind_function(L);
    bind_cases(L);
    bind_pipeline(L);
    bind_origin(L);
    bind_split(L);
    bind_statistics(L);
    bind_loader(L);
    bind_device_dataset(L);
    bind_volume(L);
    bind_result(L);
    bind_prediction(L);
    bind_look(L);
    bind_image(L);
    bind_table(L);
    bind_survey(L);
    bind_phantom(L);
}
