/* device.cc -- settings from the environment, devices and their properties,
 * names of errors, attributes of kernels. */
#include "tests/cuda/emulator/core.h"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace emu {

Settings settings = {80,    1,      Settings::DRIVER_OK, (size_t)2 << 30, true,
                     false, nullptr};
int current_device;
static std::map<const void *, int> dynamic_limits;
enum { DRIVER_VERSION = 13000, DRIVER_TOO_OLD = 11080, MAX_DEVICES = 64 };

#define ERROR(code, text) \
    {                     \
        code, #code, text \
    }
static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    ERROR(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorDevicesUnavailable,
          "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorNoKernelImageForDevice,
          "no kernel image is available for execution on the device"),
    ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR(cudaErrorUnsupportedPtxVersion,
          "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    ERROR(cudaErrorSystemDriverMismatch,
          "system has unsupported display driver / cuda driver combination"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchOutOfResources,
          "too many resources requested for launch"),
    ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR(cudaErrorAssert, "device-side assert triggered"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorIllegalInstruction,
          "an illegal instruction was encountered"),
    ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorCooperativeLaunchTooLarge,
          "too many blocks in cooperative launch"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched,
          "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing "
          "blocking stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last "
                                  "recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another "
          "thread"),
    ERROR(cudaErrorUnknown, "unknown error"),
};
#undef ERROR

/* -- settings ------------------------------------------------------------- */
[[noreturn]] static void bad_setting(const char *name, const char *value)
{
    stop_at(name, 1, "%s=%s is not understood (see emu_control.h)", name,
            value);
}

static size_t number_setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text) return otherwise;
    size_t n = strtoull(text, &end, 10);
    static const char units[] = "KMG";
    const char *unit = *end ? strchr(units, *end) : nullptr;
    if (unit) n <<= 10 * (unit - units + 1);
    if (end == text || (*end && (!unit || end[1]))) bad_setting(name, text);
    return n;
}

static void set_driver(const char *text)
{
    static const char *const words[] = {"ok", "none", "old"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i])) continue;
        settings.driver = (decltype(settings.driver))i;
        return;
    }
    bad_setting("EMU_DRIVER", text);
}

static void read_failure(const char *text)
{
    char *end;
    const long k = strtol(text, &end, 10);
    long error = cudaErrorMemoryAllocation;
    const bool numbered = *end == ',';
    if (numbered) error = strtol(end + 1, &end, 10);
    const bool sticky = !strcmp(end, ",sticky");
    if (end == text || (*end && !sticky)) bad_setting("EMU_FAIL", text);
    emu_fail_at(k, (int)error, sticky);
}

void settings_read()
{
    static bool done;
    if (done) return;
    done = true;
    const struct {
        const char *name;
        void (*set)(const char *);
    } words[] = {
        {"EMU_ORDER", emu_set_order}, {"EMU_STREAMS", emu_set_streams},
        {"EMU_ASYNC", emu_set_async}, {"EMU_DRIVER", set_driver},
        {"EMU_FAIL", read_failure},
    };
    for (const auto &w : words)
        if (const char *text = getenv(w.name)) w.set(text);
    settings.capability = (int)number_setting("EMU_CC", 80);
    settings.devices = (int)number_setting("EMU_DEVICES", 1);
    settings.memory = number_setting("EMU_MEM", settings.memory);
    settings.guard = number_setting("EMU_GUARD", 1) != 0;
    settings.wrong = getenv("EMU_WRONG");
    if (settings.devices > MAX_DEVICES)
        bad_setting("EMU_DEVICES", getenv("EMU_DEVICES"));
}

/* Limits of the GPUs from a capability on; those of a T4, an RTX 30 (which has
 * the least shared memory of all from 8.0 on) and an H100. */
struct Limits {
    int capability;
    size_t shared, reserved; /* of a block; of the system, for each block */
    int threads;             /* of a multiprocessor */
    int processors;
};
static const Limits &limits()
{
    // few processors with capability 9.0: its kernels are persistent, so that
    // each block gets several tiles even of a small problem
    static const Limits table[] = {{75, 64 << 10, 0, 1024, 40},
                                   {80, 99 << 10, 1024, 1536, 64},
                                   {90, 227 << 10, 1024, 2048, 4},
                                   {100, 99 << 10, 1024, 1536, 64}};
    const Limits *found = table;
    for (const Limits &row : table)
        if (row.capability <= settings.capability) found = &row;
    return *found;
}

size_t shared_limit()
{
    return limits().shared;
}

bool has_sm80()
{
    return settings.capability >= 80;
}

void lacks_sm80(const char *what, const char *file, int line)
{
    stop_at(file, line,
            "%s needs compute capability 8.0, the device has %d.%d (EMU_CC)",
            what, settings.capability / 10, settings.capability % 10);
}

int dynamic_limit(const void *function)
{
    const auto it = dynamic_limits.find(function);
    return it == dynamic_limits.end() ? SHARED_STATIC : it->second;
}

} // namespace emu

using namespace emu;

void emu_set_async(const char *text)
{
    if (strcmp(text, "early") && strcmp(text, "late"))
        bad_setting("EMU_ASYNC", text);
    settings_read();
    settings.copies_early = !strcmp(text, "early");
}

void emu_set_device(int capability, int devices, const char *driver,
                    size_t memory)
{
    settings_read();
    settings.capability = capability;
    settings.devices = devices < MAX_DEVICES ? devices : MAX_DEVICES;
    settings.memory = memory;
    set_driver(driver);
}

