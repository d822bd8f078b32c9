/* biwi.h -- frames of the BIWI Kinect head pose database.
 *
 * A sequence is a folder with depth.cal and rgb.cal, and for each frame
 * frame_NNNNN_rgb.png, _depth.bin and _pose.txt. The formats are those of the
 * database's own readme; numbers in text are separated by spaces or tabs and
 * stand in blocks of lines with a blank line between two.
 *
 *     _pose.txt    3 lines of 3: the rotation R of the head; 3 numbers: its
 *                  centre in mm, in the frame of the RGB camera
 *     .cal         3 x 3 intrinsics; distortion; 3 x 3 rotation; translation
 *                  in mm; and, where it is there, width and height
 *     _depth.bin   int32 width, height; then runs until the picture is full:
 *                  int32 count of pixels without depth, int32 count of
 *                  depths, these as int16 in mm. Little endian.
 *
 * Reasons read "PATH: biwi: WHAT", ERR_DATA. */
#ifndef SEG_DATA_DATASETS_BIWI_H
#define SEG_DATA_DATASETS_BIWI_H
#include "data/volume.h"

/* Angles from R, with rows and columns counted from 0:
 *     roll  = atan2(R10, R00)
 *     yaw   = atan2(-R20, sqrt(R21^2 + R22^2))
 *     pitch = -atan2(R21, R22)
 * The sign of pitch is that of 300W-LP (positive looks up). Some programs omit
 * the minus, so it is an option. */
typedef struct BiwiPose {
    double rotation[3][3];
    double centre_mm[3];
    double yaw_deg, pitch_deg, roll_deg;
} BiwiPose;

/* R must be a rotation up to the rounding of its text. pitch_plus omits the
 * minus of pitch. */
bool biwi_pose_read(const char *path, bool pitch_plus, BiwiPose *out);
/* The same from memory; reasons begin with "biwi:". */
bool biwi_pose_decode(const char *text, size_t bytes, bool pitch_plus,
                      BiwiPose *out);

enum { BIWI_DISTORTION_MAX = 8 };

typedef struct BiwiCamera {
    double intrinsics[3][3]; /* pixels: fx 0 cx, 0 fy cy, 0 0 1         */
    int distortions;         /* 4, 5 or 8, in the order of OpenCV       */
    double distortion[BIWI_DISTORTION_MAX];
    double rotation[3][3];
    double translation_mm[3];
    int width, height; /* 0: not in the file */
} BiwiCamera;

bool biwi_camera_read(const char *path, BiwiCamera *out);
bool biwi_camera_decode(const char *text, size_t bytes, BiwiCamera *out);

/* A picture of depths in mm, 0 for no measurement: I16, d = 1, one channel,
 * identity affine (a picture has no position in a patient). The runs must cover
 * every pixel once and end with the file. On failure *v is zero. */
bool biwi_depth_read(const char *path, Volume *v);
bool biwi_depth_decode(const uint8_t *bytes, size_t size, Volume *v);
#endif
