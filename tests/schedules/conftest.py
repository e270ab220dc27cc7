"""What the schedule tests share: a run that finds wrong, missing and stray writes."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.arrays import aligned_copy, aligned_empty, as_tensor
from tunesmith.machine.facts import facts
from tunesmith.machine.fresh_memory import without_zeros
from tunesmith.machine.signature import ArgSpec
from tunesmith.machine.target import host_target, with_tile_features
from tunesmith.schedules.code_generation import generate_code
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import (
    expected_output,
    fill_untouched,
    inputs_for,
    inputs_of,
    reduction_length,
    tolerance,
    workload_tolerance,
)
from tunesmith.tuning.processes.worker_group import WorkerGroup
from tunesmith.tuning.records.compilation import trace_text
from tvm import te

# Elements behind each output that a kernel must leave alone.
GUARD = 64

Run = Callable[..., list[np.ndarray]]


@pytest.fixture(scope="session")
def target() -> Any:
    return host_target()


@pytest.fixture(scope="session")
def without_tiles(target) -> Any:
    """Return the target of this machine as if it had no matrix unit."""
    return with_tile_features(target, ())


@pytest.fixture(scope="session")
def run(target) -> Run:
    """Compile a PrimFunc or a schedule and run it into outputs that are full of NaN; return the outputs."""

    unoptimized = tvm.target.Target({**json.loads(str(target)), "opt-level": 0})

    # What is run several times in a row, on other inputs or under several rules, is compiled once, as a
    # candidate of a search is.
    @lru_cache(maxsize=4)
    def compiled(func: Any, optimized: bool) -> Any:
        mod = tvm.IRModule({"main": func})
        return generate_code(mod, target if optimized else unoptimized, quick=True)["main"]

    def ran(
        func_or_schedule: Any, inputs: Sequence[np.ndarray], nth: int = 0, optimized: bool = True
    ) -> list[np.ndarray]:
        assert func_or_schedule is not None, "the rule does not apply"
        mod = getattr(func_or_schedule, "mod", None)
        func = mod["main"] if mod else func_or_schedule
        kernel = compiled(func, optimized)
        arrays = [aligned_copy(i) for i in inputs]
        rooms = []
        for param in func.params[len(inputs) :]:
            shape = tuple(int(extent) for extent in param.shape)
            rooms.append((shape, aligned_empty((int(np.prod(shape)) + GUARD,), str(param.dtype))))
        for _, room in rooms:
            fill_untouched(room, nth)
        guards = [room[-GUARD:].tobytes() for _, room in rooms]
        outputs = [room[:-GUARD].reshape(shape) for shape, room in rooms]
        with without_zeros():
            kernel(*map(as_tensor, arrays), *map(as_tensor, outputs))
        assert [a.tobytes() for a in arrays] == [i.tobytes() for i in inputs], "an input was changed"
        assert [room[-GUARD:].tobytes() for _, room in rooms] == guards, "written behind an output"
        return outputs

    return ran


def product_of_computed(m: int, n: int, k: int, data: str, weight: str, sums: str, which: str) -> Any:
    """Return a product one or both of whose operands, named by ``which``, are computed before."""

    def halved(tensor: Any) -> Any:
        dtype = str(tensor.dtype)

        def half(i: Any, j: Any) -> Any:
            whole = tensor[i, j]
            return whole >> te.const(1, dtype) if "int" in dtype else (whole.astype(sums) * 0.3).astype(dtype)

        return te.compute(tensor.shape, half, f"half_{tensor.op.name}")

    A, B = te.placeholder((m, k), data, "A"), te.placeholder((k, n), weight, "B")
    a, b = halved(A) if "A" in which else A, halved(B) if "B" in which else B
    r = te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(sums) * b[r, j].astype(sums), axis=r), name="C")
    return as_prim_func([A, B, C])


@pytest.fixture(scope="session")
def assert_right_of_computed(run) -> Callable[..., None]:
    """Check that a rule is right where operands are computed before: it may not load what is not there."""

    def half(whole: np.ndarray) -> np.ndarray:
        is_integer = whole.dtype.kind in "iu"
        return whole >> 1 if is_integer else (whole.astype("float32") * np.float32(0.3)).astype(whole.dtype)

    def right(rule: Any, target: Any, types: Sequence[str], which: str, k: int) -> None:
        func = product_of_computed(48, 64, k, *types, which)
        rng = np.random.default_rng(k)
        inputs = [
            rng.integers(0, 120, shape, dtype=d) if "int" in d else rng.random(shape).astype(d)
            for shape, d in (((48, k), types[0]), ((k, 64), types[1]))
        ]
        halves = [
            (x >> 1 if "int" in d else (x.astype("float32") * np.float32(0.3)).astype(d))
            if name in which
            else x
            for name, x, d in zip("AB", inputs, types[:2], strict=True)
        ]
        wide = "int64" if "int" in types[0] else "float64"
        expected = halves[0].astype(wide) @ halves[1].astype(wide)
        found, *_ = run(rule.scheduled(func, target), inputs)
        np.testing.assert_allclose(found.astype(wide), expected, rtol=0 if wide == "int64" else 1e-5)

    return right


@pytest.fixture(scope="session")
def assert_right(run) -> Callable[..., None]:
    """Run a workload's schedule on two sets of inputs and compare with the reference."""

    def right(workload: ts.Workload, schedule: Any, optimized: bool = True) -> None:
        for nth in (0, 1):
            inputs = inputs_of(workload, nth, nth)
            (got,) = run(schedule, inputs, nth, optimized)
            verdict = compare(got, expected_output(workload, inputs), workload_tolerance(workload))
            assert verdict.ok, f"{workload.label} {workload.dtype}: {verdict.message}"

    return right


