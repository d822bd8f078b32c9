/* same_position.c -- see same_position.h. Elements that are not in the table of
 * tag.h have numbers here, so that no file is refused for their VR. */
#include "data/dicom/same_position.h"
#include "data/dicom/file.h"
#include <stdio.h>
#include <string.h>

enum { IMAGES = 8, ELEMENTS = 4, VALUE = 24 };

// how a value is stored: text, or one number
typedef enum Form { TEXT, WORD, LONG, DOUBLE, FLOAT, CLOCK } Form;

// In the data set, or (sequence) in the functional groups of a frame. Sorted by
// how much they explain.
static const struct {
    uint32_t sequence, tag;
    Form form;
    const char *name;
} elements[] = {
    {0, 0x00180081, TEXT, "EchoTime"},
    {0, 0x00180086, TEXT, "EchoNumbers"},
    {0x00189114, 0x00189082, DOUBLE, "EffectiveEchoTime"},
    {0, 0x00189087, DOUBLE, "DiffusionBValue"},
    {0x00189117, 0x00189087, DOUBLE, "DiffusionBValue"},
    {0, 0x0019100C, TEXT, "b value of Siemens (0019,100c)"},
    {0, 0x00431039, TEXT, "b value of GE (0043,1039)"},
    {0, 0x20011003, FLOAT, "b value of Philips (2001,1003)"},
    {0, 0x00180082, TEXT, "InversionTime"},
    {0, 0x00181314, TEXT, "FlipAngle"},
    {0, 0x00181060, TEXT, "TriggerTime"},
    {0x00189118, 0x00209153, DOUBLE, "NominalCardiacTriggerDelayTime"},
    {0, 0x00209241, DOUBLE, "NominalPercentageOfCardiacPhase"},
    {0, 0x00200012, TEXT, "AcquisitionNumber"},
    {0x00209111, 0x00209156, WORD, "FrameAcquisitionNumber"},
    {0, 0x00200100, TEXT, "TemporalPositionIdentifier"},
    {0x00209111, 0x00209128, LONG, "TemporalPositionIndex"},
    {0, 0x00080008, TEXT, "ImageType"},
    {0x00189226, 0x00089007, TEXT, "FrameType"},
    {0x00189329, 0x00089007, TEXT, "FrameType"},
    {0, 0x00181210, TEXT, "ConvolutionKernel"},
    {0, 0x00180080, TEXT, "RepetitionTime"},
    {0, 0x00541300, TEXT, "FrameReferenceTime"},
    {0, 0x00080032, CLOCK, "AcquisitionTime"},
};
enum { KINDS = sizeof elements / sizeof *elements };

// the value of each element for one image, "" if absent
typedef struct Facts {
    char value[KINDS][VALUE];
} Facts;

// converts eight bytes of the file to a double
static double double_at(const uint8_t *p, bool big_endian)
{
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[big_endian ? i : 7 - i];
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void show(const Walk *w, const WalkElement *e, Form form,
                 char text[VALUE])
{
    const uint8_t *p = e ? w->bytes + e->offset : NULL;
    size_t n = e ? e->length : 0;
    *text = 0;
    if (!n) return;

    if (form == TEXT || form == CLOCK) {
        n = walk_unpadded(p, n);
        while (n && *p == ' ') p++, n--;
        if (n >= VALUE) n = VALUE - 1;
        for (size_t i = 0; i < n; i++)
            text[i] = p[i] < 32 || p[i] > 126 ? '?' : (char)p[i];
        text[n] = 0;
    } else if (form == WORD && n == 2) {
        snprintf(text, VALUE, "%d", number_u16(p, w->big_endian));
    } else if (form == LONG && n == 4) {
        snprintf(text, VALUE, "%u", (unsigned)number_u32(p, w->big_endian));
    } else if (form == FLOAT && n == 4) {
        uint32_t bits = number_u32(p, w->big_endian);
        float v;
        memcpy(&v, &bits, sizeof v);
        snprintf(text, VALUE, "%g", (double)v);
    } else if (form == DOUBLE && n == 8) {
        snprintf(text, VALUE, "%g", double_at(p, w->big_endian));
    }
}

// Reads the file of an image, or the groups of its frame; leaves the values
// empty if it can no longer be read, as the text only explains another error.
static void look(const DicomHeader *h, Facts *out)
{
    DicomFile f;
    Arena scratch = {0};
    FrameGroup *groups = NULL;

    *out = (Facts){0};
    if (!h->path || dicom_file_open(h->path, NULL, true, &f) != WALK_DONE) {
        if (h->path) dicom_file_close(&f);
        return;
    }
    if (h->frames > 1 && !group_list(&f.walk, h->frames, &scratch, &groups))
        groups = NULL;

    for (size_t k = 0; k < KINDS; k++) {
        const uint32_t sequence = elements[k].sequence;
        const WalkElement *e = NULL;
        if (!sequence)
            e = walk_find(&f.walk, WALK_ROOT, elements[k].tag);
        else if (groups)
            e = group_find(&f.walk, &groups[h->frame], (int)sequence,
                           (int)elements[k].tag);
        show(&f.walk, e, elements[k].form, out->value[k]);
    }

    arena_release(&scratch);
    dicom_file_close(&f);
}

// writes the different values of element k in the order of the images; returns
// how many
static int values_of(const Facts *facts, int32_t n, size_t k, char *text,
                     size_t room)
{
    size_t used = 0;
    int count = 0;
    *text = 0;

    for (int32_t i = 0; i < n; i++) {
        bool seen = false;
        for (int32_t j = 0; j < i && !seen; j++)
            seen = !strcmp(facts[j].value[k], facts[i].value[k]);
        if (seen) continue;
        const char *value = facts[i].value[k];
        int wrote = snprintf(text + used, room - used, "%s%s",
                             count ? ", " : "", *value ? value : "absent");
        if (wrote > 0 && used + (size_t)wrote < room) used += (size_t)wrote;
        count++;
    }
    return count;
}

void repeat_differences(const DicomHeader *const *image, int32_t n,
                        char text[REPEAT_TEXT], const char **first)
{
    Facts facts[IMAGES];
    size_t used = 0;
    int named = 0;

    if (n > IMAGES) n = IMAGES;
    for (int32_t i = 0; i < n; i++) look(image[i], &facts[i]);
    *text = 0, *first = "";

    for (size_t k = 0; k < KINDS && named < ELEMENTS; k++) {
        char values[IMAGES * (VALUE + 2)];
        if (values_of(facts, n, k, values, sizeof values) < 2) continue;
        // times of day may identify a patient; that they differ is enough
        int wrote =
            elements[k].form == CLOCK
                ? snprintf(text + used, REPEAT_TEXT - used, "%s%s",
                           named ? ", " : "", elements[k].name)
                : snprintf(text + used, REPEAT_TEXT - used, "%s%s (%.90s)",
                           named ? ", " : "", elements[k].name, values);
        if (wrote < 0 || used + (size_t)wrote >= REPEAT_TEXT) {
            text[used] = 0;
            return;
        }
        used += (size_t)wrote;
        if (!named++) *first = elements[k].name;
    }
}
