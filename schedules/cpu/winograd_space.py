"""The space of Winograd's form of a convolution: knobs, their constraints, and the default."""

from __future__ import annotations

from typing import Any

from ...machine.facts import facts
from ..forms.winograd import find_convolution
from ..space import Constraint, Knob, KnobSpace
from .even_parts import divisors
from .winograd_choice import SPARE, TILE_ROWS, WinogradChoice

_LINES = (1, 2, 3, 4, 5, 6, 7, 8, 14, 16, 28)
_VECTORS = (1, 2, 4)


def winograd_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where the convolution has no such form, or is as fast without."""
    conv = find_convolution(func)
    if conv is None:
        return None
    choice = WinogradChoice(conv, facts(target))
    if conv.nest.rest and choice.fills != (1, 1):
        return None
    lanes = choice.lanes
    default = choice.default()
    if default is None:
        return None
    registers = choice.machine.vector_registers
    widths = tuple(v * lanes for v in _VECTORS if choice.co % (v * lanes) == 0)
    lines = tuple(sorted({*(n for n in _LINES if n <= conv.p // min(choice.sizes)), default["lines"]}))
    images = divisors(conv.n)
    space = KnobSpace(
        knobs=(
            Knob("m", choice.sizes, "outputs of a tile in each direction"),
            Knob("spare_lines", SPARE, "lines of tiles beyond the image"),
            Knob("spare_tiles", SPARE, "tiles in a line beyond the image"),
            Knob("lanes", (lanes,), "elements in a vector"),
            Knob("lines", lines, "lines of tiles in a block"),
            Knob("mr", TILE_ROWS, "tiles of a register tile"),
            Knob("nr", widths, "output channels of a register tile"),
            Knob("share_lines", (0, 1), "1: threads share blocks of lines; 0: the tiles and panels of each"),
            Knob("images", images, "images whose lines are in a block"),
        ),
        constraints=(
            Constraint(
                f"m is {' or '.join(map(str, choice.sizes))} for {conv.ci} channels",
                lambda k: k["m"] in choice.sizes,
            ),
            Constraint(
                f"spare_lines and spare_tiles are at most {SPARE[-1]}",
                lambda k: k["spare_lines"] in SPARE and k["spare_tiles"] in SPARE,
            ),
            Constraint(
                "lines divides the lines of tiles",
                lambda k: k["lines"] > 0 and choice.lines(k) % k["lines"] == 0,
            ),
            Constraint(
                f"images divides {conv.n}, and is 1 where lines are not all of an image",
                choice.has_whole_images,
            ),
            Constraint(
                "mr divides the tiles of a block, and those of an image, or is a multiple of these",
                lambda k: k["mr"] > 0 and choice.shares_tiles(k, k["mr"]),
            ),
            Constraint(
                f"nr divides the output channels ({choice.co}), in whole vectors",
                lambda k: k["nr"] > 0 and choice.co % k["nr"] == 0 and k["nr"] % lanes == 0,
            ),
            Constraint(
                f"(mr + 1) * nr / lanes accumulators and weights and a broadcast fit {registers} registers",
                lambda k: choice.fits(k["mr"], k["nr"]),
            ),
        ),
        default=default,
    )
    return space if choice.fills == (1, 1) else _filled_up(space, choice)


def _filled_up(space: KnobSpace, choice: WinogradChoice) -> KnobSpace:
    """Return the space after the knobs of channels that are filled up.

    A weight that is not copied is read in masked vectors: 19x19 of 1024 to 126 channels take 0.90 of the time
    so, 2 of 7x7 of 518 to 392, channels first, 0.84 (2 threads of a Zen 4).
    """
    inputs, outputs = choice.fills
    if outputs > 1:
        copy = Knob("copy", (0, 1), "1: a weight that is filled up is copied first")
        space = space.in_form(copy, int(not choice.machine.has_masks))
    of_outputs = Knob("outputs", (outputs,), "what output channels are filled up to a multiple of")
    of_inputs = Knob("inputs", (inputs,), "what input channels are filled up to a multiple of")
    return space.in_form(of_outputs, outputs).in_form(of_inputs, inputs)
