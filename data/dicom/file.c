/* file.c -- reads only the necessary part of a file. A header usually ends
 * within FRONT_BYTES; if not, four times as much is read, so a scan of
 * thousands of slices reads a few pages of each. */
#include "data/dicom/file.h"
#include "engine/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRONT_BYTES = 16 << 10 };

// reads until `have` is `want` bytes
static bool read_up_to(int fd, const char *path, size_t want, DicomFile *f)
{
    if (want > f->size) want = f->size;
    uint8_t *grown = mem_realloc(f->bytes, want ? want : 1);
    if (!grown) return false;
    f->bytes = grown;

    while (f->have < want) {
        ssize_t n =
            pread(fd, f->bytes + f->have, want - f->have, (off_t)f->have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fails(errno, "%s: cannot read", path);
        if (!n) return fail_data("%s: file became shorter while read", path);
        f->have += (size_t)n;
    }
    return true;
}

WalkResult dicom_file_open(const char *path, const DicomOptions *options,
                           bool header_only, DicomFile *f)
{
    *f = (DicomFile){0};
    WalkResult result = WALK_DAMAGED;
    struct stat st;
    // a pipe or a device must not block the reader
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        file_fails(errno, "%s: cannot open", path);
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        fail_data("%s: not a regular file", path);
        goto done;
    }
    WalkLimits limits = {0};
    if (options && options->max_file_bytes)
        limits.file_bytes = (size_t)options->max_file_bytes;
    f->size = (size_t)st.st_size;
    size_t limit = limits.file_bytes ? limits.file_bytes : (size_t)16 << 30;
    // read, not mapped: if another program truncated a mapped file, this
    // program would crash. A file over the limit is refused by its front,
    // before it is read
    bool front = header_only || f->size > limit;
    size_t want = front ? FRONT_BYTES : f->size;

    // The walk starts again in each turn: simpler than a walker that can be
    // suspended, and more than one turn is rare.
    do {
        walk_free(&f->walk);
        TRY(read_up_to(fd, path, want, f));
        WalkInput in = {.path = path,
                        .bytes = f->bytes,
                        .have = f->have,
                        .size = f->size,
                        .header_only = front,
                        .assume_implicit =
                            options && options->assume_implicit_le,
                        .limits = &limits};
        result = walk_file(&in, &f->walk);
        want = want > f->size / 4 ? f->size : 4 * want;
        CHECK(result != WALK_MORE || f->have < f->size);
    } while (result == WALK_MORE);

done:
    if (fd >= 0) close(fd);
    return result;
}

void dicom_file_close(DicomFile *f)
{
    walk_free(&f->walk);
    mem_free(f->bytes);
    *f = (DicomFile){0};
}
