"""Dumps: what a model looks like after each phase, as text to read and to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...machine.errors import InputError
from ...machine.files import written_aside


class Dump:
    """Writes a module after each phase: ``01_imported.py``, ``02_weights.py``, ...

    The text is TVMScript; tensors are named in it, not written out.

    Parameters
    ----------
    folder : path, optional
        Where to; made if it is not there. Files of the same names are replaced. Left out, nothing is written.

    Raises
    ------
    InputError
        The folder cannot be made.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder, self._count = None if folder is None else Path(folder), 0
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot dump to the folder {folder}: {error.strerror}") from error

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return self._folder is not None

    def __call__(self, phase: str, mod: Any) -> None:
        """Write the module as it is after a phase."""
        if self._folder is None:
            return
        self._count += 1
        with written_aside(self._folder / f"{self._count:02d}_{phase}.py") as file:
            file.write(mod.script())


NO_DUMP = Dump()
