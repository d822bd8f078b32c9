/* dataset.c -- tests of data sets from memory, of loading, and of splits. */
#include "data/dataset/dataset.h"
#include "data/dataset/split.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdlib.h>

TEST(dataset_is_sorted_by_key)
{
    Dataset *ds = made_dataset(12, 2, 2, 4, 4);
    EXPECT_INT(ds->count, 12);
    EXPECT_TEXT(ds->cases[0].key, "case_00");
    EXPECT_TEXT(ds->cases[11].key, "case_11");
    EXPECT_TEXT(ds->cases[11].patient, "p5");
    EXPECT_INT(dataset_patients(ds), 6);
    EXPECT_INT(dataset_field(ds, "mask"), 1);
    EXPECT_INT(dataset_field(ds, "dose"), -1);
    Arena mem = {0};
    EXPECT_TEXT(dataset_report(ds, &mem),
                "12 cases of 6 patients; image (1 file a case), mask (labels "
                "0, 1)");
    arena_release(&mem);
    dataset_free(ds);
}

/* Makes a data set of one case. */
static Dataset *single(const Volume *image, const Volume *mask,
                       const DatasetOptions *o)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(o, &b));
    REQUIRE(dataset_add(b, "case_017", "p", image, mask));
    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(dataset_refuses_names_that_do_not_tell)
{
    Volume v = made_image(1, 1, 2, 2, true), m = made_mask(1, 2, 2);
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_begin(NULL, &b));
    EXPECT_FAIL(dataset_finish(b, &ds), "has no cases");
    REQUIRE(dataset_begin(NULL, &b));
    EXPECT_FAIL(dataset_add(b, "a", "", &v, NULL), "a name and a patient");
    EXPECT(dataset_add(b, "a", "p", &v, NULL));
    EXPECT(dataset_add(b, "b", "p", &v, NULL));
    EXPECT(dataset_add(b, "a", "q", &v, NULL));
    EXPECT(dataset_add(b, "a", "q", &v, NULL));
    EXPECT_FAIL(dataset_add(b, "c", "q", &v, &m), "c: has a mask, unlike");
    EXPECT_FAIL(dataset_finish(b, &ds),
                "1 name stands for more than one case: a");
    EXPECT(!ds);

    // eleven duplicate names: ten are listed
    REQUIRE(dataset_begin(NULL, &b));
    for (int i = 0; i < 22; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%02d", i / 2);
        EXPECT(dataset_add(b, key, "p", &v, NULL));
    }

    EXPECT_FAIL(dataset_finish(b, &ds), "11 names stand for more than one "
                                        "case: k00, k01, k02, k03, k04, k05, "
                                        "k06, k07, k08, k09, ...");
    volume_free(&v);
    volume_free(&m);
}

