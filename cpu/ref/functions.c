/* functions.c -- the functions of elements of elementwise.def, and constant.
 *
 * Values are computed in double and rounded once. Equal or broadcast operands
 * are read as in broadcast.c. */
#include "cpu/lib/floored_mod.h"
#include "cpu/ref/broadcast.h"
#include "cpu/ref/elementwise.h"
#include <string.h>

/* Attribute i of an operator, a float. */
static double attr_number(const Attr *a, int i)
{
    float f;
    memcpy(&f, &a->word[1 + i], sizeof f);
    return (double)f;
}

#define N(number) (number)
#define P         (attr_number(attr, 0))
#define Q         (attr_number(attr, 1))
#define UNARY(name, kept, cost, value, derivative)         \
    static double name##_value(const Attr *attr, double x) \
    {                                                      \
        (void)attr;                                        \
        return value;                                      \
    }                                                      \
    static double name##_grad(const Attr *attr, double k)  \
    {                                                      \
        (void)attr;                                        \
        return derivative;                                 \
    }                                                      \
    ELEMENTWISE(name, c->kept, cost)
#define UNARY_STEP(name, value)                            \
    static double name##_value(const Attr *attr, double x) \
    {                                                      \
        (void)attr;                                        \
        return value;                                      \
    }                                                      \
    ELEMENTWISE_VALUES(name, 1)
#define BINARY(name, value, grad0, grad1) BROADCAST(name, value, grad0, grad1)
#define BINARY_STEP(name, value)          BROADCAST_VALUES(name, value)
#include "engine/graph/elementwise.def"

// the operand gives the number of axes only
bool KERNEL(constant_fwd)(const Call *c)
{
    values(c->y)[0] = (real)c->attr->constant.value;
    return true;
}
