"""The pipeline, with builders and runners that do nothing but end when the test says so."""

from collections import deque
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import tunesmith as ts
from tunesmith.tuning.measuring.tasks import BuildJob, Built, Ran, parts_folder
from tunesmith.tuning.records.candidate import knob_candidate
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.running import pipeline as pipeline_module
from tunesmith.tuning.running.pipeline import Conditions, Pipeline, Trial
from tunesmith.tuning.running.runner import Runner


class Fake:
    """A builder or a server's runner: it notes what is done to it, and ends when it is told to."""

    deadline = float("inf")

    def __init__(self, name, log):
        self.name, self.log = name, log
        self.job = self.answer = None
        self.held = False

    connection = property(lambda self: self)

    def start(self, job):
        assert self.job is None and not self.held
        self.job = job
        self.log.append(f"{self.name} builds {Path(job.library).name}")

    def start_check(self, job):
        assert self.job is None
        self.job = job
        self.log.append(f"{self.name} checks {Path(job.library).name}")

    def result(self):
        answer, self.answer = self.answer, None
        if answer is not None:
            self.job = None
        return answer

    def restart(self):
        self.log.append(f"{self.name} restarts")
        self.job = self.answer = None

    def hold(self):
        self.held = True
        self.log.append(f"{self.name} held")

    def let_go(self):
        self.held = False
        self.log.append(f"{self.name} let go")


class FakeRunner(Runner):
    """A runner of this machine whose every candidate is right and takes a second."""

    def __init__(self, name, scene):
        self.name, self.scene, self.fails = name, scene, None

    def check(self, job):
        name = Path(job.library).name
        self.scene.log.append(f"{self.name} checks {name}")
        return self.scene.checked.get(name, Ran(Status.OK, verified=True, max_error=0.5))

    def time(self, job, checked):
        self.scene.log.append(f"{self.name} times {Path(job.library).name} best {job.best_s:g}")
        if self.fails:
            raise self.fails
        return Ran(Status.OK, "", True, checked.max_error, (1.0,), 7)

    def restart(self):
        self.scene.log.append(f"{self.name} restarts")


class Scene:
    """A pipeline, what happens in it, and the order in which its workers end."""

    def __init__(self, tmp_path, monkeypatch, builders=2, servers=0):
        self.log, self.folder = [], tmp_path
        self.builders = [Fake(f"b{i}", self.log) for i in range(builders)]
        self.runner = FakeRunner("r0", self)
        self.servers = [Fake(f"s{i}", self.log) for i in range(servers)]
        self.pipeline = Pipeline(self.builders, self.servers or [self.runner])
        self.order, self.best, self.known = deque(), [float("inf")], {}
        self.built, self.checked = {}, {}
        self.conditions = Conditions(
            None, ts.Timing(), lambda: (2 * self.best[-1], self.best[-1]), self.known.get
        )
        monkeypatch.setattr(pipeline_module, "wait", self.wait)
        monkeypatch.setattr(pipeline_module, "device_lock", self.lock)

    @contextmanager
    def lock(self):
        self.log.append("locked")
        yield
        self.log.append("unlocked")

    def wait(self, busy, timeout):
        """End the workers whose turn it is; that is whoever has been busy longest where nothing is said."""
        names = self.order.popleft().split() if self.order else [busy[0].name]
        for worker in busy:
            if worker.name in names:
                names.remove(worker.name)
                self.end(worker)
        assert not names

    def end(self, worker):
        name = Path(worker.job.library).name
        if worker in self.builders:
            worker.answer = self.built.get(name, Built(Status.OK, "", worker.job.library, "{}", 0.1, name))
        else:
            worker.answer = Ran(Status.OK, "", True, 0.5, (1.0,), 7)

    def submit(self, *names, **options):
        trials = []
        for name in names:
            job = BuildJob("", "", str(self.folder / name))
            trials.append(Trial(knob_candidate({"name": len(name)}), "space", job, **options))
            self.pipeline.submit(trials[-1])
        return trials

    def ended(self):
        trial = self.pipeline.next_ended(self.conditions)
        return Path(trial.job.library).name, trial


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def test_builds_run_ahead_while_one_is_checked(scene):
    scene.submit("a", "b", "c", "d")
    assert scene.log == ["b0 builds a", "b1 builds b"] and len(scene.pipeline) == 4
    scene.order.append("b1")
    assert scene.ended()[0] == "b" and len(scene.pipeline) == 3
    # b1 had c before b was run; while b was run, nothing else was.
    assert scene.log[2:] == [
        *("b1 builds c", "b0 held", "b1 held", "locked"),
        *("r0 checks b", "r0 times b best inf", "unlocked", "b0 let go", "b1 let go"),
    ]
    assert [scene.ended()[0] for _ in range(3)] == ["a", "c", "d"] and len(scene.pipeline) == 0


def test_builders_are_let_go_and_the_runner_starts_afresh_whatever_happens(scene):
    scene.submit("a", "b", "c")
    scene.runner.fails = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        scene.ended()
    assert not any(builder.held for builder in scene.builders) and scene.log[-1] == "r0 restarts"


