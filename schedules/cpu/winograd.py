"""3x3 convolution on Winograd's tiles: a matrix product for each position, between changes of basis.

The blocks are those of ``forms.winograd``. After::

    U = weight in the other basis, in panels of nr channels        # first, or in each panel's loop
    for blocks of tile lines:
        V[e, tiles, ci] = tiles of the image in the other basis    # a tile in registers at a time
        for panels of nr output channels:
            for e, tiles of mr tiles:  acc[mr, nr] += V[e] * U[e]  # a * a products of matrices, in two parts
            for tiles:  output = epilogue(tile of acc in the image's basis)

V and the products of a panel stay in L2. Threads share the blocks of tile lines where there are enough; the
tiles and then the panels inside a block where the image is small and the weight large. The weight changes
basis in the call: that costs a few percent where there are 50 tiles or more, and the weight that is read from
memory stays as small as it is, a quarter of what it becomes.

Channels that are no whole vectors are filled up with zeros: input channels where the image is copied, to
halves of vectors if that is less, output channels where the weight is. Outputs are computed in whole vectors,
of which those that there are are copied, a tile at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from tvm import s_tir

from ...machine.facts import line_elements
from ..analysis import block_names, loops_inside
from ..forms.winograd import (
    DATA,
    FILLED,
    LINES,
    OUTPUT,
    PRODUCT,
    ROWS,
    TAP,
    TILE,
    WEIGHT,
    WEIGHT_ROWS,
    tiles_along,
)
from ..nests.contraction import is_constant_argument
from ..passes.loop_partition import partition
from ..restatement import is_step
from ..rule import ScheduleRule
from ..space import Knobs
from ..transforms import PACKING_MARK, inline_blocks, panel_order, relayout_read, unroll_tile, vectorize_last
from .winograd_space import winograd_space

# Elements that the positions of a tile are apart, beside a multiple of twice as many. A change of basis
# writes all 36 side by side: a power of two apart they would evict each other from every cache. On 2 threads
# of a Zen 5 28x28 of 256 and of 512 channels take 0.70 and 0.76 of the time, 14x14 of 256 0.84, 2 of 32x32 of
# 128 0.77, 56x56 of 64 0.96.
_APART = 2 * line_elements("float32")
# Sums of half the terms round half as much, and the last change of basis magnifies what they round.
_PARTS = 2


def schedule_winograd(
    sch: s_tir.Schedule,
    *,
    m: int,
    spare_lines: int,
    spare_tiles: int,
    lanes: int,
    lines: int,
    mr: int,
    nr: int,
    share_lines: int,
    images: int = 1,
    inputs: int = 1,
    outputs: int = 1,
    copy: int = 0,
) -> None:
    """Rewrite a convolution in Winograd's form in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in the form that `forms.winograd.restate` makes.
    m : int
        Outputs of a tile in each direction.
    spare_lines, spare_tiles : int
        Lines of tiles, and tiles in a line, beyond the image, as the form has them.
    lanes : int
        Elements in a vector.
    lines : int
        Lines of tiles in a block.
    mr, nr : int
        Tiles and output channels of the register tile.
    share_lines : int
        1: threads share the blocks of lines; 0: the tiles, and then the panels, in each block.
    images : int
        Images whose lines are in a block.
    inputs, outputs : int
        What channels are filled up to a multiple of, as the form has them.
    copy : int
        1: a weight that is filled up is copied first; 0: it is read in vectors that are masked.
    """
    del outputs
    names = [name for name in block_names(sch) if not is_step(name)]
    inline_blocks(sch, names[: names.index(TILE)])
    inline_blocks(sch, [name for name in names[names.index(OUTPUT) :] if name != names[-1]])
    _lay_out_taps(sch, nr, lanes if copy else 0)
    spare = spare_lines, spare_tiles
    block, panel, vector = _output_loops(sch, names, m, spare, lanes, (images, lines), nr)
    _in_registers(sch, ROWS, vector)
    product, weight = sch.get_sblock(PRODUCT), sch.get_sblock(WEIGHT)
    relayout_read(sch, product, 1, weight, panel_order(4, [0, 1], 3, [2], nr))
    for positions in (weight, sch.get_sblock(DATA)):
        sch.storage_align(positions, 0, 1, 2 * _APART, _APART)
    sch.compute_at(product, panel, preserve_unit_loops=True)
    partial, channel = _multiply(sch, product, lanes, mr, nr)
    tiles, image_line = _change_data(sch, block, lanes, inputs > 1)
    if not share_lines:
        sch.compute_at(weight, panel, preserve_unit_loops=True)
    panels = _change_weight(sch, weight, lanes)
    for loop in (block, panels) if share_lines else (image_line, tiles, panel):
        sch.parallel(loop)
    sch.decompose_reduction(partial, channel)


def _lay_out_taps(sch: s_tir.Schedule, nr: int, copied_lanes: int) -> None:
    """Lay a constant weight out as it is read, beforehand: (panel, channel, row, column, place in the panel).

    Any other is read where it lies, or is first copied in vectors of ``copied_lanes``, the last filled up.
    """
    taps = sch.get_sblock(TAP)
    if is_constant_argument(sch.mod["main"], sch.get(taps).reads[0].source):
        reader = sch.get_sblock(WEIGHT_ROWS)
        relayout_read(sch, reader, 0, taps, panel_order(4, [], 3, [2, 0, 1], nr))
        sch.annotate(taps, PACKING_MARK, True)
    elif copied_lanes:
        *rows, o = sch.get_loops(taps)
        _copy_vectors(sch, o, copied_lanes)
        sch.parallel(sch.fuse(*rows))
    else:
        sch.compute_inline(taps)


def _copy_vectors(sch: s_tir.Schedule, along: Any, lanes: int) -> None:
    """Copy vectors of which the last may be filled up: it is not to keep the others from being such."""
    vectors, lane = sch.split(along, [None, lanes])
    sch.vectorize(lane)
    partition(sch, vectors)


def _output_loops(
    sch: s_tir.Schedule,
    names: list[str],
    m: int,
    spare: tuple[int, int],
    lanes: int,
    in_block: tuple[int, int],
    nr: int,
) -> tuple[Any, Any, Any]:
    """Cut the output into blocks of tile lines, panels, tiles, vectors; return all but the tiles' loops.

    ``in_block``: images, and lines of each.
    """
    images, lines = in_block
    n, p, q, o = _output_axes(sch, names[-1])
    n, image = sch.split(n, [None, images])
    high, wide = (tiles_along(int(sch.get(x).extent), m, s) for x, s in zip((p, q), spare, strict=True))
    block, line, row = sch.split(p, [high // lines, lines, m])
    tile, column = sch.split(q, [wide, m])
    panel, vector, lane = sch.split(o, [None, nr // lanes, lanes])
    sch.reorder(n, block, panel, image, line, tile, vector, row, column, lane)
    sch.unroll(row)
    sch.unroll(column)
    sch.vectorize(lane)
    if FILLED in names:
        vector = _whole_vectors(sch, tile, lanes)
    return sch.fuse(n, block), panel, vector


def _output_axes(sch: s_tir.Schedule, name: str) -> list[Any]:
    """Return the loops over the output's images, lines, pixels and channels, in this order."""
    loops = sch.get_loops(sch.get_sblock(name))
    if len(loops) == 4:
        return list(loops)
    n, outer, p, q, inner = loops
    sch.reorder(n, p, q, outer, inner)
    return [n, p, q, sch.fuse(outer, inner)]


