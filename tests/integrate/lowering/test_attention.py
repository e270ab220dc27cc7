from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.application import apply_records
from tunesmith.integrate.lowering.attention import FuseAttention
from tunesmith.integrate.lowering.functions import prim_func_calls
from tunesmith.integrate.lowering.pipeline import prepare
from tvm import relax
from tvm.relax import op

from .plain import check_equal, module, normal, ops

ROWS, HEADS, COLUMNS = 16, 2, 16
WIDTH = HEADS * COLUMNS


def _heads(x: Any, rows: int = ROWS, batch: int = 1) -> Any:
    return op.permute_dims(op.reshape(x, (batch, rows, HEADS, COLUMNS)), [0, 2, 1, 3])


def _weights(x: Any, mask: Any = None, scale: float | None = 0.25, batch: int = 1, rows: int = ROWS) -> Any:
    queries, keys = (_heads(op.matmul(x, normal(WIDTH, WIDTH)), rows, batch) for _ in range(2))
    scores = op.matmul(queries, op.permute_dims(keys, [0, 1, 3, 2]))
    scores = scores if scale is None else op.multiply(scores, relax.const(scale))
    return op.nn.softmax(scores if mask is None else op.add(mask, scores), axis=-1)


def _attention(x: Any, *mask: Any, **options: Any) -> Any:
    batch, rows = int(x.ty.shape[0]), int(x.ty.shape[1])
    values = _heads(op.matmul(x, normal(WIDTH, WIDTH)), rows, batch)
    mixed = op.matmul(_weights(x, *mask, batch=batch, rows=rows, **options), values)
    return op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (batch, rows, WIDTH))


def _fused(mod: Any) -> Any:
    with ts.host_target():
        return FuseAttention()(mod)


@pytest.mark.parametrize("mask", [None, (1, 1, 1, ROWS), (1, 1, ROWS, ROWS), (1, HEADS, ROWS, ROWS), (ROWS,)])
def test_attention_becomes_one_function(mask: tuple[int, ...] | None) -> None:
    shapes = [(1, ROWS, WIDTH), *([] if mask is None else [mask])]
    mod = module(_attention, *shapes)
    fused = _fused(mod)
    assert [name for name, _ in prim_func_calls(fused)] == ["attention"]
    # What is left of transpositions is that of the keys.
    assert ops(fused).count("permute_dims") == 1 and "nn.softmax" not in ops(fused)
    check_equal(mod, fused)


def test_scores_without_a_scale() -> None:
    mod = module(lambda x: _attention(x, scale=None), (1, ROWS, WIDTH))
    assert "call_tir" in ops(_fused(mod))
    check_equal(mod, _fused(mod))


def test_a_query_that_sees_nothing_gets_the_mean_of_all() -> None:
    least = np.finfo("float32").min
    mask = np.where(np.tri(ROWS, k=-1, dtype=bool), np.float32(0), least)[None, None]
    mod = module(lambda x: _attention(x, relax.const(mask)), (1, ROWS, WIDTH))
    assert "call_tir" in ops(_fused(mod))
    check_equal(mod, _fused(mod))


def _of_one_projection(x: Any) -> Any:
    """Scale queries and keys, and cut them out of one projection, as PyTorch does."""
    packed = op.reshape(op.matmul(x, normal(WIDTH, 3 * WIDTH)), (ROWS, 1, 3, WIDTH))
    packed = op.permute_dims(packed, [2, 0, 1, 3])
    queries, keys, values = (_heads(op.strided_slice(packed, [0], [i], [i + 1])) for i in range(3))
    keys = op.multiply(op.permute_dims(keys, [0, 1, 3, 2]), relax.const(0.5))
    scores = op.matmul(op.multiply(queries, relax.const(0.5)), keys)
    mixed = op.matmul(op.nn.softmax(scores, axis=-1), values)
    return op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (1, ROWS, WIDTH))


def test_attention_as_pytorch_writes_it_needs_no_copy_but_of_the_keys() -> None:
    mod = module(_of_one_projection, (1, ROWS, WIDTH))
    lowered = prepare(mod, ts.host_target())
    kinds = [name.strip("0123456789") for name, _ in prim_func_calls(lowered)]
    assert len(kinds) == 4 and kinds[::2] == ["matmul", "attention"]
    check_equal(mod, lowered)


def _cut_out_of_rows(x: Any) -> Any:
    """Take the values from half of the rows: that is no slice of columns."""
    builder = relax.BlockBuilder.current()
    assert builder is not None
    values = builder.normalize(op.strided_slice(x, [1], [0], [ROWS]))
    return op.matmul(_weights(values), _heads(values))


def test_a_slice_of_rows_is_none_of_columns() -> None:
    mod = module(_cut_out_of_rows, (1, 2 * ROWS, WIDTH))
    check_equal(mod, prepare(mod, ts.host_target()))


@pytest.mark.parametrize("rows", [ROWS, 17])
def test_queries_and_values_are_read_from_the_projection_of_all(rows: int) -> None:
    mod = module(_attention, (1, rows, WIDTH))
    target = ts.host_target()
    lowered = prepare(mod, target)
    # The projection, the keys' transposition, and the output as an array of its own.
    names = [name for name, _ in prim_func_calls(lowered)]
    kinds = [n.strip("0123456789") for n in names if "transpose" not in n]
    assert kinds == ["matmul", "attention", "reshape"] and len(names) == 4
    _, choices = apply_records(lowered, target)
    assert next(c for c in choices if c.function == "attention").schedule == "attention"
    check_equal(mod, lowered)


def _read_elsewhere(x: Any) -> Any:
    builder = relax.BlockBuilder.current()
    assert builder is not None
    weights = builder.emit(_weights(x))
    mixed = op.matmul(weights, _heads(op.matmul(x, normal(WIDTH, WIDTH))))
    return op.add(mixed, op.sum(weights))


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        # Another reader of the weights; two sentences.
        (_read_elsewhere, (1, ROWS, WIDTH)),
        (_attention, (2, ROWS, WIDTH)),
        # Values as they are.
        (lambda x: op.matmul(_weights(x), normal(1, HEADS, ROWS, COLUMNS)), (1, ROWS, WIDTH)),
        # No attention at all.
        (lambda x: op.matmul(op.nn.softmax(x), normal(WIDTH, WIDTH)), (1, ROWS, WIDTH)),
    ],
)
def test_others_are_left_alone(compute: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    assert "call_tir" not in ops(_fused(module(compute, shape)))
