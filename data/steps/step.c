/* step.c -- the rows of steps.def as data; values by name; steps as text.
 *
 * steps.def is expanded twice: into the union of DataStep, for code that runs a
 * step, and here into step_info, for code that loops over attributes by name
 * (Lua, printing, parsing). Both number the attributes in the same way, one
 * after the other in `word`. The text form is stored in checkpoints: parsing it
 * must give the same bits for as long as checkpoints are read. */
#include "data/steps/standardize.h"
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
const StepInfo step_info[STEP_COUNT] = {
#define N(id, min, max, def)     {#id, 'N', 1, min, max, {def, 0}, NULL},
#define I(id, min, max, def)     {#id, 'I', 1, min, max, {def, 0}, NULL},
#define B(id, def)               {#id, 'B', 1, 0, 1, {def, 0}, NULL},
#define C(id, names, def)        {#id, 'C', 1, 0, 31, {def, 0}, names},
#define R(id, min, max, lo, hi)  {#id, 'R', 2, min, max, {lo, hi}, NULL},
#define V(id, min, max)          {#id, 'V', 3, min, max, {0, 0}, NULL},
#define L(id, min, max)          {#id, 'L', 1 + MAX_STEP_LIST, min, max, {0, 0}, NULL},
#define F(id, min, max)          {#id, 'F', 1 + MAX_STEP_REALS, min, max, {0, 0}, NULL},
#define T(id)                    {#id, 'T', STEP_NAME_WORDS, 0, 0, {0, 0}, NULL},
#define COUNT(...) (int)(sizeof((StepAttr[]){__VA_ARGS__}) / sizeof(StepAttr))
#define STEP(row, phase, acts, attrs) \
    [STEP_##row] = {#row, STEP_##phase, ACTS_##acts, COUNT(attrs), {attrs}},
#include "data/steps/steps.def"
};
// clang-format on
_Static_assert(sizeof(DataStep) <= sizeof(double) * (1 + STEP_WORDS),
               "a row has more words than are walked by name");

/* two dozen rows need no index */
StepId step_find(const char *name)
{
    int i = 0;
    while (i < STEP_COUNT && strcmp(step_info[i].name, name)) i++;
    return (StepId)i;
}

/* Attributes follow one another in `word`, in the order of the row; V, L, F and
 * T have no default and stay 0. */
DataStep step_default(StepId id)
{
    DataStep s = {.id = id};
    const StepInfo *info = &step_info[id];
    for (int i = 0, at = 0; i < info->attrs; at += info->attr[i++].words) {
        s.word[at] = info->attr[i].def[0];
        if (info->attr[i].kind == 'R') s.word[at + 1] = info->attr[i].def[1];
    }
    return s;
}

/* The attribute `name` of the row and the index of its first word; NULL with
 * all valid names in the reason. */
static const StepAttr *attr_find(const DataStep *s, const char *name, int *at)
{
    const StepInfo *info = &step_info[s->id];
    char known[256] = "";
    *at = 0;

    for (int i = 0; i < info->attrs; *at += info->attr[i++].words) {
        const StepAttr *a = &info->attr[i];
        if (!strcmp(a->name, name)) return a;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 a->name);
    }

    fail_usage("%s has no option \"%s\"; it has %s", info->name, name, known);
    return NULL;
}

/* Do `count` numbers suit the kind of an attribute? The counts that step_set
 * documents for each kind. */
static bool count_fits(const StepAttr *a, int count)
{
    switch (a->kind) {
    case 'R':
        return count == 2;
    case 'V':
        return count == 1 || count == 3;
    case 'L':
        return count >= 1 && count <= MAX_STEP_LIST;
    case 'F':
        return count >= 1 && count <= MAX_STEP_REALS;
    case 'T':
        return false;
    default:
        return count == 1;
    }
}

/* "a|b|c" has three */
static int choice_count(const char *choices)
{
    int n = 1;
    for (; *choices; choices++) n += *choices == '|';
    return n;
}

/* All numbers are set here, also choices and truth values, so every range is
 * checked in one place. */
