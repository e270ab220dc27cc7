"""The knobs of the register-tiled nest, their candidates and constraints.

Candidates follow from the target's vectors and registers and from the extents of the nest.
"""

from __future__ import annotations

from math import ceil

from ..space import Constraint, Knob, Knobs, KnobSpace
from .even_parts import even_divisor
from .operand_layout import can_stage
from .register_tile import can_ask, can_cut
from .tile_choice import BROADCAST_REGISTERS, VECTOR_CANDIDATES, TileChoice
from .tile_operands import blocks_own_lines
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING
from .weight_reading import BESIDE_CANDIDATES

# What says whether rows can be cut off.
_CUT = ("mr", "block_rows", "split_columns", "pack")

_ROW_CANDIDATES = (*range(1, 15), 16)
_BLOCK_CANDIDATES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64, 128)


def tile_space(choice: TileChoice, default: Knobs) -> KnobSpace:
    """Return every tile and blocking worth trying around a default; what is left of the rows is cut off."""
    nest, lanes, default = choice.nest, default["lanes"], {**default, "pad": 0, "stage": 0}
    default["stage"] = int(choice.is_worth_staging(default["nr"]) and _stages(choice, default))
    if default["stage"] and not nest.plain:
        default["block_rows"] = block_of_own_lines(choice, default["mr"], default["block_rows"])
    default["beside"] = choice.weight.beside(default)
    default["fetch"] = int(choice.weight.is_worth_fetching(default))
    skips = bool(nest.padded or nest.filled) and choice.products == 1
    if skips:
        default["skip"] = 1
    widest = ceil(nest.columns / lanes) * lanes
    rows = tuple(r for r in _ROW_CANDIDATES if r <= nest.row_extent)
    columns = tuple(v * lanes for v in VECTOR_CANDIDATES if v * lanes <= widest)
    knobs: tuple[Knob, ...] = (
        Knob("lanes", (lanes,), "elements in a vector"),
        Knob("mr", _with(rows, default["mr"]), "rows of the register tile"),
        Knob("nr", _with(columns, default["nr"]), "columns of the register tile"),
        Knob("block_rows", _with(_up_to(choice.row_tiles(1)), default["block_rows"]), "row tiles in a block"),
        Knob(
            "block_columns",
            _with(_up_to(choice.panels(lanes)), default["block_columns"]),
            "panels in a block",
        ),
        Knob("split_columns", (0, 1), "1: threads share columns first; 0: rows"),
        Knob(
            "pack",
            (PACK_NOTHING, PACK_IN_BLOCK, PACK_FIRST),
            "weight: 0 as it lies, 1 packed by block, 2 first",
        ),
        Knob(
            "pad", (0, 1), "1: rows left after whole tiles are padded in a copy; 0: they are read as they lie"
        ),
        Knob("stage", (0, 1), "1: data are copied with the sum last, a window's by each block"),
        Knob("beside", BESIDE_CANDIDATES, "panels that are packed side by side"),
        Knob("fetch", (0, 1), "1: tiles that meet a panel also ask for the next one"),
    )
    if skips:
        knobs = (*knobs, Knob("skip", (0, 1), "1: taps that meet only zeros are left out"))
    return KnobSpace(knobs, _constraints(choice, widest), default)


