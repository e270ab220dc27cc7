"""A few rows by a matrix that exceeds the caches: it is read once, in whole stretches of memory.

Before::

    for row, column, k:  out[row, column] += data[row, k] * weight[k, column]

After::

    steps[k // depth, row, k % depth] = data
    for a thread's columns (parallel):
        sums[column // (vectors * lanes), row, ...] = 0
        for k // depth, tiles of columns, tiles of mr rows:
            for k % depth, rows, vectors (unrolled):  sums[tile, row, :] += steps[row, k] * weight[k, tile]
        out = epilogue(sums)

The sums stay in L1 or L2; ``depth`` rows of the weight are read side by side, each from one end to the
other. A register tile over the whole sum, as `matmul` has it, would read a few columns of every row: a page
for a line. Data and sums are laid out as they are read: rows a power of two apart would evict each other.

A convolution of few pixels, as a network's last ones are, is the same for each place of its window. Where
tiles fill the lines of a padded image, they read a copy of it, but for those that meet nothing but padding;
other data are copied as the windows lie on them, padding included.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tvm import s_tir
from tvm.tirx import IndexMap

from ...machine.facts import Facts, facts
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..passes.loop_partition import partition
from ..passes.padded_taps import leave_out_tiles
from ..passes.row_prefetch import fetch_ahead
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import copy_in_vectors, inline_blocks, panel_order, relayout_read, vectorize_last
from .even_parts import dividing_lanes
from .operand_layout import block_of_result, load_of, pad_operands, producer_of
from .tile_choice import FMAS_IN_FLIGHT, ROW_STREAMS, tile_choice

# More rows use what is packed into panels often enough. On 2 threads of a Zen 3, by 4096 x 4096: 16 rows take
# 4.3 ms (10.7 by `matmul`), 32 rows 7.1 (14.4), 64 rows 13.4 (19.4), 128 rows 29.1 (33.8).
_MOST_ROWS = 64
# But tiles of two lines, of AVX-512, read a weight that L3 holds as fast where it has not many columns. On 2
# threads of a Zen 4 this rule's times over theirs: 8 to 64 rows by 1024 x 768 1.03 to 1.38, by 1024 x 1024
# 1.05 to 1.33, 49 pixels of 2048 to 512 channels 1.16, of 512 to 2048 0.89, 64 rows by 1000 x 2048 0.93. A
# Zen 5 multiplies twice as fast: 35 rows by 1024 x 1024, a weight whose rows evict each other, 0.58; 24 to
# 63 rows by 736 to 1760 columns 1.1 to 2.3.
_TIMES_L2, _TILED_ROWS, _TILED_BYTES = 4, 8, 8000
_DEPTHS = (4, 8, 16, 32)
_DEPTH = 8
# Multiply-adds that must be in flight: half of what hides their latency, because tiles are many, and the next
# one's begin while one's end.
_SUMS = FMAS_IN_FLIGHT // 2
# Columns that threads cannot share evenly go into more parts where rows are few: 1000 are five of 25 vectors,
# one of two threads takes three. By 2048 x 1000, 2 rows take 0.53 to 0.69 of `matmul`'s time, 4 rows 0.4 to
# 0.5, 8 rows 0.85; 16 rows 1.16, and 1 row, which `matmul` reads as it lies, 1.2 to 1.5.
_MOST_SHARES, _UNEVEN, _UNEVEN_ROWS = 8, 1.25, range(2, 9)
# What the CPU fetches by itself ends with a page. Of a weight that comes from memory, times with fetches over
# those without on 2 threads of a Zen 5: 4 rows by 1000 to 1536 columns 0.64 to 0.86, 8 to 16 rows by 2048 and
# 4096 0.82 to 0.92, 4x4 of 1024, 3x3 0.75; but 4 rows by 2048 to 4096 1.0 to 1.14; and from L3 1.0 to 1.04.
_PAGE_BYTES, _BUSY_ROWS = 4096, 8
_VECTORS = (1, 2, 3, 4, 6, 8)
_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)


def schedule_few_rows(
    sch: s_tir.Schedule, *, lanes: int, vectors: int, depth: int, shares: int, mr: int, fetch: int
) -> None:
    """Rewrite a product of a few rows in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    vectors : int
        Vectors of columns in a tile.
    depth : int
        Rows of the weight that are read side by side.
    shares : int
        Parts of the columns that threads take.
    mr : int
        Rows in a tile.
    fetch : int
        1: tiles also ask for the rows of the weight that are read next, see `row_prefetch`.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, [*(name for name in nest.prologue if name != nest.staged), *nest.epilogue[:-1]])
    block = sch.get_sblock(nest.block)
    last = sch.get_sblock(nest.epilogue[-1]) if nest.epilogue else None
    padded = pad_operands(sch, nest, lanes, 1, lanes * vectors * shares, 1)
    if padded:  # The weight is read where it lies, by masks where it ends.
        sch.compute_inline(producer_of(sch, block, nest.weight))
    tail = block_of_result(sch, block, last, padded)
    in_lines = _reads_lines(nest, mr)
    if _rows(nest) > 1 or not nest.plain:
        _copy_steps(sch, nest, block, lanes, depth, in_lines)
    others = [i for i in range(nest.output_rank) if i != nest.output_column]
    order = panel_order(nest.output_rank, (), nest.output_column, others, vectors * lanes)
    sch.transform_layout(block, ("write", 0), order)

    loops = sch.get_loops(block)
    rows, (*windows, along) = [loops[i] for i in sorted(nest.rows)], [loops[i] for i in nest.reductions]
    # Pixels of several lines lie side by side in a copy of windows: 7x7 are 12 tiles of 4 and one pixel.
    lines = [loops[i] for i in nest.rows[:-1]] if in_lines else []
    pixels = loops[nest.rows[-1]] if in_lines or len(rows) == 1 else sch.fuse(*rows)
    tiles, row = sch.split(pixels, [None, mr])
    share, panel, vector, lane = sch.split(loops[nest.column], [shares, None, vectors, lanes])
    deep, step = sch.split(along, [None, depth])
    sch.reorder(share, *windows, deep, panel, *lines, tiles, step, row, vector, lane)
    for loop in (step, row, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.parallel(share)
    sch.reverse_compute_at(tail, share)
    vectorize_last(sch, tail, lanes)
    if _rows(nest) % mr:
        partition(sch, tiles)
    sch.decompose_reduction(block, windows[0] if windows else deep)
    if in_lines:
        leave_out_tiles(sch, block, nest, dict(zip(nest.rows, [*lines, tiles], strict=True)))
    if fetch:
        fetch_ahead(sch, deep, panel, 1)


def _reads_lines(nest: Contraction, mr: int) -> bool:
    """Tell whether tiles are part of a line of a padded image, of which a tap's windows lie side by side.

    7x7 of 512 channels, 3x3, take 0.82 of the time of copied windows on 2 threads of a Zen 5.
    """
    return bool(nest.padded) and nest.row_extent % mr == 0


def _copy_steps(
    sch: s_tir.Schedule, nest: Contraction, block: Any, lanes: int, depth: int, in_lines: bool
) -> None:
    """Copy data in the order in which they are read; of a convolution, what is under each output's window.

    Tiles that are ``in_lines`` read the padded image, as what pads it lays it out.
    """
    windows: list[int] = []
    if in_lines:
        copy, channel = sch.get_sblock(nest.staged), nest.data_channel
    elif nest.plain:
        copy, channel = sch.cache_read(block, nest.data, "global"), nest.data_channel
    else:
        copy, node = sch.reindex(block, ("read", nest.data)), sch.get(block)
        # A window's loop of one iteration is no dimension of the copy.
        place = {axis: dimension for dimension, axis in enumerate(load_of(node, nest.data).indices)}
        *windows, channel = [place[var] for at in nest.reductions if (var := node.iter_vars[at].var) in place]
    if nest.staged and not in_lines:
        sch.compute_inline(sch.get_sblock(nest.staged))
    rank = len(sch.get(copy).writes[0].source.shape)
    rows = [i for i in range(rank) if i not in (*windows, channel)]

    def order(*index: Any) -> tuple[Any, ...]:
        """From data's indices to (window..., k // depth, rows..., k % depth)."""
        steps, step = index[channel] // depth, index[channel] % depth
        return *(index[i] for i in windows), steps, *(index[i] for i in rows), step

    order_of_reading = IndexMap.from_func(order, ndim=rank, index_dtype="int64")
    relayout_read(sch, block, nest.data, copy, order_of_reading)
    copy_in_vectors(sch, copy, lanes)


@dataclass(frozen=True)
class _Choice:
    """What the choice of a tile depends on."""

    nest: Contraction
    machine: Facts

    @property
    def pads(self) -> bool:
        """Whether threads have vectors of the columns evenly only if the last ones end within by masks."""
        whole = self.machine.cores * self.machine.lanes(self.nest.dtype)
        return self.machine.has_masks and self.nest.plain and self.nest.columns % whole != 0

    @property
    def lanes(self) -> int:
        lanes = self.machine.lanes(self.nest.dtype)
        return lanes if self.pads else dividing_lanes(self.nest.columns, lanes)

    @property
    def shares(self) -> tuple[int, ...]:
        """Into how many parts of whole vectors the columns can go, as many for each thread or nearly so."""
        cores = self.machine.cores
        if self.pads:
            return (cores, 2 * cores)
        parts = [
            s for s in range(cores, _MOST_SHARES * cores + 1) if self.nest.columns % (s * self.lanes) == 0
        ]
        even = tuple(s for s in parts if s in (cores, 2 * cores))
        if even or _rows(self.nest) not in _UNEVEN_ROWS:
            return even
        return tuple(s for s in parts if ceil(s / cores) * cores <= _UNEVEN * s)[:1]

    def widths(self, shares: int) -> tuple[int, ...]:
        """Return the vectors of a tile that leave no rest of a part."""
        if self.pads:
            return _VECTORS
        return tuple(v for v in _VECTORS if self.nest.columns % (v * self.lanes * shares) == 0)

    def fits(self, mr: int, vectors: int, steps: int = 1) -> bool:
        """Tell whether sums, the vectors of so many steps if rows share them, and a broadcast fit."""
        return vectors * (mr + (mr > 1) * steps) + 1 <= self.machine.vector_registers

    def default(self) -> Knobs:
        """Return the tile with the fewest loads, of those that leave registers for the weight.

        Where there are several tiles of rows, LLVM keeps the weight's vectors of all steps for the next one.
        Where they do not fit, those of three steps shall: 64 rows by 3072 x 768, 2 threads of a Zen 3, take
        2.4 ms with tiles of 5 or 6 rows, 2.2 with 4.
        """
        shares, depths = self.shares[0], [d for d in _DEPTHS if self.nest.channels % d == 0]
        depth = max(d for d in depths if d <= max(_DEPTH, depths[0]))
        extent = _rows(self.nest)
        alone = [(extent, vectors) for vectors in self.widths(shares) if self.fits(extent, vectors)]
        several = next(filter(None, (self._tiles(shares, steps) for steps in (depth, 3))), [])
        tiles = [*several, *alone] or [(1, self.widths(shares)[0])]
        mr, vectors = min(tiles, key=lambda tile: self._cost(*tile) * self._computed(tile[1], shares))
        fetch = int(self._fetches(shares))
        return {
            "lanes": self.lanes,
            "vectors": vectors,
            "depth": depth,
            "shares": shares,
            "mr": mr,
            "fetch": fetch,
        }

    def _fetches(self, shares: int) -> bool:
        """Tell whether threads wait for the weight: memory's, in stretches that the CPU does not foresee."""
        nest = self.nest
        waits = nest.weight_bytes // (nest.depth * shares) < _PAGE_BYTES or _rows(nest) >= _BUSY_ROWS
        return waits and nest.weight_bytes > self.machine.kept_by_l3 // 2

    def _tiles(self, shares: int, steps: int) -> list[tuple[int, int]]:
        """List the tiles of several, rows and vectors, that leave room for the weight's vectors of steps."""
        return [
            (mr, vectors)
            for vectors in self.widths(shares)
            for mr in range(2, _rows(self.nest))
            if mr * vectors >= FMAS_IN_FLIGHT and self.fits(mr, vectors, steps)
        ]

    def _computed(self, vectors: int, shares: int) -> int:
        """Return the columns that tiles so wide compute."""
        width = vectors * self.lanes * shares
        return ceil(self.nest.columns / width) * width

    def _cost(self, mr: int, vectors: int) -> float:
        """Estimate what a vector of columns takes: its multiply-adds and loads, too few of them in flight.

        Tiles that fill lines leave out those that meet nothing but padding.
        """
        whole, left = divmod(_rows(self.nest), mr)
        return sum(
            (rows + 1 + rows / vectors) / min(1, rows * vectors / _SUMS)
            for rows in [mr] * whole + [left] * (left > 0)
        ) * (self.nest.share_met(mr) if _reads_lines(self.nest, mr) else 1)


def few_rows_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where rows are many, or the weight is small or lies otherwise."""
    nest = find_contraction(func)
    if nest is None or not _fits(nest):
        return None
    machine, registers = facts(target), facts(target).vector_registers
    choice = _Choice(nest, machine)
    if not weight_exceeds_l2(nest, machine) or not choice.shares or nest.channels % _DEPTHS[0]:
        return None
    if _is_read_in_tiles(nest, target):
        return None
    default = choice.default()
    rows = tuple(sorted({*(r for r in _ROWS if r <= _rows(nest)), default["mr"]}))
    widths = sorted({v for shares in choice.shares for v in choice.widths(shares)})
    return KnobSpace(
        knobs=(
            Knob("lanes", (default["lanes"],), "elements in a vector"),
            Knob("vectors", tuple(widths), "vectors of columns in a tile"),
            Knob(
                "depth",
                tuple(d for d in _DEPTHS if nest.channels % d == 0),
                "rows of the weight that are read side by side",
            ),
            Knob("shares", choice.shares, "parts of the columns that threads take"),
            Knob("mr", rows, "rows of a tile"),
            Knob("fetch", (0, 1), "1: ask for the rows of the weight that are read next"),
        ),
        constraints=(
            Constraint(
                "lanes, vectors, depth, shares and mr are at least 1",
                lambda k: min(number for name, number in k.items() if name != "fetch") >= 1,
            ),
            Constraint(
                f"lanes * vectors * shares divides the columns ({nest.columns}), or masks end them",
                lambda k: choice.pads or nest.columns % (k["lanes"] * k["vectors"] * k["shares"]) == 0,
            ),
            Constraint(f"depth divides the sum ({nest.channels})", lambda k: nest.channels % k["depth"] == 0),
            Constraint(f"mr is at most the rows ({_rows(nest)})", lambda k: k["mr"] <= _rows(nest)),
            Constraint(
                f"vectors * (mr + 1) sums and weights and a broadcast fit {registers} registers",
                lambda k: choice.fits(k["mr"], k["vectors"]),
            ),
        ),
        default=default,
    )


def _fits(nest: Contraction) -> bool:
    alone = not nest.batch and not nest.rest and nest.weight_block is None
    along = nest.weight_axes[-1] == nest.column and nest.output_column == nest.output_rank - 1
    # Panels of a constant weight are packed beforehand, and read in one stretch each: 4 rows by 3072 x 768
    # take 0.13 ms with them, 0.29 with this rule.
    return alone and along and not nest.constant_weight and _rows(nest) <= _MOST_ROWS


def _is_read_in_tiles(nest: Contraction, target: Any) -> bool:
    """Tell whether a register tile reads the weight as fast: from L3, two lines of each row at a time."""
    choice, machine = tile_choice(nest, target), facts(target)
    reading, columns = choice.weight, 2 * choice.lanes
    tiles = choice.row_tiles(min(nest.row_extent, ROW_STREAMS))
    if _rows(nest) < _TILED_ROWS:
        return False
    if reading.is_read_from_l3(tiles, columns):
        return True
    near = nest.weight_bytes <= _TIMES_L2 * machine.near_bytes
    short = nest.columns % columns == 0 and nest.weight_bytes <= _TILED_BYTES * nest.depth
    return near and short and reading.lines(columns) > 1 and reading.is_soon_read(tiles, columns)


def _rows(nest: Contraction) -> int:
    return prod(nest.extents[i] for i in nest.rows)


FEW_ROWS = ScheduleRule(
    name="few_rows",
    summary="a few rows by a large matrix, which is read in whole stretches of memory",
    rewrite=schedule_few_rows,
    open_space=few_rows_space,
)
