"""tunesmith: write, schedule, tune and prove kernels on Apache TVM, and put them back into models.

``import tunesmith`` loads nothing heavy: each public name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .machine.process import prepare_process

__version__ = "0.1.0"

# TVM reads its thread count when its pool starts, so it is set before anything imports TVM.
prepare_process()

# Where each public name is defined; nothing is imported before it is asked for.
_PUBLIC: dict[str, str] = {
    "InputError": "machine.errors",
    "host_target": "machine.target",
    "measured_peaks": "machine.peaks",
    "roofline_seconds": "machine.peaks",
    "diagnose": "machine.diagnosis",
    "Operator": "kernels.operator",
    "Workload": "kernels.operator",
    "Dim": "kernels.operator",
    "Example": "kernels.operator",
    "workload": "kernels",
    "ScheduleRule": "schedules.rule",
    "Knob": "schedules.space",
    "Constraint": "schedules.space",
    "KnobSpace": "schedules.space",
    "schedule_rules": "schedules",
    "apply_default": "schedules",
    "add_schedule": "schedules",
    "Database": "tuning.records.database",
    "Record": "tuning.records.record",
    "tune": "tuning.tuner",
    "plan": "tuning.planning.plan",
    "Timing": "tuning.measuring.measurement",
    "Remote": "tuning.remote.tracker",
    "verify": "tuning.proof",
    "time_steps": "tuning.steps",
    "bench": "tuning.benchmark.bench",
    "compile": "tuning.records.compilation",
    "load_model": "integrate.model",
    "extract_workloads": "integrate.extraction",
    "summarize": "integrate.summary",
    "tune_model": "integrate.tuning.tuner",
    "plan_model": "integrate.tuning.tuner",
    "compile_model": "integrate.packaging.build",
    "load_package": "integrate.running.package",
    "compile_operator": "integrate.packaging.build",
    "take": "integrate.extraction",
    "replace": "integrate.surgery.replace",
    "External": "integrate.surgery.external",
    "ApplyDatabase": "integrate.surgery.apply_database",
    "compare_outputs": "integrate.running.outputs",
    "compare": "integrate.running.comparison",
    "read_image": "integrate.running.images",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tunesmith' has no attribute {name!r}")
    from .machine.process import import_tvm, require_sound_tvm

    require_sound_tvm()
    # Most of what is public imports all of TVM then; what only runs packages does with this.
    import_tvm("tvm_ffi")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted([*globals(), *_PUBLIC])
