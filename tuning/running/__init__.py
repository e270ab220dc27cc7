"""Running: from a candidate to its outcome, built ahead, checked and timed one at a time."""
