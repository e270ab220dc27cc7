"""The file of a package: one uncompressed zip with the compiled library, its weights and its manifest.

Nothing in it is compressed, so that no small file becomes a large one, and weights are used where they lie:
they are mapped into memory, and processes that run the same package share them. Each byte of the file is
covered by a checksum: the manifest has those of library and weights, and the zip's comment is the *seal*,
that of all the rest. They find damage, not malice: who alters a package on purpose can make new ones.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_IFREG
from typing import IO, Any

import numpy as np

from ...machine.arrays import ALIGNMENT, as_numpy
from ...machine.errors import InputError, last_line
from ...machine.files import bytes_written_aside
from .manifest import Contents, FilePart, Manifest, StoredTensor, manifest_text

LIBRARY, WEIGHTS, MANIFEST = MEMBERS = ("net.so", "weights.bin", "manifest.json")
"""The members, in the order in which they are written."""

_REGULAR_FILE = S_IFREG | 0o644
_LARGEST_MANIFEST = 64 << 20
# Bytes of a zip's parts.
_LOCAL_HEADER, _FIELD_HEAD, _ZIP64_FIELD = 30, 4, 20
_PADDING_FIELD = 0xD935
_SEAL = 64
_CHUNK = 1 << 20


def write_archive(path: Path, library: Path, weights: Sequence[Any], manifest: Manifest) -> None:
    """Write a package's file aside; it replaces what has its name when it is whole.

    Raises
    ------
    InputError
        It cannot be written; what was there before is still there.
    """
    with bytes_written_aside(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            code = _add(archive, file, LIBRARY, library.stat().st_size, _file_chunks(library))
            arrays = [as_numpy(weight) for weight in weights]
            tensors, length = _laid_out(arrays)
            data = _add(archive, file, WEIGHTS, length, _tensor_chunks(arrays, tensors))
            text = manifest_text(manifest, Contents(code, data, tensors)).encode()
            _add(archive, file, MANIFEST, len(text), iter([text]))
            archive.comment = bytes(_SEAL)
        seal(file)


def seal(file: IO[bytes]) -> None:
    """Put the seal in the place of the comment that a file has."""
    file.flush()
    digest = _digest(mapped(file), members(file))
    file.seek(-_SEAL, 2)
    file.write(digest)


def mapped(file: IO[bytes]) -> np.ndarray:
    """Map a file into memory, unread; what is written there stays in this process."""
    return np.memmap(file, np.uint8, "c")


def members(file: IO[bytes]) -> dict[str, slice]:
    """Find the members of a package's file.

    Raises
    ------
    InputError
        It is no zip or a damaged one, or it has other members than a package.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos, end = archive.infolist(), archive.start_dir
            starts = [_data_offset(file, info) for info in infos]
    except Exception as error:  # zipfile fails in many ways on a damaged file
        raise InputError(f"it is no zip, or a damaged one ({last_line(error)})") from None
    _check_members(infos)
    ends = [start + info.file_size for start, info in zip(starts, infos, strict=True)]
    places = sorted(zip(starts, ends, strict=True))
    following = [*(start for start, _ in places[1:]), end]
    if any(stop > after for (_, stop), after in zip(places, following, strict=True)):
        raise InputError("it is damaged: its members overlap")
    return {i.filename: slice(a, b) for i, a, b in zip(infos, starts, ends, strict=True)}


def manifest_of_any_format(file: IO[bytes]) -> str:
    """Return the text of the manifest in a file that is no package of this format; empty if there is none."""
    try:
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(MANIFEST)
            plain = info.compress_type == zipfile.ZIP_STORED and info.file_size <= _LARGEST_MANIFEST
            return archive.read(info).decode("utf-8") if plain else ""
    except Exception:  # whatever it is, it is no manifest
        return ""


def require_seal(data: np.ndarray, found: dict[str, slice]) -> None:
    """Check that nothing but library and weights was altered; those have checksums of their own.

    Raises
    ------
    InputError
        Something was.
    """
    if data[-_SEAL:].tobytes() != _digest(data, found):
        raise InputError("it is damaged: its checksum is another")


def require_checksum(data: np.ndarray, part: FilePart, name: str) -> None:
    """Check that a member is what the manifest says.

    Raises
    ------
    InputError
        It is not.
    """
    if data.nbytes != part.nbytes or hashlib.sha256(data.data).hexdigest() != part.sha256:
        raise InputError(f"it is damaged: the checksum of {name} is another")


def _digest(data: np.ndarray, found: dict[str, slice]) -> bytes:
    """Return the SHA-256 of all bytes but those of library, weights and the seal itself, in hexadecimal."""
    digest, position = hashlib.sha256(), 0
    for part in sorted((found[LIBRARY], found[WEIGHTS]), key=lambda part: (part.start, part.stop)):
        digest.update(data[position : part.start].data)
        position = part.stop
    digest.update(data[position:-_SEAL].data)
    return digest.hexdigest().encode()


def _check_members(infos: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse any member that a package does not have: nothing else is ever read or unpacked."""
    names = [info.filename for info in infos]
    strange = [name for name in names if name not in MEMBERS]
    if strange:
        raise InputError(f"it holds {strange[0]!r}")
    if sorted(names) != sorted(MEMBERS):
        twice = [name for name in MEMBERS if names.count(name) > 1]
        raise InputError(f"it holds {twice[0]!r} twice" if twice else "it is incomplete")
    for info in infos:
        if info.external_attr >> 16 != _REGULAR_FILE:
            raise InputError(f"its member {info.filename} is no regular file")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits:
            raise InputError(f"its member {info.filename} is compressed or encrypted")
        if info.filename == MANIFEST and info.file_size > _LARGEST_MANIFEST:
            raise InputError(f"its manifest is larger than {_LARGEST_MANIFEST >> 20} MB")


def _data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member start: after a header that has its name and extra fields."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    name, extra = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    return info.header_offset + _LOCAL_HEADER + name + extra


def _add(
    archive: zipfile.ZipFile, file: IO[bytes], name: str, length: int, chunks: Iterator[Any]
) -> FilePart:
    """Add a member whose bytes start at a multiple of 64 in the file."""
    info = zipfile.ZipInfo(name)
    info.external_attr = _REGULAR_FILE << 16
    info.file_size = length
    large = length * 1.05 > zipfile.ZIP64_LIMIT
    # The field that pads has a head of four bytes itself.
    bare = file.tell() + _LOCAL_HEADER + len(name) + _FIELD_HEAD + (_ZIP64_FIELD if large else 0)
    padding = bytes(-bare % ALIGNMENT)
    info.extra = b"".join(n.to_bytes(2, "little") for n in (_PADDING_FIELD, len(padding))) + padding
    digest = hashlib.sha256()
    with archive.open(info, "w", force_zip64=large) as member:
        for chunk in chunks:
            digest.update(chunk)
            member.write(chunk)
    return FilePart(length, digest.hexdigest())


def _laid_out(arrays: Sequence[np.ndarray]) -> tuple[tuple[StoredTensor, ...], int]:
    """Give each array a place that starts at a multiple of 64 bytes; return also the length of all."""
    tensors, end = [], 0
    for array in arrays:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        tensors.append(StoredTensor(start, array.shape, array.dtype.name))
        end = start + array.nbytes
    return tuple(tensors), end


def _tensor_chunks(arrays: Sequence[np.ndarray], tensors: Sequence[StoredTensor]) -> Iterator[Any]:
    end = 0
    for array, tensor in zip(arrays, tensors, strict=True):
        yield bytes(tensor.offset - end)
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        end = tensor.offset + array.nbytes


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
