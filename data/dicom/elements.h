/* elements.h -- a data set to be written: a list of elements with text values,
 * and the UIDs in it. */
#ifndef SEG_DATA_DICOM_ELEMENTS_H
#define SEG_DATA_DICOM_ELEMENTS_H
#include "data/dicom/codec.h"
#include "data/dicom/tag.h"

typedef struct Elements {
    Arena arena; /* owns the list and the texts */
    CodecElement *list;
    int32_t count, room;
    uint8_t depth; /* number of open items */
    bool failed;   /* a reason is set; further calls do nothing and
                    * elements_write fails */
} Elements;

/* Appends an element of the table in tag.h with this text as its value; "" is
 * an empty element. A tag that is not in the table is a bug of the caller
 * (CHECK). A text that cannot be copied makes the list `failed`. */
void elements_put(Elements *l, uint32_t tag, const char *fmt, ...)
    ERR_FORMAT(3, 4);

/* Appends n numbers as one DS value. */
void elements_decimals(Elements *l, uint32_t tag, const double *v, int n);

/* Open a sequence, begin its items, close it: open, item, ..., item, ...,
 * close. */
void elements_open(Elements *l, uint32_t sequence);
void elements_item(Elements *l);
void elements_close(Elements *l);

/* Appends a sequence with one item, which holds a code. */
void elements_code(Elements *l, uint32_t sequence, const char *value,
                   const char *scheme, const char *meaning);

void elements_free(Elements *l);

/* Writes v as a DS of at most 16 characters, with as many digits as fit; does
 * not depend on the locale. */
enum { DECIMAL_TEXT = 32 };
char *decimal_text(double v, char text[DECIMAL_TEXT]);

/* Writes a UID that depends on `key` alone: 2.25 followed by 128 bits of
 * hash. */
enum { UID_TEXT = 65 };
char *uid_from(const char *key, char uid[UID_TEXT]);

/* Writes a temporary file and renames it to path; on failure returns false and
 * sets a reason that names path. */
bool elements_write(Elements *l, const char *path, const CodecPixels *form,
                    const uint8_t *pixels, size_t bytes);
#endif
