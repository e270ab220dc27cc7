"""``tunesmith show``: what becomes of an operator, in several forms; what is in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..machine.errors import InputError
from .arguments import is_model, model_at, one_workload, require_only, runnable_target
from .options import (
    TvmCommand,
    common_options,
    dtype_option,
    model_input_options,
    shape_option,
    target_option,
)
from .output import plain, print_notice, print_rows
from .steps import print_steps

if TYPE_CHECKING:
    from ..integrate.model import Model
    from ..kernels.operator import Workload

UNSCHEDULED = "unscheduled"

FORMS = ("tir", "trace", "llvm", "asm", "c")


@click.command(
    cls=TvmCommand,
    examples=[
        "show matmul --shape m=128,n=128,k=128",
        "show matmul --shape m=128,n=128,k=128 --knob mr=4 --as asm",
        "show matmul --shape m=512,n=512,k=512 --steps",
        "show model.onnx --input-shapes x:[1,3,224,224]",
    ],
)
@click.argument("subject", metavar="OP|MODEL")
@shape_option
@dtype_option
@model_input_options
@click.option(
    "--schedule",
    metavar="NAME",
    help=f"The schedule; {UNSCHEDULED} for none at all.  [default: the first that applies]",
)
@click.option(
    "--knob",
    "knobs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A knob of the schedule; may be repeated; those left out have their default.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="TVMScript, the schedule's trace, LLVM IR, assembly, or C that compiles alone.  [default: tir]",
)
@click.option("--steps", is_flag=True, help="The schedule step by step: what each one changes, and gains.")
@target_option
@common_options
def show(
    subject: str,
    shape: str,
    dtype: str | None,
    input_shapes: str | None,
    input_values: str | None,
    schedule: str | None,
    knobs: Sequence[str],
    form: str | None,
    steps: bool,
    target: str,
    as_json: bool,
) -> None:
    """Print what a schedule makes of an operator, or what is in a model.

    The schedule's name and its knobs go to stderr, with --as asm also what the loop with the most
    multiply-adds looks like. With --steps each step of it is built, checked and timed
    on this machine. Of a model: its inputs, outputs and functions, before anything is compiled.
    """
    from ..machine.target import as_target, target_text

    if is_model(subject):
        require_only("a model", shape=shape, dtype=dtype, schedule=schedule, knob=knobs)
        require_only("a model", steps=steps, **{"as": form})
        _show_model(model_at(subject, input_shapes, input_values), as_target(target), as_json)
        return
    require_only("an operator", input_shapes=input_shapes, input_values=input_values)
    if steps and form is not None:
        raise InputError(f"--steps prints loop nests: leave --as {form} out")
    compile_for = runnable_target(target) if steps else as_target(target)
    workload = one_workload(subject, shape, dtype)
    scheduled, name, chosen = _scheduled(workload, compile_for, schedule, parsed_knobs(knobs))
    about = {
        "operator": workload.name,
        "shape": workload.shape,
        "dtype": workload.dtype,
        "target": target_text(compile_for),
        "schedule": name,
        "knobs": chosen,
    }
    if not as_json:
        notice = f"{workload.label} {workload.dtype}, schedule {name}"
        print_notice(f"{notice}{': ' if chosen else ''}{plain(chosen)}")
    if steps:
        from ..tuning.steps import time_steps

        print_steps(time_steps(workload, scheduled, compile_for, say=print_notice), about, as_json)
        return
    text = _text(scheduled, workload.name, compile_for, form or FORMS[0])
    if as_json:
        print_rows([{**about, "form": form or FORMS[0], "text": text}], [], as_json=True)
    else:
        if form == "asm":
            from ..schedules.assembly import inner_loop

            print_notice(str(inner_loop(text) or "no inner loop multiplies and adds in one instruction"))
        click.echo(text)


def _show_model(model: Model, target: Any, as_json: bool) -> None:
    from ..integrate.summary import summarize

    summary = summarize(model, target)
    if as_json:
        print_rows([asdict(summary)], [], as_json=True)
    else:
        click.echo(str(summary))


def parsed_knobs(words: Sequence[str]) -> dict[str, int]:
    """Read NAME=VALUE words."""
    knobs: dict[str, int] = {}
    for word in words:
        name, _, value = (part.strip() for part in word.partition("="))
        if not name or not value.isdecimal():
            raise InputError(f"a knob is written NAME=VALUE, an integer from 0 on, as in mr=8: {word!r}")
        if name in knobs:
            raise InputError(f"a knob is given once: {name} is given twice")
        knobs[name] = int(value)
    return knobs


def _scheduled(
    workload: Workload, target: Any, name: str | None, knobs: dict[str, int]
) -> tuple[Any, str, dict[str, int]]:
    """Return the schedule, its name and all its knobs."""
    from tvm import s_tir

    from ..schedules import rule, rules_for

    if name == UNSCHEDULED:
        if knobs:
            raise InputError(f"the {UNSCHEDULED} operator has no knobs: leave --knob out")
        return s_tir.Schedule(workload.func), name, {}
    fitting = rules_for(workload.func, target)
    chosen = fitting[0] if name is None else rule(name)
    space = chosen.space(workload.func, target)
    if space is None:
        names = ", ".join(each.name for each in fitting)
        raise InputError(f"the schedule {name!r} does not apply to {workload.label}; those that do: {names}")
    full = space.check(knobs)
    return chosen.scheduled(workload.func, target, full), chosen.name, full


def _text(schedule: Any, name: str, target: Any, form: str) -> str:
    """Write a schedule in one of the forms."""
    from ..tuning.records.compilation import build

    if form == "tir":
        return str(schedule.mod.script()).rstrip()
    if form == "trace":
        from ..schedules.trace_lines import trace_lines

        return "\n".join(trace_lines(schedule.trace))
    if form == "c":
        from ..schedules.c_source import c_source

        return c_source(schedule, name)
    if target.kind.name != "llvm":
        raise InputError(
            f"only llvm targets have LLVM IR and assembly: --target is {target.kind.name}; use --as tir"
        )
    return str(build(schedule, target).mod.inspect_source({"llvm": "ll", "asm": "s"}[form])).rstrip()
