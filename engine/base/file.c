/* file.c -- drafts, folders and locks over plain system calls.
 *
 * Every call that the kernel may interrupt is in a loop here, once. Writes run
 * with SIGXFSZ blocked in this thread: otherwise a limit on the size of files
 * would kill the program instead of failing one save.
 *
 * The order in draft_commit matters: sync the data, check it, rename, sync the
 * folder. A rename without an earlier fsync may reach the disk before the data
 * and leave an empty file after a power loss; a rename without an fsync of the
 * folder may not reach the disk at all. */
#include "engine/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Returns "a" "between" "b", allocated here; NULL with a reason. */
static char *text_join(const char *a, const char *between, const char *b)
{
    size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = mem_alloc(n);
    if (text) snprintf(text, n, "%s%s%s", a, between, b);
    return text;
}

const char *path_tail(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

DIR *folder_open(const char *path)
{
    DIR *dir = access(path, X_OK) ? NULL : opendir(path);
    if (!dir) file_fails(errno, "%s: cannot open folder", path);
    return dir;
}

/* Returns the folder of `path`, allocated here; NULL with a reason. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = mem_strdup(slash ? path : ".");
    if (folder && slash) folder[slash == path ? 1 : slash - path] = 0;
    return folder;
}

// -- reading ------------------------------------------------------------------

bool file_fails(int error, const char *format, ...)
{
    char text[ERR_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (error == EMFILE || error == ENFILE)
        return fail("%s: %s; fix: a higher limit (ulimit -n), or fewer workers",
                    text, strerror(error));
    if (error == ENOMEM) return fail("%s: %s", text, strerror(error));

    // the file may be intact: fetching it again would not help
    if (error == EACCES || error == EPERM)
        return fail_data("%s: %s; fix: read access for this user (chmod or "
                         "chown, by its owner)",
                         text, strerror(error));
    return fail_data("%s: %s", text, strerror(error));
}

bool file_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat st;
    // O_NONBLOCK: a pipe without a writer must not block; O_NOCTTY: a terminal
    // of that name must not become the controlling terminal
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (f < 0) return file_fails(errno, "cannot open %s", path);
    if (fstat(f, &st)) {
        file_fails(errno, "cannot open %s", path);
    } else if (S_ISDIR(st.st_mode)) {
        fail_data("%s is a folder, not a file", path);
    } else if (!S_ISREG(st.st_mode)) {
        fail_data("%s is not a regular file", path);
    } else {
        *fd = f;
        *bytes = (uint64_t)st.st_size;
        return true;
    }

    close(f);
    return false;
}

bool file_read_at(int fd, const char *path, uint64_t at, void *out,
                  size_t bytes)
{
    char *p = out;

    // pread returns at most 2 GiB at a time, and on network disks often less
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fails(errno, "cannot read %s", path);
        if (!n)
            return fail_data("%s ends at byte %llu, %zu bytes needed at %llu",
                             path, (unsigned long long)(at + done), bytes,
                             (unsigned long long)at);
        done += (size_t)n;
    }
    return true;
}

// a file that grows meanwhile is read up to its size at the time of opening
bool file_read(const char *path, size_t limit, Arena *mem, char **data,
               size_t *bytes)
{
    bool ok = false;
    int fd;
    uint64_t size;

    if (!file_open(path, &fd, &size)) return false;
    if (size > limit) {
        fail_data("%s has %llu bytes, limit %zu", path,
                  (unsigned long long)size, limit);
        goto done;
    }

    size_t room;
    TRY(size_add((size_t)size, 1, &room));
    TRY(*data = arena_alloc(mem, room));
    *bytes = (size_t)size;
    ok = file_read_at(fd, path, 0, *data, *bytes);

done:
    close(fd);
    return ok;
}

// -- writing ------------------------------------------------------------------

/* Sets the reason why `path` could not be written: `error` is an errno,
 * `wanted` the full size of the file. Returns false. */
static bool cannot_write(const char *path, uint64_t wanted, int error)
{
    uint64_t free_bytes = 0;
    unsigned long long bytes = wanted;

    switch (error) {
    case ENOSPC:
        file_room(path, &free_bytes);
        return fail("cannot write %s: disk full: %llu bytes needed, %llu free",
                    path, bytes, (unsigned long long)free_bytes);
    case EDQUOT:
        return fail("cannot write %s: quota used up: %llu bytes needed", path,
                    bytes);
    case EFBIG:
        return fail("cannot write %s: %llu bytes are over the limit for files "
                    "(see ulimit -f)",
                    path, bytes);
    default:
        return fail("cannot write %s: %s", path, strerror(error));
    }
}

/* pwrite that reports a too large file as EFBIG and never by SIGXFSZ. The mask
 * belongs to the thread, so other threads and an embedding program are not
 * affected; a program that blocks the signal itself still receives it. */
static ssize_t write_some(int fd, const char *p, size_t bytes, uint64_t at)
{
    sigset_t too_large, before;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_large, &before);
    ssize_t n = pwrite(fd, p, bytes, (off_t)at);
    int error = errno;

    if (n < 0 && error == EFBIG && !sigismember(&before, SIGXFSZ)) {
        // the signal is pending in this thread: consume it before restoring the
        // mask
        struct timespec now = {0};
        while (sigtimedwait(&too_large, NULL, &now) < 0 && errno == EINTR)
            continue;
    }

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

/* Sets d->path to `path`, or to the target of the link, and *there and *mode
 * for an existing file. Anything but a regular file is refused. */
static bool draft_goal(Draft *d, const char *path, mode_t *mode, bool *there)
{
    struct stat st = {0};
    *there = !lstat(path, &st);

    if (*there && S_ISLNK(st.st_mode)) {
        // renaming over a link would replace the link, not the file that it
        // names
        char *real = realpath(path, NULL);
        if (!real) return cannot_write(path, 0, errno);
        d->path = mem_strdup(real);
        free(real);
        if (d->path && stat(d->path, &st)) return cannot_write(path, 0, errno);
    } else {
        d->path = mem_strdup(path);
    }

    if (!d->path) return false;

    // a rename over /dev/null would remove it for all programs
    if (*there && !S_ISREG(st.st_mode))
        return fail("cannot write %s: it exists and is not a regular file",
                    path);
    *mode = st.st_mode & 07777;
    return true;
}

/* Returns the path of a draft for `path`, allocated here; NULL with a reason.
 * It is in the same folder: a rename cannot cross file systems. Removes a file
 * of that name, left by a dead process with the id of this one. */
static char *draft_name(const char *path)
{
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    char *tmp = text_join(path, ".tmp.", pid);
    if (tmp) unlink(tmp);
    return tmp;
}

bool draft_open(Draft *d, const char *path, uint64_t bytes)
{
    mode_t mode = 0;
    bool there;
    uint64_t room;
    char *tmp = NULL;

    *d = (Draft){.bytes = bytes};
    TRY(draft_goal(d, path, &mode, &there));
    TRY(tmp = draft_name(d->path));

    // a save of gigabytes should fail at once and not after minutes; if the
    // free space is unknown, writing will tell
    if (bytes && file_room(path, &room) && room < bytes) {
        cannot_write(path, bytes, ENOSPC);
        goto done;
    }

    d->fd =
        open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (d->fd < 0) {
        cannot_write(path, bytes, errno);
        goto done;
    }
    d->tmp = tmp;

    // the lock tells file_clean in other processes that the draft is in use; on
    // a file system without locks only the process id does
    flock(d->fd, LOCK_EX | LOCK_NB);
    if (!there || !fchmod(d->fd, mode)) return true;
    cannot_write(path, bytes, errno);
    draft_discard(d);
    return false;

done:
    mem_free(tmp);
    mem_free(d->path);
    *d = (Draft){0};
    return false;
}

// the kernel may write only a part: continue after it until all is written
bool file_write_at(int fd, const char *path, uint64_t at, const void *data,
                   size_t bytes, uint64_t want)
{
    const char *p = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write_some(fd, p + done, bytes - done, at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            // nothing written and no error: POSIX leaves this case open; assume
            // that the disk is full
            return cannot_write(path, want ? want : at + bytes,
                                n ? errno : ENOSPC);
        done += (size_t)n;
    }
    return true;
}

bool draft_write(Draft *d, uint64_t at, const void *data, size_t bytes)
{
    CHECK(d->tmp);
    return file_write_at(d->fd, d->path, at, data, bytes, d->bytes);
}

void draft_discard(Draft *d)
{
    if (d->tmp) {
        // draft_commit closes the file early and then sets fd = -1
        if (d->fd >= 0) close(d->fd);
        unlink(d->tmp);
    }
    mem_free(d->tmp);
    mem_free(d->path);
    *d = (Draft){0};
}

/* fsync, repeated after a signal. */
static bool sync_fd(int fd)
{
    int failed;
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return !failed;
}

/* The minimal check of a draft: it can be opened. */
static bool opens(void *ctx, const char *tmp)
{
    (void)ctx;
    int fd;
    uint64_t bytes;
    if (!file_open(tmp, &fd, &bytes)) return false;
    close(fd);
    return true;
}

/* Renames the draft and syncs its folder. */
static bool draft_rename(const Draft *d)
{
    bool ok = false;
    char *name = folder_of(d->path);
    if (!name) return false;

    // opened before the rename, so that little can fail after it
    int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || rename(d->tmp, d->path)) {
        cannot_write(d->path, d->bytes, errno);
        goto done;
    }

    // some file systems have no fsync for folders and say EINVAL
    ok = sync_fd(folder) || errno == EINVAL;
    if (!ok)
        fail("%s is written, but its folder could not be synced to disk (%s): "
             "a power failure may lose the file",
             d->path, strerror(errno));

done:
    if (folder >= 0) close(folder);
    mem_free(name);
    return ok;
}

