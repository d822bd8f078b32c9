/* face_write.h -- photographs of made-up people at known angles.
 *
 * As 300W-LP has them: a JPEG, and beside it a .mat with Pose_Para (1 x 7
 * single: pitch, yaw, roll in radians, place and size in pixels), pt2d (2 x 68
 * double) and roi (1 x 4 int16):
 *     PHANTOM_001_0.jpg, PHANTOM_001_0.mat, PHANTOM_001_1.jpg, ...
 * A number of a Phantom is what its form calls it. */
#ifndef SEG_DATA_PHANTOM_FACE_WRITE_H
#define SEG_DATA_PHANTOM_FACE_WRITE_H
#include "data/phantom/phantom.h"

enum {
    FACE_PEOPLE,
    FACE_PHOTOS, /* of each                        */
    FACE_SIZE,   /* pixels of a photograph, square */
};

/* All photographs of one person, below a folder that is there. */
bool face_write(const char *folder, const Phantom *how, int person);
#endif
