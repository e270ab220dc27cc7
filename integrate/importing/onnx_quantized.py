"""Quantized operators of ONNX in those that TVM has: dequantize, compute in floats, quantize."""

from __future__ import annotations

from typing import Any

from onnx import helper


def quantized(node: Any) -> list[Any] | None:
    """Return the nodes that take the place of a QLinearConv or QLinearMatMul, or None for others.

    The sums are of float32, as are those of ONNX Runtime's own quantized operators on many CPUs; a result
    that lies half-way between two integers may become the other one.
    """
    if node.op_type == "QLinearMatMul":
        return _matmul(node)
    return _convolution(node) if node.op_type == "QLinearConv" else None


def _matmul(node: Any) -> list[Any]:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.input
    left, right, product = (f"{node.output[0]}/{part}" for part in ("a", "b", "product"))
    return [
        helper.make_node("DequantizeLinear", [a, a_scale, a_zero], [left]),
        helper.make_node("DequantizeLinear", [b, b_scale, b_zero], [right]),
        helper.make_node("MatMul", [left, right], [product]),
        helper.make_node("QuantizeLinear", [product, scale, zero], [node.output[0]]),
    ]


def _convolution(node: Any) -> list[Any]:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, *bias = node.input
    data, weight, bias_scale, shift, result = (
        f"{node.output[0]}/{part}" for part in ("x", "w", "scale", "bias", "result")
    )
    nodes = [
        helper.make_node("DequantizeLinear", [x, x_scale, x_zero], [data]),
        # A scale for each output channel, where there are several.
        helper.make_node("DequantizeLinear", [w, w_scale, w_zero], [weight], axis=0),
    ]
    biased = [data, weight]
    if any(bias):
        nodes.append(helper.make_node("Mul", [x_scale, w_scale], [bias_scale]))
        nodes.append(helper.make_node("DequantizeLinear", [bias[0], bias_scale], [shift], axis=0))
        biased.append(shift)
    convolution = helper.make_node("Conv", biased, [result])
    convolution.attribute.extend(node.attribute)
    return [*nodes, convolution, helper.make_node("QuantizeLinear", [result, scale, zero], [node.output[0]])]
