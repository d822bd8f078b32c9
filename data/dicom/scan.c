/* scan.c -- finds DICOM files below a folder.
 *
 * Names are collected in sorted order first, then the header of every file is
 * read once. Files that are not DICOM are counted and ignored; damaged DICOM
 * files fail the scan after all files were read, or are left out with
 * skip_damaged. Grouping into series is in series.c; pixels are not read
 * here. */
#include "data/dicom/file.h"
#include "data/dicom/series.h"
#include "engine/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_DEPTH = 64 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

// a growing list of items of one size
typedef struct List {
    void *items;
    size_t count, room;
} List;

// Makes room for one more item; NULL with a reason. It may move the list, which
// invalidates pointers into it.
static void *list_add(List *l, size_t size)
{
    if (l->count == l->room) {
        // in items; the size in bytes is checked for overflow
        size_t room = l->room ? 2 * l->room : 64, bytes;
        if (!size_mul(room, size, &bytes)) return NULL;
        void *grown = mem_realloc(l->items, bytes);
        if (!grown) return NULL;
        l->items = grown, l->room = room;
    }
    return (char *)l->items + size * l->count++;
}

// a folder by identity, not by name: several links may lead to it
typedef struct Place {
    dev_t device;
    ino_t inode;
} Place;

typedef struct Search {
    Arena *arena;
    List paths;      // of const char *
    List visited;    // of Place: folders
    int not_regular; // pipes, sockets, devices
    // of DicomLeftOut: folders that cannot be opened; NULL: such a folder ends
    // the search
    List *left_out;
} Search;

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// records another file that is left out, with the current reason
static bool add_left_out(List *list, DicomLeftOutKind kind, const char *path,
                         Arena *arena)
{
    const char *text = arena_strdup(arena, err_text());
    path = arena_strdup(arena, path);
    DicomLeftOut *slot = list_add(list, sizeof *slot);
    if (!text || !path || !slot) return false;
    *slot = (DicomLeftOut){kind, path, text, NULL};
    return true;
}

// lists the names in a folder, sorted; *names is freed by the caller
static bool list_folder(const char *path, Arena *scratch, List *names)
{
    DIR *dir = folder_open(path);
    if (!dir) return false;
    bool ok = false;

    for (;;) {
        // only errno tells an error of readdir from the end
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno) {
            file_fails(errno, "%s: cannot read folder", path);
            goto done;
        }
        if (!entry) break;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        // the slot is filled after it was added: on failure the scan ends
        // anyway
        const char **slot = list_add(names, sizeof *slot);
        TRY(slot);
        TRY(*slot = arena_strdup(scratch, entry->d_name));
    }

    if (names->count)
        qsort(names->items, names->count, sizeof(char *), compare_names);
    ok = true;

done:
    closedir(dir);
    return ok;
}

