/* image_peer.c -- compares images written by Pillow and OpenCV, pixel for
 * pixel, with the pixels that they read. */
#include "engine/base/file.h"
#include "tests/support/image_bytes.h"
#include "tests/test.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* One line of the index of image_peer.py. */
typedef struct Line {
    char name[64], option[16], type[4];
    int w, h, c;
    double allowed;
} Line;

/* Returns number i of the peer's pixels. */
static double peer_value(const Line *l, const uint8_t *p, int64_t i)
{
    uint16_t u;
    int16_t s;
    float x;
    if (!strcmp(l->type, "u1")) return p[i];
    if (!strcmp(l->type, "u2")) return memcpy(&u, p + 2 * i, 2), u;
    if (!strcmp(l->type, "i2")) return memcpy(&s, p + 2 * i, 2), s;
    memcpy(&x, p + 4 * i, 4);
    return (double)x;
}

/* 1: equal; 0: different; -1: this build cannot read it. */
static int compare(const char *folder, const Line *l)
{
    char path[400], raw[410];
    Arena mem = {0};
    char *want = NULL;
    size_t size;
    Volume v;
    double worst = 0;
    ImageOptions o = {.label = !strcmp(l->option, "label"),
                      .drop_alpha = !strcmp(l->option, "drop"),
                      .page = !strcmp(l->option, "page2") ? 2 : 0};

    if (!strcmp(l->option, "apply")) o.exif = IMAGE_EXIF_APPLY;
    snprintf(path, sizeof path, "%s/%s", folder, l->name);
    snprintf(raw, sizeof raw, "%s.raw", path);
    REQUIRE(file_read(raw, SIZE_MAX - 1, &mem, &want, &size));

    if (!image_read(path, &o, &v)) {
        arena_release(&mem);
        if (strstr(err_text(), "built without libtiff")) return -1;
        test_failed(__FILE__, __LINE__, "%s", err_text());
        return 0;
    }

    Dims d = v.voxels.dim;
    bool same = d.w == l->w && d.h == l->h && d.c == l->c;
    for (int64_t i = 0; same && i < numel(d); i++) {
        double gap = fabs(image_bytes_value(&v, i) -
                          peer_value(l, (const uint8_t *)want, i));
        if (!(gap <= worst)) worst = gap;
    }

    same = same && worst <= l->allowed;
    if (!same)
        test_failed(__FILE__, __LINE__, "%s: %d x %d x %d, off by %g", l->name,
                    d.w, d.h, d.c, worst);
    volume_free(&v);
    arena_release(&mem);
    return same;
}

TEST(image_as_pillow_and_opencv_read_them)
{
    if (system("/usr/bin/python3 -c 'import numpy, PIL' 2> /dev/null"))
        SKIP("python3-pil is not installed (sh vendor/fetch ci)");
    char folder[300], command[700];
    snprintf(folder, sizeof folder, "%s/images", test_folder());
    REQUIRE(!mkdir(folder, 0700));
    snprintf(
        command, sizeof command,
        "/usr/bin/python3 tests/data/image/image_peer.py make %s > /dev/null",
        folder);
    REQUIRE(!system(command));
    snprintf(command, sizeof command, "%s/list", folder);
    FILE *list = fopen(command, "r");
    REQUIRE(list);
    Line l;
    int files = 0, equal = 0, unread = 0;
    while (fscanf(list, "%63s %15s %3s %d %d %d %lf", l.name, l.option, l.type,
                  &l.w, &l.h, &l.c, &l.allowed) == 7) {
        int r = compare(folder, &l);
        files++, equal += r > 0, unread += r < 0;
    }

    fclose(list);
    test_compared(equal, "pictures of Pillow and OpenCV");
    EXPECT(files >= 150 && equal + unread == files);
}
