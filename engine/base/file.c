/* file.c -- drafts, folders and locks over plain system calls.
 *
 * Every call that the kernel may cut short is in a loop here, once. Writes
 * run with SIGXFSZ blocked in this thread: without it, a limit on the size of
 * files would kill the program instead of failing one save.
 *
 * The order in draft_commit is the whole point: data to the disk, then the
 * check, then the rename, then the folder to the disk. A rename before the
 * fsync may reach the disk first, and leave an empty file after a power loss;
 * a rename without an fsync of the folder may not reach it at all. */
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

/* "a" "between" "b" in memory of our own; NULL with a reason. */
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

/* The folder that `path` lies in, in memory of our own; NULL with a reason. */
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
    // the file may be whole: who fetches it again is no further
    if (error == EACCES || error == EPERM)
        return fail_data("%s: %s; fix: read access for this user (chmod or "
                         "chown, by its owner)",
                         text, strerror(error));
    return fail_data("%s: %s", text, strerror(error));
}

bool file_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat st;
    // not blocking, so that a pipe without a writer cannot hold us; NOCTTY, so
    // that a terminal by that name does not become ours
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
    // pread takes at most 2 GiB at a time, and network disks often less
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fails(errno, "cannot read %s", path);
        if (!n)
            return fail_data("%s ends at byte %llu, %zu bytes wanted at %llu",
                             path, (unsigned long long)(at + done), bytes,
                             (unsigned long long)at);
        done += (size_t)n;
    }
    return true;
}

// a file that grows meanwhile is read as far as it was long when it was opened
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

/* The reason why `path` could not be written: `error` is an errno, `wanted` the
 * bytes that it should have had. Always false. */
static bool cannot_write(const char *path, uint64_t wanted, int error)
{
    uint64_t free_bytes = 0;
    unsigned long long bytes = wanted;
    switch (error) {
    case ENOSPC:
        file_room(path, &free_bytes);
        return fail("cannot write %s: disk full: %llu bytes wanted, %llu free",
                    path, bytes, (unsigned long long)free_bytes);
    case EDQUOT:
        return fail("cannot write %s: quota used up: %llu bytes wanted", path,
                    bytes);
    case EFBIG:
        return fail("cannot write %s: %llu bytes are more than files may have "
                    "here (see ulimit -f)",
                    path, bytes);
    default:
        return fail("cannot write %s: %s", path, strerror(error));
    }
}

/* pwrite that reports a file too large as EFBIG and never as a signal. The mask
 * is the thread's, so nothing changes for others, nor for a program that we
 * are embedded in; one that blocks the signal itself gets it as it would. */