bool draft_commit(Draft *d, FileCheck *check, void *ctx)
{
    CHECK(d->tmp);
    bool ok = false;

    // network file systems may report a lost write only at close; after a
    // failed fsync the pages are lost and the draft is worthless
    bool safe = sync_fd(d->fd);
    int error = errno;
    if (close(d->fd) && errno != EINTR && safe) safe = false, error = errno;
    d->fd = -1;
    if (!safe) {
        cannot_write(d->path, d->bytes, error);
        goto done;
    }

    // checked by name, through a new descriptor, as other programs will read it
    if (!(check ? check : opens)(ctx, d->tmp)) {
        within("cannot write %s: the bytes that were written do not read back",
               d->path);
        goto done;
    }

    ok = draft_rename(d);

done:
    draft_discard(d); // after a rename there is nothing left to unlink
    return ok;
}

/* Makes the draft of file_link, a hard link to `from`. False, without a reason,
 * if `path` needs a copy. */
static bool draft_link(Draft *d, const char *from, const char *path)
{
    mode_t mode = 0;
    bool there;
    struct stat st;
    *d = (Draft){.fd = -1};
    // links share their permissions; draft_open reports what is wrong with path
    if (draft_goal(d, path, &mode, &there) && !stat(from, &st) &&
        (!there || mode == (st.st_mode & 07777)) &&
        (d->tmp = draft_name(d->path)) &&
        !linkat(AT_FDCWD, from, AT_FDCWD, d->tmp, AT_SYMLINK_FOLLOW))
        return true;
    draft_discard(d);
    return false;
}

