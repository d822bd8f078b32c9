/* face_write.c -- synthetic people in the files of 300W-LP. */
#include "data/phantom/face_write.h"
#include "data/format/mat_write.h"
#include "data/image/image.h"
#include "data/parallel_for.h"
#include "data/phantom/face.h"
#include "engine/base/mem.h"
#include <math.h>
#include <stdio.h>

enum { PATH_TEXT = 4096, QUALITY = 92 };

// 1 x 7 as in 300W-LP: angles in radians, the position in pixels with rows
// counted from below, pixels per unit
static void set_pose(const FaceLook *v, int size, double pose[7])
{
    const double degree = acos(-1) / 180;
    pose[0] = v->pitch_deg * degree;
    pose[1] = v->yaw_deg * degree;
    pose[2] = v->roll_deg * degree;
    pose[3] = (double)v->column;
    pose[4] = size - (double)v->row;
    pose[5] = 0;
    pose[6] = (double)v->zoom;
}

// bounding box of the landmarks, in whole pixels
static void set_roi(double points[2][FACE_POINTS], double roi[4])
{
    for (int axis = 0; axis < 2; axis++) {
        double lo = points[axis][0], hi = lo;
        for (int i = 1; i < FACE_POINTS; i++) {
            lo = fmin(lo, points[axis][i]);
            hi = fmax(hi, points[axis][i]);
        }
        roi[axis] = floor(lo), roi[2 + axis] = ceil(hi);
    }
}

static bool write_photo(const char *stem, const Phantom *how, const Face *f,
                        int person, int photo, uint8_t *rgb)
{
    const int size = how->number[FACE_SIZE];
    char path[PATH_TEXT];
    double pose[7], points[2][FACE_POINTS], roi[4];
    FaceLook v;

    face_look(&v, how->seed, (uint32_t)person, (uint32_t)photo, size,
              how->noise);
    face_render(f, &v, size, rgb);
    snprintf(path, sizeof path, "%s.jpg", stem);
    if (!image_write_jpeg(path, rgb, size, size, QUALITY)) return false;
    set_pose(&v, size, pose);
    face_points(f, &v, points);
    set_roi(points, roi);
    const MatMatrix list[] = {
        {"Pose_Para", MAT_SINGLE, 1, 7, pose},
        {"pt2d", MAT_DOUBLE, 2, FACE_POINTS, &points[0][0]},
        {"roi", MAT_INT16, 1, 4, roi},
    };
    snprintf(path, sizeof path, "%s.mat", stem);
    return mat_write(path, list, sizeof list / sizeof *list);
}

bool face_write(const char *folder, const Phantom *how, int person)
{
    const int size = how->number[FACE_SIZE];
    char stem[PATH_TEXT - 8];
    Face f;
    bool ok = true;
    uint8_t *rgb = mem_alloc(3 * (size_t)size * (size_t)size);

    if (!rgb) return false;
    face_draw(&f, how->seed, (uint32_t)person);

    for (int i = 0; ok && i < how->number[FACE_PHOTOS]; i++) {
        snprintf(stem, sizeof stem, "%s/PHANTOM_%03d_%d", folder, person + 1,
                 i);
        ok = !parallel_for_stopped(how->stop) &&
             write_photo(stem, how, &f, person, i, rgb);
    }

    mem_free(rgb);
    return ok;
}
