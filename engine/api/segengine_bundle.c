/* segengine_bundle.c -- reads the entries of a bundle without Lua.
 *
 * lua/predict/bundle.lua writes and reads the same entries;
 * tests/lua/predict/export.lua checks both with the same files. An entry
 * outside the tables below is an error, as a later version may have written it
 * for a function that this one lacks. Entries for file formats that the C API
 * does not read set `cannot`, and the network can still run on arrays. */
#include "data/format/decimal.h"
#include "engine/api/segengine_inside.h"
#include "engine/base/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LATER "; fix: the version of segengine that wrote it, or a later one"

/* == values ============================================================= */

/* One allowed member of a table. */
typedef struct Key {
    const char *name;
    JsonKind kind; /* of the value; JSON_NULL: any */
    bool must;
} Key;

/* Checks that every member of `table` is one of the keys and of its kind, and
 * that required members are present. */
static bool check_keys(const JsonValue *table, const char *what,
                       const Key *keys)
{
    for (const JsonValue *v = table->first; v; v = v->next) {
        const Key *k = keys;
        while (k->name && strcmp(k->name, v->name)) k++;
        if (!k->name)
            return fail_data(
                "%s: it has \"%.60s\", which this program (" SEG_VERSION
                ") does not know" LATER,
                what, v->name);
        if (k->kind != JSON_NULL && k->kind != v->kind)
            return fail_data("%s: %s is %s, want %s", what, v->name,
                             json_kind(v),
                             json_kind(&(JsonValue){.kind = k->kind}));
    }

    for (const Key *k = keys; k->name; k++)
        if (k->must && !json_get(table, k->name))
            return fail_data("%s: %s is missing, want %s", what, k->name,
                             json_kind(&(JsonValue){.kind = k->kind}));
    return true;
}

/* Returns a number, `otherwise` if it is absent. */
static double number_of(const JsonValue *table, const char *name,
                        double otherwise)
{
    const JsonValue *v = json_get(table, name);
    double x = otherwise;
    if (v && v->kind == JSON_NUMBER) decimal_read(v->text, strlen(v->text), &x);
    return x;
}

static bool truth_of(const JsonValue *table, const char *name)
{
    const JsonValue *v = json_get(table, name);
    return v && v->kind == JSON_TRUE;
}

static const char *text_of(const JsonValue *table, const char *name)
{
    const JsonValue *v = json_get(table, name);
    return v && v->kind == JSON_TEXT ? v->text : "";
}

/* Reads a string or a list of strings, at most `most`; returns their number. */
static int texts_of(const JsonValue *v, const char **out, int most)
{
    int n = 0;
    if (v && v->kind == JSON_TEXT) out[n++] = v->text;
    if (v && v->kind == JSON_LIST)
        for (v = v->first; v && n < most; v = v->next)
            if (v->kind == JSON_TEXT) out[n++] = v->text;
    return n;
}

/* == steps ============================================================== */

// a step with all its options is a few hundred bytes; lists and lines are built
// by repeated copies, so their length is bounded
enum { LINE_BYTES = 4096 };

/* Returns `text`, or NULL with a reason if it is too long for a step. */
static const char *bounded(const char *text)
{
    if (!text || strlen(text) <= LINE_BYTES) return text;
    fail_data("bundle: a step is longer than %d bytes", LINE_BYTES);
    return NULL;
}

/* Returns a value in the syntax of a step: lists with commas. */
static const char *word_of(const JsonValue *v, Arena *mem)
{
    const char *list = NULL;
    switch (v->kind) {
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_LIST:
        for (v = v->first; v; v = v->next) {
            const char *one = word_of(v, mem);
            list = !one    ? NULL
                   : !list ? one
                           : arena_printf(mem, "%s,%s", list, one);
            if (!bounded(list)) return NULL;
        }
        return list ? list : "";
    default:
        return v->text;
    }
}

