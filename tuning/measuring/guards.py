"""Guard zones: memory on both sides of an array that a kernel must not write, nor depend on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tvm

from ...machine.arrays import aligned_empty, as_tensor

# A page on either side: more than a vector, or a row of most tiles, goes beyond the end.
_ZONE_BYTES = 4096
# In the zones beside floats of every second test case; NaN in the others.
_FAR_FROM_DATA = 1e4


class GuardedArray:
    """An array between two guard zones, on this machine or on another device.

    What the zones hold depends on the test case: what a kernel computes from memory beyond an array is NaN in
    one case, far off in the next.

    Parameters
    ----------
    shape : sequence of int
        The array's shape.
    dtype : str
        Its element type.
    nth : int
        Which test case it belongs to.
    device : tvm.runtime.Device or None
        Where kernels find it. Compiled code wants an array to start where its memory does, and only this
        process's memory can be entered in the middle: elsewhere there is no zone before the array.

    Attributes
    ----------
    array : numpy.ndarray
        The content, here; `push` and `pull` bring it to the device and back.
    tensor : tvm.runtime.Tensor
        What a kernel is called with.
    """

    def __init__(self, shape: Sequence[int], dtype: str, nth: int, device: Any = None) -> None:
        element = np.dtype(dtype)
        before, size = _ZONE_BYTES if device is None else 0, prod(shape) * element.itemsize
        self._all = aligned_empty((before + size + _ZONE_BYTES,), "uint8")
        self.array = self._all[before : before + size].view(element).reshape(tuple(shape))
        self._zones = self._all[:before], self._all[before + size :]
        for zone in self._zones:
            zone.view(element)[...] = _forbidden(element, nth)
        self._pristine = [zone.copy() for zone in self._zones]
        self._there = None
        if device is not None:
            self._there = tvm.runtime.empty(self._all.shape, "uint8", device)
            self.tensor = self._there._create_view(self.array.shape, dtype)
        else:
            self.tensor = as_tensor(self.array)

    def push(self) -> None:
        """Bring the content and the zones to the device."""
        if self._there is not None:
            self._there.copyfrom(self._all)

    def pull(self) -> None:
        """Bring the content and the zones back from the device."""
        if self._there is not None:
            self._all[...] = self._there.numpy()

    def mend_zones(self) -> str:
        """Put the zones right again and say where they were written; empty where they were not."""
        size, found = self.array.itemsize, []
        for zone, pristine, side in zip(
            self._zones, self._pristine, ("before its begin", "after its end"), strict=True
        ):
            places = np.flatnonzero(zone != pristine)
            if places.size:
                farthest = len(zone) - places[0] if side == "before its begin" else places[-1] + 1
                found.append(f"{-(-farthest // size) * size} bytes {side}")
                zone[...] = pristine
        return " and ".join(found)


def _forbidden(element: np.dtype[Any], nth: int) -> Any:
    """Return what a kernel must not read: it spoils every result."""
    if element.kind == "b":
        return nth % 2 == 0
    if element.kind in "iu":
        limits = np.iinfo(element)
        return limits.max if nth % 2 == 0 else limits.min
    return np.nan if nth % 2 == 0 else _FAR_FROM_DATA