TEST(dataset_label_values)
{
    Volume v = made_image(1, 1, 2, 3, true), m = made_mask(1, 2, 3), out;
    uint8_t *x = m.voxels.data;
    memset(x, 0, 6);
    x[1] = x[2] = x[5] = 255;
    Dataset *ds = single(&v, &m, NULL);
    EXPECT_FAIL(
        case_load(ds, 0, 1, NULL, &out, NULL),
        "case_017: mask: memory: value 255 in 3 voxels, wanted 0, 1; "
        "fix: list the values of the classes, as in labels = {255}, or take "
        "every value except 0 with labels = \"nonzero\" (--nonzero where the "
        "script has it)");
    EXPECT_INT(err_kind(), ERR_DATA);
    EXPECT(!out.voxels.data);
    dataset_free(ds);

    // when declared, 255 is class 1
    DatasetOptions o = {.labels = {255}, .label_count = 1};
    ds = single(&v, &m, &o);
    REQUIRE(case_load(ds, 0, 1, NULL, &out, NULL));
    const uint8_t want[6] = {0, 1, 1, 0, 0, 1};
    EXPECT(!memcmp(out.voxels.data, want, 6));
    EXPECT_INT(out.unit, UNIT_LABEL);
    volume_free(&out);
    dataset_free(ds);

    // then 1 is an undeclared value
    x[0] = 1;
    ds = single(&v, &m, &o);
    EXPECT_FAIL(case_load(ds, 0, 1, NULL, &out, NULL),
                "value 1 in 1 voxel, wanted 0, 255; fix: list the values of "
                "the classes, as in labels = {255, 1}, or");
    dataset_free(ds);

    // all undeclared values are reported together
    x[3] = 7, x[4] = 3;
    ds = single(&v, &m, NULL);
    EXPECT_FAIL(case_load(ds, 0, 1, NULL, &out, NULL),
                "values 3, 7, 255 in 5 voxels, wanted 0, 1; fix: list the "
                "values of the classes, as in labels = {1, 3, 7, 255}, or");
    dataset_free(ds);
    volume_free(&m);

    // fractions and NaN in a float mask
    const float odd[2] = {0.5f, NAN};

    for (int k = 0; k < 2; k++) {
        REQUIRE(volume_new(&m, v.voxels.dim, F32));
        memcpy(m.affine, v.affine, sizeof m.affine);
        ((float *)m.voxels.data)[4] = odd[k];
        ds = single(&v, &m, NULL);
        EXPECT_FAIL(case_load(ds, 0, 1, NULL, &out, NULL),
                    k ? "value nan in 1 voxel"
                      : "value 0.5 in 1 voxel, wanted 0, 1; labels are whole "
                        "numbers, to 0.001; fix: make the mask by nearest "
                        "neighbour, or take every value except 0 with labels = "
                        "\"nonzero\"");
        dataset_free(ds);
        volume_free(&m);
    }
    volume_free(&v);
}

/* Labels of programs that resample, average or store a mask with a scale. */
TEST(dataset_labels_that_are_nearly_whole)
{
    static const struct {
        float stored[6];
        const char *want; /* classes, or the end of the reason */
        const char *note;
    } row[] = {
        {{0, 1, 0, 0, 1, 1}, "010011", NULL},
        {{0, 0.9999f, 0, 0, 0.9999f, 1},
         "010011",
         "memory: 2 voxels hold no whole number (the first 0.9999): each is "
         "read as the label that is at most 0.0001 away"},
        {{1.0009f, 0.9999999f, 1e-4f, -1e-4f, 2e-9f, 1.9995f},
         "110002",
         "6 voxels hold no whole number (the first 1.0009)"},
        {{1, 1.002f, 0, 0, 1, 1},
         "value 1.002 in 1 voxel, wanted 0, 1, 2;",
         NULL},
        {{1, 100000.5f, 0, 0, 1, 1}, "value 100000.5 in 1 voxel", NULL},
        {{1, 6.9999f, 0, 0, 1, 1}, "as in labels = {1, 2, 7}", NULL},
        {{65535, 0, 0, 0, 0, 0}, "as in labels = {1, 2, 65535}", NULL},
    };
    Volume v = made_image(1, 1, 2, 3, true), m, out;
    REQUIRE(volume_new(&m, v.voxels.dim, F32));
    memcpy(m.affine, v.affine, sizeof m.affine);

    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (int all = 0; all < 2; all++) {
            const DatasetOptions o = {
                .labels = {1, 2}, .label_count = all ? 0 : 2, .nonzero = all};
            DicomNotes notes = {.count = 0};
            char got[7] = "";
            memcpy(m.voxels.data, row[r].stored, sizeof row[r].stored);
            Dataset *ds = single(&v, &m, &o);
            const bool ok = case_load(ds, 0, 1, NULL, &out, &notes);
            for (int i = 0; ok && i < 6; i++)
                got[i] = (char)('0' + ((uint8_t *)out.voxels.data)[i]);
            if (all) { // every value above 1/1000 is foreground
                int rounded = 0;
                for (int i = 0; i < 6; i++) {
                    const float x = row[r].stored[i];
                    EXPECT_INT(got[i], fabsf(x) > 1e-3f ? '1' : '0');
                    rounded |= x != rintf(x) && fabsf(x - rintf(x)) <= 1e-3f;
                }
                EXPECT_INT(notes.count, rounded);
            } else if (ok) {
                EXPECT_TEXT(got, row[r].want);
                EXPECT_INT(notes.count, row[r].note ? 1 : 0);
                EXPECT(!row[r].note ||
                       (notes.first->warning &&
                        strstr(notes.first->text, row[r].note)));
            } else {
                EXPECT(strstr(err_text(), row[r].want));
            }
            dicom_notes_free(&notes);
            if (ok) volume_free(&out);
            dataset_free(ds);
        }

    volume_free(&m);
    volume_free(&v);
}

