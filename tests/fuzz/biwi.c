/* biwi.c -- fuzz target: any bytes as a pose, a calibration and depths. */
#include "data/datasets/biwi.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    BiwiPose p;
    BiwiCamera c;
    Volume v;

    if (biwi_pose_decode(text, size, false, &p))
        CHECK(fabs(p.yaw_deg) <= 90 && fabs(p.pitch_deg) <= 180);
    if (biwi_camera_decode(text, size, &c))
        CHECK(c.distortions >= 4 && c.distortions <= BIWI_DISTORTION_MAX);
    if (biwi_depth_decode(data, size, &v))
        volume_free(&v);
    else
        CHECK(!v.voxels.data);
    return 0;
}
