/* oprun.h -- one operator call on one backend, between fences.
 *
 * Every buffer has canaries before and after it and has exactly the size of the
 * contract. Results, saved and scratch bytes start as NaN; tensors that the
 * operator does not keep for the backward run become NaN before it. If the
 * backend requested a 16-bit copy of an operand, only the copy is valid: the
 * operand is NaN. Values are doubles in memory order. */
#ifndef SEG_ENGINE_CHECK_OPRUN_H
#define SEG_ENGINE_CHECK_OPRUN_H
#include "engine/backend/backend.h"

typedef enum FillKind {
    FILL_NORMAL,   /* normal, with standard deviation hi; 0: 1              */
    FILL_RANGE,    /* uniform in lo .. hi                                   */
    FILL_GAP,      /* either sign, |v| uniform in lo .. hi: off a kink at 0 */
    FILL_DISTINCT, /* shuffled equal steps over lo .. hi: no two are equal  */
    FILL_CLASS,    /* whole numbers lo .. hi: class numbers, 0/1 masks      */
    FILL_OFFSET,   /* value of operand 0, plus or minus lo .. hi            */
} FillKind;

typedef struct Fill {
    FillKind kind;
    double lo, hi;
} Fill;

/* One call to test. Extents are in memory order {n, d, h, w, c}; weights as
 * in tensor.h: conv {co, kd, kh, kw, ci/groups}. */
typedef struct OpCase {
    Attr attr;
    int rank;          /* of the operands                               */
    Dims x[MAX_IN];    /* all zero: absent                              */
    Fill fill[MAX_IN]; /* distribution of the values                    */
    unsigned wrt;      /* bit i: compute the gradient of operand i      */
    unsigned changes;  /* bit i: the forward run may change operand i   */
    bool eval;         /* evaluation instead of training                */
    bool no_winograd;  /* see Call.no_winograd                          */
    int8_t tile[2];    /* see Call.tile                                 */
    double floor;      /* see Judge.floor                               */
    uint32_t number;   /* of the draw: seeds the values, names the case */
} OpCase;

/* Writes "conv #17 d 2 ... x0 2x1x5x7x3 ...": attributes and extents. */
enum { OPCASE_TEXT = 512 };
char *opcase_text(const OpCase *c, char text[OPCASE_TEXT]);

/* An open device; `dev` as in backend.h. A number selects cuda:N. */
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

/* Values of a call, all in memory order; NULL if absent. */
typedef struct OpValues {
    double *x[MAX_IN], *y, *dy, *dx[MAX_IN];
    int64_t count[MAX_IN], results; /* elements of x[i], dx[i]; of y, dy */
} OpValues;

typedef struct OpOptions {
    bool forward_only;
    bool accumulate;   /* dx starts as 1 and is added to                  */
    bool inplace;      /* y in operand 0's memory, if allowed             */
    bool inplace_grad; /* dx[0] in dy's memory                            */
    const double *y;   /* KEEP_Y operators: y as the backward run sees it */
    const Attr *act;   /* see Call.act: an activation that is fused       */
    unsigned narrow;   /* bits of Storage.narrow: tensors that are stored in
                        * the 16-bit type of the device's precision       */
} OpOptions;

/* Computes the extents of the result; false with a reason if the rule
 * refuses. */
bool opcase_shape(const OpCase *c, Tensor *y);

/* Draws operand values and dy of a case from its seed, all exact in float. */
bool opcase_values(const OpCase *c, Arena *mem, OpValues *out);

/* Runs forward and (if the operator has a gradient and wrt is set) backward
 * with the x and dy of `in`. out: y, dx and the final x, from `mem`. False with
 * a reason: a kernel failed, wrote outside its buffers or changed a read-only
 * operand. */
bool oprun(const OpCase *c, const OpDevice *d, const OpValues *in,
           OpOptions how, Arena *mem, OpValues *out);
#endif