/* Converts {"step": "resize", "h": 32} to "resize h=32\n"; NULL with a reason.
 * Blanks separate the words of a line, so no word may contain one. */
static const char *line_of(const JsonValue *row, const char *what, int number,
                           Arena *mem)
{
    const char *line = text_of(row, "step");
    if (!*line) {
        fail_data("bundle: %s: row %d has no step", what, number);
        return NULL;
    }

    for (const JsonValue *v = row->first; line && v; v = v->next) {
        const char *word = word_of(v, mem);
        if (!word) return NULL;
        if (!strcmp(v->name, "step")) continue;
        line = bounded(arena_printf(mem, "%s %s=%s", line, v->name, word));
    }

    if (line && strchr(line, '\n')) {
        fail_data("bundle: %s: row %d has a line break", what, number);
        return NULL;
    }
    return line ? arena_printf(mem, "%s\n", line) : NULL;
}

static bool parse_steps(const char *text, const char *what, Steps *out)
{
    if (steps_parse(text, out)) return true;
    // "steps: line 2: ..." refers to entry 2 of the list
    char why[ERR_MAX];
    const char *at = strstr(err_text(), "line ");
    snprintf(why, sizeof why, "%s", at ? at + 5 : err_text());
    return fail_data("bundle: %s: row %s" LATER, what, why);
}

/* Reads all steps in their form for prediction; the flip of training is for
 * mirrored images, and only checked. */
static bool read_steps(const JsonValue *rows, const JsonValue *flip, Arena *mem,
                       Bundle *b)
{
    const char *text = "";
    Steps steps;
    int number = 0;

    // an empty list is written as a table
    if (rows->kind != JSON_LIST && rows->first)
        return fail_data("bundle: prepare is %s, want a list", json_kind(rows));

    for (const JsonValue *row = rows->first; row; row = row->next) {
        if (number == MAX_STEPS)
            return fail_data("bundle: prepare has more than %d steps",
                             MAX_STEPS);
        const char *line = line_of(row, "prepare", ++number, mem);
        if (line) text = arena_printf(mem, "%s%s", text, line);
        if (!line || !text) return false;
    }

    if (flip) {
        const char *line = line_of(flip, "flip", 1, mem);
        if (!line || !parse_steps(line, "flip", &steps)) return false;
    }
    if (!parse_steps(text, "prepare", &steps)) return false;
    b->steps = steps_for_prediction(&steps);
    for (int i = 0; i < b->steps.count; i++)
        if (b->steps.step[i].id == STEP_change)
            b->cannot = "a function of the script changes its images";
    return true;
}

/* == reading files ====================================================== */

static const Key read_keys[] = {{"kind", JSON_TEXT, true},
                                {"options", JSON_TABLE, true},
                                {"made", JSON_TABLE, false},
                                {"numbers", JSON_TABLE, false},
                                {NULL, JSON_NULL, false}};

/* Reads options of the data set; other kinds of files need `segengine
 * predict`. */