bool step_set(DataStep *s, const char *name, const double *value, int count)
{
    const char *row = step_info[s->id].name;
    int at;
    const StepAttr *a = attr_find(s, name, &at);

    if (!a) return false;
    if (!count_fits(a, count)) {
        char got[48];
        if (count == 1)
            snprintf(got, sizeof got, "%g", value[0]);
        else
            snprintf(got, sizeof got, "%d numbers", count);
        return fail_usage("%s: %s takes %s, got %s", row, name,
                          a->kind == 'R'   ? "{lo, hi}"
                          : a->kind == 'V' ? "one number or {w, h, d}"
                          : a->kind == 'L' ? "1 to 32 numbers"
                          : a->kind == 'F' ? "1 to 64 numbers"
                          : a->kind == 'T' ? "a name"
                                           : "one number",
                          got);
    }

    // a choice is stored as its position, so its range follows from the names
    double max = a->kind == 'C' ? choice_count(a->choices) - 1 : a->max;

    for (int i = 0; i < count; i++) {
        // written so that NaN is out of range
        if (!(value[i] >= a->min && value[i] <= max))
            return fail_usage("%s: %s is %g, wanted %g to %g", row, name,
                              value[i], a->min, max);
        if (strchr("IBCL", a->kind) && value[i] != floor(value[i]))
            return fail_usage("%s: %s is %g, wanted a whole number", row, name,
                              value[i]);
    }

    if (a->kind == 'R' && value[0] > value[1])
        return fail_usage("%s: %s is {%g, %g}, wanted {lo, hi} with lo <= hi",
                          row, name, value[0], value[1]);

    // a list is preceded by its count
    double *word = s->word + at;
    if (strchr("LF", a->kind)) *word++ = count;
    for (int i = 0; i < count; i++) word[i] = value[i];
    if (a->kind == 'V' && count == 1) word[1] = word[2] = word[0];
    return true;
}

/* value is inside the range: step_set has checked it */
char *step_choice(const StepAttr *attr, double value,
                  char text[STEP_CHOICE_TEXT])
{
    const char *from = attr->choices;
    for (int i = (int)value; i > 0; i--) from = strchr(from, '|') + 1;
    snprintf(text, STEP_CHOICE_TEXT, "%.*s", (int)strcspn(from, "|"), from);
    return text;
}

char *step_name(const double *word, char text[STEP_NAME])
{
    size_t n = 0;
    for (int i = 0; i < STEP_NAME_WORDS; i++)
        for (uint64_t w = (uint64_t)word[i]; w; w >>= 8)
            text[n++] = (char)(w & 255);
    text[n] = 0;
    return text;
}

/* A name is part of a line of words: no blanks, and no character that ends a
 * value. */
static bool set_name(const char *row, const StepAttr *a, double *word,
                     const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const size_t n = strlen(name);
    if (n == 0 || n >= STEP_NAME || strspn(name, plain) != n)
        return fail_usage("%s: %s is \"%.60s\", wanted a name of up to %d "
                          "letters, digits, _ - .",
                          row, a->name, name, STEP_NAME - 1);
    for (int i = 0; i < STEP_NAME_WORDS; i++) word[i] = 0;

    // 6 bytes of 8 bits are exact in a double
    for (size_t i = n; i-- > 0;)
        word[i / 6] = word[i / 6] * 256 + (unsigned char)name[i];
    return true;
}

bool step_set_choice(DataStep *s, const char *name, const char *choice)
{
    int at;
    const StepAttr *a = attr_find(s, name, &at);
    if (!a) return false;
    const char *row = step_info[s->id].name;
    if (a->kind == 'T') return set_name(row, a, s->word + at, choice);
    if (a->kind != 'C')
        return fail_usage("%s: %s is \"%s\", wanted a number", row, name,
                          choice);

    for (int i = 0; i < choice_count(a->choices); i++) {
        char text[STEP_CHOICE_TEXT];
        if (strcmp(step_choice(a, i, text), choice)) continue;
        s->word[at] = i;
        return true;
    }

    return fail_usage("%s: %s is \"%s\", wanted one of %s", row, name, choice,
                      a->choices);
}

const DataStep *steps_parts(const Steps *all)
{
    for (int i = 0; i < all->count; i++)
        if (step_info[all->step[i].id].phase == STEP_SLICE)
            return &all->step[i];
    return NULL;
}

const DataStep *steps_slices(const Steps *all)
{
    const DataStep *s = steps_parts(all);
    return s && s->id == STEP_slices ? s : NULL;
}

bool steps_before(const Steps *all, int at, Steps *out)
{
    const DataStep *slices = steps_slices(all);
    *out = (Steps){.count = 0, .user_step = all->user_step};
    for (int i = 0; i < at; i++)
        if (!steps_add(out, &all->step[i])) return false;
    return !slices || steps_add(out, slices);
}

int steps_per_patient(const Steps *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->step[i].id == STEP_normalize &&
            (int)all->step[i].normalize.per == PER_PATIENT)
            return i;
    return -1;
}

