/* units.c -- see units.h. */
#include "data/dicom/units.h"
#include <string.h>

// not in the table of tag.h, so that no file is refused for their VR
enum {
    UNITS = 0x00541001,
    REAL_WORLD_VALUE_MAPPING_SEQUENCE = 0x00409096,
};

// Modalities and, if the modality is empty or wrong, classes with values in HU,
// Bq/ml (PS3.3 C.8.9.1.1.3), counts or Gy
static bool is_measured(const DicomHeader *h)
{
    static const char *const modalities[] = {"CT", "PT", "NM", "RTDOSE"};
    static const char *const classes[] = {
        CLASS_CT,
        "1.2.840.10008.5.1.4.1.1.2.1",   // enhanced CT
        "1.2.840.10008.5.1.4.1.1.2.2",   // CT, converted
        "1.2.840.10008.5.1.4.1.1.128",   // PET
        "1.2.840.10008.5.1.4.1.1.128.1", // PET, converted
        "1.2.840.10008.5.1.4.1.1.130",   // enhanced PET
        "1.2.840.10008.5.1.4.1.1.20",    // NM
        CLASS_DOSE};
    for (size_t i = 0; i < sizeof modalities / sizeof *modalities; i++)
        if (!strcmp(h->modality, modalities[i])) return true;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(h->sop_class, classes[i])) return true;
    return false;
}

const char *units_by(const Walk *w, const FrameGroup *g, const DicomHeader *h)
{
    if (is_measured(h)) return "Modality";
    const WalkElement *e = walk_find(w, WALK_ROOT, UNITS);
    if (!group_says(w, e, "") && !group_says(w, e, "NONE")) return "Units";

    // US: unspecified
    const int group = TAG_PixelValueTransformationSequence;
    e = g ? group_find(w, g, group, TAG_RescaleType)
          : walk_find(w, WALK_ROOT, TAG_RescaleType);
    if (!group_says(w, e, "") && !group_says(w, e, "US")) return "RescaleType";

    // the mapping is a functional group of its own, or in the data set
    const uint32_t items[] = {WALK_ROOT, g ? g->frame : WALK_ROOT,
                              g ? g->shared : WALK_ROOT};
    for (int i = 0; i < 3; i++)
        if (walk_find(w, items[i], REAL_WORLD_VALUE_MAPPING_SEQUENCE))
            return "RealWorldValueMappingSequence";

    // a rescale other than the identity gives quantities, even without a
    // RescaleType: MR parameter maps, for example
    if (h->slope != 1 || h->intercept != 0) return "RescaleSlope";
    return NULL;
}
