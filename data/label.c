/* label.c -- undeclared values of a mask.
 *
 * A sorted list of distinct numbers with a maximum length. A mask has few
 * values in long runs, so the linear search is cheap, and it only runs for
 * files that are going to be rejected. */
#include "data/label.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a before b; NaN comes after all numbers */
static bool before(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}

void undeclared_add(UndeclaredValues *s, double value)
{
    int at = 0;
    s->voxels++;
    while (at < s->count && before(s->value[at], value)) at++;
    bool known = at < s->count && !before(value, s->value[at]);
    if (known) return;
    if (s->count == UNDECLARED_MAX) {
        s->more = true;
        return;
    }
    for (int i = s->count++; i > at; i--) s->value[i] = s->value[i - 1];
    s->value[at] = value;
}

double label_value(double stored)
{
    const double whole = nearbyint(stored);
    // written so that NaN and infinity are returned unchanged
    return fabs(stored - whole) <= LABEL_ROUNDING ? whole : stored;
}

double rounded_add(Rounded *r, double stored)
{
    const double whole = label_value(stored);
    if (whole == stored || isnan(stored)) return stored;
    if (!r->voxels++) r->first = stored;
    r->most = fmax(r->most, fabs(stored - whole));
    return whole;
}

char *value_text(double value, char text[VALUE_TEXT])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, VALUE_TEXT, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value) break;
    }
    return text;
}

char *rounded_text(const Rounded *r, char text[ROUNDED_TEXT])
{
    char first[VALUE_TEXT];
    snprintf(text, ROUNDED_TEXT,
             "%lld voxel%s hold%s no whole number (the first %s): each is read "
             "as the label that is at most %.2g away",
             (long long)r->voxels, r->voxels == 1 ? "" : "s",
             r->voxels == 1 ? "s" : "", value_text(r->first, first), r->most);
    return text;
}

int values_count(const float *x, int64_t n)
{
    float seen[FEW_VALUES];
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        int at = 0;
        while (at < count && seen[at] != x[i]) at++;
        if (at < count) continue;
        if (count == FEW_VALUES) return FEW_VALUES + 1;
        seen[count++] = x[i];
    }
    return count;
}

/* Appends to text, truncated at its end. */
static void append(char *text, const char *between, double value)
{
    size_t used = strlen(text);
    char number[VALUE_TEXT];
    snprintf(text + used, UNDECLARED_TEXT - used, "%s%s", between,
             value_text(value, number));
}

char *undeclared_text(const UndeclaredValues *s, char text[UNDECLARED_TEXT])
{
    if (s->more)
        snprintf(text, UNDECLARED_TEXT, "more than %d values (",
                 UNDECLARED_MAX);
    else
        snprintf(text, UNDECLARED_TEXT, "value%s ", s->count == 1 ? "" : "s");

    // of too many values, five are enough to recognise an image
    int shown = s->more ? 5 : s->count;
    for (int i = 0; i < shown; i++) append(text, i ? ", " : "", s->value[i]);
    size_t used = strlen(text);
    snprintf(text + used, UNDECLARED_TEXT - used, "%s in %lld voxel%s",
             s->more ? ", ...)" : "", (long long)s->voxels,
             s->voxels == 1 ? "" : "s");
    return text;
}

bool undeclared_fix(const UndeclaredValues *s, const int32_t *known, int count,
                    char text[UNDECLARED_TEXT])
{
    *text = 0;
    for (int i = 0; i < s->count; i++)
        if (!(fabs(s->value[i]) < 65536) || s->value[i] != floor(s->value[i]))
            return false;
    if (s->more) return false;
    snprintf(text, UNDECLARED_TEXT, "labels = {");
    for (int i = 0; i < count; i++) append(text, i ? ", " : "", known[i]);
    for (int i = 0; i < s->count; i++)
        append(text, i || count ? ", " : "", s->value[i]);
    size_t used = strlen(text);
    snprintf(text + used, UNDECLARED_TEXT - used, "}");

    // a truncated list would be wrong
    bool whole = used + 1 < UNDECLARED_TEXT;
    if (!whole) *text = 0;
    return whole;
}
