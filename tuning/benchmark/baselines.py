"""What a user would call instead: each operator in NumPy, PyTorch and ONNX Runtime.

Each library gets its inputs in the layout it likes, converted before the clock starts, and writes into
memory it has already where its interface allows that. Imported by benchmark workers only, one library each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...machine.process import usable_cpus

Shape = Mapping[str, Any]
Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Variant:
    """One way in which a library computes an operator.

    Parameters
    ----------
    call : callable
        Computes once and returns the result in the library's own form.
    to_array : callable
        Turns that result into the workload's output, uncounted.
    note : str
        Which way it is, where a library has several.
    """

    call: Callable[[], Any]
    to_array: Callable[[Any], np.ndarray]
    note: str = ""


class Unavailable(Exception):
    """A library is not installed or does not have the operator; the message is a line for people."""


def variants(library: str, operator: str, shape: Shape, inputs: Arrays) -> list[Variant]:
    """Return the ways in which a library computes an operator on given inputs.

    Raises
    ------
    Unavailable
        The library is not installed, or has no such operator for this dtype.
    """
    makers = LIBRARIES[library]
    if operator not in makers:
        raise Unavailable(f"{library} has no {operator}; it has: {', '.join(makers)}")
    dtype = str(inputs[0].dtype)
    if dtype not in _DTYPES[library]:
        raise Unavailable(f"{library} is compared on {', '.join(_DTYPES[library])}: dtype={dtype}")
    try:
        return makers[operator](shape, inputs)
    except ImportError as error:
        raise Unavailable(
            f"{library} is not installed; install it with: pip install 'tunesmith[baselines]'"
        ) from error


def _numpy_matmul(shape: Shape, inputs: Arrays) -> list[Variant]:
    a, b = inputs
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    return [Variant(lambda: np.matmul(a, b, out=out), np.asarray)]


def _numpy_linear_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    x, weight, bias = inputs
    out = np.empty((x.shape[0], weight.shape[0]), x.dtype)

    def call() -> np.ndarray:
        np.matmul(x, weight.T, out=out)
        np.add(out, bias, out=out)
        return np.maximum(out, 0, out=out)

    return [Variant(call, np.asarray)]


def _numpy_conv2d(shape: Shape, inputs: Arrays) -> list[Variant]:
    """Sum a matrix product over each tap of the kernel, in NHWC."""
    if shape["groups"] != 1:
        raise Unavailable("numpy is compared on conv2d without groups")
    data, weight = inputs[0], inputs[1]
    if shape["layout"] == "NCHW":
        data, weight = _contiguous(data, (0, 2, 3, 1)), _contiguous(weight, (2, 3, 1, 0))
    stride, dilation, pad = shape["stride"], shape["dilation"], shape["padding"]
    rows, columns = (
        (data.shape[1 + axis] + 2 * pad - dilation * (weight.shape[axis] - 1) - 1) // stride + 1
        for axis in (0, 1)
    )

    def call() -> np.ndarray:
        padded = np.pad(data, ((0, 0), (pad, pad), (pad, pad), (0, 0))) if pad else data
        out = np.zeros((data.shape[0], rows, columns, weight.shape[3]), data.dtype)
        for i, j in np.ndindex(*weight.shape[:2]):
            top, left = i * dilation, j * dilation
            window = padded[:, top : top + rows * stride : stride, left : left + columns * stride : stride]
            out += window[:, :rows, :columns] @ weight[i, j]
        if shape["bias"]:
            out += inputs[2]
        return np.maximum(out, 0, out=out) if shape["relu"] else out

    nchw = shape["layout"] == "NCHW"
    return [Variant(call, lambda y: y.transpose(0, 3, 1, 2) if nchw else y)]


def _numpy_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    out = np.empty_like(inputs[0])
    return [Variant(lambda: np.maximum(inputs[0], 0, out=out), np.asarray)]


def _numpy_add(shape: Shape, inputs: Arrays) -> list[Variant]:
    out = np.empty_like(inputs[0])
    return [Variant(lambda: np.add(inputs[0], inputs[1], out=out), np.asarray)]


def _torch(shape: Shape, inputs: Arrays, compute: Callable[..., Callable[[], Any]]) -> list[Variant]:
    import torch

    torch.set_num_threads(usable_cpus())
    torch.set_grad_enabled(False)
    return [Variant(compute(torch, *map(torch.from_numpy, inputs)), lambda y: y.numpy())]


def _torch_matmul(shape: Shape, inputs: Arrays) -> list[Variant]:
    def compute(torch: Any, a: Any, b: Any) -> Callable[[], Any]:
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        return lambda: torch.matmul(a, b, out=out)

    return _torch(shape, inputs, compute)


def _torch_linear_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    def compute(torch: Any, x: Any, weight: Any, bias: Any) -> Callable[[], Any]:
        return lambda: torch.relu_(torch.nn.functional.linear(x, weight, bias))

    return _torch(shape, inputs, compute)


def _torch_conv2d(shape: Shape, inputs: Arrays) -> list[Variant]:
    """Both of PyTorch's memory formats."""
    data, weight = _as_nchw(shape, inputs)
    found = []
    for note in ("channels_last", "contiguous"):

        def compute(torch: Any, x: Any, w: Any, *bias: Any, note: str = note) -> Callable[[], Any]:
            layout = getattr(torch, f"{note}_format" if note == "contiguous" else note)
            x, w = x.contiguous(memory_format=layout), w.contiguous(memory_format=layout)
            b = bias[0] if bias else None
            conv2d = torch.nn.functional.conv2d
            options = (shape["stride"], shape["padding"], shape["dilation"], shape["groups"])
            if shape["relu"]:
                return lambda: torch.relu_(conv2d(x, w, b, *options))
            return lambda: conv2d(x, w, b, *options)

        (variant,) = _torch(shape, [data, weight, *inputs[2:]], compute)
        found.append(Variant(variant.call, lambda y: _from_nchw(shape, y.numpy()), note))
    return found


