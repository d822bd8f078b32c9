/* dicom_series.h -- for tests of DICOM: a small series, and ways to damage it.
 */
#ifndef SEG_TESTS_SUPPORT_DICOM_SERIES_H
#define SEG_TESTS_SUPPORT_DICOM_SERIES_H
#include "data/dicom/dicom.h"
#include "tests/test.h"

/* Values 0 .. 4095 that differ everywhere, 1 x 2 x 3 mm, origin (-5,7,11),
 * oblique when `tilted_axes`. */
void kit_volume(Volume *v, int d, int h, int w, bool tilted_axes);

/* The default options of a test that writes a series. */
DicomWrite kit_write(void);

/* A new empty folder below test_folder(); it exists until the run ends. */
const char *kit_folder(const char *name);

/* The only series below folder, allocated in the arena; ends the test when
 * there is another number of series. */
const DicomSeries *kit_series(Arena *arena, const char *folder);

bool kit_noted(const DicomNotes *notes, const char *part);

/* A file in memory for editing: explicit little endian elements of the data
 * set; the first match at the top level is used. */
typedef struct KitFile {
    char path[512];
    uint8_t *bytes;
    size_t size;
} KitFile;

bool kit_read(const char *path, KitFile *f);
bool kit_save(KitFile *f); /* and free */
/* Replace the bytes [at, at + old) by `n` new ones. */
void kit_splice(KitFile *f, size_t at, size_t old, const void *with, size_t n);
/* Offset of the element's header; ends the test when it is missing. */
size_t kit_find(const KitFile *f, uint32_t tag);
/* Give the element another value (padded to even with a space). */
void kit_set(KitFile *f, uint32_t tag, const void *value, size_t n);
void kit_set_text(KitFile *f, uint32_t tag, const char *text);
void kit_set_u16(KitFile *f, uint32_t tag, int value);
void kit_delete(KitFile *f, uint32_t tag);
/* Insert an element with a short header before another. */
void kit_insert(KitFile *f, uint32_t before, uint32_t tag, const char *vr,
                const void *value, size_t n);

/* One row of a table of defects: a series of KIT_SLICES slices of KIT_H x
 * KIT_W is written, one file or all are edited, and the reason (or a note)
 * must be exactly "PATH: dicom: TEXT". */
enum { KIT_SLICES = 4, KIT_H = 5, KIT_W = 7 };

typedef enum KitScope {
    FILE_SCAN,   /* scan the damaged file itself; PATH is the file      */
    FILE_LOAD,   /* scan and load the folder; PATH is the file          */
    FOLDER_LOAD, /* scan and load the folder; PATH is the folder        */
    NOTE,        /* loads, with this note of the folder                 */
} KitScope;

typedef struct KitRow {
    int row;
    KitScope scope;
    bool all; /* edit all files, not only the second */
    void (*edit)(KitFile *f, int file); /* NULL: none */
    const char *text; /* NULL: kit_made_text, which `edit` fills in */
    DicomSyntax syntax;
    DicomOptions options;
} KitRow;

extern char kit_made_text[300];
void kit_defects(const KitRow *rows, size_t n);

/* The series of a row, in a new folder. */
const char *kit_damage(const KitRow *r, const char *name);
#endif
