"""What a transposition may choose, and what it chooses itself: squares, and how they get past the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...machine.element import element_bits
from ...machine.facts import Facts, facts, line_elements
from ...machine.streaming_store import streams
from ..forms import buffered_squares, skewed_squares
from ..forms.squares import Transposition, find_transposition
from ..passes.streaming import exceeds_caches
from ..space import Constraint, Knob, Knobs, KnobSpace

# Squares in a block along the output's rows: several, of which lines become whole. Past the caches one is
# enough, if its vectors are lines; two, where they divide the rows, take 0.77 to 1.0 of its time on 2 threads
# of a Zen 5: 4096 x 4096 0.83, 1024 x 16384 0.81, 16 x 56 x 56 x 256 channels first 0.98, and last 0.77,
# float64 0.77 to 0.9; four 0.72 to 1.45.
SQUARES_OF_BLOCK = 4
_LINE_BITS = 512

# Squares along the input's rows. Past the caches it is read in long stretches, or, where it is fetched ahead,
# block after block along the same rows. Of 8 squares the same squares of the next block are far enough: on 2
# threads of a Zen 4, over stretches that nothing fetches, 4096 x 4096 takes 0.88, 3008 x 6016 0.86, 16384 x
# 1024 0.77, 1024 x 16384 0.82, 16 x 56 x 56 x 256 channels first 0.78 and last 0.96, 8 x 224 x 224 x 64 0.49,
# float64 0.74 to 0.97, AVX2's squares 0.64 to 0.92, by way of a buffer 0.74 to 0.96. Pairs of float16 want
# stretches of 2: 8192 x 8192 takes 0.78, 4096 x 4096 0.88, 16 x 112 x 56 x 256 channels first 0.85, 16 x
# 112 x 112 x 256 last 0.77; of 8 1.04, one by one 1.0.
STRETCH, _STRETCH_PAST_CACHES, _STRETCH_NARROW, _LEAST_BITS_AHEAD = 8, 64, 2, 32

# The rows of a square are in registers with what they become: AVX2 has 16, AVX-512 and aarch64 have 32. Of
# bytes 16 are a quarter of a line only.
_BYTE = 8
_LANES = (4, 8, 16, 32)
_MOST_LANES, _MOST_LANES_OF_BYTES = 16, 32

# Skewed squares: on 2 threads of a Zen 4 blocks of 8 lines take 0.96 to 1.0 of the time of those of 16, and
# 1.8 of it where rows of 11 are two parts then. Rows of 8 lines are ends for a good part: buffers take 0.8 of
# their time, at 11 lines 0.93, at 13 1.02. Where L3 is far away, on 2 threads of a Xeon, at 13 lines 0.65 to
# 0.83, at 18 0.77, at 23 0.9, of float64 at 25 0.81, at 36 0.98; of float32 at 28 and 36 1.04.
_LINES_SKEWED, _STRETCH_SKEWED, _LEAST_LINES_SKEWED, _LEAST_LINES_FAR = 16, 2, 12, 26

# These two have more; a buffer is read again while L2 still holds it. On that Xeon buffers of 2 squares along
# the input's rows take 0.72 to 0.89 of the time of those of 4 (rows of 77 to 333), of 1 0.93 to 1.8.
_SQUARES, _MORE_SQUARES = (1, 2, 4, 8), (16, 32, 64, 128, 256)
_SHARE_OF_L2, _STRETCH_BUFFERED_FAR = 8, 2

# Narrower vectors written past the caches cost more than lines that are read before they are written.
_LEAST_BITS_PAST_CACHES = 256


@dataclass(frozen=True)
class _Choice:
    """The squares that a transposition consists of, for a machine.

    Parameters
    ----------
    nest : Transposition
        What is copied.
    fitting : tuple of int
        Lanes of squares that fit into it.
    machine : Facts
        Its caches.
    """

    nest: Transposition
    fitting: tuple[int, ...]
    machine: Facts

    @property
    def bits(self) -> int:
        """Those of an element."""
        return element_bits(self.nest.dtype)

    @property
    def streamed(self) -> list[int]:
        """Lanes that divide the output's rows: these can be written past the caches as they are."""
        row = self.nest.extents[-1]
        return [lanes for lanes in self.fitting if streams(self.nest.dtype) and row % lanes == 0]

    @property
    def skewed(self) -> list[int]:
        """Lanes that do not, and leave lines of them."""
        return [lanes for lanes in self.fitting if skewed_squares.can_restate(self.nest, lanes)]

    @property
    def buffers(self) -> bool:
        """Whether squares may be transposed into a buffer first."""
        return buffered_squares.can_restate(self.nest)

    def ordinary(self, stretch: int) -> dict[str, int]:
        """Return the widest squares that registers hold, written like anything else.

        On 2 threads of a Zen 4 squares of 16 transpose 4096 x 4112 float32 in 0.50 of the time of squares of
        4, and squares of 32 transpose 4096 x 8192 float16 in 0.54 of that of squares of 8.
        """
        most = _MOST_LANES_OF_BYTES if self.bits == _BYTE else _MOST_LANES
        lanes = max(lanes for lanes in self.fitting if lanes <= most)
        block = {"lanes": lanes, "squares": SQUARES_OF_BLOCK, "stretch": stretch}
        return block | {"parallel": 1, "stream": 0, "ahead": 0, "buffered": 0, "skewed": 0}

    def past_caches(self) -> dict[str, int]:
        """Return the widest squares whose rows can be written in lines, or the ordinary ones."""
        ordinary, streamed = self.ordinary(_STRETCH_PAST_CACHES), max(self.streamed, default=0)
        skewed = max(self.skewed, default=0) if self._skews else 0
        if self.machine.has_far_l3 and self.buffers and streamed * self.bits < _LINE_BITS:
            streamed = 0
        if max(streamed, skewed) * self.bits >= _LEAST_BITS_PAST_CACHES:
            lanes = max(streamed, skewed)
            squares = self._in_lines(lanes) if lanes == streamed else self._in_skewed_lines(lanes)
            return ordinary | squares | {"lanes": lanes, "stream": 1}
        if self.buffers:
            return ordinary | self._in_buffers(ordinary["lanes"]) | {"stream": 1, "ahead": 1, "buffered": 1}
        return ordinary

    @property
    def _skews(self) -> bool:
        """Whether rows are long enough for what skewed squares leave of them."""
        lines = self.nest.extents[-1] / line_elements(self.nest.dtype)
        least = _LEAST_LINES_FAR if self.machine.has_far_l3 and self.buffers else _LEAST_LINES_SKEWED
        return lines >= least and self.bits > _BYTE

    def _in_lines(self, lanes: int) -> dict[str, int]:
        whole_lines = lanes * self.bits >= _LINE_BITS
        in_pairs = whole_lines and self.nest.extents[-1] // lanes % 2 == 0
        squares = (2 if in_pairs else 1) if whole_lines else SQUARES_OF_BLOCK
        wide = self.bits >= _LEAST_BITS_AHEAD
        fetched = {"stretch": STRETCH if wide else _STRETCH_NARROW, "ahead": 1} if wide or in_pairs else {}
        return fetched | {"squares": squares}

    def _in_skewed_lines(self, lanes: int) -> dict[str, int]:
        squares = _LINES_SKEWED * line_elements(self.nest.dtype) // lanes
        return {"squares": squares, "stretch": _STRETCH_SKEWED, "ahead": 1, "skewed": 1}

    def _in_buffers(self, lanes: int) -> dict[str, int]:
        stretch = _STRETCH_BUFFERED_FAR if self.machine.has_far_l3 else SQUARES_OF_BLOCK
        row, room = stretch * lanes**2 * self.bits // _BYTE, self.machine.l2_bytes // _SHARE_OF_L2
        squares = max(squares for squares in _SQUARES + _MORE_SQUARES if squares * row <= max(room, row))
        return {"squares": squares, "stretch": stretch}


