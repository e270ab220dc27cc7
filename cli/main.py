"""``tunesmith``: the group of commands, and the one place where errors become lines and exit statuses."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from ..machine.errors import InputError, unknown_name
from ..machine.interrupts import kept_interrupts
from .bench import bench
from .compare import compare
from .compile import compile_command
from .db import db
from .doctor import doctor
from .list import list_command
from .options import DEBUG, Group
from .run import run
from .show import show
from .study import study
from .tune import tune
from .verify import verify

DONE, WRONG_CALL, INTERRUPTED = 0, 2, 130
"""Exit statuses; a command returns 1 where it ran and the answer is no."""


class CommandLine(Group):
    """A group whose errors are one line on stderr, with a traceback only where one is asked for."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its status."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            with kept_interrupts():
                result = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            status = result if isinstance(result, int) else DONE
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            status = WRONG_CALL
        except (click.Abort, KeyboardInterrupt):
            if DEBUG in words:
                traceback.print_exc()
            click.echo("interrupted", err=True)
            status = INTERRUPTED
        except Exception as error:  # whatever fails, a user gets one line
            if DEBUG in words:
                traceback.print_exc()
            click.echo(f"error: {one_line(error)}", err=True)
            status = WRONG_CALL
        if standalone_mode:
            # The system takes all memory back: looking through it for cycles first takes 0.2 s.
            gc.freeze()
            sys.exit(status)
        return status


def one_line(error: Exception) -> str:
    """Say in one line what is wrong and what to do."""
    if isinstance(error, click.NoSuchOption) and error.ctx:
        options = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts]
        text = str(unknown_name("option", error.option_name, [o for o in options if o.startswith("-")]))
    elif isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tunesmith"
        message = error.format_message().rstrip(".")
        text = f"{message[0].lower()}{message[1:]}; see: {command} --help"
    elif isinstance(error, InputError | click.ClickException):
        text = str(error)
    else:
        text = f"tunesmith failed: {type(error).__name__}: {error}; {DEBUG} shows where"
    return " ".join(text.split())


@click.group(
    "tunesmith",
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=[
        "doctor",
        "bench matmul --shape m=512,n=512,k=512",
        "tune matmul --shape m=512,n=512,k=512 --trials 32",
    ],
)
@click.version_option(__version__, prog_name="tunesmith")
@click.option(DEBUG, is_flag=True, expose_value=False, help="Show the traceback of an error.")
def main() -> None:
    """Write, schedule, tune and prove kernels, and put them back into models.

    OP is an operator's name (see: tunesmith list) or FILE.py:NAME for one of your own; MODEL is an ONNX file.
    Results go to stdout, progress to stderr. Exit status: 0 done; 1 it ran, and the answer is no; 2 the
    call or its input is wrong.
    """


for command in (doctor, list_command, show, verify, bench, tune, compile_command, run, compare, db, study):
    main.add_command(command)
