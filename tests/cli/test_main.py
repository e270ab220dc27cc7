import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.cli.main import main

TUNESMITH = Path(sys.executable).with_name("tunesmith")
COMMANDS = ("doctor", "list", "show", "verify", "bench", "tune", "compile", "run", "compare", "db", "study")


def tunesmith(*words, **options):
    return subprocess.run([TUNESMITH, *words], capture_output=True, text=True, timeout=60, **options)


def bad_tvm_ffi(folder):
    """Let a folder on the path claim that it holds the tvm-ffi that crashes; return the environment."""
    info = folder / "apache_tvm_ffi-0.1.15.post1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-tvm-ffi\nVersion: 0.1.15.post1\n")
    # Importing it must not even be tried.
    (folder / "tvm_ffi.py").write_text("import os; os.abort()")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_there_are_these_commands():
    assert sorted(main.commands) == sorted(COMMANDS)


def every_command(group=main, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, (*path, name))
        yield (*path, name)


@pytest.mark.parametrize("path", sorted(every_command()), ids=" ".join)
def test_help_has_one_sentence_and_an_example(run, path):
    outcome = run(*path, "--help")
    assert outcome.status == 0 and outcome.stderr == ""
    paragraphs = [p.strip() for p in outcome.stdout.split("\n\n")]
    assert paragraphs[0].startswith("Usage: ") and paragraphs[1].endswith(".")
    assert f"  tunesmith {path[0]}" in paragraphs[-1] and paragraphs[-1].startswith("Example")


def test_help_imports_nothing_heavy():
    names = ["tvm", "tvm_ffi", "numpy", "torch", "onnx", "xgboost", "psutil"]
    code = (
        "import sys; from click.testing import CliRunner; from tunesmith.cli.main import main\n"
        f"for name in {COMMANDS}: assert CliRunner().invoke(main, [name, '--help']).exit_code == 0\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_console_script_prints_its_version():
    done = tunesmith("--version")
    assert done.returncode == 0 and "0.1.0" in done.stdout


def test_stdout_has_the_result_and_nothing_else():
    done = tunesmith("verify", "relu", "--shape", "m=2,n=4", "--schedule", "general", "--json")
    assert done.returncode == 0
    assert [json.loads(line)["ok"] for line in done.stdout.splitlines()] == [True]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_is_not_imported():
    code = (
        "import sys; from click.testing import CliRunner; from tunesmith.cli.main import main\n"
        "assert CliRunner().invoke(main, ['list']).exit_code == 0\n"
        "print('tvm' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True False", done.stderr


def test_a_bad_tvm_ffi_is_refused_before_it_is_imported(tmp_path):
    done = tunesmith("list", env=bad_tvm_ffi(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: apache-tvm-ffi must be") and "0.1.15.post1" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_doctor_finds_a_bad_tvm_ffi_without_importing_it(tmp_path):
    done = tunesmith("doctor", env=bad_tvm_ffi(tmp_path))
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1 and "0.1.15.post1" in failed[0] and "pip install" in failed[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tnue"], "unknown command 'tnue'; did you mean tune"),
        (["db", "lss"], "unknown command 'lss'; did you mean ls"),
        (["tune", "matmul", "--trails", "3"], "unknown option '--trails'; did you mean --trials"),
        (["tune", "matmul", "--trials", "x"], "invalid value for '--trials'.*tunesmith tune --help"),
        (["tune"], "missing argument 'OP.MODEL'; see: tunesmith tune --help"),
        (["list", "operator"], "unknown list 'operator'; did you mean operators"),
    ],
)
def test_a_wrong_call_is_one_line(refused, words, message):
    assert re.match(message, refused(*words))


def test_no_command_prints_the_help(run):
    outcome = run()
    assert outcome.status == 2 and "Usage: tunesmith" in outcome.stderr


def test_debug_shows_the_traceback(run):
    assert "Traceback" in run("verify", "matmull", "--debug").stderr
    assert "Traceback" in run("--debug", "verify", "matmull").stderr
    assert "Traceback" not in run("verify", "matmull").stderr


def test_an_error_of_our_own_is_one_line_too(refused, monkeypatch):
    monkeypatch.setattr(ts.Operator, "complete", lambda *_: 1 / 0)
    line = refused("show", "relu", "--shape", "m=1,n=1")
    assert line == "tunesmith failed: ZeroDivisionError: division by zero; --debug shows where"


def test_an_interrupt_is_one_line(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ts.Operator, "complete", interrupted)
    outcome = run("show", "relu", "--shape", "m=1,n=1")
    assert outcome.status == 130 and outcome.stderr.strip() == "interrupted"
