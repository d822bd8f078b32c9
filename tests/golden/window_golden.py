#!/usr/bin/env python3
"""window_golden.py -- the numbers of window_golden.h, computed by PyTorch.

    python3 tests/golden/window_golden.py > tests/golden/window_golden.h

Only needed to make the header again; the tests read the header. Convolutions,
pooling, upsampling and normalisation in float64. Operands and dy are closed
formulas of the index in user order. Each array (result, gradients, running
statistics) is stored as two weighted sums, which change with every exchange, shift
or loss of an element. Made with PyTorch 1.13.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(shape, a, b):
    """((i * a) mod b) / b - 1/2 for i = 0, 1, ..."""
    n = 1
    for s in shape:
        n *= s
    return (((torch.arange(n) * a) % b).double() / b - 0.5).reshape(shape)


def golden(name, fn, *shapes, wrt=None, fixed=()):
    """Prints fn of operands of these shapes; `fixed`: operands that torch changes."""
    x = [wave(s, 389 + 2 * i, 1009) for i, s in enumerate(shapes)]
    for i in fixed:
        x[i] += 1  # a variance is positive
    wrt = range(len(x)) if wrt is None else wrt
    for i in wrt:
        x[i].requires_grad_(True)
    y = fn(*x)
    (y * wave(y.shape, 17, 41)).sum().backward()
    arrays = [y] + [x[i].grad for i in wrt]
    arrays += [x[i] for i in range(len(x)) if i not in wrt]
    sums = []
    for v in arrays:
        v = v.detach()
        sums += [float((v * wave(v.shape, 7, 31)).sum())]
        sums += [float((v * wave(v.shape, 5, 23)).sum())]
    print(f"static const double golden_{name}[{len(sums)}] = {{")
    for v in sums:
        text = f"{v:.17g}"
        print(f"    {text if '.' in text or 'e' in text else text + '.0'},")
    print("};\n")


def main():
    print("/* window_golden.h -- numbers of PyTorch, made by window_golden.py. */")
    print("#ifndef SEG_WINDOW_GOLDEN_H\n#define SEG_WINDOW_GOLDEN_H")
    print("// clang-format off\n")
    golden(
        "conv2d",
        lambda x, w, b: F.conv2d(
            F.pad(x, (1, 0, 2, 1)), w, b, stride=(2, 1), dilation=(1, 2), groups=2
        ),
        (2, 4, 5, 6), (6, 2, 3, 2), (6,),
    )
    golden(
        "conv3d",
        lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 2), padding=1),
        (2, 3, 4, 5, 6), (5, 3, 3, 3, 3), (5,),
    )
    golden(
        "conv1d",
        lambda x, w: F.conv1d(x, w, padding=2, dilation=2),
        (3, 4, 11), (5, 4, 3),
    )
    golden(
        "upconv2d",
        lambda x, w, b: F.conv_transpose2d(
            x, w, b, stride=(2, 3), padding=(1, 0), output_padding=(1, 2),
            groups=2, dilation=(1, 2)
        ),
        (2, 4, 5, 3), (4, 3, 4, 2), (6,),
    )
    golden(
        "upconv3d",
        lambda x, w, b: F.conv_transpose3d(x, w, b, stride=2, padding=1),
        (1, 3, 2, 3, 4), (3, 2, 4, 4, 4), (2,),
    )
    golden(
        "linear",
        lambda x, w, b: F.linear(x.movedim(1, -1), w, b).movedim(-1, 1),
        (2, 5, 3, 4), (7, 5), (7,),
    )
    golden(
        "maxpool",
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1)),
        (2, 3, 7, 5),
    )
    for count_all in (0, 1):
        golden(
            f"avgpool{count_all}",
            lambda x: F.avg_pool3d(
                x, (2, 3, 2), (1, 2, 2), (0, 1, 1),
                count_include_pad=bool(count_all),
            ),
            (2, 3, 4, 5, 6),
        )
    for align in (0, 1):
        golden(
            f"upsample{align}",
            lambda x: F.interpolate(
                x, scale_factor=(2, 3), mode="bilinear",
                align_corners=bool(align),
            ),
            (2, 3, 4, 5),
        )
    golden(
        "upsample3d",
        lambda x: F.interpolate(
            x, scale_factor=(1, 2, 3), mode="trilinear", align_corners=False
        ),
        (1, 2, 3, 2, 4),
    )
    for train in (0, 1):
        golden(
            f"batch_norm{train}",
            lambda x, g, b, m, v: F.batch_norm(
                x, m, v, g, b, bool(train), 0.25, 0.0625
            ),
            (3, 4, 5, 2), (4,), (4,), (4,), (4,), wrt=(0, 1, 2), fixed=(4,),
        )
    golden(
        "instance_norm",
        lambda x, g, b: F.instance_norm(x, None, None, g, b, eps=0.0625),
        (2, 3, 4, 5), (3,), (3,),
    )
    golden(
        "group_norm",
        lambda x, g, b: F.group_norm(x, 2, g, b, 0.0625),
        (2, 6, 4, 3), (6,), (6,),
    )
    golden(
        "layer_norm",
        lambda x, g, b: F.layer_norm(x.movedim(1, -1), (6,), g, b, 0.0625)
        .movedim(-1, 1),
        (2, 6, 4, 3), (6,), (6,),
    )
    print("// clang-format on\n#endif")


main()
