"""MetaSchedule's tune context: the sketch rules, postprocessors and mutators that fit a target."""

from __future__ import annotations

import faulthandler
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm.s_tir import meta_schedule as ms

from ...machine.process import intrinsics_of, keep_tensor_intrinsics_out, load_tensor_intrinsics

WARNINGS = "TUNESMITH_TVM_WARNINGS"
"""The environment variable that, set to anything, lets through what MetaSchedule warns about."""

# What the tensor instructions of x86 take, those that MetaSchedule knows.
_BYTES = ("int8", "uint8")


def new_context(func: Any, target: Any, seed: int) -> Any:
    """Return a tune context that says nothing; its space generator holds what fits the target."""
    silent = logging.getLogger(f"{__name__}.meta_schedule")
    silent.setLevel(logging.CRITICAL)
    return ms.TuneContext(
        func,
        target=target,
        space_generator=_space_generator(func, target),
        rand_state=seed,
        num_threads=1,
        logger=silent,
    )


def _space_generator(func: Any, target: Any) -> Any:
    """Return the rules of a target, on x86 without those of tensor instructions that do not apply.

    Loading these instructions takes 0.3 s; other rules x86 has none that ``llvm`` has not.
    """
    # Before anything of MetaSchedule's is made: it would load all of them, which takes 14 s.
    keep_tensor_intrinsics_out()
    if intrinsics_of(target) == "x86" and not any(str(p.dtype) in _BYTES for p in func.params):
        return ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
    load_tensor_intrinsics(target)
    return ms.space_generator.PostOrderApply()


def designs(context: Any) -> list[Any]:
    """Run the sketch rules: return a schedule for each design, its decisions drawn at random."""
    with _unheard():
        return list(context.generate_design_space())


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep what TVM's C++ warns about off stderr, unless it is asked for; a crash is still told there."""
    if os.environ.get(WARNINGS):
        yield
        return
    with open(os.devnull, "wb") as nowhere, os.fdopen(os.dup(2), "wb") as stderr:
        if watch := not faulthandler.is_enabled():
            faulthandler.enable(stderr)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr.fileno(), 2)
            if watch:
                faulthandler.disable()