// Collects all regular files at and below `path` in s->paths, folders in the
// order of their names. Devices, pipes and sockets are ignored: opening one
// could block forever.
static bool collect(Search *s, const char *path, int depth)
{
    struct stat st;

    // a broken link is not a file to be read
    if (stat(path, &st)) {
        if (depth && (errno == ENOENT || errno == ELOOP)) return true;
        return file_fails(errno, "%s: cannot open", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        if (!S_ISREG(st.st_mode)) return s->not_regular++, true;
        const char **slot = list_add(&s->paths, sizeof *slot);
        return slot && (*slot = arena_strdup(s->arena, path));
    }

    // linear: folders are few compared with files
    const Place *seen = s->visited.items;
    for (size_t i = 0; i < s->visited.count; i++)
        if (seen[i].device == st.st_dev && seen[i].inode == st.st_ino)
            return true;
    if (depth > FOLDER_DEPTH)
        return fail_data("%s: folders nested deeper than %d", path,
                         FOLDER_DEPTH);
    Place *here = list_add(&s->visited, sizeof *here);
    if (!here) return false;
    *here = (Place){st.st_dev, st.st_ino};

    // names live until the folder is done; paths of files in the arena
    List names = {0};
    Arena scratch = {0};
    bool ok = false;
    if (!list_folder(path, &scratch, &names)) {
        TRY(depth && s->left_out && err_kind() == ERR_DATA);
        ok = add_left_out(s->left_out, DICOM_LEFT_DAMAGED, path, s->arena);
        goto done;
    }

    size_t n = strlen(path);
    const char *slash = n && path[n - 1] == '/' ? "" : "/";
    for (size_t i = 0; i < names.count; i++) {
        char *inside = arena_printf(&scratch, "%s%s%s", path, slash,
                                    ((const char **)names.items)[i]);
        TRY(inside && collect(s, inside, depth + 1));
    }

    ok = true;

done:
    mem_free(names.items);
    arena_release(&scratch);
    return ok;
}

// the results of examining the files of a scan
typedef struct Finding {
    List headers;  // of DicomHeader
    List left_out; // of DicomLeftOut
    int32_t not_images, not_dicom, damaged;
    const char *first; // reason of the first damaged file
} Finding;

// Without the DICM mark, DICOM is a guess from a few bytes: such a file counts
// as damaged DICOM only if it is readable except for its transfer syntax.
static bool only_looked_so(const DicomFile *f)
{
    bool marked;
    if (!walk_looks(f->bytes, f->have, &marked) || marked) return false;
    WalkInput in = {.path = "",
                    .bytes = f->bytes,
                    .have = f->have,
                    .size = f->size,
                    .header_only = true,
                    .assume_implicit = true};
    Walk w;
    WalkResult r = walk_file(&in, &w);
    bool found = (r == WALK_DONE || r == WALK_MORE) &&
                 walk_find(&w, WALK_ROOT, TAG_SOPClassUID);
    walk_free(&w);
    return !found;
}

// The expected type, by its name, of a file that is not readable as DICOM. An
// interrupted copy leaves an empty file, a failed download a page of HTML; a
// volume that lacks its last slice has no gap that would show the loss.
typedef enum Named {
    OTHER_NAME,
    MAYBE_DICOM, // no extension: common for scanners and archives
    DICOM_NAME,
} Named;

static Named named(const char *path)
{
    static const char *const endings[] = {".dcm", ".dicom", ".ima"};
    const char *name = path_tail(path), *dot = strrchr(name, '.');
    // hidden: also the metadata file that a Mac leaves next to each file
    if (*name == '.') return OTHER_NAME;
    // IM000001 and 1.2.840.113619.2
    if (!dot || !dot[strcspn(dot, letters)]) return MAYBE_DICOM;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(dot, endings[i])) return DICOM_NAME;
    return OTHER_NAME;
}

// Ignores a file that is not DICOM, unless its name is that of DICOM, or it is
// empty and has no extension: such files are judged once the images are known.
static bool pass_over(const char *path, const DicomFile *f, Arena *arena,
                      Finding *found)
{
    Named name = named(path);
    found->not_dicom++;
    if (name == OTHER_NAME || (name == MAYBE_DICOM && f->size)) return true;
    if (!f->size) dicom_fail(path, 0, NULL, "file is empty");
    return add_left_out(&found->left_out, DICOM_LEFT_FOREIGN, path, arena);
}

// the next letter of a name; numbers, and the points in a UID, are one '#'
static int next_letter(const char **name)
{
    static const char digits[] = "0123456789.";
    size_t n = strspn(*name, digits);
    if (!n) return **name ? *(*name)++ : 0;
    *name += n;
    return '#';
}

// Do the names of two files of one folder differ only in numbers, as IM0001.dcm
// and IM0023.dcm, or 1.2.840.1 and 1.2.840.23?
static bool like_named(const char *a, const char *b)
{
    if (!path_same_folder(a, b)) return false;
    a = path_tail(a), b = path_tail(b);
    int x, y;
    do {
        x = next_letter(&a), y = next_letter(&b);
    } while (x && x == y);
    return x == y;
}