def test_interrupt_while_builders_are_being_held(scene, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    scene.submit("a", "b", "c")
    monkeypatch.setattr(scene.builders[0], "hold", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.ended()
    assert not any(builder.held for builder in scene.builders)


def test_what_was_not_built_is_not_run(scene):
    scene.submit("a", "b")
    scene.built["a"] = Built(Status.BUILD_TIMEOUT, "not built within 3 s")
    name, trial = scene.ended()
    assert (name, trial.ran) == ("a", Ran(Status.BUILD_TIMEOUT, "not built within 3 s"))
    assert scene.ended()[0] == "b" and not [line for line in scene.log if "checks a" in line]


@pytest.mark.parametrize(
    "checked",
    [
        Ran(Status.WRONG_RESULT, "2048 are NaN", max_error=3.0),
        Ran(Status.CRASHED, "SIGSEGV"),
        Ran(Status.OK, "far slower than the best so far", False, 0.1, (9.0,), 1),
        Ran(Status.OK, "timed in the same session of a server", True, 0.1, (2.0,), 3),
    ],
)
def test_only_what_is_right_and_has_no_time_is_timed(scene, checked):
    scene.submit("a")
    scene.checked["a"] = checked
    assert scene.ended()[1].ran == checked and not [line for line in scene.log if "times" in line]


def test_equal_binary_is_not_run_again(scene, tmp_path):
    record = SimpleNamespace(
        id="k1", status=Status.OK, verified=True, max_error=0.25, run_secs=(1.0, 2.0), calls=9
    )
    scene.known["a"] = record
    scene.submit("a", "b")
    name, trial = scene.ended()
    assert name == "a" and trial.same_as is record
    message = "the same binary as record k1, which was measured"
    assert trial.ran == Ran(Status.OK, message, True, 0.25, (1.0, 2.0), 9)
    assert scene.ended()[1].same_as is None and "r0 checks a" not in scene.log


def test_equal_binaries_on_their_way_together_are_run_once(scene):
    def remember(trial):
        scene.known[trial.built.binary] = SimpleNamespace(id="k", **vars(trial.ran))

    scene.built = {name: Built(Status.OK, "", name, "{}", 0.1, "equal") for name in "abc"}
    scene.submit("a", "b", "c")
    scene.order.append("b0 b1")
    for _ in range(3):
        remember(scene.ended()[1])
    assert len([line for line in scene.log if "checks" in line]) == 1


def test_limits_are_those_of_the_moment(scene):
    scene.submit("a", "b")
    scene.ended()
    scene.best.append(0.5)
    scene.ended()
    assert [line for line in scene.log if "times" in line] == ["r0 times a best inf", "r0 times b best 0.5"]


def test_who_goes_first_is_waited_for(scene):
    scene.submit("default", goes_first=True)
    scene.submit("a", "b", "c")
    scene.order.extend(["b1", "b1", "b0"])
    assert scene.ended()[0] == "default"
    assert [scene.ended()[0] for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("status", [Status.BUILD_ERROR, Status.BUILD_TIMEOUT])
def test_who_goes_first_may_fail(scene, status):
    scene.submit("default", goes_first=True)
    scene.submit("a")
    scene.built["default"] = Built(status, "no")
    assert [scene.ended()[0] for _ in range(2)] == ["default", "a"]


def test_discard_drops_all_and_starts_afresh(scene):
    scene.submit("a", "b", "c", "d")
    scene.ended()
    scene.log.clear()
    scene.pipeline.discard()
    assert len(scene.pipeline) == 0 and sorted(scene.log) == ["b0 restarts", "b1 restarts"]
    scene.submit("e", "f")
    assert {scene.ended()[0], scene.ended()[0]} == {"e", "f"}


def test_servers_run_side_by_side_while_builders_go_on(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, builders=1, servers=2)
    scene.submit("a", "b", "c", "d")
    scene.order.extend(["b0", "b0", "s1"])
    name, trial = scene.ended()
    assert (name, trial.ran.run_secs) == ("b", (1.0,))
    assert scene.log[1:] == ["b0 builds b", "s0 checks a", "b0 builds c", "s1 checks b"]
    scene.order.extend(["b0", "s1", "b0"])
    assert scene.ended()[0] == "c"
    scene.pipeline.discard()
    assert scene.log[-2:] == ["b0 restarts", "s0 restarts"]


def test_nothing_of_a_trial_stays_on_disk(scene, tmp_path):
    scene.submit("a", "b")
    scene.built["b"] = Built(Status.BUILD_ERROR, "half of it was written")
    for name in "ab":
        (tmp_path / name).write_bytes(b"library")
        (tmp_path / f"{name}.json").write_text("{}")
        folder = Path(parts_folder(str(tmp_path / name)))
        folder.mkdir()
        (folder / "object.o").write_bytes(b"part")
    scene.ended(), scene.ended()
    assert list(tmp_path.iterdir()) == []


def test_time_counts_for_what_keeps_the_runners(scene, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(pipeline_module.time, "monotonic", lambda: float(next(clock)))
    scene.submit("a")
    scene.ended()
    assert scene.pipeline.seconds == {"build": 1.0, "verify": 1.0, "run": 1.0}
