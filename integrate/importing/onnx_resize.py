"""Resize as the standard has it, where TVM's importer computes something else.

TVM takes the factor from the sizes before and after: an input of 5 scaled by 1.5 has 7 elements, and TVM
scales it by 1.4. It has no antialiasing either. A resize is linear and works on one axis after the other:
each is a multiplication with a matrix that onnx's reference implementation gives, applied to the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .errors import ConversionError
from .onnx_file import node_label

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
# Factors are float32.
_ROUNDING = 1e-6
_OF_SEVERAL_AXES = ("axes", "keep_aspect_ratio_policy")


def exact_resize(node: Any, source: Any, result: Any, constants: Mapping[str, Any]) -> list[Any] | None:
    """Return the nodes that compute a Resize which TVM would compute otherwise, or None for another.

    Parameters
    ----------
    node : onnx.NodeProto
        The Resize.
    source, result : (element type, extents)
        Of its input and output.
    constants : mapping
        The tensors that are known.

    Raises
    ------
    ConversionError
        TVM would compute it otherwise, and it has no such form.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    scales = _factors(node, source[1], result[1], attributes, constants)
    if not _differs(attributes, source[1], scales):
        return None
    axes = [axis for axis, (before, scale) in enumerate(zip(source[1], scales, strict=True)) if scale != 1]
    nearest = attributes.get("mode", b"nearest") == b"nearest"
    if source[0] not in _FLOATS or not (nearest or min(axes) >= len(source[1]) - 2):
        raise ConversionError(
            f"TVM resizes by other factors at Resize (node {node_label(node)!r}); give sizes"
        )
    nodes, name = [], node.input[0]
    for axis in axes:
        matrix = _matrix(node, source[1][axis], scales[axis])
        if matrix.shape[1] != result[1][axis]:
            return None
        last = f"{node.output[0]}/axis{axis}" if axis != axes[-1] else node.output[0]
        dtype = helper.tensor_dtype_to_np_dtype(source[0])
        factor = matrix.argmax(0) if nearest else matrix.astype(dtype)
        nodes += _along(name, axis - len(source[1]), factor, last, nearest)
        name = last
    return nodes


def _factors(
    node: Any, before: Any, after: Any, attributes: Mapping[str, Any], constants: Mapping[str, Any]
) -> list[float]:
    """Return the factor of each axis."""
    rank = len(before)
    axes = [int(axis) % rank for axis in attributes.get("axes", range(rank))]
    scales = [1.0] * rank
    given = [constants.get(name) for name in node.input[2:4]]
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    if given and given[0] is not None and 0 not in given[0].dims:
        for axis, scale in zip(axes, numpy_helper.to_array(given[0]).tolist(), strict=True):
            scales[axis] = scale
    elif policy != b"stretch" and len(given) == 2 and given[1] is not None:
        ratios = numpy_helper.to_array(given[1]) / np.array([before[axis] for axis in axes])
        for axis in axes:
            scales[axis] = float(ratios.min() if policy == b"not_larger" else ratios.max())
    else:
        scales = [b / a if a else 1.0 for a, b in zip(before, after, strict=True)]
    return scales


def _differs(attributes: Mapping[str, Any], before: Any, scales: list[float]) -> bool:
    """Tell whether TVM's importer takes a Resize for another."""
    coordinates = attributes.get("coordinate_transformation_mode", b"half_pixel")
    if coordinates == b"tf_crop_and_resize" or all(scale == 1 for scale in scales):
        return False
    sizes = [n * scale for n, scale in zip(before, scales, strict=True)]
    fractional = any(abs(size - round(size)) > _ROUNDING * size for size in sizes)
    special = attributes.get("antialias", 0) or coordinates == b"half_pixel_symmetric"
    return bool(fractional or special or any(name in attributes for name in _OF_SEVERAL_AXES))


def _matrix(node: Any, extent: int, scale: float) -> np.ndarray:
    """Return what a resize by a factor multiplies an axis with: (extent, resized extent)."""
    one_axis = helper.make_node("Resize", ["x", "", "scales"], ["y"])
    one_axis.attribute.extend(a for a in node.attribute if a.name not in _OF_SEVERAL_AXES)
    graph = helper.make_graph(
        [one_axis],
        "resize",
        [onnx.ValueInfoProto(name="x"), onnx.ValueInfoProto(name="scales")],
        [onnx.ValueInfoProto(name="y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    inputs = {"x": np.eye(extent, dtype=np.float32), "scales": np.array([1, scale], np.float32)}
    (found,) = ReferenceEvaluator(model).run(None, inputs)
    return np.asarray(found)


def _along(name: str, axis: int, factor: np.ndarray, result: str, nearest: bool) -> list[Any]:
    """Return the nodes that resize one of the last axes, counted from the end."""
    constant = f"{result}/factor"
    if nearest:
        operation = helper.make_node("Gather", [name, constant], [result], axis=axis)
    elif axis == -1:
        operation = helper.make_node("MatMul", [name, constant], [result])
    else:
        factor = factor.T.copy()
        operation = helper.make_node("MatMul", [constant, name], [result])
    value = numpy_helper.from_array(factor)
    return [helper.make_node("Constant", [], [constant], value=value), operation]