/* Writes the bytes of `from` to a draft of `path`. */
static bool draft_copy(Draft *d, const char *from, const char *path)
{
    enum { PIECE = 1 << 20 };
    bool ok = false;
    int fd;
    uint64_t bytes;

    if (!file_open(from, &fd, &bytes)) return false;
    void *buffer = mem_alloc(PIECE);
    TRY(buffer && draft_open(d, path, bytes));
    ok = true;
    for (uint64_t at = 0; ok && at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        ok = file_read_at(fd, from, at, buffer, n) &&
             draft_write(d, at, buffer, n);
    }

done:
    close(fd);
    mem_free(buffer);
    return ok;
}

bool file_link(const char *from, const char *path, FileCheck *check, void *ctx)
{
    Draft d;
    bool ok;
    if (draft_link(&d, from, path))
        ok = draft_rename(&d);
    else
        ok = draft_copy(&d, from, path) && draft_commit(&d, check, ctx);
    draft_discard(&d);
    return ok;
}

/* The content that file_replace compares the draft with. */
typedef struct Content {
    const void *data;
    size_t bytes;
} Content;

/* A FileCheck: the draft holds exactly the Content `ctx`. */
static bool content_same(void *ctx, const char *tmp)
{
    const Content *want = ctx;
    Arena mem = {0};
    char *data = NULL;
    size_t bytes = 0;
    bool ok = file_read(tmp, want->bytes, &mem, &data, &bytes);
    if (ok && (bytes != want->bytes || memcmp(data, want->data, bytes)))
        ok = fail("its content differs");
    arena_release(&mem);
    return ok;
}

