"""Which targets share their records: the one rule, in one function."""

from __future__ import annotations

import json
from typing import Any

# Two spellings of one architecture each (LLVM's Triple.cpp treats them alike).
_ARCHITECTURES = {"arm64": "aarch64", "amd64": "x86_64"}
_SYSTEMS = ("linux", "darwin", "macosx", "ios", "windows", "freebsd", "android")


def target_key(target: str) -> str:
    """Return the text that a target's records are looked up by: equal for targets that mean the same.

    A record applies to a target with the same key, and to no other. Whatever changes the code that is
    generated or how well a schedule fits must be equal: the kind, the CPU or GPU, its features, the number
    of cores, the vector width, the architecture, operating system and ABI in the triple, and every option
    that is not named below. What says the same in other words is not told apart:

    - the order of JSON keys, and spaces;
    - ``tag``: only a name for the rest;
    - the order of ``keys``; the order of ``mattr``, and features named twice;
    - the vendor in ``mtriple`` (x86_64-conda-linux-gnu, x86_64-pc-linux-gnu), arm64 for aarch64 and amd64
      for x86_64;
    - all of this in ``host`` too, and a ``host`` that means what the target itself means. One that does not
      counts: an llvm target with a host of another CPU is compiled for that CPU.

    Parameters
    ----------
    target : str
        A target's JSON text, as `target_text` writes it. Text that is no JSON object stands for itself.
    """
    try:
        config = json.loads(target)
    except ValueError:
        return target
    if not isinstance(config, dict):
        return target
    return json.dumps(_meant(config), sort_keys=True, separators=(",", ":"))


def _meant(config: dict[str, Any]) -> dict[str, Any]:
    meant = {name: value for name, value in config.items() if name not in ("tag", "host")}
    for name in ("keys", "mattr"):
        if isinstance(meant.get(name), list):
            meant[name] = sorted({str(entry) for entry in meant[name]})
    if isinstance(meant.get("mtriple"), str):
        meant["mtriple"] = _triple(meant["mtriple"])
    if isinstance(config.get("host"), dict) and (host := _meant(config["host"])) != meant:
        meant["host"] = host
    return meant


def _triple(text: str) -> str:
    """Return a triple without its vendor, which may be left out: x86_64-linux-gnu."""
    architecture, *rest = text.split("-")
    if rest and not rest[0].startswith(_SYSTEMS):
        rest = rest[1:]
    return "-".join([_ARCHITECTURES.get(architecture, architecture), *rest])
