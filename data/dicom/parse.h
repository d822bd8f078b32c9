/* parse.h -- the structure of a DICOM file, checked byte by byte.
 *
 * The walker turns bytes into a flat list of elements in the order of the
 * file, each with its depth, and accepts nothing it cannot account for:
 * every length lies inside what contains it, sequences close, nesting is
 * bounded, VRs are the standard's, no element appears twice on a level. An
 * element of our table that was written as UN has the VR of the table; such a
 * sequence is implicit VR inside (PS3.5 6.2.2, CP-246). The walker
 * knows nothing of images. It allocates only the list and, for a deflated
 * file, the inflated bytes; it never reads outside the bytes given. */
#ifndef SEG_DATA_DICOM_PARSE_H
#define SEG_DATA_DICOM_PARSE_H
#include "data/dicom/tag.h"
#include "data/format/number.h"

enum {
    WALK_DEPTH = 64,        /* sequences in sequences           */
    WALK_ELEMENTS = 100000, /* default of WalkLimits.elements   */
};

/* In place of an index of an element: the data set, or none. */
#define WALK_ROOT UINT32_MAX

/* Zero means the default. */
typedef struct WalkLimits {
    size_t elements;       /* [WALK_ELEMENTS, more in a file > 64 x that] */
    size_t inflated_bytes; /* [256 MiB + 64 x file size]                 */
    size_t file_bytes;     /* [16 GiB]                                   */
} WalkLimits;

typedef struct WalkElement {
    uint32_t tag;
    uint32_t next;    /* index of the element after this one and its contents */
    uint32_t charset; /* index of the SpecificCharacterSet of the item, or of
                       * one around it; WALK_ROOT: none before the element */
    uint16_t vr;      /* 0 for items, and where an implicit file and our table
                       * do not tell */
    uint8_t depth;    /* 0: data set, 1: item of a sequence, 2: in that item */
    bool implicit;    /* how the value of a sequence is laid out             */
    bool undefined;   /* closed by a delimiter                               */
    size_t at;        /* byte offset of the element's header                 */
    size_t offset;    /* ... and of its value                                */
    size_t length;    /* bytes of the value, delimiter not counted           */
} WalkElement;

/* Oddities that are accepted. */
enum {
    WALK_TRAILING = 1,     /* bytes after the last element       */
    WALK_GROUP_LENGTH = 2, /* a wrong group length               */
    WALK_ORDER = 4,        /* elements out of order              */
    WALK_ODD_LENGTH = 8,   /* a value of an odd number of bytes  */
};

typedef struct Walk {
    const char *path;
    const uint8_t *bytes; /* of the data set: the file's, or `inflated` */
    size_t size;          /* bytes that could be read                   */
    uint8_t *inflated;    /* owned; NULL unless the file is deflated    */
    WalkElement *element; /* owned; of the data set, without group 0002 */
    uint32_t count, room;
    uint32_t pixels; /* index of PixelData at depth 0; else WALK_ROOT */
    char syntax[65]; /* transfer syntax UID; "" when the file has none */
    const DicomTransfer *transfer; /* NULL: a UID we do not know          */
    bool implicit, big_endian;     /* of the data set                     */
    unsigned odd;                  /* WALK_...                            */
    size_t trailing;               /* bytes, when WALK_TRAILING           */
    uint32_t odd_tag;              /* first element of WALK_ORDER or
                                      WALK_GROUP_LENGTH                   */
    uint32_t odd_length_tag;       /* first element of WALK_ODD_LENGTH    */
} Walk;

typedef enum WalkResult {
    WALK_DONE,
    WALK_MORE,      /* header_only: more bytes of the file are needed    */
    WALK_NOT_DICOM, /* with the reason set                               */
    WALK_DAMAGED,   /* with the reason set                               */
} WalkResult;

typedef struct WalkInput {
    const char *path;         /* for reasons                                */
    const uint8_t *bytes;     /* have bytes, from the start of the file     */
    size_t have, size;        /* size: of the whole file, >= have           */
    bool header_only;         /* stop at PixelData; its length is checked   */
    bool assume_implicit;     /* no transfer syntax: implicit little endian */
    const WalkLimits *limits; /* NULL: defaults                           */
} WalkInput;

/* Zeroes and fills *w; walk_free it whatever the result. Unless header_only,
 * `have` must be `size`. */
WalkResult walk_file(const WalkInput *in, Walk *w);
void walk_free(Walk *w);

/* Does it start like DICOM? `marked`: with the DICM mark. */
bool walk_looks(const uint8_t *bytes, size_t have, bool *marked);

/* How many of the n bytes of a value are left without the spaces and zeros that
 * pad its end (PS3.5, 6.2); n 0: the value may be NULL. */
size_t walk_unpadded(const void *value, size_t n);

/* The first element `tag` among the children of the element `parent` (an
 * item), or of the data set when parent is WALK_ROOT; NULL when absent. */
const WalkElement *walk_find(const Walk *w, uint32_t parent, uint32_t tag);

/* Item `index` of a sequence (or fragment of encapsulated pixel data), as
 * an index into element[]; WALK_ROOT when there are fewer. */
uint32_t walk_item(const Walk *w, const WalkElement *sequence, uint32_t index);
#endif
