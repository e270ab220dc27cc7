"""Measuring: what a worker does with a candidate: build, check on test cases, time."""
