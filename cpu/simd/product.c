/* product.c -- a row of pixels times a panel of weights: the inner loop of
 * convolution, of its gradient in x, of transposed convolution and linear. How
 * it is blocked is in product.h. */
#include "cpu/simd/product.h"

void ISA_NAME(product)(const PanelGemm *p);
void ISA_NAME(product)(const PanelGemm *p)
{
    product_row(p);
}
