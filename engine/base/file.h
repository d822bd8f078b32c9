/* file.h -- atomic and durable writes: write a draft, check it, rename it.
 *
 * An important file is never written in place. A Draft is written as
 * PATH.tmp.<pid> in the same folder, synced to disk, opened again and checked,
 * and renamed over PATH; then the folder is synced. So at every instant, power
 * loss included, PATH is the complete old or the complete new file. Reasons
 * name the path, and on a full disk also the bytes needed and free. Interrupted
 * system calls are repeated, and a limit on the size of files (RLIMIT_FSIZE)
 * fails the write with a reason instead of ending the program by a signal. */
#ifndef SEG_ENGINE_BASE_FILE_H
#define SEG_ENGINE_BASE_FILE_H
#include "engine/base/mem.h"
#include <dirent.h>

/* -- reading -------------------------------------------------------------- */

/* Opens a regular file for reading. Folders, pipes and devices are refused (a
 * pipe would block forever). The caller closes *fd; *bytes is the size. */
bool file_open(const char *path, int *fd, uint64_t *bytes);

/* Sets the reason "TEXT: strerror(error)" of kind ERR_DATA; or of kind
 * ERR_FAILURE, with a fix, if the cause is not the file but too many open files
 * in this process or a lack of memory. Returns false. */
bool file_fails(int error, const char *format, ...) ERR_FORMAT(2, 3);

/* Reads `bytes` bytes at offset `at`; a file that ends earlier is an error. */
bool file_read_at(int fd, const char *path, uint64_t at, void *out,
                  size_t bytes);

/* Reads the whole file, of at most `limit` bytes, into `mem`; a 0 is
 * appended. */
bool file_read(const char *path, size_t limit, Arena *mem, char **data,
               size_t *bytes);

/* -- writing -------------------------------------------------------------- */

/* Writes into an open file. `want` is the total size that the reason of a full
 * disk names (0: at + bytes). */
bool file_write_at(int fd, const char *path, uint64_t at, const void *data,
                   size_t bytes, uint64_t want);

/* A zeroed Draft is closed. */
typedef struct Draft {
    int fd;         /* open if tmp is not NULL              */
    char *path;     /* destination, symbolic links resolved */
    char *tmp;      /* path of the unfinished file          */
    uint64_t bytes; /* size given to draft_open             */
} Draft;

/* Checks a finished draft before the rename; false: it is damaged. */
typedef bool FileCheck(void *ctx, const char *tmp);

/* Begins a file of `bytes` bytes (0: not known), which must fit on the disk. An
 * existing file keeps its permissions. An existing path that is not a regular
 * file is refused. */
bool draft_open(Draft *d, const char *path, uint64_t bytes);
bool draft_write(Draft *d, uint64_t at, const void *data, size_t bytes);

/* Syncs the draft to disk, checks it (NULL: only that it opens) and renames it.
 * On failure the old file is untouched and the draft is removed, with one
 * exception that the reason names: if syncing the folder fails after the
 * rename, the new file is in place but may not survive a power loss. Closes the
 * draft. */
bool draft_commit(Draft *d, FileCheck *check, void *ctx);
void draft_discard(Draft *d); /* a closed draft is fine */

/* Gives `path` the content of the file `from`, which draft_commit wrote: by a
 * hard link, or by a copy where the file system has no links, where `path` is
 * on another one, or where an existing `path` has other permissions, which it
 * keeps. Atomic and durable as draft_commit; `check` is for a copy. */
bool file_link(const char *from, const char *path, FileCheck *check, void *ctx);

/* Writes a file of known content in one call; reads it back and compares. */
bool file_replace(const char *path, const void *data, size_t bytes);

/* -- folders -------------------------------------------------------------- */

/* Makes a folder and its parents; fine if it exists. */
bool file_mkdirs(const char *path);

/* Returns the bytes that this user may still write on the disk of `path`; the
 * path need not exist. */
bool file_room(const char *path, uint64_t *bytes);

/* Opens a folder to list its files. NULL with a reason, also if this user may
 * list the names but not open the files (no search permission). */
DIR *folder_open(const char *path);

/* Returns the last component of a path, from its text alone: "" after a final
 * '/'. */
const char *path_tail(const char *path);

/* Is this name (without its folder) a file or folder that an operating system
 * or office program creates by itself: macOS ("._a.nii.gz" in AppleDouble form,
 * ".DS_Store", "__MACOSX"), Windows ("Thumbs.db", "desktop.ini",
 * "$RECYCLE.BIN", "System Volume Information"), or an office lock
 * ("~$table.csv")? Ignores letter case. */
bool file_of_system(const char *name);

/* Removes abandoned drafts in `folder` and its subfolders (three levels, links
 * are not followed): their process is dead, or an earlier process had the id of
 * this one. Drafts that a live process still writes stay. */
bool file_clean(const char *folder, int *removed);

/* Admits one process at a time to a folder by an advisory lock on FOLDER/.lock,
 * which the kernel releases when the process ends. The reason names the process
 * that holds it. */
typedef struct FileLock {
    bool held; /* false in a zeroed lock */
    int fd;
} FileLock;
bool file_lock(const char *folder, FileLock *l);
void file_unlock(FileLock *l); /* fine if not held */
/* Is FOLDER/.lock still the locked file? Not if the folder was removed or
 * replaced: another process may lock the new one. True if the system cannot
 * tell (a file server that does not answer). */
bool file_lock_there(const char *folder, const FileLock *l);
/* Does another process hold the folder's lock? *pid is its id, 0 if unknown.
 * Creates no file and takes no lasting lock; the answer may be outdated at
 * once. */
bool file_locked(const char *folder, long *pid);
#endif
