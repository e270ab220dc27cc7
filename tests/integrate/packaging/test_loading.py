"""Files that are no packages, are damaged, or cannot run here are refused in one line."""

from __future__ import annotations

import hashlib
import io
import json
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.packaging import archive, loading, requirements
from tunesmith.integrate.packaging.archive import MEMBERS

Members = dict[str, bytes]
NO_PACKAGE = r"not a tunesmith package, or a damaged one: .*: "


@pytest.fixture(scope="module")
def package_file(net_package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return net_package.export(tmp_path_factory.mktemp("packages") / "net.package")


def _refused(path: Path, message: str) -> None:
    with pytest.raises(ts.InputError, match=message) as caught:
        ts.load_package(path)
    assert "\n" not in str(caught.value)


def _rewritten(
    source: Path,
    target: Path,
    change: Callable[[Members], object] = lambda members: None,
    describe: Callable[[zipfile.ZipInfo], object] = lambda info: None,
) -> Path:
    """Copy a package with its members changed, and with a right seal, as one who means harm would."""
    with zipfile.ZipFile(source) as found:
        members = {name: found.read(name) for name in found.namelist()}
    change(members)
    with target.open("x+b") as file:
        with zipfile.ZipFile(file, "w") as copy:
            for name, content in members.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                describe(info)
                copy.writestr(info, content)
            copy.comment = bytes(64)
        try:
            archive.seal(file)
        except ts.InputError:
            pass  # it has no place for one: it is refused before
    return target


def _with_manifest(source: Path, copy: Path, **fields: Any) -> Path:
    def change(members: Members) -> None:
        members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), **fields}).encode()

    return _rewritten(source, copy, change)


def test_a_rewritten_package_is_one(package_file: Path, tmp_path: Path, net_input: np.ndarray) -> None:
    copy = ts.load_package(_rewritten(package_file, tmp_path / "copy"))
    want = ts.load_package(package_file)(net_input)
    np.testing.assert_array_equal(copy(net_input), want)


def test_weights_are_used_where_they_lie(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(array: Any) -> None:
        raise AssertionError("a weight was copied")

    monkeypatch.setattr("tunesmith.machine.arrays.aligned_copy", copied)
    assert len(ts.load_package(package_file)._weights) > 3


def test_no_such_package(tmp_path: Path) -> None:
    _refused(tmp_path / "none", r"^no such package: .*none$")
    _refused(tmp_path, "^no such package: ")


@pytest.mark.parametrize("content", [b"", b"PK", b"text" * 100, bytes(100)])
def test_another_file_is_no_package(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    _refused(tmp_path / "file", NO_PACKAGE + "it is no zip, or a damaged one")


def test_another_zip_is_no_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("readme.txt", "hello")
    _refused(tmp_path / "other.zip", NO_PACKAGE + "it holds 'readme.txt'")


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99, -1])
def test_a_truncated_package_is_found(package_file: Path, tmp_path: Path, kept: float) -> None:
    content = package_file.read_bytes()
    (tmp_path / "short").write_bytes(content[: int(len(content) * kept) if kept > 0 else -1])
    _refused(tmp_path / "short", "damaged")


def test_an_extended_package_is_found(package_file: Path, tmp_path: Path) -> None:
    content = package_file.read_bytes()
    for number, longer in enumerate((content + b"more", b"more" + content)):
        path = tmp_path / str(number)
        path.write_bytes(longer)
        _refused(path, "damaged")


@pytest.mark.parametrize("member", MEMBERS)
def test_an_altered_member_is_found(package_file: Path, tmp_path: Path, member: str) -> None:
    content = bytearray(package_file.read_bytes())
    with package_file.open("rb") as file:
        place = archive.members(file)[member]
    content[(place.start + place.stop) // 2] ^= 0x01
    (tmp_path / "altered").write_bytes(content)
    _refused(tmp_path / "altered", "damaged")


def test_any_altered_byte_is_found(package_file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Also those between the members, and all of the zip's directory."""

    def loaded(code: Any, source: str) -> None:
        raise AssertionError("it was taken for whole")

    monkeypatch.setattr(loading, "_loaded", loaded)
    content = package_file.read_bytes()
    with package_file.open("rb") as file:
        frame = [p for part in archive.members(file).values() for p in range(part.start - 64, part.start)]
        directory = range(archive.members(file)["manifest.json"].stop, len(content))
    draw = random.Random(0)
    everywhere = draw.sample(range(len(content)), 60)
    for position in [*draw.sample(frame, 40), *draw.sample(directory, 80), *everywhere]:
        altered = bytearray(content)
        altered[position] ^= draw.randrange(1, 256)
        path = tmp_path / "altered"
        path.write_bytes(altered)
        # Where the version is what was altered, that is what is told.
        _refused(path, "damaged|earlier|update tunesmith")


@pytest.mark.parametrize("name", ["../evil.so", "/tmp/evil.so", "net.so/../../evil.so", "other", "NET.SO"])
def test_a_member_that_escapes_is_refused(package_file: Path, tmp_path: Path, name: str) -> None:
    path = _rewritten(package_file, tmp_path / "p", lambda members: members.update({name: b"evil"}))
    _refused(path, NO_PACKAGE + f"it holds '{name}'")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR])
def test_a_member_that_is_a_link_or_a_folder_is_refused(
    package_file: Path, tmp_path: Path, kind: int
) -> None:
    def describe(info: zipfile.ZipInfo) -> None:
        if info.filename == "net.so":
            info.external_attr = (kind | 0o755) << 16

    path = _rewritten(package_file, tmp_path / "p", describe=describe)
    _refused(path, NO_PACKAGE + r"its member net\.so is no regular file")


