"""``tunesmith run``: run, time and profile a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import click

from ..machine.errors import InputError
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
    Column("schedule", "schedule"),
]


@click.command(
    cls=TvmCommand,
    examples=["run model.tsm --inputs x.npz --outputs y.npz", "run model.tsm --print-time --repeat 20"],
)
@click.argument("package_path", metavar="PACKAGE")
@click.option("-i", "--inputs", "inputs_path", metavar="FILE.npz", help="Inputs by name.  [default: filled]")
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
    inputs_path: str | None,
    outputs_path: str | None,
    fill_mode: str,
    print_time: bool,
    print_top: int | None,
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
    inputs = read_arrays(inputs_path) if inputs_path else None
    package = load_package(package_path)
    outputs = package.run(inputs, fill=fill_mode)
    if outputs_path:
        _write_arrays(outputs_path, outputs)
    if print_top:
        print_rows(_top_rows(outputs, print_top), _TOP_COLUMNS, as_json)
    if print_time:
        _print_time(package.time(inputs, number=number, repeat=repeat, fill=fill_mode), as_json)
    if profile:
        print_rows(package.profile(inputs, repeat=repeat, fill=fill_mode), _PROFILE_COLUMNS, as_json)
    if not (print_top or print_time or profile):
        print_rows([_summary(name, array) for name, array in outputs.items()], _OUTPUT_COLUMNS, as_json)


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file; nothing in it is executed.

    Raises
    ------
    InputError
        There is no such file, or it is no .npz file of plain arrays.
    """
    import numpy as np

    if not Path(path).is_file():
        raise InputError(f"no such file of inputs: {path}")
    if not is_zipfile(path):
        raise InputError(f"{path} is no .npz file; write one with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # NumPy fails in many ways on a damaged file
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is no .npz file of arrays ({reason}); write one with numpy.savez"
        ) from error


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


def _top_rows(outputs: dict[str, np.ndarray], count: int) -> list[dict[str, Any]]:
    """Return the largest values of each output, with their indices."""
    import numpy as np

    rows = []
    for name, array in outputs.items():
        values = array.astype(np.float64).ravel()
        for flat in np.argsort(-values, kind="stable")[:count]:
            index = [int(i) for i in np.unravel_index(flat, array.shape)]
            rows.append({"output": name, "index": index, "value": float(values[flat])})
    return rows
