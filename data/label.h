/* label.h -- values of a mask: the whole number that a stored value stands for,
 * and the undeclared values, listed all together in one message, so that one
 * edit of the recipe settles every one. */
#ifndef SEG_DATA_LABEL_H
#define SEG_DATA_LABEL_H
#include "engine/base/mem.h"

/* More distinct values than this mean an image, not a label map. */
enum { UNDECLARED_MAX = 20 };

/* Distinct values in ascending order (NaN last) and the number of voxels that
 * have one. Zero-initialised is empty. */
typedef struct UndeclaredValues {
    double value[UNDECLARED_MAX];
    int count;
    bool more; /* there were others, which are not kept */
    int64_t voxels;
} UndeclaredValues;

void undeclared_add(UndeclaredValues *s, double value);

/* The largest distance of a stored label from a whole number: programs that
 * resample, average or store a mask with a scale factor write 0.9999 or 255
 * times 1/255 for 1. */
#define LABEL_ROUNDING 1e-3
/* Returns the whole number within LABEL_ROUNDING of `stored`, else `stored`. */
double label_value(double stored);

/* Counts values that were rounded to a label. Zero-initialised is empty. */
typedef struct Rounded {
    double first; /* first such value, as stored */
    double most;  /* largest distance from the whole number */
    int64_t voxels;
} Rounded;
/* Returns label_value(stored), and counts the value if the two differ. */
double rounded_add(Rounded *r, double stored);
/* "404 voxels hold no whole number (the first 0.9999): each is read as the
 * label that is at most 0.0001 away" */
enum { ROUNDED_TEXT = 192 };
char *rounded_text(const Rounded *r, char text[ROUNDED_TEXT]);

/* Writes a float with the fewest digits that read back to the same float:
 * 0.9999999 and not 1. */
enum { VALUE_TEXT = 32 };
char *value_text(double value, char text[VALUE_TEXT]);

/* Returns the number of distinct values, at most FEW_VALUES + 1: a mask has
 * few. */
enum { FEW_VALUES = 8 };
int values_count(const float *x, int64_t n);

/* "value 2 in 7 voxels", "values 2, 4 in 9 voxels", "more than 20 values (2, 4,
 * ...) in 99 voxels". */
enum { UNDECLARED_TEXT = 512 };
char *undeclared_text(const UndeclaredValues *s, char text[UNDECLARED_TEXT]);

/* Writes "labels = {1, 2, 4}": the `count` values of `known` in their order,
 * then the undeclared ones. Returns false, with "" in text, when a list cannot
 * hold all: too many values, or values that are not whole. */
bool undeclared_fix(const UndeclaredValues *s, const int32_t *known, int count,
                    char text[UNDECLARED_TEXT]);
#endif
