"""A program for tests: forks the first process of each worker group; a new one would import TVM for a second.

``python worker_starter.py CHANNEL``: a request on the channel is JSON with the open files the group wants,
its answer a process id. What is forked becomes a child of who asked, as if that had started it.
"""

import fcntl
import json
import os
import socket
import sys
import time

from tunesmith.tuning.processes import worker_process


def main(channel):
    worker_process._import_all(["tvm", "tunesmith.tuning.measuring.tasks"])
    with socket.socket(fileno=channel) as line:
        while True:
            request, files, _, _ = socket.recv_fds(line, 1 << 20, 256)
            if not request:
                return
            between = os.fork()
            if between == 0:
                if os.fork() == 0:
                    become(json.loads(request), files, line)
                os._exit(0)
            os.waitpid(between, 0)
            for file in files:
                os.close(file)


def become(wanted, files, line):
    """Go on as the process that `subprocess.Popen` would have started."""
    while os.getppid() != wanted["parent"]:
        time.sleep(0.0002)
    os.setsid()
    # Who asked may end the whole group from now on.
    line.send(b"%d" % os.getpid())
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    path = wanted["environment"]["PYTHONPATH"].split(os.pathsep)
    sys.path[:0] = [folder for folder in path if folder not in sys.path]
    place(files, wanted["files"], line.detach())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(wanted["output"], 1)
    os.dup2(wanted["output"], 2)
    try:
        worker_process.main(wanted["arguments"])
    finally:
        os._exit(1)


def place(files, numbers, channel):
    """Give open files the numbers they have in the process that asked, and close all others."""
    beyond = max(*numbers, *files, channel) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, beyond) for file in files]
    os.closerange(0, beyond)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
