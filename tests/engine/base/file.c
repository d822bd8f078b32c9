/* file.c -- drafts, folders and locks, on disks that are full, closed or odd.
 *
 * Tests that need another user, limit or disk run in a forked child, which
 * reports by its exit code. */
#define _GNU_SOURCE // unshare
#include "engine/base/file.h"
#include "tests/test.h"
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATHS = 512, SKIPPED = 77 };

/* Returns FOLDER/name in this run's scratch folder. */
static const char *in_folder(char *path, const char *name)
{
    snprintf(path, PATHS, "%s/%s", test_folder(), name);
    return path;
}

/* Makes an empty folder of that name. */
static const char *new_folder(char *path, const char *name)
{
    in_folder(path, name);
    REQUIRE(file_mkdirs(path));
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    fputs(text, f);
    fclose(f);
}

/* Does the file have exactly this text? */
static bool has_text(const char *path, const char *text)
{
    Arena mem = {0};
    char *data;
    size_t bytes;
    bool ok = file_read(path, 1 << 20, &mem, &data, &bytes) &&
              bytes == strlen(text) && !memcmp(data, text, bytes);
    arena_release(&mem);
    return ok;
}

/* Counts entries of a folder with `part` in their names. */
static int count_files(const char *folder, const char *part)
{
    int count = 0;
    DIR *dir = opendir(folder);
    REQUIRE(dir);
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
                 strstr(e->d_name, part);
    closedir(dir);
    return count;
}

/* Runs f(arg) in a child; returns its exit code, or prints the signal and
 * returns -1. */
