/* nvml.h -- what a GPU of NVIDIA does, as its driver counts it: use, power,
 * memory, temperature, energy.
 *
 * The numbers come from the driver's own library, NVML, which is opened when it
 * is wanted and is there wherever a driver is; a program without CUDA can ask
 * it too. A thread of its own looks once in a while, so nothing that is
 * measured waits for it, and nothing that is computed depends on it. */
#ifndef SEG_ENGINE_BASE_NVML_H
#define SEG_ENGINE_BASE_NVML_H
#include <stdbool.h>
#include <stddef.h>

/* The name of NVML wherever there is a driver. */
#define NVML_LIBRARY "libnvidia-ml.so.1"

typedef struct GpuMonitor GpuMonitor;

/* What was seen since the last reading, NAN for what this GPU does not tell:
 * use and watts are means over the looks, bytes and celsius the highest. Joules
 * are the GPU's own count where it has one (since Volta), else the power of
 * each look for the time until the next. */
typedef struct GpuMonitorReading {
    double use;     /* percent of the time in which a kernel ran  */
    double watts;   /* of the whole board                         */
    double bytes;   /* of its memory in use, by all programs      */
    double celsius; /* of the chip                                */
    double joules;
    int looks;
} GpuMonitorReading;

/* Begin to look at the GPU with this PCI address ("0000:0b:00.0") every
 * `every_s` seconds. `library` is NVML_LIBRARY but in tests. False with a
 * reason where there is no library, no such GPU or no thread. */
bool gpu_monitor_open(const char *library, const char *address, double every_s,
                      GpuMonitor **out);
void gpu_monitor_close(GpuMonitor *g); /* NULL is fine */

/* Looks once more, then what came of all looks since the last reading; the next
 * begins here. */
void gpu_monitor_read(GpuMonitor *g, GpuMonitorReading *out);

/* For people, in `room` bytes: the driver, and each GPU with its limit of
 * power, temperature and use. False with a reason when the library is there but
 * does not work; true with "" when there is none. */
bool gpu_monitor_describe(const char *library, char *text, size_t room);
#endif
