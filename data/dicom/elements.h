/* elements.h -- a data set on its way out: a list of elements with
 * text values, and the UIDs that go into it. */
#ifndef SEG_DATA_DICOM_ELEMENTS_H
#define SEG_DATA_DICOM_ELEMENTS_H
#include "data/dicom/codec.h"
#include "data/dicom/tag.h"

typedef struct Elements {
    Arena arena; /* owns the list and its texts */
    CodecElement *list;
    int32_t count, room;
    uint8_t depth; /* items that are open */
    bool failed;   /* reason set; what follows is ignored, and
                    * elements_write fails */
} Elements;

/* Append an element of the table with this text as its value; "" is an empty
 * element. A tag that is not in the table is a broken promise; a text too
 * long to copy makes the list `failed`. */
void elements_put(Elements *l, uint32_t tag, const char *fmt, ...)
    ERR_FORMAT(3, 4);

/* Append n numbers as one DS value. */
void elements_decimals(Elements *l, uint32_t tag, const double *v, int n);

/* A sequence and the items in it: open, item, ..., item, ..., close. */
void elements_open(Elements *l, uint32_t sequence);
void elements_item(Elements *l);
void elements_close(Elements *l);

/* A sequence of one item that holds a code. */
void elements_code(Elements *l, uint32_t sequence, const char *value,
                   const char *scheme, const char *meaning);

void elements_free(Elements *l);

/* v as a DS: at most 16 characters, as exact as that allows, no locale. */
enum { DECIMAL_TEXT = 32 };
char *decimal_text(double v, char text[DECIMAL_TEXT]);

/* A UID that is a function of the key alone: 2.25 and 128 bits of hash. */
enum { UID_TEXT = 65 };
char *uid_from(const char *key, char uid[UID_TEXT]);

/* Write the file aside and rename it; false with a reason naming path. */
bool elements_write(Elements *l, const char *path, const CodecPixels *form,
                    const uint8_t *pixels, size_t bytes);
#endif