def transpose_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the squares to choose from, or None where it is no transposition or no square fits into it."""
    nest = find_transposition(func)
    if nest is None:
        return None
    widest = facts(target).vector_bits // element_bits(nest.dtype)
    fitting = tuple(lanes for lanes in _LANES if lanes <= min(*nest.sides, widest))
    if not fitting:
        return None
    choice = _Choice(nest, fitting, facts(target))
    past = exceeds_caches(func, target)
    default = choice.past_caches() if past else choice.ordinary(STRETCH)
    written_otherwise = default["buffered"] or default["skewed"]
    buffers, skewed = choice.buffers, bool(choice.skewed)
    more = _MORE_SQUARES if buffers or skewed else ()
    return KnobSpace(
        knobs=(
            Knob("lanes", fitting, "rows and columns of a square in registers"),
            Knob("squares", _SQUARES + more, "squares in a block along the output's rows"),
            Knob("stretch", (2, 4, 8, 16, 32, 64), "the most squares in a block along the input's rows"),
            Knob("parallel", (0, 1), "1: blocks are spread over the threads"),
            Knob("stream", (0, 1), "1: the output is written past the caches"),
            Knob("ahead", (0, 1), "1: a block also fetches what the next one reads"),
            Knob("buffered", (0, 1) if buffers else (0,), "1: squares are transposed into a buffer first"),
            Knob("skewed", (0, 1) if skewed else (0,), "1: a square's rows begin where lines do"),
        ),
        constraints=_constraints(choice),
        default=default,
        alternative=choice.ordinary(_STRETCH_PAST_CACHES) if written_otherwise else None,
    )


def _constraints(choice: _Choice) -> tuple[Constraint, ...]:
    fitting, streamed, skewed, buffers = choice.fitting, choice.streamed, choice.skewed, choice.buffers
    return (
        Constraint(f"lanes is one of {fitting}", lambda k: k["lanes"] in fitting),
        Constraint("squares and stretch are at least 1", lambda k: min(k["squares"], k["stretch"]) >= 1),
        Constraint(
            f"stream is 1 only with buffered=1, skewed=1, or lanes of {streamed}, which divide the rows",
            lambda k: k["stream"] <= k["buffered"] + k["skewed"] or k["lanes"] in streamed,
        ),
        Constraint(
            "buffered is 1 only with stream=1, rows of many lines and 32 bits or more",
            lambda k: k["buffered"] == 0 or (buffers and k["stream"] == 1),
        ),
        Constraint(
            f"skewed is 1 only with stream=1, buffered=0 and lanes of {skewed}, which do not divide the rows",
            lambda k: k["skewed"] == 0 or (k["stream"] > k["buffered"] and k["lanes"] in skewed),
        ),
    )


def form_of_squares(knobs: Knobs) -> str:
    """Name the form that a point wants."""
    named = next((name for name in ("buffered", "skewed") if knobs[name]), None)
    if named is None:
        return f"squares_{knobs['lanes']}_{knobs['stream']}"
    sizes = (knobs[name] for name in ("lanes", "squares", "stretch", "ahead"))
    return "_".join([f"{named}_squares", *map(str, sizes)])
