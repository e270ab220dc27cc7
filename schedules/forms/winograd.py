"""Winograd's form of a 3x3 convolution: fewer multiplications, on tiles in another basis.

A tile of ``m x m`` outputs of one channel reads ``a x a`` inputs, ``a = m + 2``, and takes ``a * a``
multiplications for each input channel instead of ``9 * m * m``: 36 instead of 144 for ``m = 4``::

    Y = A^T [ (G g G^T) * (B^T d B) ] A          # d: inputs, g: weights, * element by element

The matrices belong to evaluating polynomials at ``a - 1`` points and at infinity. The points decide how much
is lost to rounding; those here keep ``m = 4`` within the tolerance of a direct sum in float32, from 16
channels on and with sums in two parts (root mean square 5e-7 to 9e-7 of an output's, 16 to 128 channels; a
direct sum 2e-7 to 5e-7), where the usual points 0, 1, -1, 2, -2 exceed it.

References
----------
Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016; Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution",
2020 (the choice of points).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import tvm
from tvm import te, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

from ...machine.errors import InputError
from ..analysis import block_of, schedule_to_read
from ..expressions import are_just
from ..nests.contraction import Contraction, find_contraction
from ..restatement import with_stages

TAPS = 3
"""Rows and columns of the weight."""

POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(11, 8), Fraction(-11, 8)),
}
"""Where polynomials are evaluated, besides infinity, by the outputs of a tile in each direction."""

MOST_SPARE = 2
"""Lines of tiles, and tiles in a line, that may lie beyond the image."""

MOST_FILL = 64
"""What channels may be filled up to a multiple of: no vector of float32 has more."""

_STEPS = ("tile", "lines", "data", "tap", "weight_rows", "weight", "product", "rows", "filled", "output")
TILE, LINES, DATA, TAP, WEIGHT_ROWS, WEIGHT, PRODUCT, ROWS, FILLED, OUTPUT = (
    f"winograd_{step}" for step in _STEPS
)
"""The blocks: padded image, B^T d, B^T d B, g, G g, G g G^T, their products, A^T of these, and the output.

Where output channels are filled up, FILLED is the output with them.
"""

Matrix = Sequence[Sequence[Fraction]]


@dataclass(frozen=True)
class Convolution:
    """A convolution that has this form: 3x3, stride 1, channels last, all of them summed, in float32.

    Its output may be stored in blocks of channels: (image, block, line, pixel, channel of the block).

    Parameters
    ----------
    nest : Contraction
        Its loops.
    n, p, q, ci, co : int
        Images, output lines and pixels, input and output channels.
    vertical : int
        The loop over the rows of the weight; the other one runs over its columns.
    """

    nest: Contraction
    n: int
    p: int
    q: int
    ci: int
    co: int
    vertical: int


def find_convolution(func: Any) -> Convolution | None:
    """Find a convolution that Winograd's form computes as well, or None."""
    nest = find_contraction(func)
    if nest is None or nest.plain or nest.batch:
        return None
    if len(nest.rows) != 3 or len(nest.reductions) != 3:
        return None
    types = {nest.dtype, nest.data_dtype, nest.weight_dtype}
    last = nest.data_channel == nest.data_rank - 1 and nest.output_column == nest.output_rank - 1
    windows = nest.reductions[:2]
    if types != {"float32"} or not last or [nest.extents[w] for w in windows] != [TAPS, TAPS]:
        return None
    schedule = schedule_to_read(func)
    if nest.rest and [_stores_blocks(block_of(schedule, name)) for name in nest.rest] != [True]:
        return None
    node = block_of(schedule, nest.block)
    variables = [v.var for v in node.iter_vars]
    n, p, q = (variables[r] for r in nest.rows)
    data, same = nest.operands(node)[0].indices, Analyzer().can_prove_equal
    for i, j in (windows, windows[::-1]):
        wanted = (n, p + variables[i], q + variables[j])
        if all(same(index, value) for index, value in zip(data, wanted, strict=False)):
            images, lines, pixels = (nest.extents[r] for r in nest.rows)
            return Convolution(nest, images, lines, pixels, nest.channels, nest.columns, vertical=i)
    return None


