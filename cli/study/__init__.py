"""``tunesmith study``: the figures that the engine promises, measured now, on this machine."""

from __future__ import annotations

import click

from ..options import Group
from .endurance import study_endurance
from .engine import study_engine
from .models import study_models
from .noise import study_noise
from .onnx import study_onnx
from .strategies import study_strategies


@click.group(cls=Group, examples=["study engine", "study strategies", "study noise"])
def study() -> None:
    """Measure what is promised: on a machine where nothing else runs.

    Exit status 1 if a promise was not kept.
    """


for command in (study_engine, study_strategies, study_noise, study_endurance, study_models, study_onnx):
    study.add_command(command)
