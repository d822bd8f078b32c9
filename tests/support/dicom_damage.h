/* dicom_damage.h -- damages each element of a file in turn. */
#ifndef SEG_TESTS_SUPPORT_DICOM_DAMAGE_H
#define SEG_TESTS_SUPPORT_DICOM_DAMAGE_H
#include "data/dicom/dicom.h"

/* Loads the object of the test and frees it again; false with a reason. */
typedef bool DamageLoad(void *ctx);

/* Runs `load` on the file at `path`, which must be valid, with each element of
 * the file, inside sequences too, in turn overwritten, left out, doubled or cut
 * off. It must succeed or fail with ERR_DATA in the words of DICOM, and leak
 * nothing. The file is restored. Returns the number of failed loads. */
int damage_elements(const char *path, DamageLoad *load, void *ctx);

/* Each allocation fails in turn, alone and with all later ones: the reason
 * names memory, and nothing leaks. */
void damage_memory(DamageLoad *load, void *ctx);
#endif