/* A mask that was stored with the offset of its CT. */
TEST(dataset_a_mask_that_is_nowhere_0)
{
    Volume v = made_image(1, 1, 2, 3, true), m, out;
    const float stored[] = {-1024, -1024, -1023, -1023, -1024, -1024};
    const DatasetOptions o = {.nonzero = true};
    DicomNotes notes = {.count = 0};

    REQUIRE(volume_new(&m, v.voxels.dim, F32));
    memcpy(m.affine, v.affine, sizeof m.affine);
    memcpy(m.voxels.data, stored, sizeof stored);
    Dataset *ds = single(&v, &m, &o);
    REQUIRE(case_load(ds, 0, 1, NULL, &out, &notes));
    EXPECT_INT(notes.count, 1);
    EXPECT(notes.first->warning &&
           strstr(notes.first->text, "no voxel is 0, so the object of labels"));
    dicom_notes_free(&notes);
    volume_free(&out);
    dataset_free(ds);
    volume_free(&m);
    volume_free(&v);
}

TEST(dataset_an_image_as_mask)
{
    Volume v = made_image(1, 1, 5, 5, true), m, out;
    REQUIRE(volume_new(&m, v.voxels.dim, I16));
    memcpy(m.affine, v.affine, sizeof m.affine);
    for (int i = 0; i < 25; i++)
        ((int16_t *)m.voxels.data)[i] = (int16_t)(9 * i);
    Dataset *ds = single(&v, &m, NULL);
    EXPECT_FAIL(case_load(ds, 0, 1, NULL, &out, NULL),
                "more than 20 values (9, 18, 27, 36, 45, ...) in 24 voxels, "
                "wanted 0, 1; fix: this looks like an image; if every value "
                "except 0 is the object, labels = \"nonzero\"");
    dataset_free(ds);
    volume_free(&m);
    volume_free(&v);
}

TEST(dataset_refuses_wrong_labels_options)
{
    DatasetBuilder *b;
    DatasetOptions o = {.labels = {0}, .label_count = 1};
    EXPECT_FAIL(dataset_begin(&o, &b), "0 is the background");
    o = (DatasetOptions){.labels = {2, 2}, .label_count = 2};
    EXPECT_FAIL(dataset_begin(&o, &b), "2 is listed twice");
}

TEST(dataset_refuses_what_is_not_finite)
{
    Volume v = made_image(1, 2, 3, 4, false), out;
    float *x = v.voxels.data;
    x[17] = NAN;
    x[20] = INFINITY;
    Dataset *ds = single(&v, NULL, NULL);
    EXPECT_FAIL(case_load(ds, 0, 0, NULL, &out, NULL),
                "case_017: image: memory: 2 of 24 voxels are not finite "
                "numbers, the first (nan) in column 1, row 1, slice 1");
    dataset_free(ds);
    volume_free(&v);
}