def block_of_own_lines(choice: TileChoice, mr: int, block_rows: int) -> int:
    """Return the tiles of rows in a block that copies the lines of its windows, at most so many.

    Its lines are whole images, or divide one evenly: what goes on in the next image would copy most of both.
    8 images of 112x112 pixels of 48 to 36 channels, 5x5, take 0.96 of the time by 16 or 28 lines, 1.01 by 24.
    """
    nest, line = choice.nest, choice.nest.tiles_in_line(mr)
    lines = block_rows // line
    if lines <= 1:
        return block_rows
    height = nest.extents[nest.rows[-2]]
    if lines >= height:
        return lines // height * height * line
    return even_divisor(height, lines, choice.threads, nest.outer_rows // height) * line


def _constraints(choice: TileChoice, widest: int) -> tuple[Constraint, ...]:
    """Return the rules between the knobs; ``widest`` is the column axis rounded up to a vector."""
    nest, registers = choice.nest, choice.machine.vector_registers
    return (
        Constraint("lanes, mr, nr, block_rows, block_columns and beside are at least 1", _positive),
        Constraint("split_columns, pad, stage, skip and fetch are 0 or 1, pack is 0, 1 or 2", _choices),
        Constraint("lanes must divide nr", lambda k: k["nr"] % k["lanes"] == 0),
        Constraint(
            f"(mr + 1) * nr / lanes accumulators and weights and a broadcast fit {registers} registers",
            lambda k: (k["mr"] + 1) * (k["nr"] // k["lanes"]) + BROADCAST_REGISTERS <= registers,
        ),
        Constraint("mr is at most the row axis", lambda k: k["mr"] <= nest.row_extent),
        *blocking_constraints(choice, widest),
        Constraint(
            f"pack=0 needs columns that are contiguous, and nr to divide them ({nest.columns}) or masks",
            lambda k: k["pack"] != PACK_NOTHING or choice.weight.reads_unpacked(k["nr"]),
        ),
        Constraint(
            "pad=1 where mr leaves rows that need no copy",
            lambda k: k["pad"] == 0 or _cuts(choice, k) or can_ask(nest, k["mr"], choice.products),
        ),
        Constraint(
            "stage=1 where data lie along the rows unpadded, or of a window whose blocks have all columns",
            lambda k: k["stage"] == 0 or _stages(choice, k),
        ),
        beside_constraint(choice),
        Constraint(
            "fetch=1 where a block has several panels, not packed for it, and tiles can share the fetches",
            lambda k: k["fetch"] == 0 or choice.weight.can_fetch(k),
        ),
    )


def blocking_constraints(choice: TileChoice, widest: int) -> tuple[Constraint, ...]:
    """Return the rules between the blocks of any tiles and who packs the weight.

    ``widest``: the column axis rounded up to a vector.
    """
    nest = choice.nest
    return (
        Constraint("nr is at most the column axis, rounded up to a vector", lambda k: k["nr"] <= widest),
        Constraint(
            "block_rows is at most the row tiles", lambda k: k["block_rows"] <= choice.row_tiles(k["mr"])
        ),
        Constraint(
            "block_rows is part of a line of row tiles or whole lines",
            lambda k: k["block_rows"] == choice.whole_lines(k["mr"], k["block_rows"]),
        ),
        Constraint(
            "block_columns is at most the panels", lambda k: k["block_columns"] <= choice.panels(k["nr"])
        ),
        Constraint(
            "pack=2 where the weight is constant: packing it once costs nothing",
            lambda k: k["pack"] == PACK_FIRST or not nest.constant_weight,
        ),
    )


def beside_constraint(choice: TileChoice) -> Constraint:
    """Return the rule for the panels that are packed side by side."""
    return Constraint(
        "beside divides the panels packed at once, of a weight that varies and lies along the columns",
        lambda k: k["beside"] == 1 or choice.weight.can_pack(k, k["beside"]),
    )


def _cuts(choice: TileChoice, knobs: Knobs) -> bool:
    return can_cut(choice.nest, *(knobs[each] for each in _CUT))


def _stages(choice: TileChoice, knobs: Knobs) -> bool:
    if choice.nest.staged_bytes:
        shares = (knobs[each] for each in ("nr", "block_columns", "split_columns"))
        return choice.products == 1 and blocks_own_lines(choice.nest, *shares)
    whole = choice.nest.row_extent % knobs["mr"] == 0 or (knobs["pad"] == 0 and _cuts(choice, knobs))
    return choice.products == 1 and whole and can_stage(choice.nest)


def _positive(knobs: Knobs) -> bool:
    return all(knobs[name] >= 1 for name in ("lanes", "mr", "nr", "block_rows", "block_columns", "beside"))


def _choices(knobs: Knobs) -> bool:
    choices = (knobs.get(name, 0) for name in ("split_columns", "pad", "stage", "skip", "fetch"))
    packs = (PACK_NOTHING, PACK_IN_BLOCK, PACK_FIRST)
    return all(choice in (0, 1) for choice in choices) and knobs["pack"] in packs


def _up_to(most: int) -> tuple[int, ...]:
    return tuple(c for c in _BLOCK_CANDIDATES if c <= most)


def _with(values: tuple[int, ...], default: int) -> tuple[int, ...]:
    return tuple(sorted({*values, default}))
