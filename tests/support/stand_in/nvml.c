/* nvml.c -- a stand-in for NVML, the driver's library, with two GPUs; both
 * answer as the first one to their PCI addresses.
 *
 * Tests build it as libnvidia-ml.so.1 and find it through LD_LIBRARY_PATH. It
 * has the functions that the program's nvml.c calls. Each sample of the first
 * GPU finds its use 10 % higher (0, 10, ... 90, 0, ...), 200 W, and 50 J more;
 * the second reports nothing but its name. NVML_INIT=18 makes it fail like a
 * driver that was replaced; NVML_ENERGY=none is a GPU without an energy
 * counter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINE = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int first, second;
static unsigned looks;

int nvmlInit_v2(void)
{
    const char *code = getenv("NVML_INIT");
    return code ? atoi(code) : FINE;
}

int nvmlShutdown(void)
{
    return FINE;
}

const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : "Not Found";
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "550.54.14");
    return FINE;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return FINE;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = index ? &second : &first;
    return FINE;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    *device = &first;
    return strcmp(address, "0000:00:00.0") && strcmp(address, "0000:00:01.0")
               ? NOT_FOUND
               : FINE;
}

int nvmlDeviceGetName(void *device, char *text, unsigned bytes)
{
    snprintf(text, bytes, device == &first ? "Stand-in 1" : "Stand-in 2");
    return FINE;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned use[2])
{
    if (device != &first) return NOT_SUPPORTED;
    use[0] = looks++ % 10 * 10;
    use[1] = 1;
    return FINE;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw)
{
    *mw = 200000;
    return device == &first ? FINE : NOT_SUPPORTED;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw)
{
    *mw = 700000;
    return device == &first ? FINE : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long bytes[3])
{
    bytes[0] = 8ull << 30, bytes[1] = 6ull << 30, bytes[2] = 2ull << 30;
    return device == &first ? FINE : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = 41;
    return device == &first && sensor == 0 ? FINE : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    *mj = 1000000ull + 50000ull * looks;
    return device == &first && !getenv("NVML_ENERGY") ? FINE : NOT_SUPPORTED;
}
