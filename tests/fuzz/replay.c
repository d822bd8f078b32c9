/* replay.c -- runs one fuzz target over the files of its corpus.
 *
 * The targets in tests/fuzz/ are written for libFuzzer. Without clang, and in
 * every `make test`, this main replaces libFuzzer: it passes each file of a
 * folder to the target once, in the order of their names, in a build with
 * sanitizers. The name is printed before the call, so that the last line of a
 * crash names its input. One program has all targets and runs the one by whose
 * name it is called; build/asan/tests/fuzz/NAME is a link to it.
 *
 *     build/asan/tests/fuzz/NAME tests/fuzz/corpus/NAME */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TARGETS is TARGET(bmp) TARGET(dicom) ..., from the Makefile, which also names
 * the function of each target so. */
typedef int Target(const uint8_t *data, size_t size);
#define TARGET(name) Target fuzz_##name;
TARGETS
#undef TARGET
#define TARGET(name) {#name, fuzz_##name},
static const struct {
    const char *name;
    Target *run;
} targets[] = {TARGETS};

static Target *target_of(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i].name, name)) return targets[i].run;
    return NULL;
}

/* Runs the target on one file; false when the file cannot be read. */
static int feed(Target *target, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);

    // a block of exactly this size: a read beyond it is an error
    uint8_t *data = size >= 0 ? malloc((size_t)size + !size) : NULL;
    int ok = data && fread(data, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (ok) target(data, (size_t)size);
    free(data);
    return ok;
}

static int is_input(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    Target *target = target_of(argv[0]);
    if (argc != 2 || !target) {
        fprintf(stderr, "usage: %s FOLDER, called by the name of a target\n",
                argv[0]);
        return 2;
    }

    struct dirent **inputs;
    int n = scandir(argv[1], &inputs, is_input, alphasort), passed = 0;
    if (n <= 0) {
        printf("  %s: no inputs\n0 passed, 1 failed, 0 skipped\n", argv[1]);
        return 1;
    }

    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], inputs[i]->d_name);
        printf("%s\n", path);
        fflush(stdout);
        passed += feed(target, path);
        free(inputs[i]);
    }

    free(inputs);
    printf("%d passed, %d failed, 0 skipped\n", passed, n - passed);
    return passed < n;
}