TEST(dataset_grids_must_agree)
{
    // each kind of mismatch, and properties that may differ
    for (int kind = 0; kind < 5; kind++) {
        Volume v = made_image(1, 2, 4, 4, true), m = made_mask(2, 4, 4);
        Volume image, mask;
        if (kind == 0) volume_free(&m), m = made_mask(2, 4, 5);
        if (kind == 1) m.affine[0][3] = 0.02;
        if (kind == 2) m.affine[2][2] = 2.2;
        if (kind == 3) m.affine[0][0] = -1;
        if (kind == 4) m.affine[0][3] = 0.005;
        Dataset *ds = single(&v, &m, NULL);
        REQUIRE(case_load(ds, 0, 0, NULL, &image, NULL));
        bool ok = case_load(ds, 0, 1, &image, &mask, NULL);
        if (kind == 4) {
            EXPECT(ok);
        } else {
            EXPECT_FAIL(ok, "case_017: mask: memory: the grids differ");
            // a mask at another position must not be resampled
            EXPECT(strstr(err_text(),
                          kind == 3 ? "; they lie apart (25 % of the smaller "
                                      "one is in the other); fix: the mask of "
                                      "this image, or the header"
                                    : "; fix: check that the mask belongs to "
                                      "this image; if it does, resample_mask = "
                                      "true"));
        }
        if (ok) volume_free(&mask);
        dataset_free(ds);
        // on request, the mask is resampled
        DatasetOptions o = {.resample_mask = true};
        ds = single(&v, &m, &o);
        REQUIRE(case_load(ds, 0, 1, &image, &mask, NULL));
        EXPECT(volume_same_grid(&image, &mask));
        EXPECT_INT(mask.voxels.type, U8);
        volume_free(&mask);
        dataset_free(ds);
        volume_free(&image);
        volume_free(&v);
        volume_free(&m);
    }
}

TEST(dataset_survives_no_memory)
{
    Volume v = made_image(1, 2, 4, 4, true), m = made_mask(2, 4, 4);
    long before = mem_live();

    for (long k = 0;; k++) {
        DatasetBuilder *b;
        Dataset *ds = NULL, *part[PARTS] = {NULL};
        const SplitOptions how = {.part[TEST_PART] = {.count = 1}};
        Volume out = {0};
        mem_fail_after(k, false);
        bool ok = dataset_begin(NULL, &b);
        if (ok && !(dataset_add(b, "a", "p", &v, &m) &&
                    dataset_add(b, "b", "q", &v, &m))) {
            dataset_drop(b);
            ok = false;
        }
        ok = ok && dataset_finish(b, &ds) && dataset_split(ds, &how, part) &&
             case_load(ds, 0, 0, NULL, &out, NULL);
        mem_fail_after(-1, false);
        if (out.voxels.data) volume_free(&out);
        for (int i = 0; i < PARTS; i++) dataset_free(part[i]);
        dataset_free(ds);
        EXPECT_INT(mem_live(), before);
        if (ok) break;
        REQUIRE(k < 200);
    }

    volume_free(&v);
    volume_free(&m);
}

/* ---- splits ------------------------------------------------------------- */

static void free_parts(Dataset *part[PARTS])
{
    for (int i = 0; i < PARTS; i++) dataset_free(part[i]);
}

