"""A record in words and code: what was computed, how, how often it ran, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from ... import schedules
from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.target import as_target
from ...schedules.loop_nest import loop_nest
from ...schedules.primitives import in_words
from ...schedules.trace_lines import trace_lines
from ..measuring.measurement import quantiles
from ..records.compilation import replay_trace
from ..records.record import Record, Status
from .wording import HINTS, duration


@dataclass(frozen=True)
class Step:
    """One step of a schedule: in Python, and in words."""

    code: str
    words: str


@dataclass(frozen=True)
class KnobValue:
    """A knob, its value, and what it stands for; None where its rule is not known here."""

    name: str
    value: int
    meaning: str | None


@dataclass(frozen=True)
class Explanation:
    """What a record says.

    Parameters
    ----------
    computed : tuple of str
        What was computed, and for what.
    before : str
        Its loop nest.
    after : str or None
        The loop nest that ran; None where no schedule came about, or it cannot be made again.
    knobs : tuple of KnobValue
        The point of the knob space.
    steps : tuple of Step
        The schedule that leads from one loop nest to the other.
    built, ran, result, made : tuple of str
        How it was built; how often it ran; with which result; by which versions on which machine.
    """

    record: str
    computed: tuple[str, ...]
    before: str
    after: str | None
    knobs: tuple[KnobValue, ...]
    steps: tuple[Step, ...]
    built: tuple[str, ...]
    ran: tuple[str, ...]
    result: tuple[str, ...]
    made: tuple[str, ...]


def explain(record: Record, workload: Workload) -> Explanation:
    """Put a record into words and code.

    The schedule is replayed from the trace: that is what was measured, whatever has become of the rule since.

    Parameters
    ----------
    record : Record
        The trial.
    workload : Workload
        Its workload, which knows what one call costs.
    """
    schedule, problem = None, ""
    try:
        schedule = None if record.trace is None else replay_trace(record.trace, workload.func)
    except InputError as error:
        problem = str(error)
    code = [] if schedule is None else trace_lines(schedule.trace)
    return Explanation(
        record=record.id,
        computed=_computed(record, workload),
        before=loop_nest(workload.func),
        after=None if schedule is None else loop_nest(schedule.mod["main"]),
        knobs=_knobs(record, workload),
        steps=tuple(Step(line, in_words(line)) for line in code),
        built=(*((problem,) if problem else ()), *_built(record)),
        ran=_ran(record),
        result=_result(record, workload),
        made=_made(record),
    )


def _computed(record: Record, workload: Workload) -> tuple[str, ...]:
    dims = " ".join(f"{name}={value}" for name, value in record.shape.items())
    arguments = ", ".join(f"{a.name} {a.dtype}{list(a.shape)}" for a in workload.args)
    return (
        f"{record.operator} {dims} {record.dtype}".replace("  ", " "),
        f"{arguments}: the last is the output",
        f"{workload.flops} operations and at least {workload.bytes_moved} bytes moved in one call",
        f"for {record.target}",
    )


def _knobs(record: Record, workload: Workload) -> tuple[KnobValue, ...]:
    rule = schedules.schedule_rules().get(record.space)
    space = rule.space(workload.func, as_target(record.target)) if rule and record.knobs else None
    meanings = {knob.name: knob.meaning for knob in space.knobs} if space else {}
    return tuple(KnobValue(n, value, meanings.get(n)) for n, value in (record.knobs or {}).items())


def _built(record: Record) -> tuple[str, ...]:
    origin = f"candidate of the space {record.space}, chosen by {record.strategy} with seed {record.seed}"
    if record.build_s is None:
        return (f"{origin}; not built here",)
    return (f"{origin}; scheduled, compiled and linked in {record.build_s:.2f} s of CPU",)


def _ran(record: Record) -> tuple[str, ...]:
    """Write down the arithmetic of the calls."""
    if record.same_as:
        return (f"not run: its binary equals that of record {record.same_as}, whose times these are",)
    if not record.run_secs:
        return ("not timed",)
    checks = "one call on each test case of fresh data, each output checked"
    values = len(record.run_secs)
    repetitions = f"{values} repetition{'s' if values > 1 else ''}"
    if record.calls:
        total = values * record.calls
        timed = f"{repetitions} x {record.calls} calls = {total} timed calls, after calls to warm up"
    else:
        timed = f"{repetitions}, of so many calls as were not written down"
    where = f"on {record.threads or 'an unknown number of'} threads, device {record.device}"
    return (*((checks,) if record.verified else ()), timed, f"{where}, with {record.cache} caches")


def _result(record: Record, workload: Workload) -> tuple[str, ...]:
    verified = "verified" if record.verified else "not verified: it is not applied"
    lines = [f"{record.status}, {verified}"]
    if record.max_error is not None:
        lines.append(f"largest error {record.max_error:.1e} of the tolerance's scale")
    for what, seconds in (("trial", record.run_secs), ("confirmation", record.confirmed_secs)):
        if seconds:
            middle, low, high = quantiles(seconds)
            rate = f"{workload.flops / middle / 1e9:.1f} GFLOP/s" if middle else ""
            spread = f"20 to 80 % quantiles {duration(low)} to {duration(high)}"
            lines.append(f"{what}: median {duration(middle)} ({rate}), {spread}")
    if record.message:
        lines.append(record.message)
    if record.status is not Status.OK:
        lines.append(f"what helps: {HINTS[record.status]}")
    return tuple(lines)


def _made(record: Record) -> tuple[str, ...]:
    return (
        f"{record.created} on {record.machine_fingerprint}",
        f"tunesmith {record.tunesmith_version}, TVM {record.tvm_version}",
    )
