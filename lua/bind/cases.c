/* cases.c -- data sets that Lua describes: a list of cases, a selection of
 * cases, several data sets together, cases under other names.
 *
 * Lua tables are read by the rules of bind.h: code that may raise runs before
 * the builder holds memory, or the builder is in a userdata that the collector
 * frees. */
#include "data/dataset/dataset_list.h"
#include "lua/bind/data.h"
#include <string.h>

/* == cases one by one ================================================== */

typedef struct BuilderBox {
    DatasetBuilder *b;
} BuilderBox;

static int builder_gc(lua_State *L)
{
    BuilderBox *box = luaL_checkudata(L, 1, "seg.cases");
    dataset_drop(box->b);
    box->b = NULL;
    return 0;
}

const char *const field_kinds[] = {"image", "value", "label", "numbers",
                                   "length"};

static FieldKind read_kind(lua_State *L, int arg)
{
    const char *text = opt_string(L, arg, "kind", "image");
    for (int i = 0; i <= FIELD_LENGTH; i++)
        if (!strcmp(text, field_kinds[i])) return (FieldKind)i;
    raise_usage(L,
                "field \"%s\": kind must be image, value, label, numbers or "
                "length, got \"%s\"",
                opt_string(L, arg, "name", ""), text);
    return FIELD_IMAGE;
}

/* The rank of a field without one: that of its reader, or the number of the
 * named axes; 3 for other arrays. */
static int usual_rank(lua_State *L, const ListField *f, const char *axes)
{
    if (!field_on_grid(f->kind)) return 0;
    const Reader *reader = reader_find(f->reader);
    if (!reader) raise_error(L);
    int rank = (int)strlen(axes) - (strchr(axes, 'c') != NULL);
    return reader->rank >= 0 ? reader->rank : rank >= 1 ? rank : 3;
}

/* Options of a DICOM field; the names of segments are in `segment`. */
static DicomRead read_dicom(lua_State *L, int arg,
                            const char *segment[MAX_LABELS])
{
    return (DicomRead){
        .files = {.assume_hu = opt_bool(L, arg, "assume_hu", false),
                  .resample_tilt = opt_bool(L, arg, "resample_tilt", false),
                  .assume_implicit_le =
                      opt_bool(L, arg, "assume_implicit_le", false),
                  .position_tolerance = read_tolerance(L, arg)},
        .mask = {.segment_count =
                     read_names(L, arg, "segments", segment, MAX_LABELS),
                 .segments = segment,
                 .partial = opt_bool(L, arg, "partial", false),
                 .contour_tolerance_mm = read_contour_tolerance(L, arg)},
        .resample_dose = opt_bool(L, arg, "resample_dose", false)};
}

/* Options of a field of a list. */
static const char *const field_options[] = {"name",
                                            "kind",
                                            "read",
                                            "rank",
                                            "axes",
                                            "count",
                                            "form",
                                            "assume_spacing",
                                            "assume_hu",
                                            "resample_tilt",
                                            "segments",
                                            "assume_implicit_le",
                                            "partial",
                                            "resample_dose",
                                            "same_grid",
                                            "alpha",
                                            "exif",
                                            "trailing",
                                            "page",
                                            "channels",
                                            "contour_tolerance",
                                            "position_tolerance",
                                            NULL};

/* data.field_options() -> { name = true, ... } of field_options */
static int l_field_options(lua_State *L)
{
    lua_newtable(L);
    for (int i = 0; field_options[i]; i++) set_bool(L, field_options[i], true);
    return 1;
}

/* The field described by the table at `arg`. Its strings live as long as the
 * table; the names of segments are in `segment`. */