static bool read_reading(const JsonValue *read, Bundle *b)
{
    static const char *const forms[] = {"both", "sform", "qform",
                                        "sform_or_qform", "qform_or_sform"};
    enum { FORMS = sizeof forms / sizeof forms[0] };
    if (!check_keys(read, "bundle: read", read_keys)) return false;
    const JsonValue *o = json_get(read, "options");
    const char *kind = text_of(read, "kind"), *form = text_of(o, "form");
    b->from_dicom = !strcmp(kind, "dicom");
    if (json_get(read, "made") || (!b->from_dicom && strcmp(kind, "nifti")))
        b->cannot = "its training files were neither NIfTI nor DICOM";
    b->nifti.all.resample = b->dicom.all.resample = truth_of(o, "resample");
    b->nifti.all.skip_unmatched = b->dicom.all.skip_unmatched =
        truth_of(o, "skip_unmatched");
    b->nifti.patient = PATIENT_FILE;
    b->nifti.files.assume_spacing = truth_of(o, "assume_spacing");
    b->nifti.files.channels = truth_of(o, "channels");
    b->dicom.files.assume_hu = truth_of(o, "assume_hu");
    b->dicom.files.resample_tilt = truth_of(o, "resample_tilt");
    b->dicom.files.assume_implicit_le = truth_of(o, "assume_implicit_le");
    b->dicom.files.position_tolerance = number_of(o, "position_tolerance", 0);
    if (!(b->dicom.files.position_tolerance >= 0 &&
          b->dicom.files.position_tolerance <= MOST_POSITION_TOLERANCE))
        return fail_data("bundle: read: position_tolerance is not from 0 to "
                         "%g" LATER,
                         MOST_POSITION_TOLERANCE);

    int i = 0;
    while (*form && i < FORMS && strcmp(form, forms[i])) i++;
    if (i == FORMS)
        return fail_data("bundle: read: form is \"%.20s\"" LATER, form);
    b->nifti.files.form = (NiftiForm)i;
    return true;
}

/* == postprocessing ===================================================== */

// the options of predict = { } in a recipe; fractions, to which a temperature
// applies, are not computed here
static const Key predict_keys[] = {
    {"image", JSON_NULL, false},     {"names", JSON_NULL, false},
    {"threshold", JSON_NULL, false}, {"fractions", JSON_NULL, false},
    {"as", JSON_TEXT, false},        {"output", JSON_TEXT, false},
    {"overlap", JSON_NUMBER, false}, {"tta", JSON_NULL, false},
    {"each", JSON_NULL, false},      {"keep", JSON_NULL, false},
    {"min_ml", JSON_NUMBER, false},  {"fill_holes", JSON_NULL, false},
    {"connect", JSON_NUMBER, false}, {"temperature", JSON_NUMBER, false},
    {NULL, JSON_NULL, false}};

// the options that may be set per class
static const Key tidy_keys[] = {{"keep", JSON_NULL, false},
                                {"min_ml", JSON_NUMBER, false},
                                {"fill_holes", JSON_NULL, false},
                                {"connect", JSON_NUMBER, false},
                                {NULL, JSON_NULL, false}};

/* Returns an option of a class: from its own table, else from the common
 * one. */
static const JsonValue *option_of(const JsonValue *own, const JsonValue *all,
                                  const char *name)
{
    const JsonValue *v = json_get(own, name);
    return v ? v : json_get(all, name);
}

/* Reads the options `own` of class number `value`. */
static bool read_tidy(const JsonValue *own, const JsonValue *all, int value,
                      BundleTidy *out)
{
    const JsonValue *keep = option_of(own, all, "keep");
    const JsonValue *fill = option_of(own, all, "fill_holes");
    const bool fills = fill && fill->kind == JSON_TRUE;
    const bool slices =
        fill && fill->kind == JSON_TEXT && !strcmp(fill->text, "slices");
    const bool largest =
        keep && keep->kind == JSON_TEXT && !strcmp(keep->text, "largest");
    double connect = number_of(own, "connect", number_of(all, "connect", 26));
    double count = largest ? 1 : 0;

    if (keep && keep->kind == JSON_NUMBER)
        decimal_read(keep->text, strlen(keep->text), &count);
    const double min_ml = number_of(own, "min_ml", number_of(all, "min_ml", 0));
    if (own && !check_keys(own, "bundle: predict: each", tidy_keys))
        return false;
    if (option_of(own, all, "min_ml") && !(min_ml > 0 && min_ml < HUGE_VAL))
        return fail_data("bundle: predict: min_ml is %g, want a number above 0",
                         min_ml);

    if ((keep && !(count >= 1 && count <= INT32_MAX)) ||
        (connect != 6 && connect != 26) ||
        (fill && !fills && !slices && fill->kind != JSON_FALSE))
        return fail_data("bundle: predict: keep, fill_holes or connect of "
                         "class %d is not what this program (" SEG_VERSION
                         ") knows" LATER,
                         value);

    *out = (BundleTidy){.how = {.value = (uint8_t)value,
                                .connect = (int)connect,
                                .keep = (int32_t)count,
                                .fill = fills,
                                .fill_slices = slices},
                        .min_ml = min_ml};
    return true;
}