def _stores_blocks(block: Any) -> bool:
    """Tell whether a block stores channels (n, p, q, o) as (n, o // block, p, q, o % block), as they are."""
    value, axes = block.body.value, block.iter_vars
    if len(axes) != 5 or not isinstance(value, TensorLoad):
        return False
    n, outer, p, q, inner = (axis.var for axis in axes)
    wanted = n, p, q, outer * int(axes[-1].dom.extent) + inner
    found, same = value.indices, Analyzer().can_prove_equal
    return are_just(block.body.indices, [axis.var for axis in axes]) and (
        len(found) == len(wanted) and all(map(same, found, wanted))
    )


def restate(
    func: Any, m: int, spare_lines: int = 0, spare_tiles: int = 0, inputs: int = 1, outputs: int = 1
) -> Any:
    """Put Winograd's form in the place of the convolution; what comes before and after it stays.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_convolution` finds a convolution.
    m : int
        Outputs of a tile in each direction: 2 or 4.
    spare_lines, spare_tiles : int
        Lines of tiles beyond the image, and tiles beyond each line, up to `MOST_SPARE`.
    inputs, outputs : int
        What input and output channels are filled up to a multiple of with zeros, up to `MOST_FILL`.

    Raises
    ------
    InputError
        There is no such convolution, or there are no such tiles: a trace may name a form that is not one of
        its function.
    """
    found = find_convolution(func)
    fill = inputs, outputs
    tiled = m in POINTS and max(spare_lines, spare_tiles) <= MOST_SPARE
    if found is None or not tiled or not all(1 <= each <= MOST_FILL for each in fill):
        raise InputError(
            f"the function has no 3x3 convolution that Winograd's form computes on {m} x {m} tiles"
            f"{f', {spare_lines} and {spare_tiles} beyond the image' if spare_lines or spare_tiles else ''}"
            f"{f', channels filled up to multiples of {inputs} and {outputs}' if fill != (1, 1) else ''}"
        )
    schedule = schedule_to_read(func)
    reads = block_of(schedule, found.nest.block).reads
    data, weight = (reads[i].source for i in (found.nest.data, found.nest.weight))
    grid = tiles_along(found.p, m, spare_lines), tiles_along(found.q, m, spare_tiles)
    channels = filled(found.ci, inputs), filled(found.co, outputs)
    return with_stages(
        func, found.nest.block, (data, weight), _define(found, data, weight, m, grid, channels)
    )


