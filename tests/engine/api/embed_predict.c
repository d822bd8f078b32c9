/* embed_predict.c -- seg_predict_file in-process, without memory: nothing is
 * left behind. tests/lua/predict/export.lua compares its results. */
#include "data/format/nifti.h"
#include "engine/api/segengine.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/networks.h"

enum { PATHS = 512 };

#define ROWS                                                                   \
    "{\"version\": 1, \"network\": \"n\", \"inputs\": [\"image\"], "           \
    "\"output\": \"mask\", \"read\": {\"kind\": \"nifti\", \"options\": {}}, " \
    "\"prepare\": [{\"step\": \"normalize\"}, {\"step\": \"slices\", "         \
    "\"axis\": \"axial\"}], \"predict\": {\"keep\": \"largest\"}, "            \
    "\"run\": {\"batch\": 2}, \"labels\": \"7\"}"

/* Makes a bundle with a network of one convolution, and an image of three
 * slices. */
static void make(const char *bundle, const char *image)
{
    Net n;
    Arena mem = {NULL};
    char *text;

    net_new(&n);
    int x = net_input(&n, "image", (Dims){1, 1, 8, 8, 1}, 2);
    n.root[n.roots++] = net_op(&n, OP_sigmoid, net_conv(&n, x, 1, 3), -1, -1);
    net_open(&n, "cpu", 1, NULL);
    REQUIRE(graph_print(&n.g, n.root, n.roots, &mem, &text));
    MetaPair pair[] = {{"graph", text}, {"outputs", "mask"}, {"bundle", ROWS}};
    const Meta meta = {.pair = pair, .count = 3};
    REQUIRE(checkpoint_save(bundle, n.s, false, &meta));
    arena_release(&mem);
    net_free(&n);
    Volume v;
    REQUIRE(volume_new(&v, (Dims){1, 3, 8, 8, 1}, F32));
    for (int i = 0; i < 192; i++)
        ((float *)v.voxels.data)[i] = (float)((i * 37) % 101);
    REQUIRE(nifti_write(image, &v, NULL));
    volume_free(&v);
}

TEST(embed_predict_without_memory)
{
    char bundle[PATHS], image[PATHS], out[PATHS];
    snprintf(bundle, PATHS, "%s/bundle.safetensors", test_folder());
    snprintf(image, PATHS, "%s/image.nii", test_folder());
    snprintf(out, PATHS, "%s/out.nii", test_folder());
    make(bundle, image);
    long live = mem_live();
    bool done = false;

    for (long k = 0; !done; k++) {
        REQUIRE(k < 20000);
        mem_fail_after(k, false);
        seg_model *m = seg_open(bundle, "cpu", 1);
        done = m && !seg_predict_file(m, image, out);
        mem_fail_after(-1, false);
        EXPECT(done || *seg_error());
        seg_close(m);
        EXPECT_INT(mem_live(), live);
    }

    Volume v;
    REQUIRE(nifti_read(out, &(NiftiOptions){.label = true}, &v, NULL));
    double most = 0;
    for (int i = 0; i < 192; i++)
        most = volume_value(&v, i) > most ? volume_value(&v, i) : most;
    EXPECT_INT((long long)most, 7); // value of the class in the training files
    volume_free(&v);
}
