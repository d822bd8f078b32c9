/* product.c -- a row of pixels times a panel of weights: the inner loop of
 * fprop and dgrad of convolution, transposed convolution and linear. Its
 * register blocks are in product.h. */
#include "cpu/simd/product.h"

void ISA_NAME(product)(const PanelGemm *p);
void ISA_NAME(product)(const PanelGemm *p)
{
    product_row(p);
}
