/* params.h -- named parameters in flat blocks.
 *
 * All parameters that the roots need are in one block of values: first the
 * trained ones, then running statistics, each at a multiple of 64 elements (the
 * gaps are zero and stay zero). Gradients and optimiser moments are blocks of
 * the same layout for the trained part, so an optimiser step, a gradient norm
 * or an average is one call on flat memory. */
#ifndef SEG_ENGINE_PLAN_PARAMS_H
#define SEG_ENGINE_PLAN_PARAMS_H
#include "engine/backend/backend.h"
#include "engine/graph/graph.h"

enum { MAX_STATES = 2 };

typedef struct Param {
    const char *name; /* the node's string: lives as long as the graph */
    int node;         /* number in the graph                           */
    Dims dim;
    int rank;     /* as users see it; RANK_VECTOR for biases                */
    bool trained; /* has a gradient; false: running statistics              */
    bool decayed; /* weight decay applies                                   */
    double rate;  /* factor on the rate of a step, see params_group         */
    double decay; /* below 0: the optimiser's                               */
    bool frozen;  /* not updated in this session, see params_freeze         */
    int64_t at;   /* first element in the blocks, a multiple of PARAM_ALIGN */
} Param;

/* Owns its list and blocks. A zeroed one, or one that only params_list has
 * filled, may be freed like any other. */
typedef struct Params {
    const Backend *be; /* NULL until params_room */
    void *dev;         /* not owned; must be open when this is freed */
    Param *list;       /* in the order of the graph */
    int count;
    int64_t trained;         /* elements of the trained part, gaps included */
    int64_t total;           /* of all                                      */
    void *value;             /* (total) reals, device                       */
    void *grad;              /* (trained); NULL until params_train          */
    void *state[MAX_STATES]; /* (trained) moments; NULL until params_train */
    int states;    /* length of state[]: from the optimiser's row       */
    void *average; /* (total) averages over steps or epochs; NULL: none */
    Dtype copied;  /* of `copy`: BF16 or F16; F64: no copies            */
    void *copy;    /* (trained) the current values in 16 bits           */
} Params;

/* Makes the list only and allocates nothing on a device: for planning. */
bool params_list(Params *p, const Graph *g, const int *root, int roots);
/* Freezes the trained parameters called `name`, or below it as enc1.weight is
 * below enc1: neither gradient nor update from now on. Call it before a plan is
 * built, as a plan has a fixed set of gradients. ERR_USAGE if there are
 * none. */
bool params_freeze(Params *p, const char *name);
/* From now on updates parameter `name` with `rate` times the learning rate of a
 * step and with this weight decay (below 0: the optimiser's). Call it before
 * the first step. ERR_USAGE if the parameter is unknown, a number is not finite
 * or the rate is below 0. */
bool params_group(Params *p, const char *name, double rate, double decay);
/* Keeps copies of the trained values in the type of a precision, if it has one
 * and the backend's device step updates them (DeviceStepSpec.copy). Call it
 * before params_room and before a plan is built; the plan then makes no such
 * copies. */
void params_copied(Params *p, const Backend *be, Precision precision);
/* Allocates the values, zero. */
bool params_room(Params *p, const Backend *be, void *dev);
/* The same, and initialises them from (seed, name): independent of the backend
 * up to rounding, of the order and of other parameters. */
bool params_open(Params *p, const Graph *g, const Backend *be, void *dev,
                 uint64_t seed);
/* Allocates an average of all values, equal to the current values. */
bool params_average(Params *p);
/* Exchanges values and average: evaluation, checkpoints and training then use
 * the other one. */
bool params_swap(Params *p);
/* Allocates gradients and `states` moment blocks, zero. */
bool params_train(Params *p, int states);
void params_free(Params *p);

/* Return the number of elements of trained parameters and of running
 * statistics, without gaps. */
int64_t params_trained(const Params *p);
int64_t params_running(const Params *p);
/* Returns the bytes of value + grad + state blocks for the real type `real`,
 * and of copies; an average needs as much as the values. */
size_t params_bytes(const Params *p, Dtype real, bool train, int states);

int params_find(const Params *p, const char *name); /* or -1 */

/* Returns parameter i in a block of a kind as a tensor (device memory). */
typedef enum ParamBlock {
    PARAM_VALUE,
    PARAM_GRAD,
    PARAM_STATE,
    PARAM_AVERAGE
} ParamBlock;
Tensor params_tensor(const Params *p, int i, ParamBlock block, int state);

/* Does parameter i have a 16-bit copy? Returns the copy, in device memory. */
bool params_has_copy(const Params *p, int i);
Tensor params_copy(const Params *p, int i);

/* Copy one parameter's block to or from user order; `user` has numel elements
 * of F64 (exact for both real types). */
bool params_read(const Params *p, int i, ParamBlock block, int state,
                 double *user);
bool params_write(const Params *p, int i, ParamBlock block, int state,
                  const double *user);
/* params_read in the backend's real type: `user` has numel floats or
 * doubles. */
bool params_read_real(const Params *p, int i, ParamBlock block, int state,
                      void *user);
#endif
