/* dicom_damage.h -- one file, damaged in every place in turn. */
#ifndef SEG_TESTS_SUPPORT_DICOM_DAMAGE_H
#define SEG_TESTS_SUPPORT_DICOM_DAMAGE_H
#include "data/dicom/dicom.h"

/* Loads what the test is about and frees it again; false with a reason. */
typedef bool DamageLoad(void *ctx);

/* `load` of the file at `path`, which it can read as it is, with each element
 * of the file, inside sequences too, in turn overwritten, left out, doubled or
 * cut off. It must succeed or fail with ERR_DATA in the words of DICOM, and
 * leak nothing. The file is as it was afterwards. Returns how many were
 * refused. */
int damage_elements(const char *path, DamageLoad *load, void *ctx);

/* Each request for memory fails in turn, alone and with all that follow: the
 * reason says so, and nothing leaks. */
void damage_memory(DamageLoad *load, void *ctx);
#endif
