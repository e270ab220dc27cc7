import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tunesmith.machine.errors import InputError
from tunesmith.tuning.study import endurance

SMALL = {"m": 64, "n": 64, "k": 64}


def test_a_long_run_is_watched_and_leaves_nothing():
    said = []
    before = set(Path(tempfile.gettempdir()).glob(f"tunesmith-{os.getpid()}-*"))
    row = endurance.study_endurance("matmul", SMALL, trials=3, say=said.append)
    assert row.records == row.trials == 3 and row.stopped_by == "trials" and row.met
    assert 0 < row.rss_start_bytes <= row.rss_max_bytes and row.rss_end_bytes > 0
    assert row.worker_max_bytes > 50 << 20
    assert said == ["matmul m=64,n=64,k=64,transpose=NN: 3 trials of random in the space matmul"]
    assert set(Path(tempfile.gettempdir()).glob(f"tunesmith-{os.getpid()}-*")) == before


def test_a_process_that_is_left_is_found():
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "TUNESMITH_STUDY": "mark"},
    )
    try:
        (found,) = endurance.processes_with("mark", grace_s=0.1)
        assert found.startswith(f"{child.pid} ")
    finally:
        child.communicate()
    assert endurance.processes_with("mark") == ()


def test_a_space_with_fewer_points_than_trials_is_refused():
    with pytest.raises(InputError, match=r"has \d+ points: trials=100000; give a larger shape"):
        endurance.study_endurance("matmul", SMALL, trials=100000)
