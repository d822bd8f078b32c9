/* oprun.h -- one operator call on one backend, between fences.
 *
 * Every buffer has canaries before and after it and is exactly as large as
 * the contract says. Results, saved and scratch bytes start as NaN; what the
 * row does not keep for the backward run is NaN again before it. Of an operand
 * that the backend asked to have in 16 bits only the copy is there: the operand
 * is NaN. Values come and go as doubles in memory order. */
#ifndef SEG_ENGINE_CHECK_OPRUN_H
#define SEG_ENGINE_CHECK_OPRUN_H
#include "engine/backend/backend.h"

typedef enum FillKind {
    FILL_NORMAL,   /* normal, of deviation hi; 0: 1                        */
    FILL_RANGE,    /* uniform in lo .. hi                                  */
    FILL_GAP,      /* either sign, |v| uniform in lo .. hi: off a kink at 0 */
    FILL_DISTINCT, /* shuffled equal steps over lo .. hi: no two are equal */
    FILL_CLASS,    /* whole numbers lo .. hi: class numbers, 0/1 masks     */
    FILL_APART,    /* operand 0 there, plus or minus lo .. hi              */
} FillKind;

typedef struct Fill {
    FillKind kind;
    double lo, hi;
} Fill;

/* One call to test. Extents are in memory order {n, d, h, w, c}; weights as
 * in tensor.h: conv {co, kd, kh, kw, ci/groups}. */
typedef struct OpCase {
    Attr attr;
    int rank;          /* of the operands                                  */
    Dims x[MAX_IN];    /* all zero: absent                                 */
    Fill fill[MAX_IN]; /* how values are drawn                             */
    unsigned wrt;      /* bit i: the gradient of operand i is wanted       */
    unsigned changes;  /* bit i: the forward run may change operand i      */
    bool eval;         /* evaluation instead of training                   */
    bool no_winograd;  /* see Call.no_winograd                             */
    int8_t tile[2];    /* see Call.tile                                    */
    double floor;      /* see Judge.floor                                  */
    uint32_t number;   /* which draw: seeds the values, names the case     */
} OpCase;

/* "conv #17 d 2 ... x0 2x1x5x7x3 ...": attributes and extents. */
enum { OPCASE_TEXT = 512 };
char *opcase_text(const OpCase *c, char text[OPCASE_TEXT]);

/* An open device; `dev` of backend.h. Its number is for cuda:N. */
typedef struct OpDevice {
    const Backend *be;
    int threads;
    Precision precision; /* of the calls; f32 unless set after opening */
    void *dev;
} OpDevice;

bool opdevice_open(const Backend *be, int threads, OpDevice *out); /* 0 */
bool opdevice_open_at(const Backend *be, int number, int threads,
                      OpDevice *out);
void opdevice_close(OpDevice *d);

/* Values of a call, all in memory order; NULL where absent. */
typedef struct OpValues {
    double *x[MAX_IN], *y, *dy, *dx[MAX_IN];
    int64_t count[MAX_IN], results; /* elements of x[i], dx[i]; of y, dy */
} OpValues;

typedef struct OpOptions {
    bool forward_only;
    bool accumulate;   /* dx starts as 1 and is added to                 */
    bool inplace;      /* y in operand 0's memory, where the row allows  */
    bool inplace_grad; /* dx[0] in dy's memory                           */
    const double *y;   /* KEEP_Y rows: what the backward run sees as y   */
    const Attr *act;   /* see Call.act: a row that the backend fuses    */
    unsigned narrow;   /* bits of Backend.narrow: these tensors are, in the
                        * type of the device's precision                 */
} OpOptions;

/* Extents of the result; false with the reason when the rule refuses. */
bool opcase_shape(const OpCase *c, Tensor *y);

/* Operand values and dy of a case, from its seed, all exact in float. */
bool opcase_values(const OpCase *c, Arena *mem, OpValues *out);

/* Run forward and (if the row and wrt say so) backward with the x and dy of
 * `in`. out: y, dx and x as they are afterwards, from `mem`. False with the
 * reason: a kernel failed, wrote beyond its buffers or changed what it was
 * only to read. */
bool oprun(const OpCase *c, const OpDevice *d, const OpValues *in,
           OpOptions how, Arena *mem, OpValues *out);
#endif
