/* zip.h -- files of a disk into one zip archive.
 *
 * What is written is PKWARE's APPNOTE 6.3 without zip64: members deflated, or
 * stored where that is no shorter. The bytes depend on the names and contents
 * alone: the time of every member is 1 January 1980, the earliest that zip
 * knows. */
#ifndef SEG_DATA_FORMAT_ZIP_H
#define SEG_DATA_FORMAT_ZIP_H
#include "engine/base/err.h"

typedef struct ZipMember {
    const char *name; /* in the archive: relative, '/' between folders, UTF-8 */
    const char *path; /* where it lies now */
} ZipMember;

/* An archive of these at `path`, whole or not at all, in this order. The names
 * differ. Reasons name the file. ERR_DATA: a member cannot be read, or it is
 * more than 4 GiB or 65,535 members, which zip cannot count. */
bool zip_write(const char *path, const ZipMember *member, int members);
#endif
