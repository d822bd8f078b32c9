/* bf16_backend.h -- the cpu backend as one that makes bf16 of what it
 * multiplies, and multiplies that by its kernels of f32.
 *
 * What its convolutions, transposed convolutions and linear layers read is
 * rounded to bf16. In a plan of precision bf16 they read only the copies that
 * they asked for, and end the test when one is missing; without a precision
 * (tests of what a planner must not change) they round by themselves. */
#ifndef SEG_TESTS_SUPPORT_BF16_BACKEND_H
#define SEG_TESTS_SUPPORT_BF16_BACKEND_H
#include "engine/backend/backend.h"

Backend half_backend(void);
#endif
