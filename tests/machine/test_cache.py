"""Where things are kept between runs."""

from pathlib import Path

import pytest
from tunesmith.machine.cache import cache_folder


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tunesmith"


@pytest.mark.parametrize("unset", [None, ""])
def test_the_folder_is_in_the_home(monkeypatch, tmp_path, unset):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    if unset is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tunesmith"


def test_a_user_without_a_home_has_a_folder(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder().is_absolute()