bool file_replace(const char *path, const void *data, size_t bytes)
{
    Draft d;
    if (!draft_open(&d, path, bytes)) return false;
    if (!draft_write(&d, 0, data, bytes)) {
        draft_discard(&d);
        return false;
    }
    return draft_commit(&d, content_same, &(Content){data, bytes});
}

// -- folders ------------------------------------------------------------------

/* True also for a symbolic link to a folder. */
static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// top down: "a", "a/b", "a/b/c", with the copy cut after each component
bool file_mkdirs(const char *path)
{
    char *copy = mem_strdup(path);
    if (!copy) return false;
    bool ok = true;

    for (char *p = copy; ok && *p; p++) {
        if (p[1] && p[1] != '/') continue;
        // p is the last character of a leading part of the path
        char next = p[1];
        p[1] = 0;
        int error = mkdir(copy, 0777) ? errno : 0;
        // a read-only disk may report an error even if the folder exists
        if (error && !is_folder(copy))
            ok = error == EEXIST
                     ? fail("cannot make folder %s: %s is a file", path, copy)
                     : fail("cannot make folder %s: %s", path, strerror(error));
        p[1] = next;
    }

    mem_free(copy);
    return ok;
}

bool file_room(const char *path, uint64_t *bytes)
{
    char *place = mem_strdup(path);
    if (!place) return false;
    struct statvfs st;
    int failed;

    // a path that does not exist yet will be in its first existing parent;
    // `above` of "a" is "." and of "/a" is "/", which are their own parents
    while ((failed = statvfs(place, &st)) && errno == ENOENT) {
        char *above = folder_of(place);
        bool top = !above || !strcmp(above, place);
        mem_free(place);
        place = above;
        if (top) break;
    }

    int error = errno;
    mem_free(place);
    if (failed)
        return fail("cannot query the free space for %s: %s", path,
                    strerror(error));

    // some file systems do not report their size: assume that there is room
    *bytes = st.f_blocks ? (uint64_t)st.f_bavail * st.f_frsize : UINT64_MAX;
    return true;
}

/* Returns the process id in NAME.tmp.<pid>; 0 for every other name. */
static long draft_writer(const char *name)
{
    const char *digits = strrchr(name, '.');
    if (!digits || digits - name < 5 || strncmp(digits - 4, ".tmp", 4))
        return 0;
    digits++;
    // no process id has ten digits
    size_t n = strlen(digits);
    return n && n < 10 && strspn(digits, "0123456789") == n
               ? strtol(digits, NULL, 10)
               : 0;
}

/* Removes one draft if no process writes it; true if it was removed. */
static bool clean_one(const char *path, long pid)
{
    // any other error, say EPERM, means that a process has this id: keep it
    if (pid != getpid() && !(kill((pid_t)pid, 0) && errno == ESRCH))
        return false;
    // ids are reused, and other machines have their own: the lock decides
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat st;
    bool stale = !fstat(fd, &st) && S_ISREG(st.st_mode) &&
                 !flock(fd, LOCK_EX | LOCK_NB) && !unlink(path);
    close(fd);
    return stale;
}

