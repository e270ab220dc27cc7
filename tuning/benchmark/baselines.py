"""Sets up the libraries that a workload is compared with. Imported by benchmark workers, one library each.

How each computes an operator stands beside its definition: `kernels.libraries.Libraries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from ...kernels.libraries import Call, Calls, Libraries
from ...machine.facts import has_feature
from ...machine.process import usable_cpus
from ...machine.target import host_target

Shape = Mapping[str, Any]
Arrays = Sequence[np.ndarray]

_OPSET, _IR_VERSION = 20, 9


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

    call: Call
    to_array: Callable[[Any], np.ndarray]
    note: str = ""


class Unavailable(Exception):
    """A library is not installed or does not have the operator; the message is a line for people."""


def variants(library: str, libraries: Libraries | None, shape: Shape, inputs: Arrays) -> list[Variant]:
    """Return the ways in which a library computes an operator on given inputs.

    Raises
    ------
    Unavailable
        The library is not installed, or has no such operator for this dtype or shape.
    """
    if getattr(libraries, _FIELDS[library], None) is None:
        raise Unavailable(f"the operator does not say how {library} computes it")
    assert libraries is not None
    dtypes = {str(array.dtype) for array in inputs}
    if not dtypes <= set(_DTYPES[library]):
        found = ", ".join(sorted(dtypes))
        raise Unavailable(f"{library} is compared on {', '.join(_DTYPES[library])}: dtype={found}")
    if library == "onnxruntime" and {"uint8", "int8"} <= dtypes and not multiplies_bytes_exactly():
        raise Unavailable("onnxruntime is wrong here: without VNNI it adds two products of bytes in 16 bits")
    try:
        found_variants = _MAKERS[library](libraries, shape, inputs)
    except ImportError as error:
        raise Unavailable(
            f"{library} is not installed; install it with: pip install 'tunesmith[baselines]'"
        ) from error
    if not found_variants:
        raise Unavailable(f"{library} is not compared on this shape")
    return found_variants


def multiplies_bytes_exactly() -> bool:
    """Tell whether ONNX Runtime sums products of unsigned and signed bytes exactly.

    On x86 it needs VNNI for that: ``vpmaddubsw`` adds two products in 16 bits, where they may overflow (see
    "Quantize ONNX Models" in the documentation of ONNX Runtime).
    """
    host = host_target()
    vnni = any(has_feature(host, name) for name in ("avx512vnni", "avxvnni"))
    return vnni or not str(host.attrs["mtriple"]).startswith("x86")


def _by_note(calls: Calls) -> Mapping[str, Call]:
    if calls is None:
        return {}
    return calls if isinstance(calls, Mapping) else {"": calls}


def _adapted(libraries: Libraries, shape: Shape, inputs: Arrays) -> Arrays:
    return inputs if libraries.adapt is None else libraries.adapt(*inputs, **shape)


def _restored(libraries: Libraries, shape: Shape, result: np.ndarray) -> np.ndarray:
    return result if libraries.restore is None else libraries.restore(result, **shape)


def _numpy(libraries: Libraries, shape: Shape, inputs: Arrays) -> list[Variant]:
    assert libraries.numpy is not None
    calls = _by_note(libraries.numpy(*inputs, **shape))
    return [Variant(call, np.asarray, note) for note, call in calls.items()]


def _torch(libraries: Libraries, shape: Shape, inputs: Arrays) -> list[Variant]:
    import torch

    assert libraries.torch is not None
    torch.set_num_threads(usable_cpus())
    torch.set_grad_enabled(False)
    tensors = [_torch_tensor(torch, array) for array in _adapted(libraries, shape, inputs)]
    calls = _by_note(libraries.torch(torch, *tensors, **shape))
    return [
        Variant(call, lambda y: _restored(libraries, shape, _torch_array(torch, y)), note)
        for note, call in calls.items()
    ]


def _torch_tensor(torch: Any, array: np.ndarray) -> Any:
    """Return an array as a tensor; NumPy and PyTorch have no bfloat16 in common, but its bits."""
    if array.dtype != bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _torch_array(torch: Any, tensor: Any) -> np.ndarray:
    """Return a tensor as an array."""
    if tensor.dtype != torch.bfloat16:
        return np.asarray(tensor.numpy())
    return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(bfloat16)


def _onnxruntime(libraries: Libraries, shape: Shape, inputs: Arrays) -> list[Variant]:
    """Build a model of the operator's nodes; the inputs that it names as weights are its constants."""
    import onnx
    import onnxruntime

    assert libraries.onnx is not None
    arrays = dict(zip((f"x{i}" for i in range(len(inputs))), _adapted(libraries, shape, inputs), strict=True))
    nodes = libraries.onnx(onnx.helper.make_node, *arrays, **shape)
    if nodes is None:
        return []
    nodes, constants = nodes if isinstance(nodes, tuple) else (nodes, {})
    weights = {f"x{i}" for i in libraries.weights}
    held = {name: array for name, array in arrays.items() if name in weights} | constants
    fed = {name: array for name, array in arrays.items() if name not in weights}
    graph = onnx.helper.make_graph(
        nodes,
        "baseline",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in fed.items()
        ],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in held.items()],
    )
    own = {node.domain for node in nodes if node.domain}
    opsets = [onnx.helper.make_opsetid("", _OPSET), *(onnx.helper.make_opsetid(domain, 1) for domain in own)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [Variant(lambda: session.run(None, fed)[0], lambda y: _restored(libraries, shape, y))]


LIBRARIES = ("numpy", "torch", "onnxruntime")
"""Every library that workloads can be compared with."""

_FIELDS = {"numpy": "numpy", "torch": "torch", "onnxruntime": "onnx"}

_MAKERS: dict[str, Callable[[Libraries, Shape, Arrays], list[Variant]]] = {
    "numpy": _numpy,
    "torch": _torch,
    "onnxruntime": _onnxruntime,
}

_DTYPES = {
    "numpy": ("float32", "float64", "int32", "int64", "bool"),
    "torch": ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"),
    "onnxruntime": ("float32", "int8", "uint8", "int32", "int64", "bool"),
}
