from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest
import tunesmith as ts
from tunesmith.integrate.packaging import archive
from tunesmith.integrate.packaging.writing import require_writable


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "it is a folder"), ("none/net.package", "there is no folder"), ("net.package", None)],
)
def test_where_a_package_may_be_written(tmp_path: Path, path: str, message: str | None) -> None:
    if message is None:
        assert require_writable(tmp_path / path) == tmp_path / path
        assert not any(tmp_path.iterdir())
    else:
        with pytest.raises(ts.InputError, match=rf"cannot write .*: {message}"):
            require_writable(tmp_path / path)


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ts.InputError, match="Permission denied; choose another folder"):
        require_writable(tmp_path / "net.package")


def test_an_export_leaves_nothing_else_behind(net_package: Any, tmp_path: Path) -> None:
    net_package.export(tmp_path / "net.package")
    assert [p.name for p in tmp_path.iterdir()] == ["net.package"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_export_that_fails_keeps_what_was_there(
    net_package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "net.package"
    path.write_text("the package before")

    def broken(file: Any) -> None:
        raise error

    monkeypatch.setattr(archive, "seal", broken)
    with pytest.raises((ts.InputError, KeyboardInterrupt)) as caught:
        net_package.export(path)
    if isinstance(error, OSError):
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "the package before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line(net_package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The code is linked by another program, which the limit would end before.
    def linked(name: str, **_options: Any) -> None:
        Path(name).write_bytes(bytes(100))

    monkeypatch.setattr(net_package._executable, "export_library", linked)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(ts.InputError, match=r"^cannot write .*net\.package: File too large$"):
            net_package.export(tmp_path / "net.package")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_code_that_cannot_be_linked_is_one_line(
    net_package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlinked(name: str, **_options: Any) -> None:
        raise RuntimeError("Compilation error:\n\nno g++")

    monkeypatch.setattr(net_package._executable, "export_library", unlinked)
    with pytest.raises(ts.InputError, match=r"^cannot link the code of .*net\.package in .*: .*no g\+\+$"):
        net_package.export(tmp_path / "net.package")
    assert not list(tmp_path.iterdir())
