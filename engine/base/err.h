/* err.h -- failure is a bool; the reason is one line of text per thread.
 *
 * A function that can fail returns false after it (or something below it)
 * called fail(). Each level may say where it was with within(), so a reason
 * reads from the outside in: "case_017: slice 3: dicom: no pixel data".
 * The text is bounded, thread-local and never allocated. A promise broken
 * between two of our own functions is not a failure but a CHECK. */
#ifndef SEG_ENGINE_BASE_ERR_H
#define SEG_ENGINE_BASE_ERR_H
#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define ERR_FORMAT(a, b) __attribute__((format(printf, a, b)))
#else
#define ERR_FORMAT(a, b)
#endif

/* What kind of thing went wrong; the value is the exit code of the program. */
typedef enum ErrKind {
    ERR_NONE = 0,
    ERR_FAILURE = 1,  /* anything not below: disk full, no memory, ...  */
    ERR_USAGE = 2,    /* command line or recipe                         */
    ERR_DATA = 3,     /* a file that is damaged, missing or unsuitable  */
    ERR_DEVICE = 4,   /* a device that is absent or failed              */
    ERR_DIVERGED = 5, /* loss, gradient or prediction is not finite     */
} ErrKind;

/* Store the reason and its kind; return false. */
bool fail(const char *fmt, ...) ERR_FORMAT(1, 2);        /* ERR_FAILURE */
bool fail_usage(const char *fmt, ...) ERR_FORMAT(1, 2);  /* ERR_USAGE   */
bool fail_data(const char *fmt, ...) ERR_FORMAT(1, 2);   /* ERR_DATA    */
bool fail_device(const char *fmt, ...) ERR_FORMAT(1, 2); /* ERR_DEVICE  */
bool fail_diverged(const char *fmt, ...) ERR_FORMAT(1, 2);

/* The same for want of memory, of kind ERR_FAILURE (the host's) or ERR_DEVICE;
 * also keeps the bytes that were wanted (> 0) and there (0: unknown). */
bool fail_memory(ErrKind kind, size_t wanted, size_t room, const char *fmt, ...)
    ERR_FORMAT(4, 5);

/* Put "text: " in front of the reason, keep its kind; return false. When both
 * do not fit, `text` is cut, not the reason. */
bool within(const char *fmt, ...) ERR_FORMAT(1, 2);

/* This thread's last reason ("" when none) and its kind. They stay until the
 * next failure: only a false says that they are news. */
const char *err_text(void);
ErrKind err_kind(void);
/* Bytes that were wanted, and in *room those that were there, when the last
 * reason is that of fail_memory(); else 0. */
size_t err_wanted(size_t *room);

/* Hand a reason from a worker to the thread that reports it: that thread calls
 * this with what the worker copied from its err_text(). Returns false. */
bool err_set(ErrKind kind, const char *text);

/* For functions with something to release: jump to their `done:` label. What
 * that label frees must be initialised before the first TRY. */
#define TRY(e)               \
    do {                     \
        if (!(e)) goto done; \
    } while (0)

/* A broken promise between two of our own functions: abort with file:line. */
#define CHECK(e) ((e) ? (void)0 : check_failed(#e, __FILE__, __LINE__))
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void check_failed(const char *expr, const char *file, int line);

enum { ERR_MAX = 2048 }; /* bytes of a reason, with its end */
#endif