@pytest.fixture(scope="session")
def assert_points_right(assert_right, target) -> Callable[..., None]:
    """Check the default of a rule, compiled as a user's kernel, and what other points of its space compute.

    LLVM's optimization, of which one point needs what others do, takes most of the time that a point takes.
    """

    def right(rule: Any, workload: ts.Workload, points: Iterable[Mapping[str, int]]) -> None:
        default = rule.space(workload.func, target).default
        assert_right(workload, rule.scheduled(workload.func, target))
        for knobs in points:
            if {**default, **knobs} != default:
                assert_right(workload, rule.scheduled(workload.func, target, knobs), optimized=False)

    return right


@pytest.fixture(scope="session")
def assert_same_outputs(run) -> Callable[..., None]:
    """Run a PrimFunc unscheduled and scheduled and compare all outputs."""

    def same(func: Any, schedule: Any, outputs: int = 1, optimized: bool = True) -> None:
        args = [
            ArgSpec(str(p.name), tuple(int(e) for e in p.shape), str(p.dtype))
            for p in func.params[: len(func.params) - outputs]
        ]
        for nth in (0, 1):
            inputs = inputs_for(args, nth)
            found, wanted = run(schedule, inputs, nth, optimized), run(func, inputs, nth, optimized=False)
            for got, want in zip(found, wanted, strict=True):
                verdict = compare(got, want, tolerance(str(want.dtype), reduction_length(func)))
                assert verdict.ok, verdict.message

    return same


@pytest.fixture
def compiled_c(tmp_path) -> Callable[..., tuple[Callable[..., None], str]]:
    """Compile C alone, as a user would; return its function of arrays and what the compiler printed."""
    compiler = next((path for name in ("gcc", "cc", "g++") if (path := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("needs a C compiler")

    def compiled(source: str, name: str, *flags: str) -> tuple[Callable[..., None], str]:
        path, library = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        path.write_text(source + "\n")
        usual = ["-x", "c", "-O2", "-Wall", "-shared", "-fPIC"]
        command = [compiler, *usual, *flags, str(path), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        function = getattr(ctypes.CDLL(str(library)), name)
        function.restype = None
        return lambda *arrays: function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays)), done.stderr

    return compiled


@pytest.fixture(scope="session")
def depth(target) -> int:
    """A sum as long as a weight of 256 columns needs to exceed the caches of all cores."""
    machine = facts(target)
    return machine.l2_bytes * machine.cores // (256 * 4) + 32


@pytest.fixture
def assert_replayed_elsewhere(tmp_path) -> Callable[..., None]:
    """Replay a trace in a process that knows none of its intrinsics, and find a text in what comes of it."""

    def assert_it(workload: Any, schedule: Any, intrinsics: str, text: str) -> None:
        trace = tmp_path / "trace.json"
        trace.write_text(trace_text(schedule))
        found = re.search(intrinsics, trace.read_text())
        assert found, f"the trace names no {intrinsics}"
        code = f"""
import tunesmith as ts
from tunesmith.tuning.records.compilation import replay_trace
from tvm.s_tir import TensorIntrin
w = ts.workload({workload.name!r}, dtype={workload.dtype!r}, **{dict(workload.shape)!r})
assert TensorIntrin.get({found[0]!r}, allow_missing=True) is None
assert {text!r} in replay_trace(open({str(trace)!r}).read(), w.func).mod.script()
"""
        with WorkerGroup(1) as group:
            group.workers[0].call(exec, code, 120)

    return assert_it
