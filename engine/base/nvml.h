/* nvml.h -- state of an NVIDIA GPU from its driver: utilisation, power, memory,
 * temperature, energy.
 *
 * The numbers come from NVML, the library of the driver. It is opened on demand
 * and needs no CUDA toolkit, so a program without CUDA can use it too. A
 * separate thread samples it at an interval: no measurement waits for it, and
 * no result depends on it. */
#ifndef SEG_ENGINE_BASE_NVML_H
#define SEG_ENGINE_BASE_NVML_H
#include <stdbool.h>
#include <stddef.h>

/* The name of NVML on every system with a driver. */
#define NVML_LIBRARY "libnvidia-ml.so.1"

typedef struct GpuMonitor GpuMonitor;

/* Values since the last reading; NAN if this GPU does not report one. use and
 * watts are means over the samples, bytes and celsius maxima. joules is the
 * GPU's energy counter if it has one (since Volta), else the power of each
 * sample times the time to the next one. */
typedef struct GpuMonitorReading {
    double use;     /* percent of the time in which a kernel ran */
    double watts;   /* of the whole board                        */
    double bytes;   /* of its memory in use, by all programs     */
    double celsius; /* of the chip                               */
    double joules;
    int looks;
} GpuMonitorReading;

/* Starts to sample the GPU with this PCI address ("0000:0b:00.0") every
 * `every_s` seconds. `library` is NVML_LIBRARY except in tests. False with a
 * reason if there is no library, no such GPU or no thread. */
bool gpu_monitor_open(const char *library, const char *address, double every_s,
                      GpuMonitor **out);
void gpu_monitor_close(GpuMonitor *g); /* NULL is fine */

/* Takes one more sample and returns the summary since the last reading; the
 * next reading begins here. */
void gpu_monitor_read(GpuMonitor *g, GpuMonitorReading *out);

/* Writes the version of the driver, "580.159.04". False with a reason. */
bool gpu_driver_version(const char *library, char *text, size_t room);

/* Writes a description for people into `text` of `room` bytes: the driver, and
 * each GPU with its power limit, temperature and utilisation. False with a
 * reason if the library is present but does not work; true with "" if it is
 * absent. */
bool gpu_monitor_describe(const char *library, char *text, size_t room);
#endif