/* phases ascend, so the last step decides */
bool steps_augment(const Steps *all)
{
    return all->count > 0 &&
           step_info[all->step[all->count - 1].id].phase == STEP_SAMPLE;
}

Steps steps_without_augment(const Steps *all)
{
    Steps out = {.count = 0, .user_step = all->user_step};
    for (int i = 0; i < all->count; i++)
        if (step_info[all->step[i].id].phase != STEP_SAMPLE)
            out.step[out.count++] = all->step[i];
    return out;
}

Steps steps_for_prediction(const Steps *all)
{
    Steps out = steps_without_augment(all);
    for (int i = 0; i < out.count; i++) {
        DataStep *s = &out.step[i], whole = step_default(STEP_slices);
        if (s->id == STEP_patches) {
            s->patches.at = PATCHES_GRID;
            s->patches.count = 1, s->patches.foreground = 0;
        }
        if (s->id != STEP_slices) continue;
        // every attribute except the axis selects slices
        whole.slices.axis = s->slices.axis;
        *s = whole;
    }
    return out;
}

/* Checks attributes that depend on one another, which a row of steps.def cannot
 * express. Also sets the clip implied by method percentile, so that the stored
 * step is the executed step. */
static bool step_settle(DataStep *s)
{
    switch (s->id) {
    case STEP_resample:
        if (s->resample.spacing_mm[0] == 0 && s->resample.spacing_mm[1] == 0 &&
            s->resample.spacing_mm[2] == 0)
            return fail_usage("resample: spacing_mm is missing");
        return true;
    case STEP_fit:
        if (s->fit.d == 0 && s->fit.h == 0 && s->fit.w == 0)
            return fail_usage("fit: one of d, h, w is needed");
        return true;
    case STEP_resize:
        if (s->resize.d == 0 && s->resize.h == 0 && s->resize.w == 0)
            return fail_usage("resize: one of d, h, w is needed");
        return true;
    case STEP_scale:
        if (s->scale.from[0] == s->scale.from[1])
            return fail_usage("scale: from is {%g, %g}, wanted a range",
                              s->scale.from[0], s->scale.from[1]);
        return true;
    case STEP_patches:
        if (s->patches.d == 0 && s->patches.h == 0 && s->patches.w == 0)
            return fail_usage("patches: one of d, h, w is needed");
        return true;
    case STEP_select:
        if (s->select.labels_count == 0)
            return fail_usage("select: labels is missing");
        return true;
    case STEP_change:
    case STEP_vary:
        // both rows begin with it
        if (s->change.code == 0)
            return fail_usage("%s: code is missing", step_info[s->id].name);
        return true;
    case STEP_normalize:
        if (s->normalize.clip[0] == s->normalize.clip[1])
            return fail_usage("normalize: clip leaves nothing between %g and "
                              "%g per cent",
                              s->normalize.clip[0], s->normalize.clip[1]);
        if ((int)s->normalize.per == PER_PATIENT &&
            (s->normalize.method != NORMALIZE_ZSCORE || s->normalize.nonzero ||
             s->normalize.clip[0] > 0 || s->normalize.clip[1] < 100))
            return fail_usage(
                "normalize: per = \"patient\" is for zscore of all "
                "values alone; fix: leave method, clip and "
                "nonzero out");
        if (s->normalize.method == NORMALIZE_PERCENTILE &&
            s->normalize.clip[0] == 0 && s->normalize.clip[1] == 100) {
            s->normalize.clip[0] = 0.5;
            s->normalize.clip[1] = 99.5;
        }
        return true;
    case STEP_standardize:
        return standardize_settle(s);
    case STEP_flip:
        if ((int)s->flip.swap_count % 2)
            return fail_usage("flip: swap has %d class numbers, wanted pairs "
                              "{a, b, c, d, ...}",
                              (int)s->flip.swap_count);
        for (int i = 0; i < (int)s->flip.swap_count; i++)
            for (int k = 0; k < i; k++)
                if (s->flip.swap[i] == s->flip.swap[k])
                    return fail_usage("flip: swap has class %g twice",
                                      s->flip.swap[i]);
        return true;
    case STEP_affine:
        // thousandths of a degree would be a mistake
        if (s->affine.step != 0 && s->affine.step < 1e-3)
            return fail_usage(
                "affine: step is %g degrees, wanted 0 (any angle) "
                "or at least 0.001",
                s->affine.step);
        if (s->affine.step != 0 &&
            ceil(s->affine.rotate[0] / s->affine.step) >
                floor(s->affine.rotate[1] / s->affine.step))
            return fail_usage("affine: no multiple of step = %g lies in rotate "
                              "= {%g, %g}",
                              s->affine.step, s->affine.rotate[0],
                              s->affine.rotate[1]);
        return true;
    case STEP_elastic:
        if (s->elastic.amplitude[1] > 0.4 * s->elastic.spacing)
            return fail_usage("elastic: amplitude is up to %g, wanted at most "
                              "0.4 spacing = %g: beyond it the image may fold",
                              s->elastic.amplitude[1],
                              0.4 * s->elastic.spacing);
        return true;
    default:
        return true;
    }
}

