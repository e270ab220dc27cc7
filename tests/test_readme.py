"""README and docs say what is true: their Python runs, their commands parse, their links lead somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest
import tunesmith
from tunesmith.cli.main import main
from tunesmith.tuning.measuring.arithmetic import calls_of_trial
from tunesmith.tuning.measuring.measurement import Timing

ROOT = Path(tunesmith.__file__).parent
PAGES = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
FIRST_KERNEL_LINES = 20


def blocks(page, language):
    """Return a page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page].read_text(encoding="utf-8"), re.M | re.S)


def commands(page):
    """Return the command lines of a page that are complete: in sh blocks, and inline up to the backtick."""
    text = PAGES[page].read_text(encoding="utf-8")
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    inline = re.findall(r"`(tunesmith [^`\n]+)`", text)
    whole = (line.partition("  #")[0] for line in [*lines, *inline])
    return [line for line in whole if line.startswith("tunesmith ") and "..." not in line]


def parse(line):
    """Parse a command line as the command would, without running it."""
    command, words = main, shlex.split(line)[1:]
    if len(words) == 1 and words[0] in main.commands:
        return None  # the command's name, in a sentence about it
    context = click.Context(main, info_name="tunesmith")
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(context, words)
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=command.name, parent=context)
    return command.make_context(command.name, list(words), parent=context)


ALL_COMMANDS = [(page, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize(("page", "line"), ALL_COMMANDS)
def test_command_parses(page, line):
    parse(line)


def test_each_page_with_commands_was_read():
    assert len({page for page, _ in ALL_COMMANDS}) == len(PAGES)


def test_a_wrong_command_is_found():
    with pytest.raises(click.UsageError, match="--no-such-option"):
        parse("tunesmith tune matmul --no-such-option 3")
    with pytest.raises((click.UsageError, tunesmith.InputError), match="no-such-command"):
        parse("tunesmith no-such-command")


def test_first_kernel_is_short():
    lines = [line for line in blocks("README.md", "python")[0].splitlines() if line.strip()]
    assert len(lines) <= FIRST_KERNEL_LINES


CALLS = re.findall(
    r"^\| ([\d.]+) ms \|.*\| (\d+)(?: to (\d+))? \|$", PAGES["measuring.md"].read_text(encoding="utf-8"), re.M
)


@pytest.mark.parametrize(("call_ms", "least", "most"), CALLS)
def test_a_kernel_runs_as_often_as_the_table_says(call_ms, least, most):
    assert calls_of_trial(float(call_ms) / 1000, Timing()).total == (int(least), int(most or least))


def test_the_table_of_calls_was_found():
    assert len(CALLS) == 4


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    path = PAGES[page]
    prose = re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#:\s]+)\)", prose)
    assert [link for link in links if not (path.parent / link).exists()] == []
