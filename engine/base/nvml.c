/* nvml.c -- samples a few functions of NVML in a thread.
 *
 * Needs no header of NVML: the functions used here have had the same signatures
 * since its version 2, and its documentation gives the numbers below. */
#include "engine/base/nvml.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    DONE = 0,      /* nvmlReturn_t: success                      */
    CHIP = 0,      /* nvmlTemperatureSensors_t: the only one     */
    NAME = 96,     /* bytes of names and versions, by its limits */
    MOST_GPUS = 64 /* at most so many are described              */
};

typedef void *Device;

/* nvmlUtilization_t: percent in the last sample period of the driver. */
typedef struct Busy {
    unsigned gpu, memory;
} Busy;

typedef struct Memory {
    unsigned long long total, free, used; /* bytes */
} Memory;

typedef struct Nvml {
    void *handle; /* of dlopen */
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int);
    int (*version)(char *, unsigned);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, Device *);
    int (*by_address)(const char *, Device *);
    int (*name)(Device, char *, unsigned);
    int (*busy)(Device, Busy *);
    int (*power)(Device, unsigned *); /* mW */
    int (*limit)(Device, unsigned *); /* mW */
    int (*memory)(Device, Memory *);
    int (*celsius)(Device, int, unsigned *);
    int (*energy)(Device,
                  unsigned long long *); /* mJ since the driver's start */
} Nvml;

static const struct {
    size_t at;
    const char *name;
} function[] = {
    {offsetof(Nvml, init), "nvmlInit_v2"},
    {offsetof(Nvml, shutdown), "nvmlShutdown"},
    {offsetof(Nvml, error), "nvmlErrorString"},
    {offsetof(Nvml, version), "nvmlSystemGetDriverVersion"},
    {offsetof(Nvml, count), "nvmlDeviceGetCount_v2"},
    {offsetof(Nvml, by_index), "nvmlDeviceGetHandleByIndex_v2"},
    {offsetof(Nvml, by_address), "nvmlDeviceGetHandleByPciBusId_v2"},
    {offsetof(Nvml, name), "nvmlDeviceGetName"},
    {offsetof(Nvml, busy), "nvmlDeviceGetUtilizationRates"},
    {offsetof(Nvml, power), "nvmlDeviceGetPowerUsage"},
    {offsetof(Nvml, limit), "nvmlDeviceGetEnforcedPowerLimit"},
    {offsetof(Nvml, memory), "nvmlDeviceGetMemoryInfo"},
    {offsetof(Nvml, celsius), "nvmlDeviceGetTemperature"},
    {offsetof(Nvml, energy), "nvmlDeviceGetTotalEnergyConsumption"}};

/* One sample; NAN for a value that the GPU does not report. */
typedef struct Look {
    double at; /* by clock_s() */
    double use, watts, bytes, celsius;
    double counted; /* joules of the GPU's energy counter */
} Look;

struct GpuMonitor {
    Nvml nvml;
    Device device;
    double every_s;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    bool running, stop;
    int looks, use_count, watts_count; /* since the last reading    */
    double use, watts;                 /* sums                      */
    double bytes, celsius;             /* highest, or NAN           */
    double spent;                      /* joules from power samples */
    Look last;                         /* the newest                */
    double counted; /* energy counter at the last reading, or NAN */
};

static void nvml_close(Nvml *n)
{
    if (n->handle) dlclose(n->handle);
    *n = (Nvml){0};
}

/* Opens the library; *there is false, with the loader's reason, if it is
 * absent. */