/* Returns the table of `each` for class i + 1: by its name (the output's if
 * there are no segment names), by its number, or by its position in a list. */
static const JsonValue *each_of(const JsonValue *each, const Bundle *b, int i)
{
    char text[ERR_MAX / 8];
    const JsonValue *v = NULL;
    if (i < b->segments) v = json_get(each, b->segment[i]);
    if (!v && !b->segments && i == 0) v = json_get(each, b->output);
    snprintf(text, sizeof text, "%.200s_%d", b->output, i + 1);
    if (!v && !b->segments) v = json_get(each, text);
    snprintf(text, sizeof text, "%d", i + 1);
    if (!v) v = json_get(each, text);
    if (v || !each || each->kind != JSON_LIST) return v;
    for (v = each->first; v && i > 0; i--) v = v->next;
    return v;
}

/* There are as many classes as segment names; without names, as many as the
 * network has, which is known later. */
static bool read_classes(const JsonValue *p, Bundle *b)
{
    const JsonValue *each = json_get(p, "each");
    int left = 0;
    for (const JsonValue *v = each ? each->first : NULL; v; v = v->next) left++;
    b->tidies = b->segments ? b->segments : MAX_SEGMENTS;
    for (int i = 0; i < b->tidies; i++) {
        const JsonValue *own = each_of(each, b, i);
        left -= own != NULL;
        if (!read_tidy(own, p, i + 1, &b->tidy[i])) return false;
    }
    return !left || fail_data("bundle: predict: each has a class that the "
                              "output does not have");
}

/* Sets the image names used in training, of the format that it read. Files of
 * the other format have other names. */
static void read_trained(const JsonValue *image, Bundle *b)
{
    if (b->from_dicom)
        b->dicom.images = texts_of(image, b->dicom.image, MAX_CHANNELS);
    else
        b->nifti.images = texts_of(image, b->nifti.image, MAX_CHANNELS);
}

/* image: the option of the training data set, or NULL. */
static bool read_predict(const JsonValue *p, const JsonValue *image, Bundle *b)
{
    const char *as = text_of(p, "as");
    if (!check_keys(p, "bundle: predict", predict_keys)) return false;
    b->threshold = number_of(p, "threshold", 0.5);
    if (!(b->threshold > 0 && b->threshold < 1))
        return fail_data("bundle: predict: threshold is %g, want a number "
                         "between 0 and 1",
                         b->threshold);
    b->segments = texts_of(json_get(p, "names"), b->segment, MAX_SEGMENTS);
    b->dicom.images = b->nifti.images =
        texts_of(json_get(p, "image"), b->dicom.image, MAX_CHANNELS);
    memcpy(b->nifti.image, b->dicom.image, sizeof b->dicom.image);
    if (!b->nifti.images) read_trained(image, b);
    if (!b->nifti.images) b->nifti.image[b->nifti.images++] = "*";
    const double overlap = number_of(p, "overlap", 0);
    if (!(overlap >= 0 && overlap <= 0.9))
        return fail_data("bundle: predict: overlap is %g, want a number from 0 "
                         "to 0.9",
                         overlap);
    for (int i = 0; i < b->steps.count && json_get(p, "overlap"); i++)
        if (b->steps.step[i].id == STEP_patches)
            b->steps.step[i].patches.overlap = overlap;
    if (*as && strcmp(as, "labels"))
        b->cannot = "its output does not hold class numbers";
    if (json_get(p, "tta"))
        b->cannot = "it takes the mean over mirrored images (tta)";
    return read_classes(p, b);
}

