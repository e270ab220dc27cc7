"""Benchmark: implementations of a workload side by side, in turns, each in a process of its own.

Thread pools of different libraries in one process fight for the cores long after a call has returned, so
implementations share no process, and only the one whose turn it is runs: the others are held. They are
measured in rounds, one of each a round: a disturbance of the machine meets all of them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from math import inf, isfinite
from statistics import median
from typing import Any

from ... import schedules
from ...kernels.operator import CONSTANT_ARGUMENTS, Workload
from ...machine.errors import InputError, unknown_name
from ...machine.peaks import measured_peaks
from ...machine.process import usable_cpus
from ...machine.target import as_target, target_text
from ...machine.temporary import new_folder
from ..measuring.cases import Cases, prepare_cases
from ..measuring.library import export_kernel, packs_apart
from ..measuring.measurement import Timing, noise_of, quantiles
from ..processes.portable import pickled_with_code
from ..processes.worker import Worker, WorkerCrash, WorkerError, WorkerTimeout
from ..processes.worker_group import WorkerGroup
from ..proof import UNSCHEDULED
from ..records.compilation import best_schedule
from ..records.database import Database
from ..running.runner import device_lock
from .baselines import LIBRARIES
from .bench_tasks import (
    BaselineJob,
    KernelJob,
    Prepared,
    prepare_baseline,
    prepare_kernel,
    prepare_peak,
)
from .turns import TIMEOUT_S, Entrant, timed_in_turns

DEFAULT, TUNED, PREPACKED = "default", "tuned", "prepacked"


@dataclass(frozen=True)
class _Implementation:
    """An implementation that is prepared and waits for its turns."""

    name: str
    prepared: Prepared
    entrant: Entrant


def bench(
    workload: Workload | Sequence[Workload],
    implementations: Sequence[str] = (DEFAULT, UNSCHEDULED, "numpy"),
    database: Database | None = None,
    target: Any = "host",
    rounds: int = 11,
    min_repeat_ms: float = 20.0,
    cold_cache: bool = False,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
) -> list[dict[str, Any]]:
    """Time implementations of one or several workloads against each other.

    Parameters
    ----------
    workload : Workload or sequence of Workload
        What to compute.
    implementations : sequence of str
        ``default``, ``tuned`` (the best verified record), ``prepacked`` (the default where the weights are
        constant: packed before the clock starts, as a compiled model and ONNX Runtime do), ``unscheduled``,
        a schedule rule's name, or a library's: ``numpy``, ``torch``, ``onnxruntime``.
    database : Database or None
        Where ``tuned`` looks for a record.
    target : Target or str
        What to compile for; it must run on this machine.
    rounds : int
        How often each is measured.
    min_repeat_ms : float
        The least duration of one measurement in milliseconds; short kernels are called several times in it.
    cold_cache : bool
        Empty all caches before each timed call, which is then a measurement of its own.
    say : callable
        Told in a line why an implementation is left out; stderr by default.

    Returns
    -------
    list of dict
        One row an implementation: operator, shape, dtype, target, implementation, median_s, p20_s, p80_s,
        noise (see `measurement.noise_of`; None of a single measurement), gflops, gbps, roofline_fraction
        (against the multiply-add peak measured in turns with them), verified, threads, cache (warm or cold),
        ratio (median over that of the first implementation) and note.

    Raises
    ------
    InputError
        There is no such implementation, ``tuned`` has no database, or a number makes no sense.
    """
    workloads = [workload] if isinstance(workload, Workload) else workload
    measured = bench_each(
        workloads, implementations, database, target, rounds, min_repeat_ms, cold_cache, say
    )
    return list(chain.from_iterable(measured))


def bench_each(
    workloads: Sequence[Workload],
    implementations: Sequence[str],
    database: Database | None,
    target: Any,
    rounds: int,
    min_repeat_ms: float,
    cold_cache: bool,
    say: Callable[[str], None],
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each workload as soon as it is measured; see `bench`."""
    target = as_target(target)
    names = list(dict.fromkeys(implementations))
    _check(names, database)
    if rounds < 1:
        raise InputError(f"rounds must be at least 1: rounds={rounds}")
    warm = Timing(0, rounds, min_repeat_ms)
    timing = replace(warm, cold_cache=cold_cache)
    with ExitStack() as stack:
        folder = new_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        preload = ("tvm", "tunesmith.tuning.benchmark.bench_tasks")
        group = stack.enter_context(WorkerGroup(len(names) + 1, preload=preload, growth_bytes=inf))
        *workers, peak_worker = group.workers
        for nth, each in enumerate(workloads):
            cases = prepare_cases(each, f"{folder}/{nth}")
            ready = []
            for name, worker in zip(names, workers, strict=True):
                prepared = _prepared(name, worker, each, cases, database, target)
                if isfinite(prepared.call_s):
                    ready.append(_Implementation(name, prepared, Entrant(worker, prepared.call_s, timing)))
                else:
                    say(f"{each.label}: {name} is left out: {prepared.note}")
            peak, operations = _peak(peak_worker, each.dtype, warm)
            *seconds, peak_seconds = timed_in_turns([*(one.entrant for one in ready), peak], rounds)
            gflops = operations / median(peak_seconds) / 1e9
            say(
                f"{each.label}: multiply-adds alone, measured in turns with these, reach {gflops:.1f} GFLOP/s"
            )
            yield _rows(each, target, ready, seconds, gflops)


