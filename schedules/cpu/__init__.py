"""Schedules for CPUs: one operator family a file, and one for everything else."""
