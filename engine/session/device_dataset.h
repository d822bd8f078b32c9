/* device_dataset.h -- a data set that stays on the device.
 *
 * Samples as they are before they are changed at random, filled in once; each
 * batch is then made there (batch_gather.h), and only what was decided for it
 * is copied. It uses the device of a session, which must outlive it. */
#ifndef SEG_ENGINE_SESSION_DEVICE_DATASET_H
#define SEG_ENGINE_SESSION_DEVICE_DATASET_H
#include "engine/backend/augment.h"
#include "engine/backend/backend.h"

enum { RESIDENT_FIELDS = 16 };

/* A field of all samples; extents are the same for all. */
typedef struct DeviceDatasetField {
    Dims dim;       /* of a sample, n = 1                                  */
    bool image;     /* intensities                                         */
    bool nearest;   /* class numbers 0 .. 255: kept in a byte each         */
    uint32_t first; /* draw of noise of this image: change_next of those
                     * before it in the set, used here or not              */
} DeviceDatasetField;

typedef struct DeviceDataset DeviceDataset;

/* Bytes of `samples` samples on the device; false when no size_t holds them. */
bool device_dataset_bytes(const DeviceDatasetField *field, int fields,
                          int32_t samples, size_t *bytes);

/* Bytes of room that batches `out` (NULL: not wanted) take on the device where
 * samples are changed. */
size_t device_dataset_room(const Tensor *const out[], int fields);

/* Empty blocks, and room; a gather makes more where it wants more. ERR_USAGE
 * when the backend gathers nothing. */
bool device_dataset_open(const Backend *be, void *dev,
                         const DeviceDatasetField *field, int fields,
                         int32_t samples, size_t room, DeviceDataset **out);
void device_dataset_close(DeviceDataset *r); /* NULL is fine */

/* Sample `number` (from 0): value[f] F32 in memory order on the host. Fails
 * when what should be a class number is none. */
bool device_dataset_put(DeviceDataset *r, int32_t number,
                        const float *const value[]);

/* Samples number[0 .. count) into out[f] (device, F32, BF16 or F16; NULL: not
 * wanted), changed: change[k * count + i] is the k-th change of sample i, and
 * all samples have the same kind there or CHANGE_NONE. Queued. */
bool device_dataset_gather(DeviceDataset *r, const int32_t *number, int count,
                           const Change *change, int steps,
                           const Tensor *const out[]);
#endif
