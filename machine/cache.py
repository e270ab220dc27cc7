"""Where tunesmith keeps what is worth keeping between runs."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir


def cache_folder() -> Path:
    """Return the folder, which may not exist yet: in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "tunesmith"
    try:
        return Path.home() / ".cache" / "tunesmith"
    except RuntimeError:  # a user without a home, as in a container
        return Path(gettempdir()) / "tunesmith"