@pytest.mark.parametrize("member", MEMBERS)
def test_an_incomplete_package_is_refused(package_file: Path, tmp_path: Path, member: str) -> None:
    path = _rewritten(package_file, tmp_path / "p", lambda members: members.pop(member))
    _refused(path, NO_PACKAGE + "it is incomplete")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(package_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "p"
    copy.write_bytes(package_file.read_bytes())
    with zipfile.ZipFile(copy, "a") as more:
        more.writestr("net.so", b"evil")
    _refused(copy, NO_PACKAGE + r"it holds 'net\.so' twice")


@pytest.mark.parametrize("member", MEMBERS)
def test_a_compressed_member_is_refused_before_it_is_unpacked(
    package_file: Path, tmp_path: Path, member: str
) -> None:
    def describe(info: zipfile.ZipInfo) -> None:
        if info.filename == member:
            info.compress_type = zipfile.ZIP_DEFLATED

    def change(members: Members) -> None:
        members[member] = bytes(100 << 20)

    path = _rewritten(package_file, tmp_path / "p", change, describe)
    assert path.stat().st_size < 1 << 20
    _refused(path, NO_PACKAGE + f"its member {member} is compressed or encrypted")


def test_sizes_that_are_not_true_are_refused(package_file: Path, tmp_path: Path) -> None:
    """A directory may declare more than there is; nothing is allocated for it."""
    content = bytearray(package_file.read_bytes())
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        start, info = found.start_dir, found.getinfo("net.so")
    assert content[start : start + 4] == b"PK\x01\x02" and info is not None
    for field in (start + 20, start + 24):
        content[field : field + 4] = (3 << 30).to_bytes(4, "little")
    (tmp_path / "p").write_bytes(content)
    _refused(tmp_path / "p", NO_PACKAGE + "(it is damaged: its members overlap|it is no zip)")


def test_a_manifest_of_any_size_is_not_read(package_file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(archive, "_LARGEST_MANIFEST", 1000)
    _refused(package_file, NO_PACKAGE + "its manifest is larger than")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "other"}, "^not a tunesmith package: "),
        ({"format_version": 3}, "has package format 3, this tunesmith reads 2; update tunesmith"),
        ({"format_version": 1}, "was made by an earlier tunesmith: .* compile the model again"),
        ({"format_version": None}, "has package format None"),
        ({"tvm_version": "0.99"}, "was built with TVM 0.99, this is .*; build the package again"),
        ({"surprise": 1}, "has a damaged manifest: .*surprise"),
        ({"inputs": [{"name": "x"}]}, "has a damaged manifest: 'shape'"),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "int8"}]}, "damaged manifest: -1 is no count"),
        ({"inputs": [{"name": "x", "shape": [1 << 40] * 2, "dtype": "int8"}]}, "no memory holds the shape"),
        ({"contents": []}, "has a damaged manifest"),
    ],
)
def test_manifests_that_are_refused(
    package_file: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    _refused(_with_manifest(package_file, tmp_path / "p", **fields), message)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            {"offset": 0, "shape": [1 << 40], "dtype": "float32"},
            r"a weight of shape \(1099511627776,\) is not",
        ),
        ({"offset": 1 << 50, "shape": [1], "dtype": "float32"}, r"a weight of shape \(1,\) is not all there"),
        ({"offset": 0, "shape": [1], "dtype": "float33"}, "NumPy has no dtype 'float33'"),
        ({"offset": 0, "shape": [1], "dtype": "object"}, "a weight is of dtype object"),
    ],
)
def test_weights_that_are_not_there_are_refused(
    package_file: Path, tmp_path: Path, tensor: dict[str, Any], message: str
) -> None:
    with zipfile.ZipFile(package_file) as found:
        contents = json.loads(found.read("manifest.json"))["contents"]
    path = _with_manifest(package_file, tmp_path / "p", contents={**contents, "tensors": [tensor]})
    _refused(path, "^a damaged package: .*" + message)


def test_packages_of_other_formats_say_so(tmp_path: Path) -> None:
    for version, advice in ((1, "compile the model again"), (3, "update tunesmith")):
        path = tmp_path / str(version)
        with zipfile.ZipFile(path, "w") as other:
            text = json.dumps({"format": "tunesmith-package", "format_version": version})
            other.writestr("manifest.json", text)
            other.writestr("weights.params", b"")
        _refused(path, f"has package format {version}, .*{advice}")


def test_code_that_is_no_library_is_refused(package_file: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        members["net.so"] = b"no library"
        part = {"nbytes": 10, "sha256": hashlib.sha256(b"no library").hexdigest()}
        manifest["contents"]["library"] = part
        members["manifest.json"] = json.dumps(manifest).encode()

    _refused(
        _rewritten(package_file, tmp_path / "p", change), "^cannot load the code of .* from .*set TMPDIR"
    )


def test_a_package_for_another_machine_is_refused(
    package_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ts.host_target()
    triple = str(here.attrs["mtriple"])

    def built_for(name: str, **target: str) -> Path:
        text = json.dumps({"kind": "llvm", **target})
        return _with_manifest(package_file, tmp_path / name, target=text, cpu="another")

    arm = built_for("arm", mtriple="aarch64-linux-gnu", mcpu="cortex-a72")
    _refused(arm, r"was built for .*cortex-a72.*; this machine is ")
    _refused(built_for("odd", mtriple="no-such-thing"), "was built for a target that is unknown here: ")
    if triple.startswith("x86_64"):
        amx = built_for("amx", mtriple=triple, mcpu="diamondrapids")
        _refused(amx, r"was built for diamondrapids; this CPU lacks .*amx-")
        # The signature spares asking LLVM only where it is this CPU's.
        ts.load_package(built_for("old", mtriple=triple, mcpu="x86-64"))
    monkeypatch.setattr(requirements, "_require_cpu", None)
    ts.load_package(package_file)
