/* dataset_label.c -- converts the values of mask files to class numbers
 * (labels_settle of dataset_build.h), and reports values that are not
 * declared. */
#include "data/dataset/dataset_build.h"
#include "data/label.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The class number of a stored value, or -1; a value that is nearly whole
 * counts in `rounded`. `ready`: the reader has already turned labels[i] into i
 * + 1. */
static int class_of(const DatasetOptions *o, bool ready, double stored,
                    Rounded *rounded)
{
    if (stored == 0) return 0;
    const double value = rounded_add(rounded, stored);
    if (value == 0) return 0;
    if (o->nonzero) return isfinite(value) ? 1 : -1;
    for (int i = 0; i < o->label_count; i++)
        if (value == (ready ? i + 1 : o->labels[i])) return i + 1;
    return -1;
}

void labels_text(const DatasetOptions *o, bool ready, char *text, size_t room)
{
    int at = snprintf(text, room, o->nonzero ? "0, all else as 1" : "0");
    for (int i = 0; !o->nonzero && i < o->label_count; i++) {
        if ((size_t)at + 20 > room) {
            snprintf(text + at, room - (size_t)at, ", ...");
            return;
        }
        at += snprintf(text + at, room - (size_t)at, ", %d",
                       ready ? i + 1 : o->labels[i]);
    }
}

/* Fails for values that are no labels: which values, how many voxels, and how
 * to declare them in a recipe. `dicom`: does not suggest "nonzero", which DICOM
 * refuses. */
static bool label_refused(const DatasetOptions *o, bool ready, bool dicom,
                          const Volume *v)
{
    UndeclaredValues found = {.count = 0};
    int64_t n = numel(v->voxels.dim), ones = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = volume_value(v, i);
        ones += label_value(x) == 1;
        if (class_of(o, ready, x, &(Rounded){0}) < 0)
            undeclared_add(&found, label_value(x));
    }

    char wanted[256], got[UNDECLARED_TEXT], list[UNDECLARED_TEXT];
    labels_text(o, ready, wanted, sizeof wanted);
    undeclared_text(&found, got);

    // {1} may be the default for an empty list
    bool stands_in = o->label_count == 1 && o->labels[0] == 1 && !ones;
    bool listed =
        !ready &&
        undeclared_fix(&found, o->labels, stands_in ? 0 : o->label_count, list);
    bool nonzero = !ready && !dicom && !o->nonzero && (listed || found.more);
    // neither a list nor an image: fractions, or NaN, which no option accepts
    bool fractions = !listed && !found.more && !o->nonzero && !ready;
    for (int i = 0; i < found.count; i++)
        fractions = fractions && isfinite(found.value[i]);

    if (fractions)
        return fail_data(
            "%s, wanted %s; labels are whole numbers, to %g; fix: "
            "make the mask by nearest neighbour%s",
            got, wanted, LABEL_ROUNDING,
            dicom ? ""
                  : ", or take every value except 0 with labels = \"nonzero\"");

    return fail_data("%s, wanted %s%s%s%s%s", got, wanted,
                     listed || nonzero ? "; fix: " : "",
                     listed ? "list the values of the classes, as in " : "",
                     listed ? list : "",
                     !nonzero ? ""
                     : listed
                         ? ", or take every value except 0 with labels = "
                           "\"nonzero\" (--nonzero where the script has it)"
                         : "this looks like an image; if every value except 0 "
                           "is the object, labels = \"nonzero\" (--nonzero "
                           "where the script has it)");
}

/* Adds a note that labels were rounded. */
static bool note_rounded(const Rounded *rounded, const char *path,
                         DicomNotes *notes)
{
    char said[ROUNDED_TEXT], line[ERR_MAX];
    if (!rounded->voxels) return true;
    snprintf(line, sizeof line, "%.700s: %s", path,
             rounded_text(rounded, said));
    return dicom_notes_add(notes, true, line);
}

/* Adds a note that a mask "nonzero" has no voxel of 0: an offset in its values
 * (scl_inter -1024 of a CT) makes all of it the object. */
static bool note_whole(const DatasetOptions *o, const Volume *mask,
                       const char *path, DicomNotes *notes)
{
    const uint8_t *y = mask->voxels.data;
    char line[ERR_MAX];
    if (!o->nonzero || memchr(y, 0, (size_t)numel(mask->voxels.dim)))
        return true;
    snprintf(line, sizeof line,
             "%.700s: no voxel is 0, so the object of labels = \"nonzero\" is "
             "the whole image; look at the values of the mask",
             path);
    return dicom_notes_add(notes, true, line);
}

bool labels_settle(const DatasetOptions *o, bool ready, bool dicom,
                   const char *path, Volume *v, DicomNotes *notes)
{
    Volume out;
    Rounded rounded = {.voxels = 0};
    if (v->voxels.dim.c != 1)
        return fail_data("%d channels, wanted one with class numbers",
                         v->voxels.dim.c);
    if (!volume_new(&out, v->voxels.dim, U8)) return false;
    memcpy(out.affine, v->affine, sizeof out.affine);
    out.unit = UNIT_LABEL;
    uint8_t *y = out.voxels.data;
    int64_t n = numel(v->voxels.dim);
    // label of `last`; 0 is class 0 for every list
    double last = 0;
    int label = 0;

    for (int64_t i = 0; i < n; i++) {
        double value = volume_value(v, i);
        // masks are long runs of one value; a rounded value is counted each
        // time
        if (value != last || rounded.voxels)
            label = class_of(o, ready, last = value, &rounded);
        if (label < 0) {
            volume_free(&out);
            return label_refused(o, ready, dicom, v);
        }
        y[i] = (uint8_t)label;
    }

    volume_free(v);
    *v = out;
    return note_rounded(&rounded, path, notes) &&
           note_whole(o, &out, path, notes);
}
