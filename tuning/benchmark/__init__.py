"""Benchmarks: schedules against the libraries a user would call instead."""
