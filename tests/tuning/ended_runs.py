"""A program for tests: tunings in processes of their own, ended at random instants or run side by side.

``python ended_runs.py SIGNAL RUNS DATABASE`` starts tunings one after another and sends each of them the
signal at some instant; ``python ended_runs.py together SEED,SEED DATABASE`` runs them at once. What became of
each is one line of JSON on stdout. TVM is imported once: all else is forked, also what would be started.
"""

import contextlib
import ctypes
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import psutil
import tunesmith as ts
import xgboost  # noqa: F401
from tunesmith.machine.facts import machine_fingerprint
from tunesmith.machine.process import usable_cpus
from tunesmith.machine.target import host_target
from tunesmith.tuning import tuner
from tunesmith.tuning.processes import worker_process
from tunesmith.tuning.reporting.events import TrialEnded

STRATEGIES = ("random", "xgb", "genetic")
TRIALS = 4
"""How many trials more each run makes, before it compares the best."""
POPEN = subprocess.Popen
BRIEF = ts.Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.0)
WORKLOAD = ts.workload("relu", m=64, n=64)


def tile(sch, rows, columns):
    i, j = sch.get_loops(sch.get_sblock("relu"))
    sch.split(i, [None, rows])
    sch.split(j, [None, columns])


def open_space(func, target):
    knobs = tuple(ts.Knob(name, tuple(range(2, 64)), "a tile") for name in ("rows", "columns"))
    return ts.KnobSpace(knobs, (), {"rows": 4, "columns": 8})


TILES = ts.ScheduleRule("tiles", "a rule of a test", tile, open_space)


class Forked:
    """What `subprocess.Popen` is to a worker group, without the second that a new Python takes."""

    def __init__(self, command, pass_fds, stdout, **_options):
        self.returncode = None
        arguments = command[3:]
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            subprocess.Popen = POPEN
            os.dup2(stdout, 1)
            os.dup2(stdout, 2)
            keep = {0, 1, 2, *pass_fds}
            for file in map(int, os.listdir("/proc/self/fd")):
                if file not in keep:
                    with contextlib.suppress(OSError):
                        os.close(file)
            with contextlib.suppress(BaseException):
                worker_process.main(arguments)
            os._exit(1)
        while os.getpgid(self.pid) != self.pid:
            time.sleep(0.001)

    def wait(self):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def start(database, seed, strategy, trials):
    """Fork a tuning; return its process and where it tells which trials have ended."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    os.close(read)

    def say(event):
        if isinstance(event, TrialEnded):
            os.write(write, f"{event.record.id}\n".encode())

    status = 1
    try:
        # What a busy machine holds up is not given up.
        ts.tune(
            WORKLOAD, space=TILES, database=database, strategy=strategy, seed=seed, trials=trials,
            timing=BRIEF, progress=say, give_up_factor=math.inf,
        )  # fmt: skip
        status = 0
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def told(read):
    """Return what a tuning has told until its end."""
    with open(read) as lines:
        return lines.read().split()


def left_processes(seconds):
    """Count what a run has left running after some time at most: orphans become this process's children."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        left = psutil.Process().children(recursive=True)
        if not left or time.monotonic() > deadline:
            return len(left)
        time.sleep(0.005)


def end_at(instant_s, number, process, read):
    """Send a signal after some time, or sooner where the run ends by itself."""
    select.select([os.pidfd_open(process)], [], [], instant_s)
    os.kill(process, number)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    folders = list(Path(tempfile.gettempdir()).glob(f"tunesmith-{process}-*"))
    return {"status": status, "told": told(read), "left": left_processes(5.0), "folders": len(folders)}


def main(how, what, database):
    # PR_SET_CHILD_SUBREAPER
    ctypes.CDLL(None).prctl(36, 1)
    subprocess.Popen = Forked
    # Found once, here: it takes a while.
    host_target(), machine_fingerprint(), usable_cpus(), tuner.TRIALS
    if how == "together":
        started = [start(database, int(seed), "random", 24) for seed in what.split(",")]
        for process, read in started:
            ids = told(read)
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            print(json.dumps({"status": status, "told": ids}), flush=True)
        return
    # The first runs to its end; the instants lie between the start and the end, however long that takes here.
    begin, longest_s = time.monotonic(), None
    for run in range(1 + int(what)):
        with ts.Database(database) as records:
            wanted = len(records.records()) + TRIALS
        process, read = start(database, run, STRATEGIES[run % len(STRATEGIES)], wanted)
        instant_s = longest_s and random.uniform(0, longest_s)
        ended = end_at(instant_s, signal.Signals[how], process, read)
        longest_s = longest_s or time.monotonic() - begin
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
