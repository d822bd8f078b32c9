/* snapshot.h -- a checkpoint in host memory, and the thread that writes it.
 *
 * Training changes the parameters, so a checkpoint that is written meanwhile
 * needs a copy of them. To take it costs one copy of each block of parameters;
 * the order of the file, checksums and the disk are the work of the thread. */
#ifndef SEG_ENGINE_CHECKPOINT_SNAPSHOT_H
#define SEG_ENGINE_CHECKPOINT_SNAPSHOT_H
#include "engine/checkpoint/checkpoint.h"

typedef struct Snapshot Snapshot;

/* Returns the bytes that a full snapshot of these parameters takes. */
size_t snapshot_bytes(const Params *p);

/* Makes an empty snapshot; NULL with a reason. */
Snapshot *snapshot_new(void);

/* Copies the checkpoint of the session at this moment. The session may go on or
 * be closed. The memory of an earlier copy of these parameters is used again.
 * After a failure the snapshot is empty. No write may be under way. */
bool snapshot_take(Snapshot *k, Session *s, bool full, const Meta *m);

/* Begins to write a snapshot that is not empty under these paths, in a thread
 * (in this one if the system starts none): the files of a checkpoint_save_as at
 * the time of the copy. Ends with snapshot_wait, and may then be repeated. */
bool snapshot_write(Snapshot *k, const char *const *path, int paths);
/* Has the write ended? */
bool snapshot_done(const Snapshot *k);
/* Waits for the end of the write. False if the write failed, with its
 * reason. */
bool snapshot_wait(Snapshot *k);

/* Waits for a write under way. NULL is fine. */
void snapshot_free(Snapshot *k);
#endif
