/* face_write.h -- photographs of synthetic people at known angles.
 *
 * In the format of 300W-LP: a JPEG, and a .mat file with Pose_Para (1 x 7
 * single: pitch, yaw, roll in radians, position and size in pixels), pt2d (2 x
 * 68 double) and roi (1 x 4 int16):
 *     PHANTOM_001_0.jpg, PHANTOM_001_0.mat, PHANTOM_001_1.jpg, ...
 * The numbers of this Phantom: */
#ifndef SEG_DATA_PHANTOM_FACE_WRITE_H
#define SEG_DATA_PHANTOM_FACE_WRITE_H
#include "data/phantom/phantom.h"

enum {
    FACE_PEOPLE,
    FACE_PHOTOS, /* per person */
    FACE_SIZE,   /* pixels of a photograph, square */
};

/* Writes all photographs of one person below an existing folder. */
bool face_write(const char *folder, const Phantom *how, int person);
#endif