bool step_meant(const DataStep *s)
{
    const double *clip = s->normalize.clip;
    // clipping at one percent or less is surely a mistake
    if (s->id != STEP_normalize || clip[1] > 1) return true;
    return fail_usage("normalize: clip = {%g, %g} is in per cent; did you mean "
                      "{%g, %g}?",
                      clip[0], clip[1], 100 * clip[0], 100 * clip[1]);
}

/* Checks and appends a copy of *s; appends nothing on failure. */
bool steps_add(Steps *all, const DataStep *s)
{
    const StepInfo *info = &step_info[s->id];
    if (all->count == MAX_STEPS)
        return fail_usage("more than %d steps", MAX_STEPS);

    if (all->count) {
        // phases ascend: volumes, then slices, then samples
        const StepInfo *last = &step_info[all->step[all->count - 1].id];
        if (info->phase < last->phase)
            return fail_usage("%s comes after %s; order: steps on volumes, "
                              "slices, augmentation",
                              info->name, last->name);
    }

    const DataStep *parts = steps_parts(all);
    if (info->phase == STEP_SLICE && parts)
        return fail_usage("a second %s step: samples are already %s",
                          info->name, step_info[parts->id].name);
    if (s->id == STEP_normalize && (int)s->normalize.per == PER_PATIENT &&
        steps_per_patient(all) >= 0)
        return fail_usage("normalize: a second step per patient; the first "
                          "leaves nothing for it");

    // later it would reorient volumes whose extents a step has already set
    if (s->id == STEP_orient && all->count)
        return fail_usage("orient comes after %s; it must be the first step",
                          step_info[all->step[0].id].name);
    if (s->id == STEP_slices && s->slices.axis != AXIS_STORED && all->count &&
        all->step[0].id == STEP_orient)
        return fail_usage("slices across a plane orient the volume by "
                          "themselves; drop orient or say axis = \"stored\"");
    for (int i = 0; i < all->count && s->id == STEP_standardize; i++)
        if (all->step[i].id == s->id &&
            !memcmp(all->step[i].standardize.field, s->standardize.field,
                    sizeof s->standardize.field))
            return fail_usage("a second standardize of the same field");

    DataStep settled = *s;
    if (!step_settle(&settled)) return false;
    all->step[all->count++] = settled;
    return true;
}

/* ---- as text ------------------------------------------------------------ */

/* text that is written into one block of known size */
typedef struct Text {
    Arena *mem;
    char *at; /* NULL after a failure */
    size_t used, room;
} Text;

static void put(Text *t, const char *fmt, ...) ERR_FORMAT(2, 3);
static void put(Text *t, const char *fmt, ...)
{
    va_list ap;
    if (!t->at) return;
    va_start(ap, fmt);
    int n = vsnprintf(t->at + t->used, t->room - t->used, fmt, ap);
    va_end(ap);
    t->used += (size_t)n;
    CHECK(t->used < t->room);
}

/* Writes the shortest form that reads back as the same double. */
static void put_number(Text *t, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", v);
    // 15 digits suffice for numbers that people write, 17 for every double
    if (strtod(text, NULL) != v) snprintf(text, sizeof text, "%.17g", v);
    put(t, "%s", text);
}

/* name=value; a list prints all its numbers */
static void put_attr(Text *t, const StepAttr *a, const double *word)
{
    char text[STEP_CHOICE_TEXT], name[STEP_NAME];
    int count = strchr("LF", a->kind) ? (int)*word++ : a->words;

    // an empty list and an empty name are defaults
    if (count == 0 || (a->kind == 'T' && word[0] == 0)) return;
    put(t, " %s=", a->name);
    if (a->kind == 'T') {
        put(t, "%s", step_name(word, name));
        return;
    }
    if (a->kind == 'C') {
        put(t, "%s", step_choice(a, word[0], text));
        return;
    }
    if (a->kind == 'B') {
        put(t, "%s", word[0] != 0 ? "true" : "false");
        return;
    }
    for (int i = 0; i < count; i++) {
        if (i) put(t, ",");
        put_number(t, word[i]);
    }
}

