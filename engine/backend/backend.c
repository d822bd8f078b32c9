/* backend.c -- finds the backend for the text after --device.
 *
 * Backends are linked in or not (CUDA needs nvcc); only this file knows
 * which. */
#include "engine/backend/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SEG_CUDA
extern const Backend backend_cuda;
#endif

/* All backends of this build. */
static const Backend *const backends[] = {
#ifdef SEG_CUDA
    &backend_cuda,
#endif
    &backend_cpu,
    &backend_ref,
};

/* Returns the backend called by the first n bytes of `name`, or NULL. */
static const Backend *named(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strlen(backends[i]->name) == n &&
            !memcmp(backends[i]->name, name, n))
            return backends[i];
    return NULL;
}

const Backend *backend_gpu(void)
{
    return named("cuda", 4);
}

bool backend_find(const char *text, const Backend **be, int *device)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    *device = 0;
    CHECK(strcmp(text, "auto")); // auto_device.h chooses before
    char *end = NULL;
    const long v = colon ? strtol(colon + 1, &end, 10) : 0;
    const bool number = colon && end > colon + 1 && !*end && v >= 0 && v <= 255;
    if (n == 4 && !memcmp(text, "cuda", 4) && colon && !number)
        return fail_usage("device \"%s\": the number after cuda: must be 0 to "
                          "255, got \"%s\"; segengine doctor lists the GPUs",
                          text, colon + 1);

    // known, but not in this build: another exit code than for a typing error
    if (n == 4 && !memcmp(text, "cuda", 4) && !backend_gpu())
        return fail_device("device \"%s\": this program was built without "
                           "CUDA; build it where nvcc is, or use --device cpu",
                           text);
    *be = named(text, n);
    if (!*be)
        return fail_usage("device \"%s\" is not known; use auto, cpu, ref, "
                          "cuda or cuda:N",
                          text);
    if (colon && strcmp((*be)->name, "cuda"))
        return fail_usage("device \"%s\": only cuda takes a number", text);
    *device = (int)v;
    return true;
}

bool backend_open(const Backend *be, const char *text, int device, int threads,
                  void **dev)
{
    return be->open(device, threads, dev) || within("device \"%s\"", text);
}

void backend_target(const Backend *be, int device, int capability)
{
    if (be->target) be->target(device, capability);
}

bool backend_has(const Backend *be, Precision p)
{
    return be->precisions >> p & 1 && !(be->lacks && be->lacks(p));
}

bool backend_takes(const Backend *be, Precision p)
{
    char has[32] = "";
    if (backend_has(be, p)) return true;
    if (be->precisions >> p & 1)
        return fail_usage("precision %s is not available on this GPU: %s",
                          precision_name(p), be->lacks(p));
    for (int i = 0, at = 0; i < PRECISION_COUNT; i++)
        if (be->precisions >> i & 1)
            at += snprintf(has + at, sizeof has - (size_t)at, "%s%s",
                           at ? ", " : "", precision_name((Precision)i));
    return fail_usage("precision %s is not available on device %s, which has "
                      "%s: use --precision f32, or --device cuda",
                      precision_name(p), be->name, has);
}

Fusions backend_fusions(const Backend *be, const Call *c)
{
    // a program has taken over what it can
    return be->fusions && !c->program ? be->fusions(c) : (Fusions){0};
}

Storage backend_storage(const Backend *be, const Call *c)
{
    return be->storage ? be->storage(c) : (Storage){0};
}

Schedule backend_schedule(const Backend *be, const Call *c)
{
    return be->schedule ? be->schedule(c) : (Schedule){0};
}