static ListField read_field(lua_State *L, int arg,
                            const char *segment[MAX_LABELS])
{
    if (!lua_istable(L, arg))
        raise_usage(L, "a field must be a table, got %s",
                    luaL_typename(L, arg));
    check_keys(L, arg, "field", field_options);
    ListField f = {.name = opt_string(L, arg, "name", ""),
                   .kind = read_kind(L, arg),
                   .reader = opt_string(L, arg, "read", "nifti"),
                   .numbers =
                       (int)opt_int(L, arg, "count", 1, 1, MAX_FEATURES)};
    const char *axes = opt_string(L, arg, "axes", "");
    if (!*f.name) raise_usage(L, "a field needs a name");
    f.rank = (int)opt_int(L, arg, "rank", usual_rank(L, &f, axes), 0, 3);
    if (strlen(axes) >= sizeof f.options.axes)
        raise_usage(L, "axes \"%s\": too long", axes);
    memcpy(f.options.axes, axes, strlen(axes) + 1);
    f.options.image = read_image_options(L, arg);
    f.options.nifti.form = read_form(L, arg);
    f.options.nifti.assume_spacing = opt_bool(L, arg, "assume_spacing", false);
    f.options.dicom = read_dicom(L, arg, segment);
    f.options.same_grid = opt_bool(L, arg, "same_grid", false);
    f.options.nifti.channels = opt_bool(L, arg, "channels", false);
    return f;
}

/* The box of a picture in the table on top of the stack, if it has one, in
 * `keep`: 4 numbers that must outlive the call. */
