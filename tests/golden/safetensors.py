#!/usr/bin/env python3
"""Writes python.safetensors, and checks that Python reads files of segengine.

    python3 tests/golden/safetensors.py             write the file into this folder
    python3 tests/golden/safetensors.py --check F   check F, of safetensors_write.c

Needs the packages numpy and safetensors; exits with 77 when they are absent.
"""
import pathlib
import sys

# this file has the name of the package: do not import the package from here
sys.path = [p for p in sys.path
            if pathlib.Path(p).resolve() != pathlib.Path(__file__).resolve().parent]
try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError:
    sys.exit(77)


def write(path):
    tensors = {
        "conv.weight": np.arange(24, dtype="f4").reshape(2, 1, 4, 3) / 8 - 1,
        "norm.num_batches_tracked": np.array(42, dtype="i8"),
        "empty": np.zeros((0, 4), dtype="f4"),
        "f64": np.array([1e-300, -2.5, 3], dtype="f8"),
        "f16": np.array([0.5, -65504, 6e-8], dtype="f2"),
        "i64": np.array([-1, 2, 1 << 40], dtype="i8"),
        "i32": np.array([-1, 2, 1 << 20], dtype="i4"),
        "u8": np.array([0, 127, 255], dtype="u1"),
        "bool": np.array([False, True, True]),
    }
    save_file(tensors, path, {"format": "pt", "quote": '"\\\n\u00fc'})


def ramp(name, count):
    first = name.encode()[0]
    return bytes((k * 7 + first) & 255 for k in range(count))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return b"%08x" % (crc ^ 0xffffffff)


def check_sums(path, tensors):
    data = path.read_bytes()
    head = data[:8 + int.from_bytes(data[:8], "little")]
    key = b'"crc32c.header":"'
    at = head.index(key) + len(key)
    zeroed = head[:at] + b"00000000" + head[at + 8:]
    assert head[at:at + 8] == crc32c(zeroed)
    key = b'"crc32c.tensors":"'
    at = head.index(key) + len(key)
    sums = b"".join(crc32c(x) for _, x in sorted(tensors))
    assert head[at:at + len(sums) + 1] == sums + b'"'


def check(path):
    tensors = []
    shapes = {
        "head.weight": (np.float32, (3, 5)),
        "enc.bias": (np.float32, (7,)),
        "a scalar": (np.float64, ()),
        "gr\u00f6\u00dfe": (np.uint8, (3,)),
    }
    with safe_open(path, framework="numpy") as f:
        assert sorted(f.keys()) == sorted(shapes)
        assert f.metadata()["epoch"] == "3"
        assert f.metadata()["recipe"] == '-- "x"\\\n\tseg\x7f \u20ac'
        for name, (dtype, shape) in shapes.items():
            x = f.get_tensor(name)
            assert x.dtype == dtype and x.shape == shape, name
            assert x.tobytes() == ramp(name, x.nbytes), name
            tensors.append((name.encode(), x.tobytes()))
    check_sums(pathlib.Path(path), tensors)


if len(sys.argv) == 3 and sys.argv[1] == "--check":
    check(sys.argv[2])
else:
    write(pathlib.Path(__file__).with_name("python.safetensors"))
