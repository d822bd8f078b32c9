/* bf16_backend.h -- a CPU backend for tests that rounds the operands of matrix
 * products to bf16 and multiplies with the f32 kernels of `cpu`.
 *
 * Operands of its convolutions, transposed convolutions and linear layers are
 * rounded to bf16. In a plan of precision bf16 these read only the 16-bit
 * copies that they requested, and end the test when one is missing; without a
 * precision (tests of results that a planner must not change) they round by
 * themselves. */
#ifndef SEG_TESTS_SUPPORT_BF16_BACKEND_H
#define SEG_TESTS_SUPPORT_BF16_BACKEND_H
#include "engine/backend/backend.h"

Backend half_backend(void);
#endif
