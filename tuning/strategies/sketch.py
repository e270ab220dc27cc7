"""MetaSchedule's sketch rules on one function: sketches to draw, change and describe, one at a time.

A tune context gives the designs (a trace with its decisions left open each), the postprocessors and the
mutators. What happens between them is done here instead of in MetaSchedule's search strategies: a schedule
that cannot be made costs itself only, where there it ends the tuning (apache/tvm#18423), nothing is replayed
or described twice, and no warning is printed for each sketch that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

from ...kernels.operator import func_hash
from ...machine.errors import InputError, last_line
from ...machine.facts import facts
from ...machine.interrupts import raise_kept_interrupt
from ..records.candidate import Candidate
from ..records.compilation import replay_trace, trace_text
from ..records.plain_text import read_program
from .code_size import Code, code_of
from .sketch_context import designs, new_context

Features = np.ndarray[Any, np.dtype[np.float32]]
"""A program's features: a row for each of its stores."""

# The highest seed that MetaSchedule takes.
_SEEDS = 2**31 - 2
# Storing vector instructions in a row from which on LLVM takes several times as long as for others.
_BLOATED = 192
# Draws or changes in a row that lead to nothing new: after these the space counts as exhausted.
_MISSES = 64
# The Python method leaves the seed to the operating system: equal seeds would not give equal candidates.
_MUTATE = tvm_ffi.get_global_func("s_tir.meta_schedule.MutatorApply")


@dataclass(eq=False)
class Sketch:
    """A schedule made by the sketch rules.

    Parameters
    ----------
    key : str
        Names what it compiles: different traces may lead to the same program.
    schedule : s_tir.Schedule
        Scheduled and postprocessed.
    features : array or None
        What `SketchSpace.features` found.
    code : Code or None
        What `SketchSpace.code` found.
    """

    key: str
    schedule: Any
    features: Features | None = None
    code: Code | None = None

    def candidate(self) -> Candidate:
        """Return it as what a strategy proposes."""
        return Candidate(self.key, trace=trace_text(self.schedule))


