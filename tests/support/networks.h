/* networks.h -- small networks and their inputs, for tests of the engine.
 *
 * Each function appends to a graph like a recipe and ends the test when that
 * fails. Parameters are named pN.weight, pN.bias, ..., N counting from 1 in one
 * Net; extents are in memory order {n, d, h, w, c}. */
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
/* An operator with default attributes, or with others; operands up to -1. */
int net_op(Net *n, Op op, int a, int b, int c);
int net_row(Net *n, Attr attr, const int *in, int count);

/* Windows of rank 2, or with a third axis where x has it. */
int net_conv(Net *n, int x, int filters, int kernel); /* size kept         */
int net_upconv(Net *n, int x, int filters);           /* 2x2, stride 2     */
int net_pool(Net *n, int x);                          /* largest of 2x2    */
int net_norm(Net *n, int x);                          /* batch norm        */
int net_relu(Net *n, int x);
/* conv, norm, relu, twice. */
int net_block(Net *n, int x, int filters);
/* The U-Net of the brain recipe: `depth` levels down from `base` filters,
 * transposed convolutions up, `up .. skip`, logits of one channel. */
int net_unet(Net *n, int x, int base, int depth);

/* A U-Net of 8 x 8 images, two channels, bce against "target"; its session
 * is not opened. roots: logits. */
void net_small(Net *n);
/* A linear layer 2 -> 1 with bias under mse, no convolution. */
void net_linear(Net *n);

/* Opens the session of the roots, with 1 thread unless given. */
void net_open(Net *n, const char *device, int threads, const Optim *optim);

/* Extents of every input for batch `count`, in graph order. */
int net_extents(const Net *n, int count, PlanInput out[8]);
/* Plan, memory and inputs: element i of input k is draw i of sample `seed`;
 * inputs with a name that begins with "t" are 0 or 1. */
Plan *net_plan(Net *n, bool train, int count);
void net_feed(Net *n, Plan *p, uint32_t seed);
/* One training step of batch `count` on the inputs of `seed`. */
StepResult net_step(Net *n, int count, uint32_t seed, double lr, double clip);

/* The life of a session, for a network with inputs image and target of at most
 * 8 x 8 x 2: open, plan, bind memory, feed, train three times, blame, evaluate
 * one sample, read, read back, close. False with a reason, without a leak. */
bool net_life(Net *n, const char *device, int threads, const Optim *o);

/* Value `i` of the block of parameter `name`. */
double net_get(Net *n, const char *name, ParamBlock block, int64_t i);
/* All state that training changes, in one block of `mem`: values, moments,
 * count. */
void *net_state(Net *n, Arena *mem, size_t *bytes);
#endif
