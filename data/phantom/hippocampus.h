/* hippocampus.h -- small volumes of the middle of a temporal lobe, cropped as
 * in the Medical Segmentation Decathlon (Task04).
 *
 * The hippocampus is a tube around a curve from its tail (posterior, superior)
 * to its head (anterior, inferior); it is wider than high and widest at the
 * head. A plane across the curve divides it into an anterior part (1) and a
 * posterior part (2) of the same appearance: only the position distinguishes
 * them. Next to it are gray matter of the same brightness (the amygdala in
 * front, folds of cortex below), white matter and a horn of fluid, so that no
 * threshold segments it. Left and right ones alternate. */
#ifndef SEG_DATA_PHANTOM_HIPPOCAMPUS_H
#define SEG_DATA_PHANTOM_HIPPOCAMPUS_H
#include "data/phantom/phantom.h"
#include "data/volume.h"

enum { HIPPOCAMPUS_ANTERIOR = 1, HIPPOCAMPUS_POSTERIOR = 2 };

/* Makes patient 0 .. : image F32, labels U8 (0, 1, 2), on one grid of 1 mm with
 * extents of 31..43 x 42..58 x 28..44. The stored value of brightness 1 differs
 * between patients by four orders of magnitude, as in the original. The caller
 * frees both. */
bool hippocampus_make(const Phantom *how, int patient, Volume *image,
                      Volume *labels);

/* Writes imagesTr/hippocampus_001.nii.gz and labelsTr/ with the same name. Most
 * images are float, every third is scaled to uint8; every eighth has labels in
 * float. */
bool hippocampus_write(const char *folder, const Phantom *how, int patient);
#endif