static const double *read_box(lua_State *L, double keep[4])
{
    bool has = raw_field(L, lua_gettop(L), "box") == LUA_TTABLE;
    for (int i = 0; has && i < 4; i++) {
        lua_rawgeti(L, -1, i + 1);
        keep[i] = check_number(L, lua_gettop(L), "box");
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return has ? keep : NULL;
}

/* The paths of one field of a case: the value on top of the stack. */
static void read_paths(lua_State *L, const char *name, ListCase *c, int f,
                       double box[4])
{
    int type = lua_type(L, -1), *n = &c->field[f].paths;
    if (type == LUA_TSTRING) {
        c->field[f].path[(*n)++] = lua_tostring(L, -1);
        return;
    }
    if (type != LUA_TTABLE)
        raise_usage(L, "%s: %s must be a path or a list of paths, got %s",
                    c->key, name, luaL_typename(L, -1));

    while (lua_rawgeti(L, -1, *n + 1) == LUA_TSTRING) {
        if (*n == MAX_CHANNELS)
            raise_usage(L, "%s: %s: more than %d files", c->key, name,
                        MAX_CHANNELS);
        // the table keeps it alive
        c->field[f].path[(*n)++] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }

    lua_pop(L, 1);
    c->field[f].box = read_box(L, box);
}

/* The numbers of one field, the value on top of the stack, into a userdata
 * that takes its place. */
static void read_numbers(lua_State *L, const ListField *field, ListCase *c,
                         int f)
{
    int at = lua_gettop(L), type = lua_type(L, at), n = field->numbers;
    if (type != LUA_TTABLE && !(type == LUA_TNUMBER && n == 1))
        raise_usage(L, "%s: %s must be %d number%s, got %s", c->key,
                    field->name, n, n == 1 ? "" : "s", luaL_typename(L, at));
    double *number = lua_newuserdatauv(L, (size_t)n * sizeof *number, 0);

    if (type == LUA_TNUMBER) {
        number[0] = check_number(L, at, field->name);
    } else {
        if ((int)lua_rawlen(L, at) != n)
            raise_usage(L, "%s: %s has %d number%s, want %d", c->key,
                        field->name, (int)lua_rawlen(L, at),
                        lua_rawlen(L, at) == 1 ? "" : "s", n);
        for (int i = 0; i < n; i++) {
            lua_rawgeti(L, at, i + 1);
            number[i] = check_number(L, lua_gettop(L), field->name);
            lua_pop(L, 1);
        }
    }

    c->field[f].number = number;
    lua_replace(L, at);
}

/* Add the case on top of the stack. */
static void add_case(lua_State *L, DatasetBuilder *b, const ListField *field,
                     int fields)
{
    int at = lua_gettop(L);
    if (!lua_istable(L, at)) raise_usage(L, "a case must be a table");
    double box[MAX_FIELDS][4];
    ListCase c = {.key = opt_string(L, at, "key", ""),
                  .patient = opt_string(L, at, "patient", "")};

    for (int f = 0; f < fields; f++) {
        if (field[f].kind == FIELD_LENGTH) continue;
        // stays on the stack until the case is copied
        raw_field(L, at, field[f].name);
        if (field[f].kind == FIELD_NUMBER)
            read_numbers(L, &field[f], &c, f);
        else
            read_paths(L, field[f].name, &c, f, box[f]);
    }

    if (!dataset_list_add(b, &c)) raise_error(L);
    lua_settop(L, at);
}

/* The facts of a table that all cases share; `field` points into `segment`. */
typedef struct List {
    DatasetOptions options;
    ListField field[MAX_FIELDS];
    const char *segment[MAX_FIELDS][MAX_LABELS];
    int fields;
} List;

/* Reads the options and fields of the table at 1, which keeps their strings
 * alive. */
static void read_list(lua_State *L, List *out)
{
    static const char *const known[] = {"fields",   "cases",         "labels",
                                        "resample", "resample_mask", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    check_keys(L, 1, "data.cases", known);
    out->options = read_dataset_options(L, 1);
    if (raw_field(L, 1, "fields") != LUA_TTABLE)
        raise_usage(L, "fields must be a list of fields, got %s",
                    luaL_typename(L, -1));
    int fields = (int)lua_rawlen(L, -1), list = lua_gettop(L);
    if (fields > MAX_FIELDS)
        raise_usage(L, "%d fields, wanted at most %d", fields, MAX_FIELDS);
    luaL_checkstack(L, 4 * MAX_FIELDS, NULL);
    for (int i = 0; i < fields; i++) {
        lua_rawgeti(L, list, i + 1);
        out->field[i] = read_field(L, lua_gettop(L), out->segment[i]);
        lua_pop(L, 1); // the list keeps it
    }
    out->fields = fields;
}

/* data.check_list({fields=, labels=, ...}) -> {name = rank}, {name = true} of
 * the fields without a known rank. Raises every error that open_list would, but
 * for errors of cases. */
static int l_check_list(lua_State *L)
{
    List all;
    DatasetBuilder *b;
    read_list(L, &all);
    const ListField *field = all.field;
    int list = lua_gettop(L);
    if (!dataset_list_begin(field, all.fields, &all.options, &b))
        return raise_error(L);
    dataset_drop(b);
    lua_newtable(L);
    lua_newtable(L);

    for (int i = 0; i < all.fields; i++) {
        bool numbers = !field_on_grid(field[i].kind);
        lua_pushinteger(L, numbers ? 0 : field[i].rank);
        lua_setfield(L, -3, field[i].name);
        lua_rawgeti(L, list, i + 1);
        bool said = raw_field(L, lua_gettop(L), "rank") != LUA_TNIL;
        lua_pop(L, 2);
        if (numbers || said || *field[i].options.axes ||
            reader_find(field[i].reader)->rank >= 0)
            continue;
        set_bool(L, field[i].name, true);
    }
    return 2;
}

/* Raises when the list at `list` has elements after its first `count` cases, or
 * named ones: a hole in the list would drop the cases after it. */
static void check_whole(lua_State *L, int list, int count)
{
    int all = 0;
    lua_pushnil(L);
    while (lua_next(L, list)) {
        all++;
        lua_pop(L, 1);
    }

    if (all > count)
        raise_usage(L,
                    "cases: there is no case %d, but %d more come after it or "
                    "have a name; fix: a list without holes, as cases[#cases + "
                    "1] = case makes it",
                    count + 1, all - count);
}

/* data.open_list({fields={ {name=, kind="image", read="nifti", rank=, axes="",
 * count=1}, ...}, cases={ {key=, patient=, <field>=path|{path, ...}|numbers},
 * ...}, labels=, resample=, resample_mask=}) -> data set. kind: image, value,
 * label, numbers (count of them), length. Raises errors of the table. */
static int l_open_list(lua_State *L)
{
    List all;
    read_list(L, &all);
    if (raw_field(L, 1, "cases") != LUA_TTABLE)
        raise_usage(L, "cases must be a list of cases");
    int cases = lua_gettop(L);
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    int result = lua_gettop(L);
    BuilderBox *builder = new_object(L, "seg.cases", sizeof *builder);
    if (!dataset_list_begin(all.field, all.fields, &all.options, &builder->b))
        return raise_error(L);
    int count = 0;
    while (lua_rawgeti(L, cases, count + 1) != LUA_TNIL) {
        add_case(L, builder->b, all.field, all.fields);
        lua_pop(L, 1);
        count++;
    }

    check_whole(L, cases, count);
    DatasetBuilder *b = builder->b;
    builder->b = NULL; // finish frees it whatever happens
    if (!dataset_finish(b, box)) return raise_error(L);
    lua_pushvalue(L, result);
    return 1;
}

/* == data sets made of others ========================================== */

/* data.pick(ds, {number, ...}) -> the cases of these ascending numbers */
static int l_pick(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 2), last = 0;
    int *item = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *item, 0);

    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        last = (int)check_int(L, lua_gettop(L), "case", last + 1, ds->count);
        item[i] = last - 1;
        lua_pop(L, 1);
    }

    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_pick(ds, item, n, box)) return raise_error(L);
    return 1;
}

