/* checkpoint.h -- a run's state in one safetensors file.
 *
 * A checkpoint is a valid safetensors file: no trailer, no padding between
 * tensors, names sorted, header padded with spaces so that data starts at a
 * multiple of 64. Tensors are in user order and of the backend's real type:
 * parameters under their names, then optim.m.<name> and optim.v.<name>, the
 * moments, and ema.<name> or swa.<name>, averages over steps or epochs.
 * Everything else is text in __metadata__: CRC32C of each tensor and
 * of the header (see safetensors.h), `format`, `contents`, `steps`, and the
 * caller's pairs. Nothing in it depends on clock, host, path or threads. */
#ifndef SEG_ENGINE_CHECKPOINT_CHECKPOINT_H
#define SEG_ENGINE_CHECKPOINT_CHECKPOINT_H
#include "engine/checkpoint/safetensors.h"
#include "engine/session/session.h"

/* What this program writes under `format`. A file of a later number is
 * refused, one without `format` is somebody else's: weights only. */
#define CHECKPOINT_FORMAT "segengine 1"

/* Write parameters (and moments when `full`) to PATH: PATH.tmp.<pid> in the
 * same folder, fsync, read again and verified, renamed, folder fsynced.
 * A failure leaves the file that was there untouched and no tmp behind; the
 * reason names path, bytes wanted and bytes free when the disk is full.
 * Values that are not finite are not saved. Keys of `m` are [a-z0-9_.]; the
 * keys that are ours are left out, so a Meta that was loaded may be given. */
bool checkpoint_save(const char *path, Session *s, bool full, const Meta *m);

/* Numbers that lie beside the parameters in a file: those of a batch, of which
 * any may be what is not finite. Names begin with CHECKPOINT_BATCH; loading
 * passes them over. */
#define CHECKPOINT_BATCH "batch."
typedef struct Extra {
    const char *name;
    int axes;
    int64_t shape[ST_AXES];
    const float *data;
} Extra;
bool checkpoint_save_with(const char *path, Session *s, bool full,
                          const Meta *m, const Extra *extra, int extras);

/* A checkpoint of the session as it is now, held in memory while the disk
 * cannot take it; NULL with a reason. The session may go on or be closed. */
typedef struct KeptCheckpoint KeptCheckpoint;
KeptCheckpoint *checkpoint_keep(Session *s, bool full, const Meta *m);
/* Write it, as checkpoint_save would have done then: to the byte. */
bool checkpoint_save_kept(const char *path, const KeptCheckpoint *k);
void checkpoint_drop(KeptCheckpoint *k); /* NULL is fine */

/* Read and verify the whole file, then set the session's parameters (and
 * moments and count when `full`; a file without them is then an error).
 * Names and shapes must match exactly, else the reason lists what is missing,
 * unknown and of another shape (the first 3 each). Left out on reading: moments
 * unless `full`, PyTorch's *.num_batches_tracked, and parameters that only
 * training needs: those that the network in the file, of the outputs, has not.
 * Averages, ema.*: with `full` the session's, else the weights themselves, as
 * they are what the run measured. The session is set wholly or not at all,
 * unless the device or memory fails on the way. *m, without the checksums,
 * lives in `mem`; m->note tells of a file without. */
bool checkpoint_load(const char *path, Session *s, bool full, Arena *mem,
                     Meta *m);

/* Name in the network of what the file calls `name`; NULL leaves it out. The
 * text must live until the next call only. */
typedef const char *RenameFn(void *ctx, const char *name);

/* Weights only, each name of the file passed through `rename` first, those of
 * moments and averages too (but PyTorch's counts). `partial`: parameters that
 * none is renamed to keep their values. */
bool checkpoint_import(const char *path, Session *s, RenameFn *rename,
                       void *ctx, bool partial, Arena *mem, Meta *m);

/* Metadata only, header verified; for inspect and resume. */
bool checkpoint_meta(const char *path, Arena *mem, Meta *m);

/* Put these pairs into the metadata of a file, in place of those of the same
 * keys; all else stays as it is, to the byte. Verified, and replaced as a save
 * does it: whole or not at all. */
bool checkpoint_note(const char *path, const Meta *m);

/* Header and every tensor verified: true when the file can be loaded. */
bool checkpoint_verify(const char *path);

/* The full checkpoint of a folder (checkpoint_*.safetensors) with the most
 * steps among those that verify; of equals checkpoint_last, then by name.
 * *said has a sentence about each that would have come before it and why it
 * did not do, each ending in a newline; "" when there was none. False when no
 * file will do; the reason then has the sentences. */
bool checkpoint_newest(const char *folder, Arena *mem, const char **path,
                       const char **said);
#endif
