"""Temporary folders: each process has its own, and what a killed one left goes with the next."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tunesmith.machine.errors import InputError
from tunesmith.machine.temporary import is_running, new_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ended_process():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_folders_of_processes_that_ended_are_removed_and_no_others(place):
    mine, me, ended = Path(new_folder()), os.getpid(), ended_process()
    _, _, started, _ = mine.name.split("-")
    left = [f"tunesmith-{ended}-abc_12", f"tunesmith-{ended}-{started}-abc_12", f"tunesmith-{me}-1-abc_12"]
    kept = [
        f"tunesmith-{me}-abc_12",
        f"tunesmith-{me}-{started}-abc_12",
        f"tunesmith-{ended}-a-b",
        "tunesmith-x",
    ]
    for name in (*left, *kept):
        (place / name).mkdir()
    (place / f"tunesmith-{ended}-file").touch()
    other = Path(new_folder())
    assert {path.name for path in place.iterdir()} == {
        mine.name,
        other.name,
        *kept,
        f"tunesmith-{ended}-file",
    }


def test_a_number_that_is_used_again_is_another_process():
    assert is_running(os.getpid())
    assert not is_running(os.getpid(), "1")
    assert not is_running(ended_process())


def test_a_folder_that_cannot_be_made_is_one_line(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    with pytest.raises(InputError, match=r"cannot make a folder for temporary files: .*; set TMPDIR"):
        new_folder()