static int in_child(int (*f)(const char *), const char *arg)
{
    fflush(stdout);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) {
        int code = f(arg);
        fflush(stdout);
        _exit(code);
    }

    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        test_failed(__FILE__, __LINE__, "the child died of signal %d",
                    WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* For children: the save must fail with this text. */
static int refuses(const char *path, const void *data, size_t bytes,
                   const char *part)
{
    if (file_replace(path, data, bytes)) {
        printf("  %s was written\n", path);
        return 1;
    }
    if (strstr(err_text(), part) && strstr(err_text(), path)) return 0;
    printf("  reason \"%s\", want \"%s\"\n", err_text(), part);
    return 1;
}

/* The number of names of a file. */
static int links(const char *path)
{
    struct stat st;
    REQUIRE(!stat(path, &st));
    return (int)st.st_nlink;
}

TEST(file_link)
{
    char folder[PATHS], from[PATHS], to[PATHS], real[PATHS];
    struct stat st;
    new_folder(folder, "linked");
    REQUIRE(file_replace(in_folder(from, "linked/from"), "new", 3));

    // a new name, then in place of a file, then of the same file
    in_folder(to, "linked/to");
    REQUIRE(file_link(from, to, NULL, NULL));
    EXPECT(has_text(to, "new") && links(to) == 2);
    REQUIRE(file_replace(to, "other", 5) && links(from) == 1);
    REQUIRE(file_link(from, to, NULL, NULL) && file_link(from, to, NULL, NULL));
    EXPECT(has_text(to, "new") && links(to) == 2);

    // its own permissions stay, so it is a copy
    REQUIRE(file_replace(to, "other", 5) && !chmod(to, 0640));
    REQUIRE(file_link(from, to, NULL, NULL));
    EXPECT(has_text(to, "new") && links(to) == 1 && links(from) == 1);
    EXPECT(!stat(to, &st) && (st.st_mode & 07777) == 0640);

    // a symbolic link stays; its target is replaced
    REQUIRE(file_replace(in_folder(real, "linked/real"), "old", 3));
    REQUIRE(!unlink(to) && !symlink("real", to));
    REQUIRE(file_link(from, to, NULL, NULL));
    EXPECT(!lstat(to, &st) && S_ISLNK(st.st_mode) && has_text(real, "new"));
    // the source may be one too
    REQUIRE(file_link(to, in_folder(real, "linked/third"), NULL, NULL));
    EXPECT(!lstat(real, &st) && S_ISREG(st.st_mode) && has_text(real, "new"));

    EXPECT_FAIL(file_link(from, in_folder(real, "linked/no/x"), NULL, NULL),
                "linked/no/x: No such file or directory");
    EXPECT_FAIL(file_link(from, folder, NULL, NULL),
                "linked: it exists and is not a regular file");
    EXPECT_INT(count_files(folder, ".tmp."), 0);
}

/* On another file system the name is a copy. */
TEST(file_link_across)
{
    char folder[PATHS], from[PATHS], to[] = "/dev/shm/segengine.XXXXXX";
    struct stat a, b;
    int fd = mkstemp(to);
    if (fd < 0) SKIP("/dev/shm cannot be written");
    close(fd);
    new_folder(folder, "across");
    REQUIRE(file_replace(in_folder(from, "across/from"), "new", 3));
    REQUIRE(!chmod(from, 0600) && !stat(from, &a) && !stat(to, &b));
    bool ok = file_link(from, to, NULL, NULL);
    bool same = has_text(to, "new");
    unlink(to);
    EXPECT(ok && same);
    if (a.st_dev == b.st_dev) SKIP("the scratch folder is in /dev/shm");
}

TEST(file_read)
{
    Arena mem = {0};
    char path[PATHS], *data;
    size_t bytes;

    write_text(in_folder(path, "five"), "12345");
    EXPECT(file_read(path, 5, &mem, &data, &bytes) && bytes == 5);
    EXPECT_TEXT(data, "12345");
    EXPECT_FAIL(file_read(path, 4, &mem, &data, &bytes),
                "/five has 5 bytes, limit 4");
    int fd;
    uint64_t size;
    char text[8];
    REQUIRE(file_open(path, &fd, &size));
    EXPECT(file_read_at(fd, path, 3, text, 2) && !memcmp(text, "45", 2));
    EXPECT_FAIL(file_read_at(fd, path, 3, text, 4),
                "/five ends at byte 5, 4 bytes needed at 3");
    close(fd);

    // opening a pipe without a writer must not block
    REQUIRE(!mkfifo(in_folder(path, "pipe"), 0600));
    EXPECT_FAIL(file_read(path, 5, &mem, &data, &bytes),
                "/pipe is not a regular file");
    REQUIRE(!symlink("loop", in_folder(path, "loop")));
    EXPECT_FAIL(file_read(path, 5, &mem, &data, &bytes), "symbolic links");
    EXPECT_INT(err_kind(), ERR_DATA);
    arena_release(&mem);
}

TEST(file_replace)
{
    char folder[PATHS], path[PATHS + 8], link[PATHS + 8];
    struct stat st;
    new_folder(folder, "replace");
    snprintf(path, sizeof path, "%s/a b", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    EXPECT(file_replace(path, "one", 3) && has_text(path, "one"));
    EXPECT(file_replace(path, "", 0) && has_text(path, ""));

    // permissions and a link are preserved
    REQUIRE(!chmod(path, 0640) && !symlink("a b", link));
    EXPECT(file_replace(link, "two", 3) && has_text(path, "two"));
    EXPECT(!lstat(link, &st) && S_ISLNK(st.st_mode));
    EXPECT(!stat(path, &st) && (st.st_mode & 0777) == 0640);
    EXPECT_INT(count_files(folder, ""), 2);

    // a path that is not a file is not replaced by one
    EXPECT_FAIL(file_replace(folder, "x", 1),
                "it exists and is not a regular file");
    EXPECT_FAIL(file_replace("/dev/full", "x", 1),
                "cannot write /dev/full: it exists and is not a regular file");
    EXPECT_FAIL(file_replace("/no/such/file", "x", 1),
                "cannot write /no/such/file: No such file or directory");
    REQUIRE(!unlink(path));
    EXPECT_FAIL(file_replace(link, "x", 1), "No such file or directory");

    // the draft of an earlier process with the id of this one is no obstacle
    char tmp[PATHS + 32];
    snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    write_text(tmp, "left behind");
    EXPECT(file_replace(path, "three", 5) && has_text(path, "three"));
    EXPECT_INT(count_files(folder, ".tmp."), 0);
}

static bool never(void *ctx, const char *tmp)
{
    return fail("%s looks odd to %s", tmp, (const char *)ctx);
}

TEST(file_draft_refused)
{
    char folder[PATHS], path[PATHS + 8];
    new_folder(folder, "refused");
    snprintf(path, sizeof path, "%s/x", folder);
    Draft d;
    REQUIRE(file_replace(path, "old", 3) && draft_open(&d, path, 0));
    EXPECT(draft_write(&d, 4, "5678", 4) && draft_write(&d, 0, "1234", 4));
    EXPECT_FAIL(draft_commit(&d, never, "me"), "looks odd to me");
    EXPECT(strstr(err_text(), "the bytes that were written do not read back"));
    EXPECT(has_text(path, "old"));
    EXPECT_INT(count_files(folder, ""), 1);

    // a draft written in parts, and one that is discarded
    REQUIRE(draft_open(&d, path, 8));
    EXPECT(draft_write(&d, 4, "5678", 4) && draft_write(&d, 0, "1234", 4));
    EXPECT(draft_commit(&d, NULL, NULL) && has_text(path, "12345678"));
    REQUIRE(draft_open(&d, path, 8));
    draft_discard(&d);
    draft_discard(&d);
    EXPECT(has_text(path, "12345678"));
    EXPECT_FAIL(draft_open(&d, path, UINT64_MAX - 1), "disk full: ");
    EXPECT_INT(count_files(folder, ""), 1);
}

TEST(file_mkdirs)
{
    char path[PATHS], deep[PATHS + 16];
    struct stat st;
    in_folder(path, "made/of/several");
    EXPECT(file_mkdirs(path) && !stat(path, &st) && S_ISDIR(st.st_mode));
    EXPECT(file_mkdirs(path));
    EXPECT(file_mkdirs("/") && file_mkdirs("."));
    snprintf(deep, sizeof deep, "%s//more/", path);
    EXPECT(file_mkdirs(deep) && !stat(deep, &st));
    write_text(in_folder(path, "made/file"), "");
    snprintf(deep, sizeof deep, "%s/x", path);
    EXPECT_FAIL(file_mkdirs(deep), "made/file is a file");
    EXPECT_FAIL(file_mkdirs("/proc/x"), "cannot make folder /proc/x: No such");
}

TEST(file_room)
{
    char path[PATHS];
    uint64_t here, there;
    EXPECT(file_room(test_folder(), &here) && here > 0);
    EXPECT(file_room(in_folder(path, "not/yet/there"), &there));
    EXPECT(file_room("not/yet/there", &there));
    EXPECT(file_room("/not/yet/there", &there));
}

// -- limits and refusals of the system ----------------------------------------

static int with_size_limit(const char *path)
{
    static char big[100000];
    struct rlimit limit = {40000, 40000};
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    int bad =
        refuses(path, big, sizeof big,
                "100000 bytes are over the limit for files (see ulimit -f)");
    // and a small file can still be saved
    return bad || !file_replace(path, "new", 3);
}

TEST(file_size_limit)
{
    char folder[PATHS], path[PATHS + 8];
    new_folder(folder, "limit");
    snprintf(path, sizeof path, "%s/x", folder);
    REQUIRE(file_replace(path, "old", 3));
    EXPECT_INT(in_child(with_size_limit, path), 0);
    EXPECT(has_text(path, "new"));
    EXPECT_INT(count_files(folder, ""), 1);
}

/* Mounts a disk of 64 KiB on `folder`, visible to this process only. */
static bool small_disk(const char *folder, unsigned long flags)
{
    return !unshare(CLONE_NEWNS) &&
           !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("none", folder, "tmpfs", flags, "size=64k");
}

static int on_small_disk(const char *folder)
{
    static char big[100000];
    char path[PATHS + 8];
    Draft d;

    if (!small_disk(folder, 0)) return SKIPPED;
    snprintf(path, sizeof path, "%s/x", folder);
    if (!file_replace(path, "old", 3)) return 2;

    // known size: refused before anything is written
    int bad =
        refuses(path, big, sizeof big, "disk full: 100000 bytes needed, ");

    // unknown size: refused by the disk
    if (!draft_open(&d, path, 0)) return 3;
    if (draft_write(&d, 0, big, sizeof big)) bad = 1;
    if (!strstr(err_text(), "disk full: 100000 bytes needed, 0 free")) {
        printf("  %s\n", err_text());
        bad = 1;
    }
    draft_discard(&d);
    return bad || !has_text(path, "old") || count_files(folder, "") != 1;
}

TEST(file_full_disk)
{
    char folder[PATHS];
    int code = in_child(on_small_disk, new_folder(folder, "full"));
    if (code == SKIPPED) SKIP("a disk of our own needs root");
    EXPECT_INT(code, 0);
}

static int on_read_only_disk(const char *folder)
{
    char path[PATHS + 8];
    if (!small_disk(folder, MS_RDONLY)) return SKIPPED;
    snprintf(path, sizeof path, "%s/x", folder);
    FileLock l;
    int bad = refuses(path, "x", 1, "Read-only file system");
    if (file_lock(folder, &l) || !strstr(err_text(), "cannot lock ")) bad = 1;
    return bad;
}

TEST(file_read_only_disk)
{
    char folder[PATHS];
    int code = in_child(on_read_only_disk, new_folder(folder, "sealed"));
    if (code == SKIPPED) SKIP("a disk of our own needs root");
    EXPECT_INT(code, 0);
}

static int as_somebody_else(const char *path)
{
    // root may write everywhere
    if (!geteuid() && (setgid(65534) || setuid(65534))) return SKIPPED;
    return refuses(path, "x", 1, "Permission denied");
}

TEST(file_read_only_folder)
{
    char folder[PATHS], path[PATHS + 8];
    new_folder(folder, "closed");
    snprintf(path, sizeof path, "%s/x", folder);
    REQUIRE(file_replace(path, "old", 3));
    REQUIRE(!chmod(test_folder(), 0755) && !chmod(folder, 0555));
    int code = in_child(as_somebody_else, path);
    REQUIRE(!chmod(folder, 0755) && !chmod(test_folder(), 0700));
    if (code == SKIPPED) SKIP("cannot become another user");
    EXPECT_INT(code, 0);
    EXPECT(has_text(path, "old"));
    EXPECT_INT(count_files(folder, ""), 1);
}

// -- other processes ----------------------------------------------------------

static int try_lock(const char *folder)
{
    FileLock l;
    char want[64];
    snprintf(want, sizeof want, " is in use by process %ld; wait until it ends",
             (long)getppid());
    if (file_lock(folder, &l)) return 1;
    if (strstr(err_text(), want)) return 0;
    printf("  %s\n", err_text());
    return 2;
}

static int take_lock(const char *folder)
{
    FileLock l;
    return !file_lock(folder, &l); // released when the process ends
}

TEST(file_lock)
{
    char folder[PATHS];
    FileLock l, second;
    new_folder(folder, "locked");
    REQUIRE(file_lock(folder, &l));
    EXPECT_INT(in_child(try_lock, folder), 0);
    EXPECT_FAIL(file_lock(folder, &second), "is in use by process");
    file_unlock(&second);
    file_unlock(&l);
    file_unlock(&l);
    EXPECT_INT(in_child(take_lock, folder), 0);
    EXPECT(file_lock(folder, &l));
    file_unlock(&l);
    EXPECT_FAIL(file_lock("/no/such/folder", &l),
                "cannot lock /no/such/folder: No such file or directory");
}

TEST(file_lock_there)
{
    char folder[PATHS], moved[PATHS], under[PATHS + 64], longer[PATHS + 400];
    FileLock l;
    new_folder(folder, "lockthere");
    snprintf(moved, sizeof moved, "%s2", folder);
    REQUIRE(file_lock(folder, &l));
    EXPECT(file_lock_there(folder, &l));

    // a name that no file can have proves nothing about the lock
    snprintf(longer, sizeof longer, "%s/%0300d", folder, 0);
    EXPECT(file_lock_there(longer, &l));

    // below a file there is no lock
    snprintf(under, sizeof under, "%s/.lock", folder);
    EXPECT(!file_lock_there(under, &l));
    REQUIRE(!rename(folder, moved));
    EXPECT(!file_lock_there(folder, &l));
    EXPECT(file_lock_there(moved, &l));
    REQUIRE(!mkdir(folder, 0777) && file_replace(under, "1", 1));
    EXPECT(!file_lock_there(folder, &l));
    file_unlock(&l);
    EXPECT(!file_lock_there(moved, &l));
}

static int clean_it(const char *folder)
{
    int removed;
    return file_clean(folder, &removed) ? removed : 99;
}

TEST(file_clean)
{
    char folder[PATHS], path[PATHS + 64];
    int removed;
    new_folder(folder, "stale");
    fflush(stdout);
    pid_t dead = fork();
    REQUIRE(dead >= 0);
    if (!dead) _exit(0);
    REQUIRE(waitpid(dead, NULL, 0) == dead);
    const long pids[] = {(long)dead, (long)getpid(), (long)getppid()};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/w.safetensors.tmp.%ld", folder,
                 pids[i]);
        write_text(path, "x");
    }

    static const char *const kept[] = {"a.tmp",    "tmp.12",
                                       "a.tmp.x",  "a.tmp.",
                                       "a.tmp.1x", "a.tmp.12345678901"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, kept[i]);
        write_text(path, "x");
    }

    // drafts of a dead process and of an earlier one with the id of this
    // process; the parent lives
    EXPECT(file_clean(folder, &removed));
    EXPECT_INT(removed, 2);
    EXPECT_INT(count_files(folder, ""), 7);

    // a draft in use stays, for this process and for others
    Draft d;
    snprintf(path, sizeof path, "%s/y", folder);
    REQUIRE(draft_open(&d, path, 0));
    EXPECT(file_clean(folder, &removed));
    EXPECT_INT(removed, 0);
    EXPECT_INT(in_child(clean_it, folder), 0);
    EXPECT(draft_commit(&d, NULL, NULL));

    // drafts in subfolders too, except through a link
    char below[PATHS + 32], other[PATHS];
    snprintf(below, sizeof below, "%s/samples/deep", folder);
    REQUIRE(file_mkdirs(below));
    new_folder(other, "stale_elsewhere");
    const char *const in[] = {below, other};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.*s/a.png.tmp.%ld", PATHS, in[i],
                 (long)dead);
        write_text(path, "x");
    }

    snprintf(path, sizeof path, "%s/link", folder);
    REQUIRE(!symlink(other, path));
    EXPECT(file_clean(folder, &removed));
    EXPECT_INT(removed, 1);
    EXPECT_INT(count_files(below, ""), 0);
    EXPECT_INT(count_files(other, ""), 1);
    EXPECT_FAIL(file_clean("/no/such/folder", &removed),
                "cannot list /no/such/folder");
}

TEST(file_of_systems_and_office_programs)
{
    static const char *const yes[] = {
        "._a.nii.gz",   "._",
        ".DS_Store",    "__MACOSX",
        "Thumbs.db",    "THUMBS.DB",
        "desktop.ini",  "Desktop.ini",
        "~$ct.csv",     ".~lock.ct.csv#",
        "$RECYCLE.BIN", "System Volume Information",
        "ehthumbs.db",  ".~LOCK.ct.csv#"};
    static const char *const no[] = {"a.nii.gz",   "",       "_a.png",
                                     "thumbs.png", "~a.png", "ct~$.csv",
                                     ".hidden",    "$a.csv", "a._b"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        EXPECT(file_of_system(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        EXPECT(!file_of_system(no[i]));
}
