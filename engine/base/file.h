/* file.h -- files that survive: write aside, check, rename.
 *
 * A file that matters is never written in place. A Draft is written beside
 * its goal as PATH.tmp.<pid>, brought to the disk, opened again and checked,
 * renamed over the goal, and then the folder is brought to the disk: at every
 * instant, power loss included, PATH is the old file or the new one, whole.
 * Reasons name the path; those of a full disk also the bytes wanted and free.
 * A signal interrupts nothing here, and a limit on the size of files is a
 * reason like others, not a signal that ends the program. */
#ifndef SEG_ENGINE_BASE_FILE_H
#define SEG_ENGINE_BASE_FILE_H
#include "engine/base/mem.h"
#include <dirent.h>

/* -- reading -------------------------------------------------------------- */

/* Open a regular file for reading. Folders, pipes and devices are refused
 * (a pipe would wait for ever). *fd is to be closed; *bytes is the size. */
bool file_open(const char *path, int *fd, uint64_t *bytes);

/* The reason "TEXT: what the system says of errno `error`", ERR_DATA; but
 * ERR_FAILURE, with the way out, when not the file is at fault but this process
 * has too many files open or the system no memory. Always false. */
bool file_fails(int error, const char *format, ...) ERR_FORMAT(2, 3);

/* Read `bytes` bytes at `at`; a file that ends before is an error. */
bool file_read_at(int fd, const char *path, uint64_t at, void *out,
                  size_t bytes);

/* The whole file, of at most `limit` bytes, in `mem` with a 0 behind it. */
bool file_read(const char *path, size_t limit, Arena *mem, char **data,
               size_t *bytes);

/* -- writing -------------------------------------------------------------- */

/* Write into an open file; `want` bytes in all (0: up to here) are what the
 * reason of a full disk speaks of. */
bool file_write_at(int fd, const char *path, uint64_t at, const void *data,
                   size_t bytes, uint64_t want);

/* A zeroed Draft is a closed one. */
typedef struct Draft {
    int fd;         /* open when tmp is not NULL            */
    char *path;     /* the goal, symbolic links resolved    */
    char *tmp;      /* where it is written until it is done */
    uint64_t bytes; /* as announced                         */
} Draft;

/* Looks at a finished file before it takes its name; false: it is bad. */
typedef bool FileCheck(void *ctx, const char *tmp);

/* Begin a file of `bytes` bytes (0: not known), which must fit on the disk.
 * An existing file keeps its permissions; something that is not a regular
 * file is refused. */
bool draft_open(Draft *d, const char *path, uint64_t bytes);
bool draft_write(Draft *d, uint64_t at, const void *data, size_t bytes);

/* Bring to the disk, check (NULL: only that it can be opened), rename. On
 * failure the old file is untouched and the draft is gone, with one
 * exception that the reason names: when the disk fails after the rename, the
 * new file is there but may not outlive a power loss. Closes the draft. */
bool draft_commit(Draft *d, FileCheck *check, void *ctx);
void draft_discard(Draft *d); /* fine on a closed draft */

/* A draft of known content in one call, read back and compared. */
bool file_replace(const char *path, const void *data, size_t bytes);

/* -- folders -------------------------------------------------------------- */

/* Make a folder and those above it; fine when it is there. */
bool file_mkdirs(const char *path);

/* Bytes that this user may still write where `path` lies or would lie. */
bool file_room(const char *path, uint64_t *bytes);

/* Opens a folder to list its files. NULL with the reason, also where this user
 * may read the names but open none of the files (no right to search). */
DIR *folder_open(const char *path);

/* The last part of a path, by its text alone: "" where that ends in '/'. */
const char *path_tail(const char *path);

/* Is a file or folder of this name (without its folder) one that nobody meant
 * to put there: of macOS ("._a.nii.gz" in AppleDouble form, ".DS_Store",
 * "__MACOSX"), of Windows ("Thumbs.db", "desktop.ini", "$RECYCLE.BIN",
 * "System Volume Information"), or the lock of an office program
 * ("~$table.csv")? Letter case does not count. */
bool file_of_system(const char *name);

/* Remove drafts in `folder` and the folders in it (three deep, links are not
 * followed) that a dead process, or an earlier one with our number, left
 * behind; drafts that somebody still writes stay. */
bool file_clean(const char *folder, int *removed);

/* One process at a time in a folder: an advisory lock on FOLDER/.lock, which
 * ends with the process. The reason names the process that holds it. */
typedef struct FileLock {
    bool held; /* a zeroed lock is not */
    int fd;
} FileLock;
bool file_lock(const char *folder, FileLock *l);
void file_unlock(FileLock *l); /* fine when it is not held */
/* Is FOLDER/.lock still the file that is locked? Not when somebody removed the
 * folder or put another one in its place: another process may lock that. Where
 * the system cannot tell (a server that does not answer), it is. */
bool file_lock_there(const char *folder, const FileLock *l);
/* Does another process hold the folder's lock? *pid: its number, 0 when it is
 * not known. Nothing is made or kept; a moment later it may be otherwise. */
bool file_locked(const char *folder, long *pid);
#endif
