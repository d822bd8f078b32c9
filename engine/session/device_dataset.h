/* device_dataset.h -- prepared samples that stay on the device.
 *
 * The samples before augmentation are uploaded once. Each batch is then made on
 * the device (batch_gather.h), and only the random decisions for it are copied.
 * It uses the device of a session, which must outlive it. */
#ifndef SEG_ENGINE_SESSION_DEVICE_DATASET_H
#define SEG_ENGINE_SESSION_DEVICE_DATASET_H
#include "engine/backend/augment.h"
#include "engine/backend/backend.h"

enum { DEVICE_DATASET_FIELDS = 16 };

/* One field of all samples; all samples have the same extents. */
typedef struct DeviceDatasetField {
    Dims dim;       /* of a sample, n = 1                            */
    bool image;     /* intensities                                   */
    bool nearest;   /* class numbers 0 .. 255: stored as bytes       */
    uint32_t first; /* first noise draw of this image: change_next of all
                     * images before it in the set, used here or not */
} DeviceDatasetField;

typedef struct DeviceDataset DeviceDataset;

/* Bytes of `samples` samples on the device; false if they overflow size_t. */
bool device_dataset_bytes(const DeviceDatasetField *field, int fields,
                          int32_t samples, size_t *bytes);

/* Returns the bytes of scratch memory on the device that augmenting batches
 * `out` needs (NULL: field not used). */
size_t device_dataset_room(const Tensor *const out[], int fields);

/* Allocates blocks for the samples, and scratch memory `room`, which a gather
 * enlarges if needed. ERR_USAGE if the backend has no gather. */
bool device_dataset_open(const Backend *be, void *dev,
                         const DeviceDatasetField *field, int fields,
                         int32_t samples, size_t room, DeviceDataset **out);
void device_dataset_close(DeviceDataset *r); /* NULL is fine */

/* Stores sample `number` (from 0): value[f] is F32 in memory order on the host.
 * Fails if a class number is not a whole number from 0 to 255. */
bool device_dataset_put(DeviceDataset *r, int32_t number,
                        const float *const value[]);

/* Gathers samples number[0 .. count) into out[f] (device, F32, BF16 or F16;
 * NULL: not used), augmented: change[k * count + i] is the k-th change of
 * sample i. For each k all samples have the same kind, or CHANGE_NONE.
 * Queued. */
bool device_dataset_gather(DeviceDataset *r, const int32_t *number, int count,
                           const Change *change, int steps,
                           const Tensor *const out[]);
#endif
