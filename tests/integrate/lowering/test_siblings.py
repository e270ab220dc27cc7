from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tunesmith.integrate.lowering.siblings import CombineSiblings
from tvm import relax
from tvm.relax import op

from .plain import check_equal, module, normal, ops

IMAGE = (1, 6, 6, 8)


def _heads(x: Any) -> Any:
    return op.permute_dims(op.reshape(x, (4, 2, 8)), [1, 0, 2])


def _projections(x: Any) -> Any:
    """Project to queries, keys and values, and mix them."""
    q, k, v = (_heads(op.add(op.matmul(x, normal(16, 16)), normal(16))) for _ in range(3))
    return op.add(op.multiply(q, k), v)


def _block(x: Any, first: int = 0) -> Any:
    """1x1 convolutions that are concatenated, one of them through another convolution."""
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}

    def convolution(y: Any, inner: int, outer: int, size: int = 1) -> Any:
        product = op.nn.conv2d(y, normal(size, size, inner, outer), padding=size // 2, **layout)
        return op.nn.relu(op.add(product, normal(1, 1, 1, outer)))

    branches = [convolution(x, 8, 4), convolution(convolution(x, 8, 2 + first), 2 + first, 4, 3)]
    return op.concat([*branches, convolution(x, 8, 4)], axis=3)


@pytest.mark.parametrize(
    ("compute", "shape", "operator", "products"),
    [(_projections, (4, 16), "matmul", 1), (_block, IMAGE, "nn.conv2d", 2)],
)
def test_products_of_one_input_become_one(
    compute: Callable[[Any], Any], shape: tuple[int, ...], operator: str, products: int
) -> None:
    mod = module(compute, shape)
    combined = CombineSiblings()(mod)
    assert ops(mod).count(operator) > products == ops(combined).count(operator)
    assert ops(combined).count("add") < ops(mod).count("add")
    check_equal(mod, combined)


def test_activations_come_along_where_all_have_the_same() -> None:
    mod = module(_block, IMAGE)
    assert (ops(mod).count("nn.relu"), ops(CombineSiblings()(mod)).count("nn.relu")) == (4, 2)


def test_parts_that_would_have_to_be_copied_out_stay_alone() -> None:
    mod = module(lambda x: _block(x, first=30), IMAGE)
    assert ops(CombineSiblings()(mod)).count("nn.conv2d") == 4


@pytest.mark.parametrize(
    "compute",
    [
        # Other inputs, weights that are no constants, weights that are no matrices.
        lambda x: op.concat([op.matmul(x, normal(16, 16)), op.matmul(op.exp(x), normal(16, 16))], 1),
        lambda x: op.concat([op.matmul(x, normal(16, 4)), op.matmul(x, op.permute_dims(x))], 1),
        lambda x: op.concat([op.matmul(x, normal(2, 16, 4)), op.matmul(x, normal(2, 16, 4))], 0),
    ],
)
def test_others_are_left_alone(compute: Callable[[Any], Any]) -> None:
    mod = module(compute, (4, 16))
    assert ops(CombineSiblings()(mod)).count("matmul") == 2


def test_biases_of_some_stay_behind_the_combined_product() -> None:
    def compute(x: Any) -> Any:
        with_bias = op.add(op.matmul(x, normal(64, 16)), normal(16))
        return op.add(_heads(with_bias), _heads(op.matmul(x, normal(64, 16))))

    mod = module(compute, (4, 64))
    combined = CombineSiblings()(mod)
    assert ops(combined).count("matmul") == 1 and ops(combined).count("add") == 2
    check_equal(mod, combined)


def test_an_output_is_no_part() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit_output(op.matmul(x, normal(16, 16))) for _ in range(2)]
        builder.emit_func_output(relax.Tuple(results))
    assert ops(CombineSiblings()(builder.get())).count("matmul") == 2