class SketchSpace:
    """The sketches of one function.

    Parameters
    ----------
    func : PrimFunc
        The unscheduled computation.
    target : Target
        What to compile for.
    seed : int
        Equal seeds draw equal sketches.

    Attributes
    ----------
    chance : numpy.random.Generator
        Where every choice comes from.
    known : set of str
        The keys that `new` does not return any more.

    Raises
    ------
    InputError
        MetaSchedule has no sketch for this function.
    """

    def __init__(self, func: Any, target: Any, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.known: set[str] = set()
        self._context = new_context(func, target, 1 + seed % _SEEDS)
        self._lanes = facts(target).lanes(str(func.params[-1].dtype))
        self._extractor = ms.feature_extractor.PerStoreFeature()
        self._designs = self._new_designs()
        self._failure: Exception | None = None
        self._found = False
        rules = self._context.space_generator
        self._postprocs = list(rules.postprocs)
        self._mutators = list(rules.mutator_probs)
        weights = np.array([float(p) for p in rules.mutator_probs.values()])
        self._weights = weights / weights.sum()

    @property
    def designs(self) -> int:
        """How many designs there are: sketches whose decisions are left open."""
        return len(self._designs)

    def draw(self) -> Sketch | None:
        """Replay a design with fresh decisions; None where that leads to no schedule."""
        return self._attempt(lambda: self._replayed(self._open_trace()))

    def draw_anew(self) -> Sketch | None:
        """Run the sketch rules again with fresh decisions."""
        return self._attempt(self._regenerated)

    def change(self, parent: Sketch) -> Sketch | None:
        """Change one decision of a sketch."""
        return self._attempt(lambda: self._mutated(parent))

    def restore(self, trace: str | None) -> Sketch | None:
        """Make the known sketch of a trace again; None where it does not fit, as one of another TVM."""
        sketch = _of_trace(trace, self._context.mod["main"])
        if sketch is not None:
            self.known.add(sketch.key)
        return sketch

    def add_known(self, candidate: Candidate) -> None:
        """Let `new` not return a candidate any more."""
        self.known.add(candidate.key)
        # A record of an older database names its candidate by the trace alone: replaying tells the key.
        if candidate.key == candidate.trace:
            self.restore(candidate.trace)

    def of_other(self, trace: str | None, workload_ir: str) -> Sketch | None:
        """Make a sketch of another workload, given as JSON text; None where it cannot be made here."""
        try:
            func = read_program(workload_ir)
        except (ValueError, TypeError, RuntimeError):  # an InputError is a ValueError
            return None
        return _of_trace(trace, func)

    def new(self, make: Callable[[], Sketch | None]) -> Sketch | None:
        """Make sketches until one is not known, and know it; None where none comes.

        Raises
        ------
        InputError
            Nothing could be made at all, and MetaSchedule says why.
        """
        for _ in range(_MISSES):
            sketch = make()
            if sketch is not None and sketch.key not in self.known:
                self.known.add(sketch.key)
                return sketch
        if self._failure is not None and not self._found:
            raise InputError(
                f"the sketch rules made no schedule of this function in {_MISSES} attempts: "
                f"{last_line(self._failure)}; choose another space"
            )
        return None

    def features(self, sketch: Sketch) -> Features:
        """Describe a sketch's stores, once; a row of zeros where MetaSchedule cannot."""
        if sketch.features is None:
            sketch.features = self._extracted(sketch.schedule)
        return sketch.features

    def _extracted(self, schedule: Any) -> Features:
        nothing = np.zeros((1, self._extractor.feature_vector_length), np.float32)
        try:
            args_info = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            program = ms.MeasureCandidate(schedule, args_info)
            stores = self._extractor.extract_from(self._context, [program])[0].numpy()
        except Exception:  # whatever it is, it concerns this sketch only
            raise_kept_interrupt()
            return nothing
        return stores.astype(np.float32) if len(stores) else nothing

    def code(self, sketch: Sketch) -> Code:
        """Return how much code a sketch is, once."""
        if sketch.code is None:
            sketch.code = code_of(sketch.schedule.mod["main"], self._lanes)
        return sketch.code

    def is_bloated(self, sketch: Sketch) -> bool:
        """Tell whether a sketch is unrolled into so much code that compiling it takes time for several."""
        return self.code(sketch).longest >= _BLOATED

    def _attempt(self, make: Callable[[], Any]) -> Sketch | None:
        """Make a schedule and postprocess it; an error in MetaSchedule costs this one sketch."""
        try:
            schedule = make()
            if schedule is None:
                return None
            schedule.enter_postproc()
            if not all(postproc.apply(schedule) for postproc in self._postprocs):
                return None
            key = _key(schedule)
        except Exception as error:  # whatever it is, other sketches may do
            raise_kept_interrupt()
            self._failure = error
            return None
        self._found = True
        return Sketch(key, schedule)

    def _open_trace(self) -> Any:
        design = self._designs[self.chance.integers(len(self._designs))]
        return s_tir.Trace(design.trace.insts, {})

    def _replayed(self, trace: Any) -> Any:
        schedule = s_tir.Schedule(self._context.mod, seed=self._seed(), error_render_level="none")
        trace.apply_to_schedule(schedule, remove_postproc=True)
        return schedule

    def _mutated(self, parent: Sketch) -> Any:
        mutator = self._mutators[self.chance.choice(len(self._mutators), p=self._weights)]
        trace = _MUTATE(mutator, parent.schedule.trace, self._seed())
        return None if trace is None else self._replayed(trace)

    def _regenerated(self) -> Any:
        # The context draws from its own seed, which goes on from design to design.
        made = designs(self._context)
        return made[self.chance.integers(len(made))]

    def _new_designs(self) -> list[Any]:
        try:
            return designs(self._context)
        except Exception as error:
            raise_kept_interrupt()
            raise InputError(
                f"the sketch space does not apply to this function: {last_line(error)}; choose another space"
            ) from error

    def _seed(self) -> int:
        return int(self.chance.integers(1, _SEEDS))


def _of_trace(trace: str | None, func: Any) -> Sketch | None:
    try:
        schedule = replay_trace(trace or "", func)
    except InputError:
        return None
    return Sketch(_key(schedule), schedule)


def _key(schedule: Any) -> str:
    return func_hash(schedule.mod["main"])