// A file that is not DICOM but is named like an image in its folder is a lost
// slice: an interrupted copy, or the page of a failed download. Counts damaged
// files.
static void judge(Finding *found)
{
    DicomLeftOut *l = found->left_out.items;
    const DicomHeader *h = found->headers.items;

    for (size_t i = 0; i < found->left_out.count; i++) {
        for (size_t k = 0; k < found->headers.count; k++) {
            if (l[i].kind != DICOM_LEFT_FOREIGN) break;
            if (!like_named(l[i].path, h[k].path)) continue;
            l[i].kind = DICOM_LEFT_DAMAGED;
            found->not_dicom--;
        }
        if (l[i].kind == DICOM_LEFT_DAMAGED && !found->damaged++)
            found->first = l[i].text;
    }
}

// Does a damaged file belong to the series of this header? By its own header,
// else, as far as possible, by its name.
static bool may_belong_to(const DicomLeftOut *l, const DicomHeader *h)
{
    return l->series_uid && *l->series_uid
               ? !strcmp(l->series_uid, h->series_uid)
               : like_named(l->path, h->path);
}

// Adds to the reason of a damaged file that it may belong to several series.
static bool tell_unknown(DicomLeftOut *l, Arena *arena)
{
    const char *fix = strstr(l->text, "; fix: ");
    if (!fix) fix = l->text + strlen(l->text);
    l->text = arena_printf(arena,
                           "%.*s; its header does not say which of the series "
                           "in this folder lacks it%s",
                           (int)(fix - l->text), l->text, fix);
    return l->text;
}

// Records damaged files in the series to which they belong by their headers. If
// a file may belong to several series, none is refused for it: a gap among its
// slices refuses the incomplete one, and the file is listed.
static bool blame(const Finding *found, Arena *arena)
{
    DicomLeftOut *l = found->left_out.items;
    DicomHeader *h = found->headers.items;

    for (size_t i = 0; i < found->left_out.count; i++) {
        if (l[i].kind != DICOM_LEFT_DAMAGED) continue;
        const char *one = NULL;
        bool several = false;
        for (size_t k = 0; k < found->headers.count; k++) {
            if (!may_belong_to(&l[i], &h[k])) continue;
            if (!one) one = h[k].series_uid;
            several = several || strcmp(one, h[k].series_uid);
        }
        if (several && !tell_unknown(&l[i], arena)) return false;
        for (size_t k = 0; k < found->headers.count && one && !several; k++)
            if (!h[k].damaged && may_belong_to(&l[i], &h[k]))
                h[k].damaged = l[i].text;
    }
    return true;
}

static int by_left_out_path(const void *a, const void *b)
{
    return strcmp(((const DicomLeftOut *)a)->path,
                  ((const DicomLeftOut *)b)->path);
}

// SeriesInstanceUID of a file that could not be parsed to its end, NULL if it
// was not reached. Sequences may be open, so elements are searched one by one.
static const char *read_series(const Walk *w, Arena *arena)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const WalkElement *e = &w->element[i];
        if (e->depth || e->tag != TAG_SeriesInstanceUID) continue;
        return e->offset + e->length <= w->size ? header_text(w, e, arena, NULL)
                                                : NULL;
    }
    return NULL;
}

