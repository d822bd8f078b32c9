/* label.h -- values of a mask: what number a stored one stands for, and those
 * that nobody declared, for the message about them: all of them at once, so
 * that the recipe is mended in one go. */
#ifndef SEG_DATA_LABEL_H
#define SEG_DATA_LABEL_H
#include "engine/base/mem.h"

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

/* How far from a whole number a label may be stored: programs that resample,
 * average or store a mask with a scale write 0.9999 or 255 times 1/255 for 1.
 */
#define LABEL_ROUNDING 1e-3
/* The whole number that is so near, else the value itself. */
double label_value(double stored);

/* Numbers that were not whole, and what they were taken for. Zero is none. */
typedef struct Rounded {
    double first; /* as stored                           */
    double most;  /* distance from the whole number       */
    int64_t voxels;
} Rounded;
/* Label_value of a number that is counted if that differs. */
double rounded_add(Rounded *r, double stored);
/* "404 voxels hold no whole number (the first 0.9999): each is read as the
 * label that is at most 0.0001 away" */
enum { ROUNDED_TEXT = 192 };
char *rounded_text(const Rounded *r, char text[ROUNDED_TEXT]);

/* A float in as few digits as read back the same: 0.9999999 and not 1. */
enum { VALUE_TEXT = 32 };
char *value_text(double value, char text[VALUE_TEXT]);

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