TEST(split_28_patients_as_19_3_6)
{
    Dataset *ds = made_dataset(56, 2, 1, 1, 2), *part[PARTS], *again[PARTS];
    SplitOptions how = {.seed = 42,
                        .part[VALID_PART] = {.share = 0.15},
                        .part[TEST_PART] = {.share = 0.2}};
    REQUIRE(dataset_split(ds, &how, part));
    EXPECT_INT(dataset_patients(part[TRAIN_PART]), 19);
    EXPECT_INT(dataset_patients(part[VALID_PART]), 3);
    EXPECT_INT(dataset_patients(part[TEST_PART]), 6);
    EXPECT_INT(part[TRAIN_PART]->count, 38);
    EXPECT(dataset_leaks((const Dataset *const *)part, PARTS));

    // the same seed gives the same parts, another seed other parts
    REQUIRE(dataset_split(ds, &how, again));
    bool same = true;
    for (int i = 0; i < 12; i++)
        same = same && !strcmp(part[TEST_PART]->cases[i].key,
                               again[TEST_PART]->cases[i].key);
    EXPECT(same);
    free_parts(again);
    how.seed = 43;
    REQUIRE(dataset_split(ds, &how, again));
    same = true;
    for (int i = 0; i < 12; i++)
        same = same && !strcmp(part[TEST_PART]->cases[i].key,
                               again[TEST_PART]->cases[i].key);
    EXPECT(!same);

    // two splits of one set have patients in two parts
    const Dataset *mixed[] = {part[TEST_PART], again[TRAIN_PART], NULL};
    EXPECT_FAIL(dataset_leaks(mixed, 3), "on two sides of the split: p");
    free_parts(again);
    free_parts(part);
    dataset_free(ds);
}

TEST(split_by_count_and_name)
{
    Dataset *ds = made_dataset(10, 2, 1, 1, 2), *part[PARTS];
    const char *names[] = {"p3", "case_00"};
    SplitOptions how = {.part[TEST_PART] = {.names = names, .name_count = 2},
                        .part[VALID_PART] = {.count = 1}};

    REQUIRE(dataset_split(ds, &how, part));

    // all cases of a patient are in the same part
    EXPECT_INT(part[TEST_PART]->count, 4);
    EXPECT_TEXT(part[TEST_PART]->cases[0].key, "case_00");
    EXPECT_TEXT(part[TEST_PART]->cases[1].key, "case_01");
    EXPECT_TEXT(part[TEST_PART]->cases[2].key, "case_06");
    EXPECT_INT(part[VALID_PART]->count, 2);
    EXPECT_INT(part[TRAIN_PART]->count, 4);
    free_parts(part);

    // a part outlives its source
    how.part[VALID_PART].count = 0;
    REQUIRE(dataset_split(ds, &how, part));
    EXPECT(!part[VALID_PART]);
    dataset_free(ds);
    Volume v;
    REQUIRE(case_load(part[TEST_PART], 3, 0, NULL, &v, NULL));
    volume_free(&v);
    free_parts(part);
}

TEST(split_errors)
{
    Dataset *ds = made_dataset(4, 2, 1, 1, 2), *part[PARTS];
    const char *unknown[] = {"p9"}, *known[] = {"p0"};
    SplitOptions how = {.part[TEST_PART] = {.names = unknown, .name_count = 1}};

    EXPECT_FAIL(dataset_split(ds, &how, part),
                "split: test: no patient or case \"p9\"");
    how = (SplitOptions){.part[TEST_PART] = {.names = known, .name_count = 1},
                         .part[VALID_PART] = {.names = known, .name_count = 1}};
    EXPECT_FAIL(dataset_split(ds, &how, part), "is in valid and in test");
    how = (SplitOptions){.part[TEST_PART] = {.count = 3}};
    EXPECT_FAIL(dataset_split(ds, &how, part),
                "test needs 3 patients, only 2 are left of 2");
    how = (SplitOptions){.part[TEST_PART] = {.count = 2}};
    EXPECT_FAIL(dataset_split(ds, &how, part), "train has no patient");
    how = (SplitOptions){.part[VALID_PART] = {.share = 0.1}};
    EXPECT_FAIL(dataset_split(ds, &how, part),
                "valid has no patient (2 in all); fix: a whole number of "
                "patients instead of a share, as valid = 1");
    how.part[TEST_PART].count = 1;
    EXPECT_FAIL(dataset_split(ds, &how, part),
                "(2 in all); fix: more patients, or fewer parts");
    Dataset *three = made_dataset(3, 1, 1, 1, 2);
    EXPECT_FAIL(dataset_split(three, &how, part),
                "(3 in all); fix: whole numbers of patients instead of shares, "
                "as valid = 1, test = 1");
    dataset_free(three);

    // one PatientID for all, as left by some anonymisation tools
    Dataset *one = made_dataset(4, 4, 1, 1, 2);
    how = (SplitOptions){.part[VALID_PART] = {.share = 0.2}};
    EXPECT_FAIL(dataset_split(one, &how, part),
                "valid has no patient (1 in all); fix: more patients, or fewer "
                "parts, or, if the cases are of several people, the option "
                "patient of their reader in the script, as patient = "
                "\"folder\"");
    how = (SplitOptions){.part[VALID_PART] = {.count = 2}};
    EXPECT_FAIL(dataset_split(one, &how, part),
                "only 1 is left of 1; fix: fewer, or, if the cases");
    EXPECT_FAIL(dataset_fold(one, 1, 2, 0, part),
                "fix: more patients, or, if the cases are of several people");
    dataset_free(one);
    how = (SplitOptions){.part[VALID_PART] = {.share = 1.5}};
    EXPECT_FAIL(dataset_split(ds, &how, part), "wanted a share of 0 to 1");
    EXPECT(!part[TRAIN_PART]);
    dataset_free(ds);
}

