"""The SQLite file of a database: opening it, bringing it to the newest schema, transactions, errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...machine.errors import InputError
from .migrations import SCHEMA_VERSION, migrate

# Written into the file's header ("TnSm"), so that any other SQLite file is recognized as such.
APPLICATION_ID = 0x546E536D
# How long a writer waits for another one.
WAIT_S = 30.0

# Offsets in an SQLite file's header (https://www.sqlite.org/fileformat.html).
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = slice(68, 72)


class DatabaseFile:
    """An open database file of the newest schema version.

    A file that may not be written is opened for reading.

    Parameters
    ----------
    path : path-like
        The file.
    create : bool
        Whether to create it where it does not exist.
    wait_s : float
        Seconds to wait for another process that writes.

    Raises
    ------
    InputError
        The file is missing, cannot be opened, is no tunesmith database, or was written by a newer version.
        Such a file is left as it is, and so is one whose migration fails.
    """

    def __init__(self, path: str | Path, create: bool = True, wait_s: float = WAIT_S) -> None:
        self.path, self._wait_s = Path(path), wait_s
        self._require_database_file(create)
        self._read_only = self.path.exists() and not (
            os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        )
        uri = f"file:{quote(str(self.path.absolute()))}"
        if self._read_only:
            self._require_closed()
            # Even a reader of a write-ahead log would need a file beside it.
            uri += "?immutable=1"
        with self.explained():
            # Transactions are opened and ended by hand: what is committed when shall be visible here.
            self._connection = sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def rows(self, query: str, values: Mapping[str, Any] | tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.explained():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write: all that is done in here is committed at its end, or nothing of it."""
        if self._read_only:
            raise InputError(
                f"the database {self.path} cannot be written: it or its folder is read-only; "
                "copy it to where you may write"
            )
        with self.explained():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn SQLite's errors into a line that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(
                f"the database {self.path} cannot be used: {error}; check the file's rights, the free disk "
                "space, and whether another process holds it"
            ) from error

    def _require_database_file(self, create: bool) -> None:
        """Refuse a file that is something else from its header alone: SQLite might touch it."""
        if self.path.is_dir() or not self.path.parent.is_dir():
            what = "it is a folder" if self.path.is_dir() else f"the folder {self.path.parent} does not exist"
            raise InputError(f"cannot open the database {self.path}: {what}; give the path of a file")
        try:
            with self.path.open("rb") as file:
                header = file.read(100)
        except FileNotFoundError:
            header = b""
        except OSError as error:
            raise InputError(f"cannot read the database {self.path}: {error.strerror}") from error
        if not header and create:
            return
        if not header:
            raise InputError(
                f"there is no database {self.path}; a tuning creates it: tunesmith tune ... --db FILE"
            )
        if header[:16] != _MAGIC or int.from_bytes(header[_APPLICATION_ID_AT], "big") != APPLICATION_ID:
            raise InputError(
                f"{self.path} is not a tunesmith database; it was left as it is: give another path"
            )

    def _require_closed(self) -> None:
        """Refuse to read a file without the log beside it: that holds the latest records."""
        log = self.path.with_name(self.path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"the database {self.path} cannot be read: it was not closed, and it or its folder is "
                "read-only; copy it and the files beside it to where you may write"
            )

    def _prepare(self) -> None:
        """Check the version, and bring an older or new file to this one."""
        (version,) = self.rows("PRAGMA user_version")[0]
        if version > SCHEMA_VERSION:
            raise InputError(
                f"{self.path} was written by a newer tunesmith (database version {version}, this one reads "
                f"up to {SCHEMA_VERSION}); upgrade tunesmith: the file was left as it is"
            )
        if version < SCHEMA_VERSION:
            self._migrate(version)
        if version == 0:
            self._use_write_ahead_log()
        # What is committed survives the end of any process. Only a power cut may take the latest records
        # with it, never the file; waiting for the disk at each of them would cost more than writing it.
        self.rows("PRAGMA synchronous = NORMAL")

    def _migrate(self, version: int) -> None:
        try:
            with self.transaction() as connection:
                # Another process may have been faster: the version is looked at again in here.
                migrate(connection)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        except (InputError, ValueError, TypeError) as error:
            raise InputError(
                f"{self.path} cannot be brought from database version {version} to {SCHEMA_VERSION} and was "
                f"left as it is: {error}"
            ) from error

    def _use_write_ahead_log(self) -> None:
        """Let readers read while a writer writes; SQLite's own waiting does not cover this step."""
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
