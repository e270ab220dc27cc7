import fcntl
import os
import stat
import subprocess
import sys

import pytest
import tunesmith as ts
from tunesmith.machine.files import written_aside


def test_a_file_takes_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path) as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_nothing_behind(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), written_aside(path) as file:
        file.write("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_rights_that_new_files_have(tmp_path):
    (tmp_path / "other").touch()
    with written_aside(tmp_path / "file"):
        pass
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ts.InputError, match=r"^cannot write .*/none/file: No such file or directory$"):
        with written_aside(tmp_path / "none" / "file"):
            pass


def test_what_a_killed_process_left_is_removed(tmp_path):
    killed = "import os, sys; from pathlib import Path; from tunesmith.machine.files import written_aside\n"
    killed += "with written_aside(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    path = tmp_path / "file[1].tsm"
    subprocess.run([sys.executable, "-c", killed, str(path)], cwd=tmp_path, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    # In containers processes have the same few numbers again and again.
    (tmp_path / f".{path.name}.{os.getpid()}").touch()
    with written_aside(path) as file:
        file.write("new")
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "new"


def test_what_others_write_or_may_write_stays(tmp_path):
    dead = 2**22 + 1
    locked = tmp_path / f".file.{dead}"
    others = [tmp_path / f".file.{os.getppid()}", tmp_path / f".other.{dead}", tmp_path / ".file.bak"]
    for path in (locked, *others):
        path.touch()
    with locked.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with written_aside(tmp_path / "file"):
            pass
        assert set(tmp_path.iterdir()) == {locked, *others, tmp_path / "file"}
    with written_aside(tmp_path / "file"):
        pass
    assert set(tmp_path.iterdir()) == {*others, tmp_path / "file"}
