#!/usr/bin/python3
"""export_peer.py -- exported weights of brain_unet in PyTorch, and back.

    python3 tests/lua/predict/export_peer.py FOLDER

Loads FOLDER/torch_in.safetensors into the PyTorch reference of tests/pytorch with
load_state_dict, which takes every tensor and lacks none, writes what it makes of
torch_x.npy as torch_y.npy, and its weights, by a writer that is not ours, as
torch_out.safetensors. Ends with 77 where there is no PyTorch.
"""
import pathlib
import sys

try:
    import numpy as np
    import torch
except ImportError:
    print("no PyTorch in this Python (sh vendor/fetch ci)")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "pytorch"))
import unet_torch as peer  # noqa: E402


def main(folder):
    tensors = peer.load_tensors(folder / "torch_in.safetensors")
    net = peer.UNet([4, 8, 16, 32]).eval()
    names = {peer.engine_name(n): n for n in net.state_dict()
             if not n.endswith("num_batches_tracked")}
    assert set(names) == set(tensors), set(names) ^ set(tensors)
    missing = net.load_state_dict({names[n]: torch.from_numpy(x.copy()) for n, x in tensors.items()},
                                  strict=False)
    assert not missing.unexpected_keys, missing
    assert all(n.endswith("num_batches_tracked") for n in missing.missing_keys), missing
    image = torch.from_numpy(np.load(folder / "torch_x.npy"))
    with torch.no_grad():
        np.save(folder / "torch_y.npy", torch.sigmoid(net(image)).numpy())
    state = {peer.engine_name(n): x.numpy() for n, x in net.state_dict().items()
             if not n.endswith("num_batches_tracked")}
    peer.save_tensors(folder / "torch_out.safetensors", state, {"format": "pt"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
