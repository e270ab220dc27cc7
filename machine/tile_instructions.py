"""Instructions that multiply matrices in registers of their own, tiles: Intel's AMX.

A tile has up to 16 rows of up to 64 bytes. With p products of 4 bytes in all, one instruction computes, of a
tile of data, row by row, and one of the weight, whose rows hold groups of p for each of 16 columns, exactly::

    sums[i, j] += data[i, p * g + q] * weight[g, j, q]      summed over all g and q

Tiles are configured before they are used, by each thread: how many rows and bytes each of them has. Linux
gives a process leave to use them when it asks, once; whoever asks again is told the same in 80 ns.

References
----------
Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3. Linux, "Using XSTATE
features in user space applications" (``ARCH_REQ_XCOMP_PERM``).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from .cpu import cpu_flags

TILE_ROWS, ROW_BYTES, TILES = 16, 64, 8
"""What a tile has at most, and how many there are."""

CONFIGURATION_WORDS = 8
"""Words of 64 bits that describe the tiles."""

TILE_FEATURES = ("amx-tile", "amx-int8", "amx-bf16")
"""The CPU features that bring them, by LLVM's names."""

# The system call, what it asks for, and the state of which it is asked: that of the tiles.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class TileInstruction:
    """One such instruction.

    Parameters
    ----------
    mnemonic : str
        Its name in assembly.
    feature : str
        The CPU feature that brings it, by LLVM's name.
    products : int
        Elements of a group: neighbours along the sum.
    data_dtype, weight_dtype, sum_dtype : str
        The types of the operands and of the sums.
    pairs : tuple of pairs of int
        Which parts of an element of the data are multiplied by which of the weight, in order.
    is_exact : bool
        Whether sums are as exact as the operands; else the data has more bits than its parts.
    """

    mnemonic: str
    feature: str
    products: int
    data_dtype: str
    weight_dtype: str
    sum_dtype: str
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)
    is_exact: bool = True

    @property
    def parts(self) -> int:
        """Numbers into which an element of the data is split; one of the weight into as many, or none."""
        return 1 + max(data for data, _ in self.pairs)

    @property
    def part_bytes(self) -> int:
        """Bytes of what it multiplies: an element, or a part of one."""
        return ROW_BYTES // self.elements

    @property
    def lanes(self) -> int:
        """Columns of a tile: groups in a row of the weight's."""
        return ROW_BYTES // 4

    @property
    def elements(self) -> int:
        """Elements in a row of a tile of an operand."""
        return self.lanes * self.products

    def added(self, sums: int, data: int, weight: int) -> Any:
        """Return the call that adds the products of two tiles to a third, all by their numbers."""
        return _called(self.mnemonic, *(T.int8(tile) for tile in (sums, data, weight)))


# A float32 is the sum of three bfloat16, each at most half a unit in the last place of the one before; what
# is left out does not count, see `schedules.float32_parts`. The least come first; neighbours share one.
_PAIRS_OF_FLOAT32 = ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0))
# Two parts of a float32, 16 bits, will do beside a bfloat16 where the result is one as well.
_PAIRS_BY_BFLOAT16 = ((1, 0), (0, 0))

TILE_INSTRUCTIONS = (
    TileInstruction("tdpbusd", "amx-int8", 4, "uint8", "int8", "int32"),
    TileInstruction("tdpbssd", "amx-int8", 4, "int8", "int8", "int32"),
    TileInstruction("tdpbuud", "amx-int8", 4, "uint8", "uint8", "int32"),
    TileInstruction("tdpbsud", "amx-int8", 4, "int8", "uint8", "int32"),
    TileInstruction("tdpbf16ps", "amx-bf16", 2, "bfloat16", "bfloat16", "float32"),
    TileInstruction("tdpbf16ps", "amx-bf16", 2, "float32", "float32", "float32", _PAIRS_OF_FLOAT32),
    TileInstruction("tdpbf16ps", "amx-bf16", 2, "float32", "bfloat16", "float32", _PAIRS_BY_BFLOAT16, False),
)
"""Those known here."""


def tile_instruction(data_dtype: str, weight_dtype: str, sum_dtype: str) -> TileInstruction | None:
    """Return the instruction for operands and sums of these types, None where there is none."""
    types = (data_dtype, weight_dtype, sum_dtype)
    fitting = (i for i in TILE_INSTRUCTIONS if (i.data_dtype, i.weight_dtype, i.sum_dtype) == types)
    return next(fitting, None)


@cache
def usable_tile_features() -> frozenset[str]:
    """Return those of `TILE_FEATURES` that the CPU has, if the system lets this process use them."""
    flags = cpu_flags()
    found = {name for name in TILE_FEATURES if name.replace("-", "_") in flags}
    if "amx-tile" not in found or not sys.platform.startswith("linux"):
        return frozenset()
    asked = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return frozenset(found) if asked == 0 else frozenset()


def permission() -> Any:
    """Return the call that asks the system for leave to use tiles, in the process that makes it."""
    numbers = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return tirx.call_extern("int64", "syscall", *(T.int64(number) for number in numbers))


def configuration(shapes: Sequence[tuple[int, int]]) -> list[int]:
    """Return what describes tiles of these shapes, rows and bytes of a row of each, as words of 64 bits."""
    described = bytearray(8 * CONFIGURATION_WORDS)
    described[0] = 1  # The palette: the one there is.
    for tile, (rows, row_bytes) in enumerate(shapes):
        described[16 + 2 * tile : 18 + 2 * tile] = row_bytes.to_bytes(2, "little")
        described[48 + tile] = rows
    return [int.from_bytes(described[i : i + 8], "little") for i in range(0, len(described), 8)]


def configured(words: Any) -> Any:
    """Return the call that shapes the tiles of a thread, as a buffer of the words of `configuration` says."""
    return _called("ldtilecfg", tirx.address_of(words[0]))


def released() -> Any:
    """Return the call that gives a thread's tiles back."""
    return _called("tilerelease")


def zeroed(tile: int) -> Any:
    """Return the call that sets a tile to zero."""
    return _called("tilezero", T.int8(tile))


def loaded(tile: int, place: Any, bytes_apart: int) -> Any:
    """Return the call that loads a tile from a place, where its rows begin so many bytes apart."""
    return _called("tileloadd64", T.int8(tile), place, T.int64(bytes_apart))


def stored(tile: int, place: Any, bytes_apart: int) -> Any:
    """Return the call that stores a tile in the same way."""
    return _called("tilestored64", T.int8(tile), place, T.int64(bytes_apart))


def _called(mnemonic: str, *operands: Any) -> Any:
    function = T.llvm_lookup_intrinsic_id(f"llvm.x86.{mnemonic}")
    # LLVM knows that nothing is returned; TVM wants a type.
    return T.call_llvm_intrin(function, *operands, dtype="int32")