def _torch_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    return _torch(shape, inputs, lambda torch, x: lambda: torch.relu(x))


def _torch_add(shape: Shape, inputs: Arrays) -> list[Variant]:
    def compute(torch: Any, a: Any, b: Any) -> Callable[[], Any]:
        out = torch.empty_like(a)
        return lambda: torch.add(a, b, out=out)

    return _torch(shape, inputs, compute)


def _onnxruntime(inputs: Arrays, nodes: Callable[..., list[Any]], weights: Sequence[int]) -> Variant:
    """Build a model of a few nodes; the inputs counted in ``weights`` are its constants."""
    import onnx
    import onnxruntime

    names = [f"x{i}" for i in range(len(inputs))]
    kind = onnx.helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    fed = [i for i in range(len(inputs)) if i not in weights]
    graph = onnx.helper.make_graph(
        nodes(onnx.helper.make_node, *names),
        "baseline",
        [onnx.helper.make_tensor_value_info(names[i], kind, inputs[i].shape) for i in fed],
        [onnx.helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(inputs[i], names[i]) for i in weights],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feed = {names[i]: inputs[i] for i in fed}
    return Variant(lambda: session.run(None, feed)[0], np.asarray)


def _onnxruntime_matmul(shape: Shape, inputs: Arrays) -> list[Variant]:
    return [_onnxruntime(inputs, lambda node, a, b: [node("MatMul", [a, b], ["y"])], ())]


def _onnxruntime_linear_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    def nodes(node: Any, x: str, weight: str, bias: str) -> list[Any]:
        return [node("Gemm", [x, weight, bias], ["z"], transB=1), node("Relu", ["z"], ["y"])]

    return [_onnxruntime(inputs, nodes, (1, 2))]


def _onnxruntime_conv2d(shape: Shape, inputs: Arrays) -> list[Variant]:
    data, weight = _as_nchw(shape, inputs)
    stride, dilation, pad = shape["stride"], shape["dilation"], shape["padding"]

    def nodes(node: Any, *names: str) -> list[Any]:
        attributes = {
            "strides": [stride] * 2,
            "dilations": [dilation] * 2,
            "pads": [pad] * 4,
            "group": shape["groups"],
        }
        if not shape["relu"]:
            return [node("Conv", names, ["y"], **attributes)]
        return [node("Conv", names, ["z"], **attributes), node("Relu", ["z"], ["y"])]

    arrays = [data, weight, *inputs[2:]]
    variant = _onnxruntime(arrays, nodes, range(1, len(arrays)))
    return [Variant(variant.call, lambda y: _from_nchw(shape, y), "NCHW")]


def _onnxruntime_relu(shape: Shape, inputs: Arrays) -> list[Variant]:
    return [_onnxruntime(inputs, lambda node, x: [node("Relu", [x], ["y"])], ())]


def _onnxruntime_add(shape: Shape, inputs: Arrays) -> list[Variant]:
    return [_onnxruntime(inputs, lambda node, a, b: [node("Add", [a, b], ["y"])], ())]


def _as_nchw(shape: Shape, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return data as (n, ci, h, w) and weight as (co, ci / groups, kh, kw)."""
    if shape["layout"] == "NCHW":
        return inputs[0], inputs[1]
    return _contiguous(inputs[0], (0, 3, 1, 2)), _contiguous(inputs[1], (3, 2, 0, 1))


def _from_nchw(shape: Shape, y: np.ndarray) -> np.ndarray:
    return y if shape["layout"] == "NCHW" else y.transpose(0, 2, 3, 1)


def _contiguous(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(axes))


LIBRARIES: dict[str, dict[str, Callable[[Shape, Arrays], list[Variant]]]] = {
    "numpy": {
        "matmul": _numpy_matmul,
        "linear_relu": _numpy_linear_relu,
        "conv2d": _numpy_conv2d,
        "relu": _numpy_relu,
        "add": _numpy_add,
    },
    "torch": {
        "matmul": _torch_matmul,
        "linear_relu": _torch_linear_relu,
        "conv2d": _torch_conv2d,
        "relu": _torch_relu,
        "add": _torch_add,
    },
    "onnxruntime": {
        "matmul": _onnxruntime_matmul,
        "linear_relu": _onnxruntime_linear_relu,
        "conv2d": _onnxruntime_conv2d,
        "relu": _onnxruntime_relu,
        "add": _onnxruntime_add,
    },
}
"""Every library and the operators it is compared on."""

_DTYPES = {
    "numpy": ("float32", "float64"),
    "torch": ("float32", "float64"),
    "onnxruntime": ("float32",),
}
