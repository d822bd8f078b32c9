/* label.h -- values of a mask that nobody declared, for the message about
 * them: all of them at once, so that the recipe is mended in one go. */
#ifndef SEG_LABEL_H
#define SEG_LABEL_H
#include "mem.h"

/* More different ones than this are no labels but an image. */
enum { STRANGERS_MAX = 20 };

/* Distinct values, least first (NaN last), and the voxels that have them. Zero
 * is empty. */
typedef struct Strangers {
    double value[STRANGERS_MAX];
    int count;
    bool more; /* there were others; they are not kept */
    int64_t voxels;
} Strangers;

void strangers_add(Strangers *s, double value);

/* How many different numbers there are, as far as FEW_VALUES + 1: a mask has
 * few. */
enum { FEW_VALUES = 8 };
int values_count(const float *x, int64_t n);

/* "value 2 in 7 voxels", "values 2, 4 in 9 voxels", "more than 20 values (2, 4,
 * ...) in 99 voxels". */
enum { STRANGERS_TEXT = 512 };
char *strangers_text(const Strangers *s, char text[STRANGERS_TEXT]);

/* "labels = {1, 2, 4}": the `count` values of `known` in their order, then the
 * strangers. False, and "" as text, when a list cannot hold them: too many, or
 * no whole numbers. */
bool strangers_fix(const Strangers *s, const int32_t *known, int count,
                   char text[STRANGERS_TEXT]);
#endif