def _whole_vectors(sch: s_tir.Schedule, tile: Any, lanes: int) -> Any:
    """Compute the outputs of a tile in whole vectors before some are copied; return the loop over these."""
    filled = sch.get_sblock(FILLED)
    sch.compute_at(filled, tile, preserve_unit_loops=True)
    *_, row, column, o = loops_inside(sch, filled, tile)
    vector, lane = sch.split(o, [None, lanes])
    sch.reorder(vector, row, column, lane)
    sch.unroll(row)
    sch.unroll(column)
    sch.vectorize(lane)
    return vector


def _in_registers(sch: s_tir.Schedule, name: str, loop: Any) -> None:
    """Compute a block in a loop without loops of its own but the vector's: all its values are named."""
    block = sch.get_sblock(name)
    sch.compute_at(block, loop, preserve_unit_loops=True)
    *rest, lane = loops_inside(sch, block, loop)
    for each in rest:
        sch.unroll(each)
    sch.vectorize(lane)
    sch.set_scope(block, 0, "local")


def _multiply(sch: s_tir.Schedule, product: Any, lanes: int, mr: int, nr: int) -> tuple[Any, Any]:
    """Sum tiles of mr tiles by nr channels in registers, part by part; return what sums a part, and its loop.

    Zeros are set where parts are added up, so that LLVM sees them, and neither stores nor loads any.
    """
    *_, channel = sch.get_loops(product)
    part, _ = sch.split(channel, [gcd(_PARTS, int(sch.get(channel).extent)), None])
    partial = sch.rfactor(part, 0)
    _, _, e, f, *tiles, o, part = sch.get_loops(product)
    tile, row = sch.split(sch.fuse(*tiles), [None, mr])
    unroll_tile(sch, [e, f, tile, part], row, o, lanes)
    sch.unroll(part)
    sch.compute_at(partial, part, preserve_unit_loops=True)
    *_, row, o, channel = loops_inside(sch, partial, part)
    unroll_tile(sch, [channel], row, o, lanes)
    return partial, channel


