/* dicom.c -- fuzz target: one file as DICOM, from its bytes to its voxels.
 *
 * The parser processes the whole file, its header only, and the header of a
 * file of which half is available. An accepted file is decoded as an image of
 * one frame and of several, as slices of a stack, as a dose, and as a
 * segmentation and a structure set on a small grid, both as labels and as
 * fractions. */
#include "data/dicom/dose.h"
#include "data/dicom/frames.h"
#include "data/dicom/mask.h"
#include "data/dicom/multiframe.h"
#include "data/dicom/series.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 1 << 20, SLICES = 3 };

// the image as slices of a stack, each shifted by one step
static void stack(const DicomHeader *h)
{
    DicomHeader slices[SLICES];
    DicomStack out;
    const DicomOptions options = {.resample_tilt = h->inverted};

    for (int i = 0; i < SLICES; i++) {
        slices[i] = *h;
        slices[i].position_mm[i % 3] += i * h->thickness_mm;
    }
    stack_order("series", slices, SLICES, &options, &out, NULL);
    Arena arena = {0};
    DicomIndex index = {.root = "folder"};
    if (series_group(slices, SLICES, &arena, &index))
        (void)dicom_select(&index, h->modality);
    arena_release(&arena);
}

static void image(const Walk *w, DicomHeader h)
{
    const DicomOptions options = {.max_voxels = MOST_BYTES / 4,
                                  .assume_hu = w->count % 2};
    DicomNotes notes = {0};

    if (header_image(w, &options, false, "series", &h, &notes)) {
        stack(&h);
        uint8_t *out = NULL;
        if (frames_check(w, &h, "series", &notes))
            out = mem_alloc(frames_bytes(&h));
        if (out) frames_decode(w, &h, out);
        mem_free(out);
    }
    dicom_notes_free(&notes);
}

// the frames of an enhanced image as slices, and a dose
static void frames(const Walk *w, DicomHeader h)
{
    const DicomOptions options = {.max_voxels = MOST_BYTES / 4,
                                  .assume_hu = true};
    Arena arena = {0};
    DicomHeader *slices;
    DicomStack out;
    if (header_pixels(w, &options, false, "file", &h, NULL) &&
        multi_headers(w, &options, &h, &arena, &slices))
        stack_order("file", slices, h.frames, &options, &out, NULL);
    Volume dose;
    if (dose_read(w, "file", &options, &dose, NULL)) volume_free(&dose);
    arena_release(&arena);
}

// as labels, and the segment "a" as fractions
static void masks(const Walk *w)
{
    DicomHeader slices[SLICES];
    DicomSeries series = {
        .folder = "series", .series_uid = "1.2", .frame_uid = "2.25.2"};
    MaskTarget target = {.series = &series,
                         .slices = slices,
                         .grid = {SLICES,
                                  6,
                                  7,
                                  {[0][0] = 1,
                                   [1][1] = 2,
                                   [2][2] = 3,
                                   [0][3] = -5,
                                   [1][3] = 7,
                                   [2][3] = 11,
                                   [3][3] = 1}},
                         .slack_mm = 0.01};

    for (int i = 0; i < SLICES; i++)
        slices[i] = (DicomHeader){.path = "slice",
                                  .sop_uid = "1.2.3",
                                  .rows = 6,
                                  .cols = 7,
                                  .position_mm = {-5, 7, 11 + 3 * i},
                                  .orientation = {1, 0, 0, 0, 1, 0},
                                  .spacing_mm = {2, 1}};

    static const char *const names[] = {"a"};
    for (int k = 0; k < 4; k++) {
        const DicomMaskOptions options = {.image = {.max_voxels = MOST_BYTES},
                                          .resample_mask = true,
                                          .segments = k % 2 ? names : NULL,
                                          .segment_count = 1,
                                          .fractions = k % 2};
        DicomNotes notes = {0};
        Volume out;
        if (mask_new(&target.grid, options.fractions, &out))
            (k < 2 ? seg_place : contour_place)(w, &series, &target, &options,
                                                &out, &notes);
        volume_free(&out);
        dicom_notes_free(&notes);
    }
}

static void walk(const uint8_t *data, size_t have, size_t size,
                 bool header_only, bool assume)
{
    const WalkLimits limits = {.inflated_bytes = MOST_BYTES};
    WalkInput in = {.path = "file",
                    .bytes = data,
                    .have = have,
                    .size = size,
                    .header_only = header_only,
                    .assume_implicit = assume,
                    .limits = &limits};
    Walk w;
    Arena arena = {0};
    DicomHeader h;
    WalkResult result = walk_file(&in, &w);

    // the whole file is always sufficient
    if (result == WALK_MORE && have == size) abort();

    if (result == WALK_DONE && header_identity(&w, &arena, &h) &&
        !header_only) {
        image(&w, h);
        frames(&w, h);
        masks(&w);
    }

    walk_free(&w);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk(data, size, size, false, false);
    walk(data, size, size, false, true);
    walk(data, size, size, true, false);
    // a separate copy, so that a read beyond it is an error
    uint8_t *half = malloc(size / 2 + 1);
    if (half) memcpy(half, data, size / 2);
    if (half) walk(half, size / 2, size, true, false);
    free(half);
    return 0;
}
