/* intensity.c -- tests of the intensities of an image, computed by hand. */
#include "data/preprocess/intensity.h"
#include "tests/test.h"
#include <math.h>

TEST(intensity_by_channel)
{
    Volume v;
    Intensity out[INTENSITY_CHANNELS];
    REQUIRE(volume_new(&v, (Dims){1, 1, 2, 2, 6}, F32));

    // channel c has 10 c + 1, 2, 3, 6
    static const float of[] = {1, 2, 3, 6};
    for (int i = 0; i < 24; i++)
        ((float *)v.voxels.data)[i] = (float)(10 * (i % 6)) + of[i / 6];
    EXPECT_INT(intensity_find(&v, out), INTENSITY_CHANNELS);

    for (int c = 0; c < INTENSITY_CHANNELS; c++) {
        const float base = (float)(10 * c);
        EXPECT(out[c].lo == base + 1 && out[c].hi == base + 6);
        EXPECT(out[c].mean == base + 3);
        EXPECT(out[c].sd == (float)sqrt((4 + 1 + 0 + 9) / 4.0));
    }
    volume_free(&v);
}

/* Numbers far from 0 keep the precision of their deviation. */
TEST(intensity_far_from_zero)
{
    Volume v;
    Intensity out[INTENSITY_CHANNELS];
    REQUIRE(volume_new(&v, (Dims){1, 4, 8, 8, 1}, F32));
    for (int i = 0; i < 256; i++)
        ((float *)v.voxels.data)[i] = 1e6f + (float)(i % 2);
    EXPECT_INT(intensity_find(&v, out), 1);
    EXPECT(out[0].sd == 0.5f);
    volume_free(&v);
}
