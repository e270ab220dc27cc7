"""Write the models of this folder as ONNX files, to be compiled and compared with ONNX Runtime.

    python examples/models/export.py FOLDER
    tunesmith study models FOLDER/mobilenet_v2.onnx FOLDER/bert.onnx

It needs PyTorch (``pip install 'tunesmith[baselines]'``).
"""

import sys
from importlib import import_module
from pathlib import Path

import torch

INPUTS = {"mobilenet_v2": ["image"], "bert": ["tokens", "mask"]}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, inputs in INPUTS.items():
        model, example = import_module(name).example()
        path = folder / f"{name}.onnx"
        # The exporter that needs nothing but PyTorch.
        torch.onnx.export(model, example, str(path), input_names=inputs, opset_version=17, dynamo=False)
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
