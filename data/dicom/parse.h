/* parse.h -- the structure of a DICOM file, checked byte by byte.
 *
 * The walker turns bytes into a flat list of elements in file order, each with
 * its depth, and accepts no byte it cannot account for: every length lies
 * inside the enclosing element, sequences are closed, nesting is bounded, VRs
 * are defined in the standard, no element appears twice at one level. An
 * element of the table in tag.h that was written as UN gets the VR of the
 * table; such a sequence is implicit VR inside (PS3.5 6.2.2, CP-246). The
 * walker has no knowledge of images. It allocates only the list and, for a
 * deflated file, the inflated bytes; it never reads outside the given bytes. */
#ifndef SEG_DATA_DICOM_PARSE_H
#define SEG_DATA_DICOM_PARSE_H
#include "data/dicom/tag.h"
#include "data/format/number.h"

enum {
    WALK_DEPTH = 64,        /* sequences in sequences           */
    WALK_ELEMENTS = 100000, /* default of WalkLimits.elements   */
};

/* Instead of an element's index: the data set itself, or no element. */
#define WALK_ROOT UINT32_MAX

/* Zero selects the default in brackets. */
typedef struct WalkLimits {
    size_t elements;       /* [WALK_ELEMENTS, more in a file > 64 x that] */
    size_t inflated_bytes; /* [256 MiB + 64 x file size]                 */
    size_t file_bytes;     /* [16 GiB]                                   */
} WalkLimits;

typedef struct WalkElement {
    uint32_t tag;
    uint32_t next;    /* index of the element after this one and its contents */
    uint32_t charset; /* index of the SpecificCharacterSet that applies (of the
                       * item or an enclosing one); WALK_ROOT: no such element
                       * comes before */
    uint16_t vr;      /* 0 for items, and in implicit files for tags that are
                       * not in the table */
    uint8_t depth;    /* 0: data set, 1: item of a sequence, 2: in that item */
    bool implicit;    /* encoding of a sequence's contents                   */
    bool undefined;   /* closed by a delimiter                               */
    size_t at;        /* byte offset of the element's header                 */
    size_t offset;    /* byte offset of its value                            */
    size_t length;    /* bytes of the value, no delimiter                    */
} WalkElement;

/* Anomalies that are accepted. */
enum {
    WALK_TRAILING = 1,     /* bytes after the last element       */
    WALK_GROUP_LENGTH = 2, /* a wrong group length               */
    WALK_ORDER = 4,        /* elements out of order              */
    WALK_ODD_LENGTH = 8,   /* a value of odd length              */
};

typedef struct Walk {
    const char *path;
    const uint8_t *bytes; /* of the data set: of the file, or `inflated` */
    size_t size;          /* readable bytes                             */
    uint8_t *inflated;    /* owned; NULL unless the file is deflated    */
    WalkElement *element; /* owned; data set, without group 0002        */
    uint32_t count, room;
    uint32_t pixels; /* index of PixelData at depth 0, or WALK_ROOT   */
    char syntax[65]; /* transfer syntax UID; "" if absent              */
    const DicomTransfer *transfer; /* NULL: unknown UID                   */
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
    WALK_NOT_DICOM, /* reason set                                        */
    WALK_DAMAGED,   /* reason set                                        */
} WalkResult;

typedef struct WalkInput {
    const char *path;         /* for errors                                 */
    const uint8_t *bytes;     /* the first `have` bytes of the file         */
    size_t have, size;        /* size: of the whole file, >= have           */
    bool header_only;         /* stop at PixelData; its length is checked   */
    bool assume_implicit;     /* no transfer syntax: implicit little endian */
    const WalkLimits *limits; /* NULL: defaults                           */
} WalkInput;

/* Zeroes and fills *w; call walk_free whatever the result. Unless header_only,
 * `have` must be `size`. */
WalkResult walk_file(const WalkInput *in, Walk *w);
void walk_free(Walk *w);

/* Do the first bytes look like DICOM? *marked: the DICM mark is there. */
bool walk_looks(const uint8_t *bytes, size_t have, bool *marked);

/* Length of the value of n bytes without the spaces and zeros that pad its end
 * (PS3.5 6.2). `value` may be NULL if n is 0. */
size_t walk_unpadded(const void *value, size_t n);

/* The first element `tag` among the children of the element `parent` (an item),
 * or of the data set if parent is WALK_ROOT; NULL if absent. */
const WalkElement *walk_find(const Walk *w, uint32_t parent, uint32_t tag);

/* Item `index` of a sequence (or fragment of encapsulated pixel data), as an
 * index into element[]; WALK_ROOT if there are fewer. */
uint32_t walk_item(const Walk *w, const WalkElement *sequence, uint32_t index);
#endif
