/* outer.c -- a sum of outer products over pixels: the inner loop of wgrad. Its
 * register blocks are in outer.h. */
#include "cpu/simd/outer.h"

void ISA_NAME(outer)(const Outer *p);
void ISA_NAME(outer)(const Outer *p)
{
    outer_block(p);
}