/* Removes drafts in an open folder and in its subfolders; closes the folder. */
static bool clean_folder(DIR *dir, const char *folder, int depth, int *removed)
{
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));) {
        const long pid = draft_writer(e->d_name);
        // runs have no hidden folders; this also skips "." and ".."
        if (!pid && (!depth || *e->d_name == '.')) continue;
        char *path = text_join(folder, "/", e->d_name);
        if (!(ok = path)) break;
        // for a file O_DIRECTORY fails at once
        const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        int fd = pid ? -1 : open(path, flags);
        DIR *below = fd < 0 ? NULL : fdopendir(fd);
        if (pid) *removed += clean_one(path, pid);
        if (below) ok = clean_folder(below, path, depth - 1, removed);
        if (fd >= 0 && !below) close(fd);
        mem_free(path);
    }

    closedir(dir);
    return ok;
}

// a draft that cannot be removed is no failure: the next start tries again
bool file_clean(const char *folder, int *removed)
{
    *removed = 0;
    DIR *dir = opendir(folder);
    if (!dir) return fail("cannot list %s: %s", folder, strerror(errno));
    return clean_folder(dir, folder, 3, removed);
}

// the file stays when the lock is released: after removing it, two processes
// could lock two files of the same name
bool file_lock(const char *folder, FileLock *l)
{
    *l = (FileLock){0};
    char *path = text_join(folder, "/", ".lock");
    if (!path) return false;
    char text[32] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    mem_free(path);
    if (fd < 0) return fail("cannot lock %s: %s", folder, strerror(errno));
    int failed;

    // the lock belongs to the open file: it ends with the process in any case
    do failed = flock(fd, LOCK_EX | LOCK_NB);
    while (failed && errno == EINTR);

    if (failed && errno == EWOULDBLOCK) {
        // the holder may not have written its id yet, or run on another machine
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        if (pid > 0)
            fail("%s is in use by process %ld; wait until it ends or use "
                 "another folder",
                 folder, pid);
        else
            fail("%s is in use by another process; wait until it ends or use "
                 "another folder",
                 folder);
    } else if (failed) {
        fail("cannot lock %s: %s", folder, strerror(errno));
    } else {
        // the id is only for the message above; the lock is the kernel's
        int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        if (!ftruncate(fd, 0)) (void)!write_some(fd, text, (size_t)n, 0);
        *l = (FileLock){.held = true, .fd = fd};
    }

    if (!l->held) close(fd);
    return l->held;
}

bool file_of_system(const char *name)
{
    static const char *const begins[] = {"._", "~$", ".~lock."};
    static const char *const names[] = {
        ".DS_Store",       "__MACOSX",
        ".Spotlight-V100", ".Trashes",
        ".fseventsd",      "Thumbs.db",
        "ehthumbs.db",     "desktop.ini",
        "$RECYCLE.BIN",    "System Volume Information"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncasecmp(name, begins[i], strlen(begins[i]))) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i])) return true;
    return false;
}

bool file_lock_there(const char *folder, const FileLock *l)
{
    struct stat ours, there;
    if (!l->held) return false;
    char *path = text_join(folder, "/", ".lock");
    const bool seen = path && !fstat(l->fd, &ours) && !lstat(path, &there);
    // a server that does not answer does not mean that the folder is gone
    const bool gone =
        seen ? ours.st_dev != there.st_dev || ours.st_ino != there.st_ino
             : path && (errno == ENOENT || errno == ENOTDIR || errno == ESTALE);
    mem_free(path);
    return !gone;
}

bool file_locked(const char *folder, long *pid)
{
    *pid = 0;
    char *path = text_join(folder, "/", ".lock");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    mem_free(path);
    if (fd < 0) return false;

    // shared: two processes that only ask do not disturb each other
    bool held = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    char text[32] = "";
    if (held && pread(fd, text, sizeof text - 1, 0) > 0)
        *pid = strtol(text, NULL, 10);
    close(fd);
    return held;
}

void file_unlock(FileLock *l)
{
    if (l->held) close(l->fd);
    *l = (FileLock){0};
}
