"""Verdicts: an output compared with the expected one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

# By which part of itself the error that is found quickly may be wrong: a few roundings in float32.
_QUICKLY = 1e-5


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Parameters
    ----------
    ok : bool
        Whether every element is within the tolerance.
    max_error : float or None
        The largest error, in units of the tolerance; None where no element could be compared.
    message : str
        What is wrong and where; empty where nothing is.
    """

    ok: bool
    max_error: float | None
    message: str = ""


class Expected:
    """An expected output that many are compared with: what is the same for all of them is worked out once.

    Parameters
    ----------
    want : array
        The expected output.
    allowed : float
        The tolerance.
    """

    def __init__(self, want: np.ndarray, allowed: float) -> None:
        self.want, self._allowed = want, allowed
        self._inverse: np.ndarray | None = None
        if want.dtype.kind in "iub" or not want.size:
            return
        kind = np.dtype(np.float64 if want.dtype == np.float64 else np.float32)
        with np.errstate(all="ignore"):
            exact = want.astype(np.float64)
            self._inverse = (1 / (np.abs(exact) + _root_mean_square(exact))).astype(kind)
        self._rounded, self._room = want.astype(kind, copy=False), np.empty(want.shape, kind)

    def compare(self, got: np.ndarray) -> Verdict:
        """Compare an output, in a tenth of the time that `compare` takes where it is right."""
        if self._inverse is not None:
            with np.errstate(all="ignore"):
                np.copyto(self._room, got, casting="unsafe")
                np.subtract(self._room, self._rounded, out=self._room)
                np.multiply(self._room, self._inverse, out=self._room)
                error = max(float(self._room.max()), -float(self._room.min()))
            # Not so where anything is NaN or infinite.
            if error <= self._allowed * (1 - _QUICKLY):
                return Verdict(True, error)
        return compare(got, self.want, self._allowed)


def compare(got: np.ndarray, want: np.ndarray, allowed: float) -> Verdict:
    """Compare an output with the expected one.

    Error of one element: ``|got - want| / (|want| + rms(want))``. NaN must meet NaN and infinities must be
    equal; both are left out of the root mean square.
    """
    got, want = np.atleast_1d(got, want)
    if got.dtype.kind in "iub":
        return _compare_exactly(got, want)
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want64)
    same = (got64 == want64) | (np.isnan(got64) & np.isnan(want64))
    if not finite.any():
        return Verdict(True, 0.0) if same.all() else _mismatch(got, want, ~same, None, "")
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.abs(want64) + _root_mean_square(want64[finite])
        error = np.abs(got64 - want64) / np.maximum(scale, np.finfo(np.float64).tiny)
    error[same] = 0.0
    # NaN or infinite on one side only.
    error[np.isnan(error)] = np.inf
    wrong = error > allowed
    comparable = error[np.isfinite(error)]
    max_error = float(comparable.max()) if comparable.size else None
    if not wrong.any():
        return Verdict(True, max_error)
    worst = "" if max_error is None else f", relative error up to {max_error:.2g}, allowed {allowed:.2g}"
    return _mismatch(got, want, wrong, max_error, worst)


def _root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean of the squares, which do not overflow."""
    largest = float(np.abs(values).max())
    return largest * sqrt(float(np.mean(np.square(values / largest)))) if largest else 0.0


def _compare_exactly(got: np.ndarray, want: np.ndarray) -> Verdict:
    wrong = got != want
    if not wrong.any():
        return Verdict(True, 0.0)
    error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max())
    return _mismatch(got, want, wrong, error, ", integers must be equal")


def _mismatch(
    got: np.ndarray, want: np.ndarray, wrong: np.ndarray, max_error: float | None, reason: str
) -> Verdict:
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    message = (
        f"{count} of {wrong.size} elements are wrong, first at {first}: {got[first]}, expected {want[first]}"
    )
    missing = int(np.isnan(got[wrong].astype(np.float64)).sum())
    unwritten = f", {missing} are NaN (perhaps never written)" if missing else ""
    return Verdict(False, max_error, message + unwritten + reason)
