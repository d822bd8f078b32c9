/* phantom.h -- synthetic data sets, written as files in common formats.
 *
 * For trying the program without data and for tests: the ground truth is known.
 * A unit (a patient, a person, a clip) is a function of its Phantom and its
 * number alone: the same bytes for any number of threads. The data must never
 * be mistaken for real: where a format allows it, files name segengine as the
 * manufacturer and people PHANTOM. */
#ifndef SEG_DATA_PHANTOM_PHANTOM_H
#define SEG_DATA_PHANTOM_PHANTOM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PHANTOM_NUMBERS = 4, PHANTOM_NAME = 64 };

typedef struct Phantom Phantom;

/* One of the numbers that define the size of a data set. */
typedef struct PhantomNumber {
    const char *name; /* NULL: end of the list */
    int def, least, most;
} PhantomNumber;

/* One kind of synthetic data, a row of the table in phantom.c. */
typedef struct PhantomForm {
    const char *format;                    /* its name in data.phantom */
    const char *prefix;                    /* of folder names */
    int version;                           /* increased when the bytes change */
    PhantomNumber number[PHANTOM_NUMBERS]; /* the first: number of units */
    double noise; /* default; its unit depends on the form */
    /* writes the files of unit 0 .. number[0] - 1 below an existing folder; a
     * unit that stops because of `stop` fails */
    bool (*write)(const char *folder, const Phantom *how, int unit);
    /* writes files shared by all units, last; NULL: none */
    bool (*finish)(const char *folder, const Phantom *how);
} PhantomForm;

struct Phantom {
    const PhantomForm *form;
    int number[PHANTOM_NUMBERS]; /* as named by the form */
    uint64_t seed;
    double noise; /* 0 .. 1; 0: none                                         */
    int threads;  /* for writing; 0: one */
    const atomic_bool *stop; /* set to stop writing; may be NULL */
};

/* Returns form 0, 1, ... of the table; NULL after the last. */
const PhantomForm *phantom_form_at(int i);

/* Returns the form of that name, or NULL with an error that lists all. */
const PhantomForm *phantom_form(const char *format);

/* Checks that the numbers are in the ranges of their form. */
bool phantom_check(const Phantom *how);

/* Writes the whole data set to `folder`, which appears complete or not at all;
 * an existing one is kept unchanged. Parent folders are created. Two programs
 * may do this at the same time. *made (may be NULL): it did not exist
 * before. */
bool phantom_write(const char *folder, const Phantom *how, bool *made);

/* Writes "flair-28x256x24-1f2e3d4c": a name that identifies the data set. */
char *phantom_name(const Phantom *how, char name[PHANTOM_NAME]);

/* Makes a folder in an existing parent; fails if it already exists. */
bool phantom_mkdir(const char *path);
#endif
