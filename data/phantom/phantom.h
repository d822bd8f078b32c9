/* phantom.h -- data sets that are made up, as files of the kind people have.
 *
 * For trying the program without data and for tests: the truth is known. A
 * unit (a patient, a person, a clip) is a function of its Phantom and its
 * number alone: the same bytes for any number of threads. Made to resemble,
 * never to be taken for real: where files have a place for it, they name
 * segengine as the manufacturer and people PHANTOM. */
#ifndef SEG_DATA_PHANTOM_PHANTOM_H
#define SEG_DATA_PHANTOM_PHANTOM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PHANTOM_NUMBERS = 4, PHANTOM_NAME = 64 };

typedef struct Phantom Phantom;

/* One of the numbers that say how large a set is. */
typedef struct PhantomNumber {
    const char *name; /* NULL: no more of them */
    int def, least, most;
} PhantomNumber;

/* One kind of made-up data, a row of the table in phantom.c. */
typedef struct PhantomForm {
    const char *format; /* its name in data.phantom                         */
    const char *prefix; /* of folders                                       */
    int version;        /* counts up when the bytes change                  */
    PhantomNumber number[PHANTOM_NUMBERS]; /* the first: how many units     */
    double noise;        /* the usual; its unit is the form's own           */
    bool (*ready)(void); /* fails where it cannot be written; NULL: can be  */
    /* the files of unit 0 .. number[0] - 1 below a folder that is there; a
     * unit that is given up because of `stop` has failed                     */
    bool (*write)(const char *folder, const Phantom *how, int unit);
    /* what all units share, last; NULL: nothing                             */
    bool (*finish)(const char *folder, const Phantom *how);
} PhantomForm;

struct Phantom {
    const PhantomForm *form;
    int number[PHANTOM_NUMBERS]; /* as the form names them                   */
    uint64_t seed;
    double noise; /* 0 .. 1; 0: none                                         */
    int threads;  /* for writing; 0: one                                     */
    const atomic_bool *stop; /* raise it to give up writing; may be NULL      */
};

/* Form 0, 1, ... of the table; NULL after the last. */
const PhantomForm *phantom_form_at(int i);

/* The form of that name, or NULL with an error that lists them. */
const PhantomForm *phantom_form(const char *format);

/* Are the numbers inside the ranges of their form? */
bool phantom_check(const Phantom *how);

/* The whole data set in `folder`, which appears complete or not at all; one
 * that is there is kept as it is. The folders above it are made. Two programs
 * may do this at once. *made (may be NULL): it was not there before. */
bool phantom_write(const char *folder, const Phantom *how, bool *made);

/* "flair-28x256x24-1f2e3d4c": a name that tells data sets apart. */
char *phantom_name(const Phantom *how, char name[PHANTOM_NAME]);

/* A folder whose parent is there; one that is there already is a fault. */
bool phantom_mkdir(const char *path);
#endif
