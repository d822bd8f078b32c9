/* embed.c -- a program by another author that runs a trained network.
 *
 *     embed WEIGHTS [BUNDLE IN OUT]
 *
 * tests/shell/install.sh compiles it against the installed copy, as C with the
 * shared library and as C++ with the static one; it uses only the public
 * header. It opens a weights file from training, runs it on one synthetic
 * sample per input, and makes the usual mistakes of callers; with more
 * arguments a bundle predicts the image IN to the file OUT. */
#include <segengine.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

static int failures;

static void expect(int ok, const char *what)
{
    if (ok) return;
    printf("failed: %s (last reason: %s)\n", what, seg_error());
    failures++;
}

static size_t count(const seg_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->axes; i++) n *= (size_t)t->shape[i];
    return n;
}

/* Allocates t's elements and fills in a pattern; the caller frees t->data. */
static void fill(seg_tensor *t)
{
    size_t n = count(t);
    t->data = (float *)malloc(n * sizeof *t->data);
    if (!t->data) exit(1);
    for (size_t i = 0; i < n; i++) t->data[i] = (float)(i % 7) / 7 - 0.5f;
}

/* Runs the same sample twice: shapes first, then values, which must be
 * equal. */
static void run_twice(seg_model *m)
{
    seg_tensor in[MOST], out[MOST];
    int inputs = seg_inputs(m, in, MOST), outputs = seg_outputs(m, out, MOST);
    expect(inputs > 0 && inputs <= MOST, "there are inputs");
    expect(outputs > 0 && outputs <= MOST, "there are outputs");
    if (failures) return;

    for (int i = 0; i < inputs; i++) fill(&in[i]);
    expect(!seg_run(m, in, inputs, out, outputs), "run for the shapes");

    for (int i = 0; i < outputs && !failures; i++) {
        seg_tensor *y = &out[i];
        size_t n = count(y);
        expect(y->axes >= 2 && n > 0, "an output has a shape");
        fill(y);
        float *again = (float *)malloc(n * sizeof *again);
        if (!again) exit(1);
        expect(!seg_run(m, in, inputs, y, 1), "run for the values");
        memcpy(again, y->data, n * sizeof *again);
        for (size_t j = 0; j < n; j++)
            if (!isfinite(y->data[j])) expect(0, "every value is finite");
        memset(y->data, 0, n * sizeof *again);
        expect(!seg_run(m, in, inputs, y, 1), "run once more");
        expect(!memcmp(again, y->data, n * sizeof *again), "the same bits");
        printf("%s: %zu values, first %g\n", y->name, n, (double)again[0]);
        free(again);
        free(y->data);
    }

    // a missing input, an unknown input, an unknown output
    expect(seg_run(m, in, 0, out, outputs) == -1, "no input is an error");
    const char *name = in[0].name;
    in[0].name = "no such input";
    expect(seg_run(m, in, inputs, out, outputs) == -1, "a wrong name, too");
    expect(strstr(seg_error(), "no such input") != NULL, "and is named");
    in[0].name = name;
    for (int i = 0; i < inputs; i++) free(in[i].data);
}

/* Predicts with a bundle from file to file. */
static void predict(const char *bundle, const char *in, const char *out)
{
    seg_model *m = seg_open(bundle, "cpu", 1);
    expect(m != NULL, "open the bundle");
    if (!m) return;
    expect(seg_predict_file(m, in, "no/such/folder.nii") == -1, "no folder");
    expect(strstr(seg_error(), "no/such") != NULL, "and it is named");
    expect(seg_predict_file(m, "nothing", out) == -1, "no image");
    expect(!seg_predict_file(m, in, out), "predict");
    // the same model again, then with arrays
    expect(!seg_predict_file(m, in, out), "predict again");
    run_twice(m);
    seg_close(m);
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 5) return 2;
    expect(!strcmp(seg_version(), SEG_VERSION), "header and library agree");
    seg_close(NULL);
    expect(!seg_open("no/such/file", "cpu", 1), "a missing file is an error");
    expect(strstr(seg_error(), "no/such/file") != NULL, "and is named");
    expect(!seg_open(argv[1], "abacus", 1), "so is an unknown device");

    seg_model *m = seg_open(argv[1], "cpu", 1);
    expect(m != NULL, "open the weights");
    if (m) run_twice(m);

    if (m && argc == 5) {
        expect(seg_predict_file(m, argv[3], argv[4]) == -1, "weights alone");
        expect(seg_predict_file(NULL, argv[3], argv[4]) == -1, "no model");
        expect(seg_predict_file(m, NULL, argv[4]) == -1, "no path");
        predict(argv[2], argv[3], argv[4]);
    }

    seg_close(m);
    printf("%d failures\n", failures);
    return failures != 0;
}