static ssize_t write_some(int fd, const char *p, size_t bytes, uint64_t at)
{
    sigset_t too_large, before;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_large, &before);
    ssize_t n = pwrite(fd, p, bytes, (off_t)at);
    int error = errno;
    if (n < 0 && error == EFBIG && !sigismember(&before, SIGXFSZ)) {
        // it waits for this thread: take it before the mask is lifted
        struct timespec now = {0};
        while (sigtimedwait(&too_large, NULL, &now) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

/* d->path becomes `path` or what it links to; *there and *mode tell of a file
 * that is there. Anything but a regular file is refused. */
static bool draft_goal(Draft *d, const char *path, mode_t *mode, bool *there)
{
    struct stat st = {0};
    *there = !lstat(path, &st);
    if (*there && S_ISLNK(st.st_mode)) {
        // renaming over a link would leave the file it names behind
        char *real = realpath(path, NULL);
        if (!real) return cannot_write(path, 0, errno);
        d->path = mem_strdup(real);
        free(real);
        if (d->path && stat(d->path, &st)) return cannot_write(path, 0, errno);
    } else {
        d->path = mem_strdup(path);
    }
    if (!d->path) return false;
    // a rename over /dev/null would take it away from everybody
    if (*there && !S_ISREG(st.st_mode))
        return fail("cannot write %s: it exists and is not a regular file",
                    path);
    *mode = st.st_mode & 07777;
    return true;
}

// the draft lies beside its goal: a rename cannot cross from disk to disk
bool draft_open(Draft *d, const char *path, uint64_t bytes)
{
    mode_t mode = 0;
    bool there;
    uint64_t room;
    char *tmp = NULL, pid[24];
    *d = (Draft){.bytes = bytes};
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    TRY(draft_goal(d, path, &mode, &there));
    TRY(tmp = text_join(d->path, ".tmp.", pid));
    // a save of gigabytes should fail now and not after minutes; where the room
    // cannot be told, writing will
    if (bytes && file_room(path, &room) && room < bytes) {
        cannot_write(path, bytes, ENOSPC);
        goto done;
    }
    // one of our number that died left it, or nobody did
    unlink(tmp);
    d->fd =
        open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (d->fd < 0) {
        cannot_write(path, bytes, errno);
        goto done;
    }
    d->tmp = tmp;
    // tells file_clean of other processes that somebody writes it; where there
    // are no locks its number alone must do
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

// the kernel may take a part only: go on behind it until all is written
bool file_write_at(int fd, const char *path, uint64_t at, const void *data,
                   size_t bytes, uint64_t want)
{
    const char *p = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write_some(fd, p + done, bytes - done, at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            // nothing written and no error: POSIX leaves it open, disks are
            // full
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
        // draft_commit closes it early and says so with -1
        if (d->fd >= 0) close(d->fd);
        unlink(d->tmp);
    }
    mem_free(d->tmp);
    mem_free(d->path);
    *d = (Draft){0};
}

/* fsync, again when a signal cut it short. */
static bool sync_fd(int fd)
{
    int failed;
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return !failed;
}

/* The least that is asked of a draft: that it is there. */
static bool opens(void *ctx, const char *tmp)
{
    (void)ctx;
    int fd;
    uint64_t bytes;
    if (!file_open(tmp, &fd, &bytes)) return false;
    close(fd);
    return true;
}

bool draft_commit(Draft *d, FileCheck *check, void *ctx)
{
    CHECK(d->tmp);
    bool ok = false;
    int folder = -1;
    char *name = folder_of(d->path);
    TRY(name);
    // network file systems may tell of a lost write only when a file is closed;
    // a failed fsync means that the pages are lost: the draft is worth nothing
    bool safe = sync_fd(d->fd);
    int error = errno;
    if (close(d->fd) && errno != EINTR && safe) safe = false, error = errno;
    d->fd = -1;
    if (!safe) {
        cannot_write(d->path, d->bytes, error);
        goto done;
    }
    // by its name, through a file of its own: what others will see
    if (!(check ? check : opens)(ctx, d->tmp)) {
        within("cannot write %s: what was written does not read back", d->path);
        goto done;
    }
    // opened before the rename, so that little can fail after it
    folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || rename(d->tmp, d->path)) {
        cannot_write(d->path, d->bytes, errno);
        goto done;
    }
    // some file systems have no fsync for folders and say EINVAL
    ok = sync_fd(folder) || errno == EINVAL;
    if (!ok)
        fail("%s is written, but its folder could not be brought to the disk "
             "(%s): it may not outlive a power loss",
             d->path, strerror(errno));
done:
    if (folder >= 0) close(folder);
    mem_free(name);
    draft_discard(d); // after a rename there is nothing left to unlink
    return ok;
}

/* What file_replace wants to find again. */
typedef struct Content {
    const void *data;
    size_t bytes;
} Content;

/* A FileCheck: the draft holds exactly `ctx`, a Content. */
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

/* Also through a symbolic link. */
static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// from the top down: "a", "a/b", "a/b/c", ending the copy behind each in turn
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
        // a read-only disk may say so even where the folder exists
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
    // what does not exist yet will lie in the first folder that does; `above`
    // of "a" is "." and of "/a" is "/", which are their own
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
        return fail("cannot tell the room for %s: %s", path, strerror(error));
    // some file systems know nothing about their size: they may be tried
    *bytes = st.f_blocks ? (uint64_t)st.f_bavail * st.f_frsize : UINT64_MAX;
    return true;
}

/* The process in NAME.tmp.<pid>; 0 for every other name. */
static long draft_writer(const char *name)
{
    const char *digits = strrchr(name, '.');
    if (!digits || digits - name < 5 || strncmp(digits - 4, ".tmp", 4))
        return 0;
    digits++;
    // no process has a number of ten digits
    size_t n = strlen(digits);
    return n && n < 10 && strspn(digits, "0123456789") == n
               ? strtol(digits, NULL, 10)
               : 0;
}

/* Remove one draft when nobody writes it any more; true when it is gone. */
static bool clean_one(const char *path, long pid)
{
    // EPERM, say, means that somebody has this number: leave it alone
    if (pid != getpid() && !(kill((pid_t)pid, 0) && errno == ESRCH))
        return false;
    // a number can come back, and lives elsewhere too: the lock decides
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat st;
    bool stale = !fstat(fd, &st) && S_ISREG(st.st_mode) &&
                 !flock(fd, LOCK_EX | LOCK_NB) && !unlink(path);
    close(fd);
    return stale;
}

/* The drafts of an open folder, and of those in it; closes it. */
static bool clean_folder(DIR *dir, const char *folder, int depth, int *removed)
{
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));) {
        const long pid = draft_writer(e->d_name);
        // what is hidden is not of a run; the folder itself and that above
        if (!pid && (!depth || *e->d_name == '.')) continue;
        char *path = text_join(folder, "/", e->d_name);
        if (!(ok = path)) break;
        // files are no folders, and that is what open says first
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

// one that cannot be removed is no failure: the next start tries again
bool file_clean(const char *folder, int *removed)
{
    *removed = 0;
    DIR *dir = opendir(folder);
    if (!dir) return fail("cannot list %s: %s", folder, strerror(errno));
    return clean_folder(dir, folder, 3, removed);
}

// the file stays when the lock is given back: removing it would let two
// processes lock two files of one name
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
    // the lock belongs to the open file: it ends with the process, however
    do failed = flock(fd, LOCK_EX | LOCK_NB);
    while (failed && errno == EINTR);
    if (failed && errno == EWOULDBLOCK) {
        // it may not have written its number yet, or run on another machine
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
        // the number is for the message above only; the lock is the kernel's
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
    // a server that does not answer has removed nothing
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
    // shared: two that only ask do not see each other
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
