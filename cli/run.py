"""``tunesmith run``: run, time and profile a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..machine.errors import InputError
from .model_inputs import read_inputs
from .options import TvmCommand, common_options
from .output import Column, milliseconds, percent, plain, print_notice, print_rows, rate, six_digits

if TYPE_CHECKING:
    import numpy as np

_TIME_COLUMNS = [
    Column(f"{name}_s", f"{name} ms", milliseconds) for name in ("mean", "median", "max", "min", "std")
]
_TIME_COLUMNS += [Column("runs", "runs"), Column("threads", "threads")]

_OUTPUT_COLUMNS = [
    Column("output", "output"),
    Column("shape", "shape", lambda shape: "x".join(map(str, shape)) or "scalar"),
    Column("dtype", "dtype"),
    *(Column(name, name, six_digits) for name in ("min", "max", "mean")),
]

_TOP_COLUMNS = [
    Column("output", "output"),
    Column("index", "index"),
    Column("label", "label"),
    Column("value", "value", six_digits),
]

_PROFILE_COLUMNS = [
    Column("function", "function"),
    Column("calls", "calls"),
    Column("seconds", "ms", milliseconds),
    Column("share", "share", percent),
    Column("gflops", "GFLOP/s", rate),
    Column("roofline_fraction", "roofline", percent),
    Column("origin", "origin"),
    Column("record", "record"),
    Column("schedule", "schedule"),
]


@click.command(
    cls=TvmCommand,
    imports="tvm_ffi",
    examples=[
        "run model.tsm --inputs x.npz --outputs y.npz",
        "run model.tsm --inputs cat.jpg --print-top 5 --labels classes.txt",
        "run model.tsm --print-time --repeat 20",
    ],
)
@click.argument("package_path", metavar="PACKAGE")
@click.option(
    "-i",
    "--inputs",
    "input_files",
    multiple=True,
    metavar="FILE.npz|[NAME=]FILE",
    help="Inputs by name, or the file of one: .npy, or an image. May be repeated.  [default: filled]",
)
@click.option(
    "--resize",
    type=click.Choice(["crop", "stretch"]),
    default="crop",
    show_default=True,
    help="How an image gets the input's size: its middle, or all of it.",
)
@click.option(
    "--normalize",
    metavar="NAME|MEANS/STDS",
    help="What pixels become: imagenet, half (-1 to 1), none (0 to 1), or numbers.  [default: imagenet]",
)
@click.option("-o", "--outputs", "outputs_path", metavar="FILE.npz", help="Where to write the outputs.")
@click.option(
    "--fill-mode",
    type=click.Choice(["random", "zeros", "ones"]),
    default="random",
    show_default=True,
    help="What the inputs hold without --inputs; random is the same every time.",
)
@click.option("--print-time", is_flag=True, help="Time inferences in milliseconds, after a warm-up.")
@click.option(
    "--print-top", type=click.IntRange(min=1), metavar="N", help="Print each output's N largest values."
)
@click.option(
    "--labels", "labels_path", metavar="FILE", help="Names of the classes, one a line, for --print-top."
)
@click.option("--profile", is_flag=True, help="Print the time of each function in one inference.")
@click.option("--repeat", default=10, show_default=True, metavar="N", help="Repetitions, a value each.")
@click.option(
    "--number",
    default=1,
    show_default=True,
    metavar="N",
    help="Inferences averaged in one repetition; 0 takes as many as last 100 ms.",
)
@common_options
def run(
    package_path: str,
    input_files: tuple[str, ...],
    resize: str,
    normalize: str | None,
    outputs_path: str | None,
    fill_mode: str,
    print_time: bool,
    print_top: int | None,
    labels_path: str | None,
    profile: bool,
    repeat: int,
    number: int,
    as_json: bool,
) -> None:
    """Run a package and print its outputs, its time, or where the time goes."""
    from ..integrate.packaging.writing import require_writable
    from ..integrate.running.package import load_package

    if outputs_path:
        require_writable(outputs_path)
    labels = _read_labels(labels_path) if labels_path else []
    package = load_package(package_path)
    inputs = read_inputs(input_files, package.inputs, resize, normalize) if input_files else None
    outputs = package.run(inputs, fill=fill_mode)
    if outputs_path:
        _write_arrays(outputs_path, outputs)
    if print_top:
        print_rows(_top_rows(outputs, print_top, labels), _TOP_COLUMNS, as_json)
    if print_time:
        _print_time(package.time(inputs, number=number, repeat=repeat, fill=fill_mode), as_json)
    if profile:
        print_rows(package.profile(inputs, repeat=repeat, fill=fill_mode), _PROFILE_COLUMNS, as_json)
    if not (print_top or print_time or profile):
        print_rows([_summary(name, array) for name, array in outputs.items()], _OUTPUT_COLUMNS, as_json)


def _read_labels(path: str) -> list[str]:
    """Read the names of classes."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"cannot read the labels {path}: {reason}") from None


def _write_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    import numpy as np

    # Given a path, NumPy would add .npz to a name that ends otherwise.
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # savez has a flag of its own among the names
    print_notice(f"wrote {path}: {plain(list(arrays))}")


def _print_time(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_rows([row], [], as_json=True)
        return
    runs = f"{row['repeat']} x {row['number'] or '100 ms'}, warm"
    print_rows([{**row, "runs": runs}], _TIME_COLUMNS, as_json=False)


def _summary(name: str, array: np.ndarray) -> dict[str, Any]:
    """Describe an output."""
    values = array.astype("float64")
    found = {key: getattr(values, key)() if values.size else None for key in ("min", "max", "mean")}
    return {"output": name, "shape": list(array.shape), "dtype": array.dtype.name, **found}


def _top_rows(outputs: dict[str, np.ndarray], count: int, labels: list[str]) -> list[dict[str, Any]]:
    """Return the largest values of each output, with their indices and what those are called."""
    import numpy as np

    _check_labels(outputs, labels)
    rows = []
    for name, array in outputs.items():
        values = array.astype(np.float64).ravel()
        for flat in np.argsort(-values, kind="stable")[:count]:
            index = [int(i) for i in np.unravel_index(flat, array.shape)]
            row = {"output": name, "index": index, "value": float(values[flat])}
            if labels and array.shape[-1:] == (len(labels),):
                row["label"] = labels[index[-1]]
            rows.append(row)
    return rows


def _check_labels(outputs: dict[str, np.ndarray], labels: list[str]) -> None:
    """Refuse labels that fit no output: a list that is off by one would name everything wrong."""
    extents = [array.shape[-1] for array in outputs.values() if array.ndim]
    if labels and len(labels) not in extents:
        found = ", ".join(map(str, extents))
        raise InputError(f"--labels has {len(labels)} lines; the last dimension of the outputs is {found}")
