"""Before and after: whether two ways to run a model give the same outputs, and which is faster."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import median

import numpy as np

from ...machine.errors import InputError
from ...machine.temporary import new_folder
from .contenders import Contender, Running, Source, as_source
from .inputs import Inputs, filled, named
from .outputs import RELATIVE_TOLERANCE, OutputCheck, compare_outputs
from .package import Package

_CONFIDENCE = 0.95
_RESAMPLES = 2000
# Slow models take part in fewer rounds, but in some.
_LONGEST_S = 60.0


@dataclass(frozen=True)
class Comparison:
    """Two ways to run a model, measured in turns.

    Parameters
    ----------
    outputs : tuple of OutputCheck
        Whether the second computes what the first does.
    before, after : Contender
        How each did.
    """

    outputs: tuple[OutputCheck, ...]
    before: Contender
    after: Contender

    @property
    def ok(self) -> bool:
        """Whether all outputs are equal within the tolerance."""
        return all(check.ok for check in self.outputs)

    @property
    def ratios(self) -> list[float]:
        """How many times as fast the second was, round by round."""
        return [a / b for a, b in zip(self.before.seconds, self.after.seconds, strict=False)]

    @property
    def speedup(self) -> float:
        """How many times as fast the second is: the median of the rounds' ratios."""
        return median(self.ratios)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the speedup: the median's percentile bootstrap, always the same."""
        if len(self.ratios) < 2:
            return (0.0, inf)
        # Nothing else here needs it, and it takes a second.
        from scipy.stats import bootstrap

        found = bootstrap(
            (self.ratios,),
            np.median,
            confidence_level=_CONFIDENCE,
            n_resamples=_RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        return float(found.low), float(found.high)


def compare(
    before: Package | str | Path,
    after: Package | str | Path,
    inputs: Inputs | None = None,
    *,
    rounds: int = 15,
    number: int = 0,
    tolerance: float = RELATIVE_TOLERANCE,
) -> Comparison:
    """Run a model in two ways on the same inputs, each in a process of its own, in turns.

    Only the process whose turn it is runs; the other is held. So both see the same machine, and neither's
    threads take the other's time.

    Parameters
    ----------
    before, after : Package or path
        A package, its file, or an ONNX file, which ONNX Runtime runs; one of them a package at least.
    inputs : mapping, optional
        By the names that the first package has for them; random ones if left out.
    rounds : int
        How often each is timed.
    number : int
        Inferences averaged in one round; 0 takes as many as last 20 ms.
    tolerance : float
        How far outputs may differ, as a part of each value and the output's root mean square.

    Raises
    ------
    InputError
        One of them cannot run, they take other inputs, or a number makes no sense.
    """
    from ...tuning.processes.worker_group import WorkerGroup

    if rounds < 1 or number < 0:
        raise InputError(f"rounds must be at least 1 and number at least 0: rounds={rounds}, number={number}")
    folder = Path(new_folder())
    try:
        sources = [as_source(before, folder), as_source(after, folder)]
        arrays = _inputs(sources, inputs)
        # Nothing is imported for them: what each needs is a part of its time and memory.
        with WorkerGroup(len(sources), preload=(), growth_bytes=inf) as group:
            pair = [Running(source, worker) for source, worker in zip(sources, group.workers, strict=True)]
            return _compared(pair, arrays, folder, rounds, number, tolerance)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compared(
    pair: Sequence[Running],
    inputs: Sequence[np.ndarray],
    folder: Path,
    rounds: int,
    number: int,
    tolerance: float,
) -> Comparison:
    from ...tuning.benchmark.turns import Entrant, timed_in_turns
    from ...tuning.measuring.measurement import Timing
    from ...tuning.running.runner import device_lock

    with device_lock():
        began = [one.start(inputs, folder / str(place)) for place, one in enumerate(pair)]
    started, results = zip(*began, strict=True)
    want, got = ({f"output_{i}": array for i, array in enumerate(arrays)} for arrays in results)
    outputs = compare_outputs(got, want, tolerance)
    timing = Timing(number, rounds, min_repeat_ms=0.0 if number else 20.0)
    entrants = [
        Entrant(one.worker, s.call_s, timing, _LONGEST_S) for one, s in zip(pair, started, strict=True)
    ]
    seconds = timed_in_turns(entrants, rounds)
    sides = [
        Contender(one.name, tuple(found), s.first_s, one.peak_bytes())
        for one, found, s in zip(pair, seconds, started, strict=True)
    ]
    return Comparison(outputs, *sides)


def _inputs(sources: Sequence[Source], given: Inputs | None) -> list[np.ndarray]:
    """Return the inputs of both, in order."""
    known = [source.inputs for source in sources if source.inputs is not None]
    if not known:
        raise InputError("two ONNX files are not compared: compile one of them, and give the package")
    kinds = [[(spec.shape, spec.dtype) for spec in specs] for specs in known]
    if any(kind != kinds[0] for kind in kinds):
        raise InputError(f"the packages take different inputs: {known[0]} and {known[1]}")
    return filled(known[0]) if given is None else named(known[0], given)