def _change_data(sch: s_tir.Schedule, block: Any, lanes: int, is_filled: bool) -> tuple[Any, Any]:
    """Bring the tiles of a block to the other basis; return the loops over them and the image's lines."""
    data = sch.get_sblock(DATA)
    sch.compute_at(data, block, preserve_unit_loops=True)
    _, e, f, *tiles, c = sch.get_loops(data)
    lanes = gcd(lanes, int(sch.get(c).extent))
    _change_basis(sch, LINES, (e, f), tiles, c, lanes)
    image = sch.get_sblock(TILE)
    sch.compute_at(image, block, preserve_unit_loops=True)
    if is_filled:
        _copy_vectors(sch, sch.get_loops(image)[-1], lanes)
    else:
        vectorize_last(sch, image, lanes)
    return sch.fuse(*tiles), sch.fuse(*sch.get_loops(image)[1:3])


def _change_weight(sch: s_tir.Schedule, weight: Any, lanes: int) -> Any:
    """Bring the weight to the other basis; return the loop over its panels and channels."""
    e, f, panel, c, o = sch.get_loops(weight)[-5:]
    _change_basis(sch, WEIGHT_ROWS, (e, f), (panel, c), o, lanes)
    return sch.fuse(panel, c)


def _change_basis(
    sch: s_tir.Schedule, first: str, positions: Sequence[Any], outside: Sequence[Any], along: Any, lanes: int
) -> None:
    """Compute all positions of a vector at once, from those of the block ``first`` in registers."""
    vector, lane = sch.split(along, [None, lanes])
    sch.reorder(*outside, vector, *positions, lane)
    for position in positions:
        sch.unroll(position)
    sch.vectorize(lane)
    _in_registers(sch, first, vector)


def _algorithm(knobs: Knobs) -> str:
    spare = knobs["spare_lines"], knobs["spare_tiles"]
    fills = [knobs[name] for name in ("inputs", "outputs") if name in knobs]
    return "_".join(map(str, ("winograd", knobs["m"], *(spare if any(spare) or fills else ()), *fills)))


WINOGRAD = ScheduleRule(
    name="winograd",
    summary="3x3 convolution with fewer multiplications: matrix products in Winograd's basis",
    rewrite=schedule_winograd,
    open_space=winograd_space,
    algorithm=_algorithm,
)
