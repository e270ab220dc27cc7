"""Studies: the figures that the engine promises, measured live; see docs/study.md."""
