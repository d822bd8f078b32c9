/* checkpoint.h -- a run's state in one safetensors file.
 *
 * A checkpoint is a valid safetensors file: no trailer, no padding between
 * tensors, names sorted, header padded with spaces so that data starts at a
 * multiple of 64. Tensors are in user order and of the backend's real type:
 * parameters under their names, the moments optim.m.<name> and optim.v.<name>,
 * and the averages over steps ema.<name> or over epochs swa.<name>. All else is
 * text in __metadata__: CRC32C of each tensor and of the header (see
 * safetensors.h), `format`, `contents`, `steps`, and the caller's pairs.
 * Nothing in it depends on clock, host, path or threads. */
#ifndef SEG_ENGINE_CHECKPOINT_CHECKPOINT_H
#define SEG_ENGINE_CHECKPOINT_CHECKPOINT_H
#include "engine/checkpoint/safetensors.h"
#include "engine/session/session.h"

/* The value of `format`. A file with a later number is refused; a file without
 * `format` is from another program and holds weights only. */
#define CHECKPOINT_FORMAT "segengine 1"

/* Writes parameters (and moments if `full`) to PATH: writes PATH.tmp.<pid> in
 * the same folder, fsync, reads it again and verifies it, renames, fsyncs the
 * folder. A failure leaves the old file untouched and no tmp file; the reason
 * names the path, and on a full disk the bytes needed and free. Refuses values
 * that are not finite. Keys of `m` are [a-z0-9_.]; keys that this function
 * writes itself are ignored in `m`, so a loaded Meta may be passed. */
bool checkpoint_save(const char *path, Session *s, bool full, const Meta *m);

/* Further arrays in a file: the fields of a batch, which may contain values
 * that are not finite. Names begin with CHECKPOINT_BATCH; loading skips
 * them. */
#define CHECKPOINT_BATCH "batch."
typedef struct Extra {
    const char *name;
    int axes;
    int64_t shape[ST_AXES];
    const float *data;
} Extra;
/* Writes one file under several paths, in this order: see
 * safetensors_save_as. */
bool checkpoint_save_as(const char *const *path, int paths, Session *s,
                        bool full, const Meta *m, const Extra *extra,
                        int extras);

/* Reads and verifies the whole file, then sets the session's parameters (and
 * moments and step count if `full`; a file without moments is then an error).
 * Names and shapes must match exactly, else the reason lists missing names,
 * unknown names and wrong shapes (the first 3 of each). Skips: moments unless
 * `full`, PyTorch's *.num_batches_tracked, and parameters that only the loss
 * needs, that is, that are not in the file's own network of the outputs.
 * Averages, ema.*: with `full` they set the session's average, else they are
 * used as the weights, since the run measured them. The session is set
 * completely or not at all, unless the device or memory fails halfway. *m,
 * without the checksums, lives in `mem`; m->note says so if the file has no
 * checksums. */
bool checkpoint_load(const char *path, Session *s, bool full, Arena *mem,
                     Meta *m);

/* Returns the name in the network for `name` of the file; NULL skips the
 * tensor. The string must stay valid until the next call only. */
typedef const char *RenameFn(void *ctx, const char *name);

/* Loads weights only; `rename` maps each name of the file, also of moments and
 * averages (but not PyTorch's counts). `partial`: parameters without a tensor
 * keep their values. */
bool checkpoint_import(const char *path, Session *s, RenameFn *rename,
                       void *ctx, bool partial, Arena *mem, Meta *m);

/* Reads the metadata only, header verified; for inspect and resume. */
bool checkpoint_meta(const char *path, Arena *mem, Meta *m);

/* Sets these pairs in the metadata of a file, replacing equal keys; all else
 * stays the same byte for byte. Verified and replaced atomically as by a
 * save. */
bool checkpoint_note(const char *path, const Meta *m);

/* Verifies header and every tensor: true if the file can be loaded. */
bool checkpoint_verify(const char *path);

/* Finds the full checkpoint of a folder (checkpoint_*.safetensors) with the
 * most steps that verifies; among equals checkpoint_last, then by name. *said
 * has one line, with a newline, for each better candidate and why it was not
 * used; "" if there was none. False if no file is usable; the reason then
 * contains these lines. */
bool checkpoint_newest(const char *folder, Arena *mem, const char **path,
                       const char **said);
#endif
