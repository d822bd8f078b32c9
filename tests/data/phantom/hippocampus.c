/* hippocampus.c -- tests of synthetic hippocampi: reproducible, two parts in
 * anatomical position, and not segmentable by a threshold. */
#include "data/phantom/hippocampus.h"
#include "data/format/nifti.h"
#include "engine/base/file.h"
#include "tests/test.h"

static Phantom small(int threads)
{
    return (Phantom){.form = phantom_form("hippocampus"),
                     .number = {9},
                     .seed = 3,
                     .noise = 0.05,
                     .threads = threads};
}

static bool same(const Volume *a, const Volume *b)
{
    return a->voxels.type == b->voxels.type &&
           dims_equal(a->voxels.dim, b->voxels.dim) &&
           !memcmp(a->voxels.data, b->voxels.data,
                   (size_t)numel(a->voxels.dim) *
                       (a->voxels.type == U8 ? 1 : 4));
}

TEST(hippocampus_is_a_function_of_its_options)
{
    Phantom how = small(1);
    Volume image[4], labels[4];
    for (int i = 0; i < 4; i++) {
        how.seed = i == 3 ? 4 : 3;
        REQUIRE(hippocampus_make(&how, i == 2 ? 5 : 4, &image[i], &labels[i]));
    }
    EXPECT(same(&image[0], &image[1]) && same(&labels[0], &labels[1]));
    EXPECT(!same(&image[0], &image[2]) && !same(&image[0], &image[3]));
    EXPECT(volume_same_grid(&image[0], &labels[0]));
    for (int i = 0; i < 4; i++) {
        volume_free(&image[i]);
        volume_free(&labels[i]);
    }
}

TEST(hippocampus_without_memory)
{
    Phantom how = small(1);
    Volume image, labels;
    long live = mem_live(), n = 0;

    for (bool ok = false; !ok && n < 10; n += !ok) {
        mem_fail_after(n, false);
        ok = hippocampus_make(&how, 0, &image, &labels);
        mem_fail_after(-1, false);
        EXPECT(ok || (!image.voxels.data && !labels.voxels.data));
    }

    EXPECT(n >= 2 && n < 10);
    volume_free(&image);
    volume_free(&labels);
    EXPECT_INT(mem_live(), live);
}

/* Returns the Dice of the whole hippocampus for the best band of brightness low
 * .. high, found with the ground truth, of 64 levels. */
static double best_band(const Volume *image, const Volume *labels)
{
    enum { LEVELS = 64 };
    double all[LEVELS] = {0}, in[LEVELS] = {0}, truth = 0, best = 0, top = 0;
    const float *v = image->voxels.data;
    const uint8_t *m = labels->voxels.data;
    int64_t n = numel(image->voxels.dim);
    for (int64_t i = 0; i < n; i++) top = fmax(top, (double)v[i]);
    for (int64_t i = 0; i < n; i++) {
        int k = (int)((double)v[i] / top * (LEVELS - 1));
        all[k]++, in[k] += m[i] > 0, truth += m[i] > 0;
    }

    for (int low = 0; low < LEVELS; low++) {
        double found = 0, both = 0;
        for (int k = low; k < LEVELS; k++) {
            found += all[k], both += in[k];
            best = fmax(best, 2 * both / (found + truth));
        }
    }
    return best;
}

TEST(hippocampus_is_a_task)
{
    enum { PATIENTS = 20 };
    Phantom how = small(1);
    how.number[0] = PATIENTS;
    double band = 0, least = 1e9, most = 0;

    for (int p = 0; p < PATIENTS; p++) {
        Volume image, labels;
        REQUIRE(hippocampus_make(&how, p, &image, &labels));
        Dims dim = labels.voxels.dim;
        EXPECT(dim.w >= 31 && dim.w <= 43 && dim.h >= 42 && dim.h <= 58);
        EXPECT(dim.d >= 28 && dim.d <= 44);
        const uint8_t *m = labels.voxels.data;
        double count[3] = {0}, front[3] = {0}, up[3] = {0};
        for (int64_t i = 0; i < numel(dim); i++) {
            count[m[i]]++;
            front[m[i]] += (double)(i / dim.w % dim.h);
            up[m[i]] += (double)(i / dim.w / dim.h);
        }
        double all = (double)numel(dim);
        for (int k = 1; k < 3; k++) {
            // no part has only a few voxels, or half the volume
            EXPECT(count[k] / all > 0.008 && count[k] / all < 0.06);
            least = fmin(least, count[k]), most = fmax(most, count[k]);
            front[k] /= count[k], up[k] /= count[k];
        }
        // anterior lies in front of posterior, and below it (axes are RAS)
        EXPECT(front[1] > front[2] + 8 && up[1] < up[2] - 3);
        band += best_band(&image, &labels) / PATIENTS;
        volume_free(&image);
        volume_free(&labels);
    }

    // sizes differ, and brightness alone does not segment them
    EXPECT(most > 1.5 * least);
    EXPECT(band > 0.05 && band < 0.5);
}

TEST(hippocampus_files_are_the_same_for_any_threads)
{
    char folder[2][512], path[600];
    for (int i = 0; i < 2; i++) {
        Phantom how = small(i ? 3 : 1);
        snprintf(folder[i], sizeof folder[i], "%s/hippocampus_%d",
                 test_folder(), i);
        REQUIRE(phantom_write(folder[i], &how, NULL));
    }

    Arena mem = {0};
    for (int p = 1; p <= 9; p++)
        for (int room = 0; room < 2; room++) {
            char *text[2];
            size_t bytes[2];
            for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof path, "%s/%s/hippocampus_%03d.nii.gz",
                         folder[i], room ? "labelsTr" : "imagesTr", p);
                REQUIRE(
                    file_read(path, SIZE_MAX / 2, &mem, &text[i], &bytes[i]));
            }
            EXPECT(bytes[0] == bytes[1] && !memcmp(text[0], text[1], bytes[0]));
        }

    // the file equals the generated volume; every third image has bytes
    Phantom how = small(1);
    Volume image, labels, read;
    REQUIRE(hippocampus_make(&how, 7, &image, &labels));
    snprintf(path, sizeof path, "%s/imagesTr/hippocampus_008.nii.gz",
             folder[0]);
    REQUIRE(nifti_read(path, NULL, &read, NULL));
    EXPECT(same(&image, &read) && volume_same_grid(&image, &read));
    volume_free(&read);
    snprintf(path, sizeof path, "%s/imagesTr/hippocampus_003.nii.gz",
             folder[0]);
    REQUIRE(nifti_read(path, NULL, &read, NULL));
    EXPECT_INT(read.voxels.type, U8);
    volume_free(&read);
    volume_free(&image);
    volume_free(&labels);
    arena_release(&mem);
}
