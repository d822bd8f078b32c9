#include "engine/check/auto_device.h"
#include "engine/check/self_check.h"
#include <pthread.h>
#include <stdio.h>

enum { MOST_GPUS = 256 }; // the numbers that backend_find accepts

/* Bit p of a GPU: it passed the self-check in precision p in this process. The
 * lock also keeps two threads from checking at once. */
static struct {
    pthread_mutex_t lock;
    const Backend *be; // of these bits
    unsigned passed[MOST_GPUS];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned *passed_by(const Backend *gpu, int number)
{
    CHECK(0 <= number && number < MOST_GPUS);
    if (known.be != gpu)
        for (int i = 0; i < MOST_GPUS; i++) known.passed[i] = 0;
    known.be = gpu;
    return &known.passed[number];
}

/* Has the GPU described by `text` passed in precision p, in this process or
 * before? */
static bool has_passed(const Backend *gpu, int number, const char *text,
                       Precision p)
{
    SelfCheckRecord r;
    Arena mem = {0};
    unsigned *passed = passed_by(gpu, number);
    if (!(*passed >> p & 1) && self_check_record(text, p, &mem, &r) &&
        self_check_passed(&r))
        *passed |= 1u << p;
    arena_release(&mem);
    return *passed >> p & 1;
}

/* Runs the self-check and remembers that it passed; a failure to remember it
 * becomes the warning. */
static bool check_now(const Backend *gpu, int number, const char *text,
                      Precision p, AutoDevice *out)
{
    SelfCheckRecord r;
    Arena mem = {0};
    int cases;
    if (!self_check_run(gpu, number, p, &cases)) {
        snprintf(out->why, sizeof out->why, "its self-check failed");
        snprintf(out->warning, sizeof out->warning,
                 "the GPU failed its self-check, so the CPU computes; please "
                 "report: %s",
                 err_text());
        return false;
    }
    *passed_by(gpu, number) |= 1u << p;
    if (!self_check_record(text, p, &mem, &r) || !self_check_remember(&r))
        snprintf(out->warning, sizeof out->warning,
                 "the self-check of the GPU passed and runs again each time, "
                 "as it cannot be remembered: %s",
                 err_text());
    arena_release(&mem);
    return true;
}

/* Has the GPU passed in precision p? out: if not, checks it now; NULL: only
 * looks. */
static bool passes(const Backend *gpu, int number, const char *text,
                   Precision p, AutoDevice *out)
{
    return has_passed(gpu, number, text, p) ||
           (out && check_now(gpu, number, text, p, out));
}

/* The same for a run in precision p, of which all but the products are in
 * f32. */
static bool passes_run(const Backend *gpu, int number, const char *text,
                       Precision p, AutoDevice *out)
{
    pthread_mutex_lock(&known.lock);
    const bool good = passes(gpu, number, text, PRECISION_f32, out) &&
                      passes(gpu, number, text, p, out);
    pthread_mutex_unlock(&known.lock);
    return good;
}

/* Has this GPU the precision? If not, the reason is the error. */
static bool takes(const Backend *gpu, int number, Precision p)
{
    backend_target(gpu, number, 0);
    return backend_takes(gpu, p);
}

void auto_device(const Backend *gpu, int number, Precision p, AutoDevice *out)
{
    char text[BACKEND_TEXT];
    *out = (AutoDevice){.device = "cpu"};
    if (!gpu)
        snprintf(out->why, sizeof out->why,
                 "this program was built without CUDA");
    else if (!gpu->describe(number, text))
        snprintf(out->why, sizeof out->why, "%s", err_text());
    else if (!takes(gpu, number, p))
        snprintf(out->why, sizeof out->why, "%s", err_text());
    else if (passes_run(gpu, number, text, p, out))
        snprintf(out->device, sizeof out->device, "%s:%d", gpu->name, number);
}

bool auto_device_due(const Backend *gpu, int number, Precision p,
                     char text[BACKEND_TEXT])
{
    return gpu && gpu->describe(number, text) && takes(gpu, number, p) &&
           !passes_run(gpu, number, text, p, NULL);
}
