/* self_check.h -- a check of a few seconds before a GPU computes results.
 *
 * It runs the first small case of every suite in one precision, on the GPU and
 * on `ref`, within the bounds of `segengine check`, which also runs these
 * cases. A check that passed is remembered by a file in the cache folder of the
 * user (user_cache.h), whose name and content are all that the result depends
 * on: the program, the GPU with its driver, the precision. One file belongs to
 * one such key, so that processes that start at the same time write the same
 * bytes, and none waits for another.
 *
 * A failed check is not remembered: its cause may be a driver, a cable or
 * another program on the GPU, none of which has to change the key, and a user
 * who has removed the cause must not have to know about a file. */
#ifndef SEG_ENGINE_CHECK_SELF_CHECK_H
#define SEG_ENGINE_CHECK_SELF_CHECK_H
#include "engine/backend/backend.h"

/* Runs the cases on GPU `number` of the backend; *cases is their number. False,
 * ERR_DEVICE, at the first case that fails. The reason is one line for a
 * report: precision, operator, case, value, wanted value, GPU, driver, program,
 * and the command that repeats the check. */
bool self_check_run(const Backend *be, int number, Precision p, int *cases);

/* The file of a self-check that passed, and the content that proves it. */
typedef struct SelfCheckRecord {
    char *path, *text; /* from the caller's arena */
} SelfCheckRecord;

/* Finds the record of a GPU, a precision and this program; false with the
 * reason why a result cannot be remembered. `gpu` is its Backend.describe. */
bool self_check_record(const char *gpu, Precision p, Arena *mem,
                       SelfCheckRecord *out);
/* Is there this record? A damaged or foreign file is none. */
bool self_check_passed(const SelfCheckRecord *r);
/* Writes it, in one step (file_replace). */
bool self_check_remember(const SelfCheckRecord *r);
#endif