def tiles_along(outputs: int, m: int, spare: int) -> int:
    """Return how many tiles cover the outputs along an axis, with those beyond."""
    return -(-outputs // m) + spare


def filled(channels: int, fill: int) -> int:
    """Return the multiple of ``fill`` that channels are filled up to."""
    return -(-channels // fill) * fill


def _define(
    found: Convolution, data: Any, weight: Any, m: int, grid: tuple[int, int], channels: tuple[int, int]
) -> list[Any]:
    """Return the TE tensors data, weight and output of Winograd's form on operands of these shapes."""
    x, w = (te.placeholder([int(e) for e in b.shape], "float32", b.name) for b in (data, weight))
    high, wide = grid
    edge, tiles = m + TAPS - 1, (found.n, high * wide)
    evaluated, weights, outputs = transforms(m)
    inside = int(data.shape[1]), int(data.shape[2])
    ci, co = channels

    def tile(n: Any, i: Any, j: Any, c: Any) -> Any:
        # Tiles at the edge reach beyond the image.
        there = i < inside[0], j < inside[1], *_below(found.ci, ci, c)
        return tirx.if_then_else(tirx.all(*there), x[n, i, j, c], 0.0)

    def tap(i: Any, j: Any, c: Any, o: Any) -> Any:
        index = {found.vertical: i, found.nest.reductions[-1]: c, found.nest.column: o}
        value = w[tuple(index.get(axis, j) for axis in found.nest.weight_axes)]
        there = *_below(found.ci, ci, c), *_below(found.co, co, o)
        return tirx.if_then_else(tirx.all(*there), value, 0.0) if there else value

    def stage(name: str, shape: tuple[int, ...], value: Callable[..., Any]) -> Any:
        return te.compute(shape, value, name=name)

    image = stage(TILE, (found.n, high * m + TAPS - 1, wide * m + TAPS - 1, ci), tile)
    lines = stage(
        LINES,
        (edge, edge, *tiles, ci),
        lambda e, j, n, t, c: _row(evaluated, e, lambda k: image[n, t // wide * m + k, t % wide * m + j, c]),
    )
    changed = stage(
        DATA,
        (edge, edge, *tiles, ci),
        lambda e, f, n, t, c: _row(evaluated, f, lambda k: lines[e, k, n, t, c]),
    )
    taps = stage(TAP, (TAPS, TAPS, ci, co), tap)
    weight_rows = stage(
        WEIGHT_ROWS,
        (edge, TAPS, ci, co),
        lambda e, j, c, o: _row(weights, e, lambda k: taps[k, j, c, o]),
    )
    changed_weight = stage(
        WEIGHT,
        (edge, edge, ci, co),
        lambda e, f, c, o: _row(weights, f, lambda k: weight_rows[e, k, c, o]),
    )
    c = te.reduce_axis((0, ci), "c")
    product = stage(
        PRODUCT,
        (edge, edge, *tiles, co),
        lambda e, f, n, t, o: te.sum(changed[e, f, n, t, c] * changed_weight[e, f, c, o], axis=c),
    )
    rows = stage(
        ROWS,
        (m, edge, *tiles, co),
        lambda i, f, n, t, o: _row(outputs, i, lambda k: product[k, f, n, t, o]),
    )
    output = stage(
        OUTPUT if co == found.co else FILLED,
        (found.n, found.p, found.q, co),
        lambda n, p, q, o: _row(outputs, q % m, lambda k: rows[p % m, k, n, p // m * wide + q // m, o]),
    )
    if co > found.co:
        shape = *output.shape[:-1], found.co
        output = stage(OUTPUT, shape, lambda *index: output[index])
    return [x, w, output]


def _below(channels: int, filled_up: int, channel: Any) -> list[Any]:
    """Return the condition that a channel is one of those that there are, if there are others."""
    return [channel < channels] if filled_up > channels else []


def transforms(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return B^T (a x a), G (a x 3) and A^T (m x a), exactly, for tiles of m outputs, a = m + 2."""
    points = POINTS[m]
    others = [[p for p in points if p != point] for point in points]
    scales = [_product(point - p for p in rest) for point, rest in zip(points, others, strict=True)]
    data = [[*_coefficients(rest), Fraction(0)] for rest in others] + [_coefficients(points)]
    weight = [[point**i / scale for i in range(TAPS)] for point, scale in zip(points, scales, strict=True)]
    weight.append([Fraction(int(i == TAPS - 1)) for i in range(TAPS)])
    output = [[*(point**i for point in points), Fraction(int(i == m - 1))] for i in range(m)]
    return data, weight, output


def _product(factors: Any) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial with these roots, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [*(root * c for c in found), Fraction(0)]
        found = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return found


def _row(matrix: Matrix, index: Any, operand: Callable[[int], Any]) -> Any:
    """Return row ``index`` of a matrix times the operands; where the index is known, so is the row."""
    *cases, last = (_dot(row, operand) for row in matrix)
    for at in reversed(range(len(cases))):
        last = tirx.Select(index == at, cases[at], last)
    return last


def _dot(row: Sequence[Fraction], operand: Callable[[int], Any]) -> Any:
    total = None
    for at, factor in enumerate(row):
        if factor:
            term = operand(at) if factor == 1 else operand(at) * tvm.tirx.const(float(factor), "float32")
            total = term if total is None else total + term
    return total