// Reads the header of one file and records the result. Damage is counted, so
// that one message can state its extent; only a failure independent of the file
// (memory), or a file that was named `alone`, ends the scan.
static bool examine(const char *path, const DicomOptions *options, bool alone,
                    Arena *arena, Finding *found)
{
    DicomFile f;
    WalkResult r = dicom_file_open(path, options, true, &f);
    bool ok = false;

    if (r == WALK_NOT_DICOM && !alone) {
        ok = pass_over(path, &f, arena, found);
        goto done;
    }
    DicomHeader h;
    bool read = r == WALK_DONE && header_identity(&f.walk, arena, &h);

    if (!read) {
        TRY(err_kind() == ERR_DATA && !alone);
        TRY(add_left_out(&found->left_out, DICOM_LEFT_DAMAGED, path, arena));
        DicomLeftOut *l = found->left_out.items;
        l[found->left_out.count - 1].series_uid = read_series(&f.walk, arena);
        // only_looked_so may overwrite the reason
        if (only_looked_so(&f)) found->left_out.count--, found->not_dicom++;
        ok = true;
        goto done;
    }

    // a DICOMDIR lists files of a medium; the scan finds the files themselves
    bool directory = walk_find(&f.walk, WALK_ROOT, TAG_DirectoryRecordSequence);
    if (alone && directory) {
        dicom_fail(path, 0, NULL, "DICOMDIR given; pass the folder");
        goto done;
    }

    // contours are not pixels, but make a mask
    bool contours = !strcmp(h.sop_class, CLASS_STRUCTURE);
    bool image = h.has_pixels || contours;
    if (alone && !image) {
        dicom_fail(path, TAG_SOPClassUID, NULL, "not an image (%s)",
                   dicom_class_name(h.sop_class));
        goto done;
    }

    if (directory || !image) {
        found->not_images++;
        if (directory)
            dicom_fail(path, 0, NULL, "a DICOMDIR, which has no image itself");
        else
            dicom_fail(path, TAG_SOPClassUID, NULL, "not an image (%s)",
                       dicom_class_name(h.sop_class));
        TRY(add_left_out(&found->left_out, DICOM_LEFT_NO_IMAGE, path, arena));
    } else {
        DicomHeader *slot = list_add(&found->headers, sizeof *slot);
        TRY(slot);
        *slot = h;
    }

    ok = true;

done:
    dicom_file_close(&f);
    return ok;
}

// Damage is reported only after all files were read: "and 7 more" tells a user
// whether a copy failed or a disk.
bool dicom_scan(const char *root, const DicomOptions *options, Arena *arena,
                DicomIndex *out)
{
    *out = (DicomIndex){.root = root};
    const bool lenient = options && options->skip_damaged;
    Finding found = {0};
    Search s = {.arena = arena, .left_out = lenient ? &found.left_out : NULL};
    bool ok = false;
    struct stat st = {.st_mode = 0};
    TRY(out->root = arena_strdup(arena, root));
    TRY(collect(&s, root, 0));
    bool alone = !stat(root, &st) && S_ISREG(st.st_mode);
    if (!alone && !S_ISDIR(st.st_mode)) {
        fail_data("%s: neither a file nor a folder", root);
        goto done;
    }
    const char **paths = s.paths.items;
    for (size_t i = 0; i < s.paths.count; i++)
        TRY(examine(paths[i], options, alone, arena, &found));
    if (found.left_out.count)
        qsort(found.left_out.items, found.left_out.count, sizeof(DicomLeftOut),
              by_left_out_path);
    judge(&found);
    if (found.damaged == 1 && !lenient) {
        fail_data("%s", found.first);
        goto done;
    }
    if (found.damaged && !lenient) {
        fail_data("%s (and %d more damaged files below %s)", found.first,
                  found.damaged - 1, root);
        goto done;
    }

    out->not_images = found.not_images;
    out->not_dicom = found.not_dicom += s.not_regular;

    if (!found.headers.count) {
        dicom_fail(root, 0, NULL,
                   "no DICOM image here (%d DICOM files without pixels, %d "
                   "other files)%s%s",
                   found.not_images, found.not_dicom, found.first ? "; " : "",
                   found.first ? found.first : "");
        goto done;
    }

    TRY(blame(&found, arena));
    TRY(series_group(found.headers.items, (int32_t)found.headers.count, arena,
                     out));
    DicomLeftOut *left_out =
        ARENA_NEW(arena, DicomLeftOut, found.left_out.count);
    TRY(left_out);
    if (found.left_out.count)
        memcpy(left_out, found.left_out.items,
               found.left_out.count * sizeof *left_out);
    out->left_out = left_out, out->left_outs = (int32_t)found.left_out.count;
    ok = true;

done:
    mem_free(s.paths.items);
    mem_free(s.visited.items);
    mem_free(found.headers.items);
    mem_free(found.left_out.items);
    return ok;
}

bool dicom_is_file(const char *path)
{
    uint8_t front[132];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat st;
    ssize_t n = !fstat(fd, &st) && S_ISREG(st.st_mode)
                    ? pread(fd, front, sizeof front, 0)
                    : -1;
    close(fd);
    bool marked;
    return n > 0 && walk_looks(front, (size_t)n, &marked);
}
