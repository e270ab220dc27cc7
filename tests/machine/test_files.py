import stat

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