TEST(split_folds_cover_everyone_once)
{
    Dataset *ds = made_dataset(11, 1, 1, 1, 2), *part[PARTS];
    int seen[11] = {0};

    for (int fold = 0; fold < 4; fold++) {
        REQUIRE(dataset_fold(ds, 7, 4, fold, part));
        EXPECT_INT(part[TRAIN_PART]->count + part[VALID_PART]->count, 11);
        EXPECT(dataset_leaks((const Dataset *const *)part, PARTS));
        for (int i = 0; i < part[VALID_PART]->count; i++)
            seen[atoi(part[VALID_PART]->cases[i].key + 5)]++;
        free_parts(part);
    }

    for (int i = 0; i < 11; i++) EXPECT_INT(seen[i], 1);
    EXPECT_FAIL(dataset_fold(ds, 7, 4, 4, part), "fold 4 of 4");
    dataset_free(ds);
}

TEST(split_slabs_of_one_head)
{
    Dataset *ds = made_dataset(1, 1, 20, 4, 4), *part[PARTS];
    SplitSlabs how = {.valid = {0.3, 0.4}, .test = {0.6, 0.8}, .gap = 0.05};
    REQUIRE(dataset_split_slabs(ds, &how, part));
    EXPECT(dataset_leaks((const Dataset *const *)part, PARTS));
    const char *steps = "slices axis=stored\n";
    bool used[PARTS][20] = {{false}};

    for (int k = 0; k < PARTS; k++) {
        Pipeline *p = made_pipeline(part[k], steps);
        for (int i = 0; i < pipeline_samples(p); i++)
            used[k][pipeline_id(p, i).part] = true;
        pipeline_free(p);
    }

    // 20 slices: valid 6 7, test 12..15, one slice of gap on each side
    const char *want = "ttttt-vv-tt-xxxx-ttt";
    for (int d = 0; d < 20; d++) {
        EXPECT_INT(used[TRAIN_PART][d], want[d] == 't');
        EXPECT_INT(used[VALID_PART][d], want[d] == 'v');
        EXPECT_INT(used[TEST_PART][d], want[d] == 'x');
    }

    // whole volumes cannot be split by slices
    Steps none = {.count = 0};
    const PipelineOptions options = {.threads = 0};
    Pipeline *p;
    EXPECT_FAIL(pipeline_open(part[0], &none, &options, &p),
                "a split by slabs needs a slices step");
    free_parts(part);
    how.test[0] = 0.35;
    EXPECT_FAIL(dataset_split_slabs(ds, &how, part), "overlap");
    how = (SplitSlabs){.test = {0, 1}};
    EXPECT_FAIL(dataset_split_slabs(ds, &how, part), "nothing is left");
    dataset_free(ds);
}
