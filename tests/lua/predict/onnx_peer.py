#!/usr/bin/python3
"""onnx_peer.py -- files of ONNX, checked and run by those who read them.

    python3 tests/lua/predict/onnx_peer.py FOLDER

FOLDER/cases.txt has a line a case: NAME INPUT OUTPUT [cv]. NAME.onnx must pass
onnx.checker with its inference of shapes; run with NAME_x.npy by onnxruntime it
must give NAME_y.npy within 1e-4 of the largest value (of 1, if that is less);
and so it must by OpenCV where the line says cv, as OpenCV knows few operators
beyond 2-D. Debian has onnx and OpenCV (python3-onnx, python3-opencv), PyPI all
three. Ends with 77 and the reason where there is none of them.
"""
import os
import sys

try:
    import numpy
except ImportError:
    print("python3-numpy is not installed (sh vendor/fetch test)")
    sys.exit(77)

BOUND = 1e-4


def find(name):
    try:
        return __import__(name)
    except ImportError:
        return None


onnx, onnxruntime, cv2 = find("onnx"), find("onnxruntime"), find("cv2")


def check(path, source, result, x, y):
    """The form of the file, and what it says goes in and comes out."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    value = {v.name: v for v in list(model.graph.input) + list(model.graph.output)}
    inputs = [v.name for v in model.graph.input]
    assert inputs == [source], f"inputs {inputs}"
    for name, array in ((source, x), (result, y)):
        dims = value[name].type.tensor_type.shape.dim
        assert len(dims) == array.ndim, f"{name} has {len(dims)} axes"
        assert dims[0].dim_param == "batch", f"{name}: the batch is not free"
        for dim, extent in zip(dims, array.shape):
            assert dim.dim_param or dim.dim_value == extent, f"{name}: {dim} for {extent}"


def by_onnxruntime(path, source, result, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run([result], {source: x})[0]


def by_opencv(path, source, result, x):
    network = cv2.dnn.readNetFromONNX(path)
    network.setInput(x, source)
    return network.forward(result)


def near(who, got, want):
    assert got.shape == want.shape, f"{who}: shape {got.shape}, want {want.shape}"
    off = numpy.abs(got - want).max() / max(1, numpy.abs(want).max())
    assert off <= BOUND, f"{who}: differs by {off:g}"
    return off


def main(folder):
    tools = [m.__name__ for m in (onnx, onnxruntime, cv2) if m]
    if not tools:
        print("python3-onnx is not installed (sh vendor/fetch ci)")
        return 77
    bad = []
    counts = dict.fromkeys(tools, 0)
    most = dict.fromkeys(tools, 0.0)
    with open(os.path.join(folder, "cases.txt"), encoding="utf-8") as f:
        cases = [line.split() for line in f]
    for name, source, result, *more in cases:
        base = os.path.join(folder, name)
        path, x, y = base + ".onnx", numpy.load(base + "_x.npy"), numpy.load(base + "_y.npy")
        for tool in tools:
            try:
                if tool == "onnx":
                    check(path, source, result, x, y)
                elif tool == "cv2" and "cv" not in more:
                    continue
                else:
                    run = by_opencv if tool == "cv2" else by_onnxruntime
                    off = near(tool, run(path, source, result, x), y)
                    most[tool] = max(most[tool], float(off))
                counts[tool] += 1
            except Exception as e:  # whatever a reader raises is a finding
                bad.append(f"{name}: {tool}: {type(e).__name__} {e}")
    print("\n".join(bad))
    print(", ".join(f"{tool} {counts[tool]} of {len(cases)}"
                    + (f" within {most[tool]:.1e}" if most[tool] else "") for tool in tools))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
