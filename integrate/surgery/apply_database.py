"""A tunesmith database in a Relax pipeline of one's own, as one pass."""

from __future__ import annotations

from typing import Any

import tvm

from ...machine.target import as_target
from ...schedules.code_generation import finished
from ...tuning.records.database import Database
from ..lowering.application import apply_records
from ..lowering.choice import Choice
from ..lowering.functions import prim_func_calls
from ..lowering.packing import pack_weights
from ..lowering.weight_marks import marked_weights


@tvm.transform.module_pass(opt_level=0, name="ApplyDatabase")
class ApplyDatabase:
    """Schedule the PrimFuncs of a lowered module: each by its best verified record of a target.

    It stands after ``FuseTIR`` in a pipeline, beside the passes of ``relax.transform``. Constants that
    ``main`` calls a function with may get another layout, once, now. What is scheduled already stays. The
    module then needs no more than ``tvm.compile``.

    Parameters
    ----------
    database : Database or None
        Where the records are; it must be open when the pass runs.
    target : str or tvm.target.Target
        What is compiled for; only records of this target are applied.
    defaults : bool
        Whether functions without a record get tunesmith's default schedule; else they stay as they are.

    Attributes
    ----------
    choices : list of Choice
        What each function of the last module got, and why; those with most operations first.
    """

    def __init__(self, database: Database | None, target: Any = "host", defaults: bool = True) -> None:
        self.database, self.target, self.defaults = database, as_target(target), defaults
        self.choices: list[Choice] = []

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Schedule a module."""
        called = any(prim_func_calls(mod))
        marked = marked_weights(mod) if called else mod
        scheduled, self.choices = apply_records(marked, self.target, self.database, self.defaults)
        return finished(pack_weights(scheduled) if called else scheduled, self.target)
