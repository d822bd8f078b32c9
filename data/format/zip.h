/* zip.h -- writes files into one zip archive.
 *
 * Written according to PKWARE APPNOTE 6.3 without zip64: members deflated, or
 * stored where that is no longer. The bytes depend on the names and contents
 * alone: the time of every member is 1 January 1980, the earliest that zip can
 * represent. */
#ifndef SEG_DATA_FORMAT_ZIP_H
#define SEG_DATA_FORMAT_ZIP_H
#include "engine/base/err.h"

typedef struct ZipMember {
    const char *name; /* in the archive: relative, '/' between folders, UTF-8 */
    const char *path; /* path of the file */
} ZipMember;

/* Writes an archive of the members at `path`, the whole file or none, in this
 * order. The names differ. Reasons name the file. ERR_DATA: a member cannot be
 * read, or there are more than 4 GiB or 65,535 members, beyond the fields of
 * zip. */
bool zip_write(const char *path, const ZipMember *member, int members);
#endif
