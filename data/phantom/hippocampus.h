/* hippocampus.h -- small volumes of the middle of a temporal lobe, as the
 * Medical Segmentation Decathlon cut them out (Task04).
 *
 * The hippocampus is a tube about a curve that runs from its tail, behind and
 * above, to its head, in front and below; it is wider than high and widest at
 * the head. A plane across the curve parts it into an anterior part (1) and a
 * posterior one (2), which look alike: only the place tells them apart. Beside
 * it lie gray matter of the same brightness (the amygdala in front, folds of
 * cortex below), white matter and a horn of fluid, so that no threshold finds
 * it. Left and right ones in turns. */
#ifndef SEG_DATA_PHANTOM_HIPPOCAMPUS_H
#define SEG_DATA_PHANTOM_HIPPOCAMPUS_H
#include "data/phantom/phantom.h"
#include "data/volume.h"

enum { HIPPOCAMPUS_ANTERIOR = 1, HIPPOCAMPUS_POSTERIOR = 2 };

/* Patient 0 .. : image F32, labels U8 (0, 1, 2), on one grid of 1 mm whose
 * extents differ, 31..43 x 42..58 x 28..44. What a brightness of 1 is stored as
 * differs between patients by four orders, as in the original. Both are freed
 * by the caller. */
bool hippocampus_make(const Phantom *how, int patient, Volume *image,
                      Volume *labels);

/* imagesTr/hippocampus_001.nii.gz and labelsTr/ the same name; most images are
 * float, every third is stretched to uint8; every eighth has labels in float.
 */
bool hippocampus_write(const char *folder, const Phantom *how, int patient);
#endif