def _check(names: Sequence[str], database: Database | None) -> None:
    known = [DEFAULT, TUNED, PREPACKED, UNSCHEDULED, *schedules.schedule_rules(), *LIBRARIES]
    for name in names:
        if name not in known:
            raise unknown_name("implementation", name, known)
    if not names:
        raise InputError(f"name at least one implementation; there are: {', '.join(known)}")
    if TUNED in names and database is None:
        raise InputError("the implementation 'tuned' needs a database: give it with database= or --db FILE")


def _prepared(
    name: str, worker: Worker, workload: Workload, cases: Cases, database: Database | None, target: Any
) -> Prepared:
    """Build an implementation and hand it to its worker; one that fails says why and takes no part."""
    try:
        if name in LIBRARIES:
            functions = filter(callable, vars(workload.libraries).values()) if workload.libraries else ()
            libraries = pickled_with_code(workload.libraries, functions)
            task: Any = prepare_baseline
            job: Any = BaselineJob(name, libraries, dict(workload.shape), cases)
        else:
            schedule, note = _scheduled(name, workload, database, target)
            task, job = prepare_kernel, KernelJob(f"{cases.folder}/{name}.so", cases, note)
            export_kernel(schedule, target, job.library)
            if name == PREPACKED and not packs_apart(job.library):
                raise InputError("its default schedule packs no constant weight")
        with device_lock(), worker.alone():
            prepared: Prepared = worker.call(task, job, TIMEOUT_S)
        return prepared
    except (InputError, WorkerCrash, WorkerError, WorkerTimeout) as error:
        return Prepared(False, inf, str(error))


def _peak(worker: Worker, dtype: str, timing: Timing) -> tuple[Entrant, int]:
    """Return an entrant that only multiplies and adds, in registers, and the operations of its call."""
    with device_lock(), worker.alone():
        operations, call_s = worker.call(prepare_peak, dtype, TIMEOUT_S)
    return Entrant(worker, call_s, timing), operations


def _scheduled(name: str, workload: Workload, database: Database | None, target: Any) -> tuple[Any, str]:
    """Return an implementation's schedule and where it comes from."""
    if name == UNSCHEDULED:
        return workload.func, ""
    if name == PREPACKED:
        weights = workload.libraries.weights if workload.libraries else ()
        constant = workload.func.with_attr(CONSTANT_ARGUMENTS, list(weights))
        schedule, rule = schedules.apply_default(constant, target)
        return schedule, f"{rule.name}, the weight packed beforehand"
    if name in (DEFAULT, TUNED):
        schedule, origin = best_schedule(workload, database if name == TUNED else None, target)
        return schedule, str(origin)
    schedule = schedules.rule(name).scheduled(workload.func, target)
    if schedule is None:
        raise InputError(f"the schedule {name!r} does not apply")
    return schedule, ""


def _rows(
    workload: Workload,
    target: Any,
    implementations: Sequence[_Implementation],
    seconds: Sequence[Sequence[float]],
    peak_gflops: float,
) -> list[dict[str, Any]]:
    """Return a row an implementation; its roofline has the peak of this run and the bandwidth kept."""
    with device_lock():
        kept = measured_peaks()
    peaks = replace(kept, gflops={**kept.gflops, workload.dtype: peak_gflops})
    limit = peaks.seconds(workload.flops, workload.bytes_moved, workload.dtype)
    spread = [quantiles(found) for found in seconds]
    return [
        {
            "operator": workload.name,
            "shape": dict(workload.shape),
            "dtype": workload.dtype,
            "target": target_text(target),
            "implementation": one.name,
            "median_s": times.median,
            "p20_s": times.p20,
            "p80_s": times.p80,
            "noise": noise_of(found) if len(found) > 1 else None,
            "gflops": workload.flops / times.median / 1e9,
            "gbps": workload.bytes_moved / times.median / 1e9,
            "roofline_fraction": limit / times.median,
            "verified": one.prepared.verified,
            "threads": usable_cpus(),
            "cache": one.entrant.timing.cache,
            "ratio": times.median / spread[0].median,
            "note": one.prepared.note,
        }
        for one, times, found in zip(implementations, spread, seconds, strict=True)
    ]