/* Parses "1,2,4". */
static bool read_labels(const char *text, Bundle *b)
{
    while (*text) {
        double v;
        size_t n = decimal_read(text, strcspn(text, ","), &v);
        if (!n || v != floor(v) || fabs(v) > INT32_MAX ||
            b->labels == MAX_LABELS)
            return fail_data("bundle: labels are \"%.40s\"", text);
        b->label[b->labels++] = (int32_t)v;
        text += n;
        if (*text == ',')
            text++;
        else if (*text)
            return fail_data("bundle: labels are \"%.40s\"", text);
    }
    return true;
}

/* == the bundle ========================================================= */

static const Key entry_keys[] = {
    {"version", JSON_NUMBER, true},   {"network", JSON_TEXT, true},
    {"inputs", JSON_LIST, true},      {"output", JSON_TEXT, true},
    {"read", JSON_TABLE, true},       {"prepare", JSON_NULL, true},
    {"flip", JSON_TABLE, false},      {"predict", JSON_TABLE, true},
    {"run", JSON_TABLE, true},        {"labels", JSON_TEXT, false},
    {"trained_on", JSON_TEXT, false}, {"intended_use", JSON_TEXT, false},
    {"training", JSON_TABLE, false},  {NULL, JSON_NULL, false}};

/* Version 0.1 wrote "direct", a choice of algorithm by layer. It is ignored:
 * results differ by rounding only (lua/aliases.lua lists the removed names). */
static const Key run_keys[] = {
    {"batch", JSON_NUMBER, false},  {"precision", JSON_TEXT, false},
    {"bucket", JSON_NULL, false},   {"multiple", JSON_NUMBER, false},
    {"winograd", JSON_NULL, false}, {"direct", JSON_TEXT, false},
    {NULL, JSON_NULL, false}};

bool bundle_read(const char *text, Arena *mem, Bundle **out)
{
    JsonValue *all;
    if (!json_parse(text, "bundle", mem, &all)) return false;
    if (!json_get(all, "version"))
        return fail_data("bundle: its version is missing");
    if (number_of(all, "version", 0) != BUNDLE_VERSION)
        return fail_data("bundle: its version is %.20s, this program "
                         "(" SEG_VERSION ") reads version %d" LATER,
                         json_get(all, "version")->text, BUNDLE_VERSION);
    if (!check_keys(all, "bundle", entry_keys)) return false;
    Bundle *b = ARENA_NEW(mem, Bundle, 1);
    if (!b) return false;
    const JsonValue *run = json_get(all, "run");
    if (!check_keys(run, "bundle: run", run_keys)) return false;
    b->inputs = texts_of(json_get(all, "inputs"), b->input, MAX_INPUTS);
    b->output = text_of(all, "output");
    const double batch = number_of(run, "batch", 1);
    if (!(batch >= 1 && batch <= 1 << 20))
        return fail_data("bundle: run: batch is %g", batch);
    b->batch = (int)batch;
    if (!precision_find(*text_of(run, "precision") ? text_of(run, "precision")
                                                   : "f32",
                        &b->precision))
        return fail_data("bundle: run: precision is \"%.20s\"" LATER,
                         text_of(run, "precision"));

    const JsonValue *winograd = json_get(run, "winograd");
    if (winograd && winograd->kind != JSON_TRUE && winograd->kind != JSON_FALSE)
        return fail_data("bundle: run: winograd is %s, want true or false",
                         json_kind(winograd));
    b->no_winograd = winograd && winograd->kind == JSON_FALSE;

    if (!read_steps(json_get(all, "prepare"), json_get(all, "flip"), mem, b) ||
        !read_reading(json_get(all, "read"), b) ||
        !read_predict(
            json_get(all, "predict"),
            json_get(json_get(json_get(all, "read"), "options"), "image"), b) ||
        !read_labels(text_of(all, "labels"), b))
        return false;

    *out = b;
    return true;
}
