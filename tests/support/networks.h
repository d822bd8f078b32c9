/* networks.h -- small networks and what to feed them, for tests of the engine.
 *
 * Each function appends to a graph as a recipe would and ends the test when
 * that fails. Parameters are called pN.weight, pN.bias, ..., N counting from
 * 1 in one Net; extents are in memory order {n, d, h, w, c}. */
#ifndef SEG_TESTS_SUPPORT_NETWORKS_H
#define SEG_TESTS_SUPPORT_NETWORKS_H
#include "engine/session/session.h"
#include "tests/test.h"

typedef struct Net {
    Graph g;
    int layers;
    bool bias;           /* of the convolutions that follow                   */
    bool scaled;         /* its session has a loss scale                     */
    Precision precision; /* of its session                           */
    Session *s;          /* NULL until net_open                               */
    int input[8], inputs;
    int root[8], roots;
    int loss; /* -1: none                                          */
} Net;

/* Begin an empty network; loss -1. */
void net_new(Net *n);
void net_free(Net *n); /* session too */

int net_input(Net *n, const char *name, Dims dim, int rank);
int net_param(Net *n, const char *tensor, Dims dim, int rank, Init init,
              bool trained);
/* A row with its defaults, or with attributes; operands up to -1. */
int net_op(Net *n, Op op, int a, int b, int c);
int net_row(Net *n, Attr attr, const int *in, int count);

/* Of rank 2 or, where x has it, 3: as written, or with one more axis. */
int net_conv(Net *n, int x, int filters, int kernel); /* size kept         */
int net_upconv(Net *n, int x, int filters);           /* 2x2, stride 2     */
int net_pool(Net *n, int x);                          /* largest of 2x2    */
int net_norm(Net *n, int x);                          /* batch norm        */
int net_relu(Net *n, int x);
/* conv, norm, relu twice. */
int net_block(Net *n, int x, int filters);
/* The U-Net of the brain recipe: `depth` times down from `base` filters,
 * transposed convolutions up, `up .. skip`, logits of one channel. */
int net_unet(Net *n, int x, int base, int depth);

/* A U-Net of 8 x 8 images, two channels, bce against "target"; its session
 * is not opened. roots: logits. */
void net_small(Net *n);
/* A linear layer 2 -> 1 with bias under mse, no convolution. */
void net_linear(Net *n);

/* The session of the roots, threads 1 unless said. */
void net_open(Net *n, const char *device, int threads, const Optim *optim);

/* Every input with batch `count`, in the order of their making. */
int net_extents(const Net *n, int count, PlanInput out[8]);
/* Plan, room and values: element i of input k is draw i of sample `seed`;
 * inputs whose name begins with "t" are 0 or 1. */
Plan *net_plan(Net *n, bool train, int count);
void net_feed(Net *n, Plan *p, uint32_t seed);
/* One training step of batch `count` on the values of `seed`. */
StepResult net_step(Net *n, int count, uint32_t seed, double lr, double clip);

/* All that a session does, of a network of inputs image and target of at most
 * 8 x 8 x 2: open, plan, give room, fill, train thrice, blame, evaluate one
 * sample, read, put aside, close. False with a reason, and nothing left
 * behind. */
bool net_life(Net *n, const char *device, int threads, const Optim *o);

/* Value `i` of the block of parameter `name`. */
double net_get(Net *n, const char *name, ParamBlock block, int64_t i);
/* Everything that training changes, one piece of memory in `mem`: values,
 * moments, count. */
void *net_state(Net *n, Arena *mem, size_t *bytes);
#endif