static bool nvml_open(const char *library, Nvml *n, bool *there)
{
    *n = (Nvml){.handle = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    *there = n->handle != NULL;
    if (!*there) return fail("%s", dlerror());

    for (size_t i = 0; i < sizeof function / sizeof *function; i++) {
        // POSIX guarantees it: an object pointer converts to a function pointer
        void *found = dlsym(n->handle, function[i].name);
        memcpy((char *)n + function[i].at, &found, sizeof found);
        if (found) continue;
        nvml_close(n);
        return fail("%s has no %s; fix: a newer driver", library,
                    function[i].name);
    }

    const int got = n->init();
    if (got == DONE) return true;

    // a driver that was updated without a reboot fails here
    fail("NVML: %s; fix: restart the machine if its driver was updated",
         n->error(got));
    nvml_close(n);
    return false;
}

static Look look_at(const Nvml *n, Device d)
{
    Look l = {clock_s(), NAN, NAN, NAN, NAN, NAN};
    Busy busy;
    Memory memory;
    unsigned number;
    unsigned long long energy;
    if (n->busy(d, &busy) == DONE) l.use = busy.gpu;
    if (n->power(d, &number) == DONE) l.watts = 1e-3 * number;
    if (n->memory(d, &memory) == DONE) l.bytes = (double)memory.used;
    if (n->celsius(d, CHIP, &number) == DONE) l.celsius = number;
    if (n->energy(d, &energy) == DONE) l.counted = 1e-3 * (double)energy;
    return l;
}

/* Takes one more sample; asks the driver without the lock. */
static void look(GpuMonitor *g)
{
    const Look l = look_at(&g->nvml, g->device);
    pthread_mutex_lock(&g->lock);
    g->looks++;
    if (!isnan(l.use)) g->use += l.use, g->use_count++;
    if (!isnan(l.watts)) g->watts += l.watts, g->watts_count++;

    // fmax returns the other argument if one is NAN
    g->bytes = fmax(g->bytes, l.bytes);
    g->celsius = fmax(g->celsius, l.celsius);

    // two threads may sample at once, and the later sample may arrive first
    if (l.at > g->last.at) {
        if (!isnan(g->last.watts))
            g->spent += g->last.watts * (l.at - g->last.at);
        g->last = l;
    }
    pthread_mutex_unlock(&g->lock);
}

static void *work(void *context)
{
    GpuMonitor *g = context;
    pthread_mutex_lock(&g->lock);
    while (!g->stop) {
        clock_wait(&g->wake, &g->lock, g->every_s);
        if (g->stop) break;
        pthread_mutex_unlock(&g->lock);
        look(g);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* Begins a reading: clears sums; energy counts from the newest sample. */
static void begin(GpuMonitor *g)
{
    g->looks = g->use_count = g->watts_count = 0;
    g->use = g->watts = g->spent = 0;
    g->bytes = g->celsius = NAN;
    g->counted = g->last.counted;
}

bool gpu_monitor_open(const char *library, const char *address, double every_s,
                      GpuMonitor **out)
{
    bool there;
    *out = NULL;
    GpuMonitor *g = mem_alloc(sizeof *g);
    if (!g) return false;
    g->every_s = every_s;
    pthread_mutex_init(&g->lock, NULL);
    clock_cond(&g->wake);
    TRY(nvml_open(library, &g->nvml, &there));
    const int got = g->nvml.by_address(address, &g->device);
    if (got != DONE) {
        fail("NVML: GPU %s: %s", address, g->nvml.error(got));
        goto done;
    }
    g->last = look_at(&g->nvml, g->device);
    begin(g);
    const int error = thread_start(&g->thread, work, g);
    if (error) {
        fail("a thread did not start: %s", strerror(error));
        goto done;
    }
    g->running = true;
    *out = g;

done:
    if (!*out) gpu_monitor_close(g);
    return *out != NULL;
}

void gpu_monitor_close(GpuMonitor *g)
{
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->lock);
    if (g->running) pthread_join(g->thread, NULL);
    if (g->nvml.handle) g->nvml.shutdown();
    nvml_close(&g->nvml);
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

void gpu_monitor_read(GpuMonitor *g, GpuMonitorReading *out)
{
    look(g);
    pthread_mutex_lock(&g->lock);
    *out = (GpuMonitorReading){
        .use = g->use_count ? g->use / g->use_count : NAN,
        .watts = g->watts_count ? g->watts / g->watts_count : NAN,
        .bytes = g->bytes,
        .celsius = g->celsius,
        .joules = g->last.counted - g->counted,
        .looks = g->looks};
    if (isnan(out->joules) && g->watts_count) out->joules = g->spent;
    begin(g);
    pthread_mutex_unlock(&g->lock);
}

/* Appends one GPU to `text`. */
static void describe(const Nvml *n, unsigned index, char *text, size_t room)
{
    char name[NAME] = "?";
    Device d;
    unsigned limit;
    size_t at = strlen(text);

    if (n->by_index(index, &d) != DONE) return;
    n->name(d, name, sizeof name);
    const Look l = look_at(n, d);
    at += (size_t)snprintf(text + at, room - at, "; GPU %u %s", index, name);
    if (at < room && n->limit(d, &limit) == DONE)
        at += (size_t)snprintf(text + at, room - at, ", limit %.0f W",
                               1e-3 * limit);
    if (at < room && !isnan(l.watts))
        at += (size_t)snprintf(text + at, room - at, ", now %.0f W", l.watts);
    if (at < room && !isnan(l.celsius))
        at += (size_t)snprintf(text + at, room - at, ", %.0f C", l.celsius);
    if (at < room && !isnan(l.use))
        snprintf(text + at, room - at, ", %.0f %% busy", l.use);
}

bool gpu_driver_version(const char *library, char *text, size_t room)
{
    Nvml n;
    bool there;
    if (!nvml_open(library, &n, &there)) return false;
    const int got = n.version(text, (unsigned)room);
    if (got != DONE) fail("NVML: version of the driver: %s", n.error(got));
    n.shutdown();
    nvml_close(&n);
    return got == DONE;
}

bool gpu_monitor_describe(const char *library, char *text, size_t room)
{
    Nvml n;
    bool there;
    char version[NAME] = "?";
    unsigned count = 0;

    *text = 0;
    if (!nvml_open(library, &n, &there)) return !there;
    n.version(version, sizeof version);
    n.count(&count);
    snprintf(text, room, "%s", version);
    for (unsigned i = 0; i < count && i < MOST_GPUS; i++)
        describe(&n, i, text, room);
    n.shutdown();
    nvml_close(&n);
    return true;
}