/* Numbers are written and read with a point in every locale of the host;
 * uselocale affects only this thread. NULL: out of memory. */
static locale_t plain_numbers(locale_t *plain)
{
    *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *plain ? uselocale(*plain) : (locale_t)0;
}

static void restore_numbers(locale_t plain, locale_t before)
{
    uselocale(before);
    freelocale(plain);
}

/* The text is stored in checkpoints and compared byte by byte: locale, order
 * and digits are fixed. */
char *steps_print(const Steps *all, Arena *mem)
{
    // a line holds at most four lists of 64 numbers of 25 characters
    enum { LINE = 4 * 64 * 25 + 512 };
    locale_t plain, before = plain_numbers(&plain);
    if (!before) return fail("no memory for a locale"), NULL;

    // one line per step, and the end
    Text t = {.mem = mem, .room = (size_t)all->count * LINE + 1};
    t.at = arena_alloc(mem, t.room);

    for (int i = 0; i < all->count; i++) {
        const DataStep *s = &all->step[i];
        const StepInfo *info = &step_info[s->id];
        put(&t, "%s", info->name);
        for (int k = 0, at = 0; k < info->attrs; at += info->attr[k++].words)
            put_attr(&t, &info->attr[k], s->word + at);
        put(&t, "\n");
    }

    restore_numbers(plain, before);
    return t.at;
}

/* Parses "name=value" into the step; the value ends at `end`. On failure false
 * with a reason; the caller adds the line number. */
static bool parse_attr(DataStep *s, const char *text, size_t length)
{
    char name[32], value[MAX_STEP_REALS * 25];
    const char *equal = memchr(text, '=', length);
    if (!equal)
        return fail_data("\"%.*s\" is not NAME=VALUE", (int)length, text);
    size_t n = (size_t)(equal - text), m = length - n - 1;
    if (n >= sizeof name || m >= sizeof value)
        return fail_data("\"%.20s\" is too long", text);
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    snprintf(value, sizeof value, "%.*s", (int)m, equal + 1);
    int at, count = 0;
    const StepAttr *a = attr_find(s, name, &at);
    if (!a) return false;
    if (strchr("CT", a->kind)) return step_set_choice(s, name, value);
    if (a->kind == 'B' && !strcmp(value, "true"))
        return step_set(s, name, &(double){1}, 1);
    if (a->kind == 'B' && !strcmp(value, "false"))
        return step_set(s, name, &(double){0}, 1);
    double number[MAX_STEP_REALS];

    // strtod stops at the comma; any other character is an error
    for (char *from = value, *end;; from = end + 1) {
        if (count == MAX_STEP_REALS)
            return fail_data("%s has more than %d numbers", name,
                             MAX_STEP_REALS);
        number[count++] = strtod(from, &end);
        if (end == from || (*end && *end != ','))
            return fail_data("%s: \"%.40s\" is not a number", name, from);
        if (!*end) break;
    }
    return step_set(s, name, number, count);
}

/* Parses one step from its line and appends it. */
static bool parse_line(const char *text, size_t length, Steps *out)
{
    char name[32];
    size_t n = 0;
    while (n < length && text[n] != ' ') n++;
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    StepId id = step_find(name);
    if (id == STEP_COUNT) return fail_data("no step \"%s\"", name);
    DataStep s = step_default(id);

    for (size_t at = n; at < length;) {
        size_t end = ++at;
        while (end < length && text[end] != ' ') end++;
        if (end > at && !parse_attr(&s, text + at, end - at)) return false;
        at = end;
    }
    return steps_add(out, &s);
}

/* A bad value in a recipe is a usage error; in a stored text it is damage, so
 * the kind becomes ERR_DATA here. */
bool steps_parse(const char *text, Steps *out)
{
    bool ok = true;
    locale_t plain, before = plain_numbers(&plain);
    if (!before) return fail("no memory for a locale");
    memset(out, 0, sizeof *out);

    for (int line = 1; ok && *text; line++) {
        size_t length = strcspn(text, "\n");
        if (length && !parse_line(text, length, out)) {
            // fail_data overwrites the text that err_text returns
            char reason[ERR_MAX];
            snprintf(reason, sizeof reason, "%s", err_text());
            ok = fail_data("steps: line %d: %s", line, reason);
        }
        text += length + (text[length] == '\n');
    }

    restore_numbers(plain, before);
    return ok;
}
