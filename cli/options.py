"""Options that several commands share, and the command that makes TVM ready before it starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..machine.errors import unknown_name
from ..machine.process import import_tvm, require_sound_tvm

DEBUG = "--debug"
DEFAULT_DATABASE = "tunesmith.db"

F = TypeVar("F", bound=Callable[..., Any])

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


class _Examples:
    """What adds examples to the help of a command or a group."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the options."""
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"  tunesmith {example}\n")


class Command(_Examples, click.Command):
    """A command with examples."""


class Group(_Examples, click.Group):
    """A group of commands with examples."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a word names."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown_name("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class TvmCommand(Command):
    """A command that uses TVM: first it is checked to be sound, then imported without PyTorch.

    One that only runs what is compiled imports ``tvm_ffi`` alone.
    """

    def __init__(self, *args: Any, imports: str = "tvm", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._imports = imports

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        require_sound_tvm()
        import_tvm(self._imports)
        return super().invoke(ctx)


class Duration(click.ParamType[float]):
    """A time such as 90, 90s, 10m or 1h30m, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        match = _DURATION.fullmatch(str(value).strip())
        hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
        total = 3600 * hours + 60 * minutes + seconds
        if total <= 0:
            self.fail(f"{value!r} is no time above 0 such as 90s, 10m or 1h30m", param, ctx)
        return total


def common_options(command: F) -> F:
    """Add what every command has: --json and --debug."""
    json = click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one object a row.")
    debug = click.option(DEBUG, is_flag=True, expose_value=False, help="Show the traceback of an error.")
    return json(debug(command))


def model_input_options(command: F) -> F:
    """Add what binds a model's inputs: --input-shapes and --input-values."""
    shapes = click.option(
        "--input-shapes",
        metavar="NAME:[1,3,224,224]",
        help='Shapes of a model\'s inputs that have symbolic dimensions: "a:[1,3] b:[1,2]".',
    )
    values = click.option(
        "--input-values",
        metavar="NAME:VALUE",
        help='Values of a model\'s inputs that are settings, such as sizes: "rate:16000 sizes:[3,-1]".',
    )
    return shapes(values(command))


def rpc_options(command: F) -> F:
    """Add what names servers of TVM's RPC: --rpc-tracker and --rpc-key."""
    tracker = click.option(
        "--rpc-tracker",
        metavar="HOST[:PORT]",
        help="Tracker of TVM's RPC whose servers to measure on.  [default port: 9190]",
    )
    key = click.option("--rpc-key", metavar="KEY", help="Which of the tracker's servers.")
    return tracker(key(command))


shape_option = click.option(
    "--shape",
    default="",
    metavar="m=64,n=64,k=64",
    help="The operator's dimensions, all that have no default (see: tunesmith list operators).",
)

shapes_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="m=64,n=64,k=64",
    help="The operator's dimensions; once for each workload.  [default: the operator's own examples]",
)

dtype_option = click.option(
    "--dtype", metavar="DTYPE", help="Element type of the inputs.  [default: the operator's first, float32]"
)

target_option = click.option(
    "--target",
    default="host",
    show_default=True,
    metavar="TARGET",
    help="What to compile for: host (this machine), a tag, a kind, JSON text, or a file with it.",
)

schedules_option = click.option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="NAME",
    help="A schedule; may be repeated.  [default: all that apply]",
)

existing_database_option = click.option(
    "--db",
    "--tuning-records",
    "database_path",
    metavar="FILE",
    help=f"Database of records.  [default: {DEFAULT_DATABASE} where there is one]",
)

database_option = click.option(
    "--db",
    "--tuning-records",
    "database_path",
    default=DEFAULT_DATABASE,
    show_default=True,
    metavar="FILE",
    help="Database of records.",
)