/* data.concat({ds, ...}) -> the cases of all data sets */
static int l_concat(lua_State *L)
{
    enum { MOST = 64 };
    const Dataset *ds[MOST];
    luaL_checktype(L, 1, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 1);
    if (n < 1 || n > MOST)
        raise_usage(L, "concat: %d data sets, wanted 1 to %d", n, MOST);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        ds[i] = check_dataset(L, lua_gettop(L));
        lua_pop(L, 1); // the list keeps it
    }

    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_concat(ds, n, box)) return raise_error(L);
    return 1;
}

/* data.rename(ds, {key, ...}, {patient, ...}) -> the same cases in the same
 * order, with these keys and patients */
static int l_rename(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const char **name =
        lua_newuserdatauv(L, 2 * (size_t)ds->count * sizeof *name, 0);

    for (int list = 0; list < 2; list++) {
        luaL_checktype(L, 2 + list, LUA_TTABLE);
        for (int i = 0; i < ds->count; i++) {
            if (lua_rawgeti(L, 2 + list, i + 1) != LUA_TSTRING)
                raise_usage(L, "%s: %s must be a text, got %s",
                            ds->cases[i].key, list ? "patient" : "key",
                            luaL_typename(L, -1));
            name[list * ds->count + i] = lua_tostring(L, -1);
            lua_pop(L, 1); // the list keeps it
        }
    }

    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_rename(ds, name, name + ds->count, box)) return raise_error(L);
    return 1;
}

/* data.signed_distance(ds, of, name) -> the same cases with a field of signed
 * distances from the classes of field `of` */
static int l_signed_distance(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const char *of = luaL_checkstring(L, 2), *name = luaL_checkstring(L, 3);
    Dataset **box = new_object(L, "seg.dataset", sizeof *box);
    if (!dataset_distance(ds, of, name, box)) return raise_error(L);
    return 1;
}

void bind_cases(lua_State *L)
{
    static const luaL_Reg cases[] = {{"open_list", l_open_list},
                                     {"check_list", l_check_list},
                                     {"pick", l_pick},
                                     {"concat", l_concat},
                                     {"rename", l_rename},
                                     {"signed_distance", l_signed_distance},
                                     {"field_options", l_field_options},
                                     {NULL, NULL}};
    new_type(L, "seg.cases", (luaL_Reg[]){{NULL, NULL}}, builder_gc);
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, cases, 0);
    lua_pop(L, 1);
}