/* -- errors --------------------------------------------------------------- */
const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.code == error) return e.name;
    return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.code == error) return e.text;
    return "unrecognized error code";
}

/* -- devices -------------------------------------------------------------- */
cudaError_t cudaDriverGetVersion(int *version)
{
    Call call(CALL_ALWAYS);
    *version = settings.driver == Settings::DRIVER_NONE  ? 0
               : settings.driver == Settings::DRIVER_OLD ? DRIVER_TOO_OLD
                                                         : DRIVER_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    BEGIN(CALL_PLAIN);
    *count = settings.devices;
    return call.end(cudaSuccess);
}

static bool is_device(int device)
{
    return device >= 0 && device < settings.devices;
}

cudaError_t cudaSetDevice(int device)
{
    BEGIN(CALL_FAILS);
    if (!is_device(device)) return call.end(cudaErrorInvalidDevice);
    current_device = device;
    return call.end(cudaSuccess);
}
cudaError_t cudaSetDeviceFlags(unsigned)
{
    BEGIN(CALL_PLAIN);
    return call.end(cudaSuccess);
}
cudaError_t cudaGetDevice(int *device)
{
    BEGIN(CALL_PLAIN);
    *device = current_device;
    return call.end(cudaSuccess);
}

/* Properties of a small GPU of the set capability. The limits that the emulator
 * enforces are the limits of a real GPU. */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *to, int device)
{
    BEGIN(CALL_PLAIN);
    if (!is_device(device)) return call.end(cudaErrorInvalidDevice);
    *to = cudaDeviceProp{};
    snprintf(to->name, sizeof to->name, "emulated");
    to->pciBusID = device + 1;
    to->totalGlobalMem = settings.memory;
    to->sharedMemPerBlock = SHARED_STATIC;
    to->sharedMemPerBlockOptin = shared_limit();
    to->reservedSharedMemPerBlock = limits().reserved;
    to->sharedMemPerMultiprocessor = shared_limit() + limits().reserved;
    to->totalConstMem = 64 * 1024;
    to->regsPerBlock = to->regsPerMultiprocessor = 64 * 1024;
    to->warpSize = 32;
    to->maxThreadsPerBlock = MAX_THREADS;
    to->maxThreadsPerMultiProcessor = limits().threads;
    to->maxBlocksPerMultiProcessor = 16;
    to->maxThreadsDim[0] = to->maxThreadsDim[1] = MAX_THREADS;
    to->maxThreadsDim[2] = 64;
    to->maxGridSize[0] = 0x7fffffff;
    to->maxGridSize[1] = to->maxGridSize[2] = 65535;
    to->major = settings.capability / 10;
    to->minor = settings.capability % 10;
    to->multiProcessorCount = limits().processors;
    to->memoryBusWidth = 256;
    to->l2CacheSize = 4 << 20;
    to->canMapHostMemory = to->concurrentKernels = 1;
    to->pciDeviceID = device;
    to->asyncEngineCount = 2;
    to->unifiedAddressing = to->cooperativeLaunch = 1;
    return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int device)
{
    BEGIN(CALL_PLAIN);
    cudaDeviceProp p;
    const cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e) return call.end(e);
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } table[] = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
        {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
        {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
        {cudaDevAttrClockRate, 1000000},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrKernelExecTimeout, 0},
        {cudaDevAttrIntegrated, p.integrated},
        {cudaDevAttrComputeMode, 0},
        {cudaDevAttrEccEnabled, p.ECCEnabled},
        {cudaDevAttrMemoryClockRate, 1000000},
        {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor,
         (int)p.sharedMemPerMultiprocessor},
        {cudaDevAttrCooperativeLaunch, p.cooperativeLaunch},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin,
         (int)p.sharedMemPerBlockOptin},
    };
    for (const auto &t : table) {
        if (t.attribute != a) continue;
        *value = t.value;
        return call.end(cudaSuccess);
    }
    return call.end(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int bytes, int device)
{
    BEGIN(CALL_PLAIN);
    if (!is_device(device)) return call.end(cudaErrorInvalidDevice);
    if (bytes < 13) return call.end(cudaErrorInvalidValue);
    snprintf(to, (size_t)bytes, "0000:00:%02X.0", device & 255);
    return call.end(cudaSuccess);
}

/* -- attributes of kernels ------------------------------------------------ */
cudaError_t emu_set_attribute(const void *f, cudaFuncAttribute a, int value)
{
    BEGIN(CALL_PLAIN);
    if (a == cudaFuncAttributePreferredSharedMemoryCarveout)
        return call.end(cudaSuccess);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > shared_limit())
        return call.end(cudaErrorInvalidValue);
    dynamic_limits[f] = value;
    return call.end(cudaSuccess);
}

/* Static shared memory is not known before a launch: 0. */
cudaError_t emu_get_attributes(cudaFuncAttributes *to, const void *f)
{
    BEGIN(CALL_PLAIN);
    *to = cudaFuncAttributes{};
    to->maxThreadsPerBlock = MAX_THREADS;
    to->ptxVersion = to->binaryVersion = settings.capability;
    to->maxDynamicSharedSizeBytes = dynamic_limit(f);
    return call.end(cudaSuccess);
}

int emu_checked_build(void)
{
    return checker != nullptr;
}
long emu_race_count(void)
{
    return checker ? checker->count() : 0;
}
