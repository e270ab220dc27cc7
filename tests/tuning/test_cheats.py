"""Kernels that compute the wrong thing, or the right thing by accident: each must be found out."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.schedules.rule import ScheduleRule
from tunesmith.schedules.space import KnobSpace
from tunesmith.tuning.measuring import cases as cases_file
from tunesmith.tuning.measuring.cases import CASES, LoadedCase, prepare_cases
from tvm import s_tir
from tvm.script import tirx as T

# All but one of the matmuls here are SIZE by SIZE.
SIZE = 64
S = (SIZE, SIZE)


@T.inline
def matmul(a, b, c, rows=SIZE, columns=SIZE, terms=SIZE):
    for i, j in T.grid(rows, columns):
        c[i, j] = T.float32(0)
        for k in range(terms):
            c[i, j] = c[i, j] + a[i, k] * b[k, j]


@T.prim_func(s_tir=True)
def right(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)


@T.prim_func(s_tir=True)
def writes_nothing(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.evaluate(0)


@T.prim_func(s_tir=True)
def writes_half(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c, rows=SIZE // 2)


@T.prim_func(s_tir=True)
def leaves_the_last_column(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c, columns=SIZE - 1)


@T.prim_func(s_tir=True)
def repeats_a_column(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    for i in range(SIZE):
        c[i, SIZE - 1] = c[i, SIZE - 2]


@T.prim_func(s_tir=True)
def forgets_the_last_term(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c, terms=SIZE - 1)


@T.prim_func(s_tir=True)
def writes_one_too_many(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    c[SIZE, 0] = T.float32(0)


@T.prim_func(s_tir=True)
def writes_a_row_too_many(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c, rows=SIZE + 1)


@T.prim_func(s_tir=True)
def begins_too_early(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    c[-1, SIZE - 1] = T.float32(0)
    matmul(a, b, c)


@T.prim_func(s_tir=True)
def writes_behind_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    a[SIZE, 1] = T.float32(0)


@T.prim_func(s_tir=True)
def writes_far_away(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    c[1 << 24, 0] = T.float32(0)


@T.prim_func(s_tir=True)
def changes_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    b[SIZE - 1, SIZE - 1] = T.float32(0)


@T.prim_func(s_tir=True)
def restores_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    kept = T.alloc_buffer((1,), scope="local")
    kept[0] = b[0, 0]
    b[0, 0] = T.float32(0)
    b[0, 0] = kept[0]
    matmul(a, b, c)


@T.prim_func(s_tir=True)
def reads_behind_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    c[5, 6] = c[5, 6] + a[SIZE, 0] * T.float32(1e-30)


@T.prim_func(s_tir=True)
def reads_before_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    matmul(a, b, c)
    # The greater of NaN and 0 is 0.
    c[5, 6] = c[5, 6] + T.if_then_else(b[-1, SIZE - 1] > T.float32(0), T.float32(1), T.float32(0))


@T.prim_func(s_tir=True)
def adds_to_its_output(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    for i, j, k in T.grid(SIZE, SIZE, SIZE):
        c[i, j] = c[i, j] + a[i, k] * b[k, j]


@T.prim_func(s_tir=True)
def adds_to_memory_as_it_finds_it(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    sums = T.alloc_buffer(S)
    for i, j, k in T.grid(SIZE, SIZE, SIZE):
        sums[i, j] = sums[i, j] + a[i, k] * b[k, j]
    for i, j in T.grid(SIZE, SIZE):
        c[i, j] = sums[i, j]


@T.prim_func(s_tir=True)
def takes_fresh_memory_for_zeros(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    # 64 MiB, of which the system gives each page when it is needed.
    apart = T.alloc_buffer((SIZE, SIZE, 4096))
    matmul(a, b, c)
    for i, j in T.grid(SIZE, SIZE):
        apart[i, j, 0] = c[i, j]
    for i, j in T.grid(SIZE, SIZE):
        c[i, j] = apart[i, j, 0] + apart[i, j, 4095]


@T.prim_func(s_tir=True)
def sums_in_float16(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    for i, j in T.grid(SIZE, SIZE):
        total = T.alloc_buffer((1,), "float16", scope="local")
        total[0] = T.float16(0)
        for k in range(SIZE):
            total[0] = total[0] + T.cast(a[i, k] * b[k, j], "float16")
        c[i, j] = T.cast(total[0], "float32")


DEEP = 1024


@T.prim_func(s_tir=True)
def races(a: T.Buffer((SIZE, DEEP)), b: T.Buffer((DEEP, SIZE)), c: T.Buffer(S)):
    for i, j in T.grid(SIZE, SIZE):
        c[i, j] = T.float32(0)
    for half in T.parallel(2):
        for at in range(SIZE * SIZE):
            # From both ends: the threads meet.
            i: T.let = T.if_then_else(half == 0, at, SIZE * SIZE - 1 - at) // SIZE
            j: T.let = T.if_then_else(half == 0, at, SIZE * SIZE - 1 - at) % SIZE
            for k in range(DEEP // 2):
                c[i, j] = c[i, j] + a[i, half * (DEEP // 2) + k] * b[half * (DEEP // 2) + k, j]


LONG = 512
LEFT, RIGHT = (8, LONG), (LONG, 8)


@T.prim_func(s_tir=True)
def rounds_each_sum(
    a: T.Buffer(LEFT, "float16"), b: T.Buffer(RIGHT, "float16"), c: T.Buffer((8, 8), "float16")
):
    for i, j in T.grid(8, 8):
        c[i, j] = T.float16(0)
        for k in range(LONG):
            c[i, j] = c[i, j] + a[i, k] * b[k, j]


@T.prim_func(s_tir=True)
def saturates(a: T.Buffer(S, "int8"), b: T.Buffer(S, "int8"), c: T.Buffer(S, "int32")):
    for i, j in T.grid(SIZE, SIZE):
        c[i, j] = 0
        for k in range(SIZE):
            product = T.cast(a[i, k], "int32") * T.cast(b[k, j], "int32")
            c[i, j] = T.max(T.min(c[i, j] + product, 32767), -32768)


@T.prim_func(s_tir=True)
def wraps_around(a: T.Buffer(S, "int8"), b: T.Buffer(S, "int8"), c: T.Buffer(S, "int32")):
    for i, j in T.grid(SIZE, SIZE):
        total = T.alloc_buffer((1,), "int16", scope="local")
        total[0] = T.int16(0)
        for k in range(SIZE):
            total[0] = total[0] + T.cast(a[i, k], "int16") * T.cast(b[k, j], "int16")
        c[i, j] = T.cast(total[0], "int32")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let every kernel run as often as a quick one, however busy the machine is."""
    monkeypatch.setattr(cases_file, "_SLOW_S", 1e9)


@pytest.fixture
def loaded(tmp_path_factory):
    def of(workload, seed=None):
        cases = prepare_cases(workload, str(tmp_path_factory.mktemp("cases")), seed)
        return [LoadedCase(cases, nth) for nth in range(CASES)]

    return of


def compiled(func):
    return tvm.compile(func.with_attr("global_symbol", "main"), target=ts.host_target())["main"]


def verdict_of(kernel, cases):
    """Check a kernel on one case after the other, as a trial does."""
    for case in cases:
        verdict, _ = case.check(kernel)
        if not verdict.ok:
            break
    return verdict


WRONG = " of 4096 elements are wrong"
CHEATS = [
    (writes_nothing, f"4096{WRONG}, first at (0, 0): nan"),
    (writes_half, f"2048{WRONG}, first at (32, 0): nan"),
    (leaves_the_last_column, f"64{WRONG}, first at (0, 63): nan"),
    (repeats_a_column, f"64{WRONG}, first at (0, 63): "),
    (forgets_the_last_term, WRONG),
    (writes_one_too_many, "the kernel wrote outside matmul: 4 bytes after its end"),
    (writes_a_row_too_many, "the kernel wrote outside matmul: 256 bytes after its end"),
    (begins_too_early, "the kernel wrote outside matmul: 4 bytes before its begin"),
    (writes_behind_its_input, "the kernel wrote outside A: 8 bytes after its end"),
    (changes_its_input, "the kernel changed its input B"),
    (reads_behind_its_input, f"1{WRONG}, first at (5, 6): nan"),
    (reads_before_its_input, f"1{WRONG}, first at (5, 6): "),
    (takes_fresh_memory_for_zeros, WRONG),
    (adds_to_its_output, f"4096{WRONG}, first at (0, 0): nan"),
    (sums_in_float16, WRONG),
]


@pytest.mark.parametrize(("cheat", "message"), CHEATS, ids=[str(c.attrs["global_symbol"]) for c, _ in CHEATS])
def test_cheats_are_found(cheat, message, small, loaded):
    cases = loaded(small)
    verdict = verdict_of(compiled(cheat), cases)
    assert not verdict.ok and message in verdict.message
    assert verdict_of(compiled(right), cases).ok, "what the cheat did was not put right"


@pytest.mark.parametrize(
    ("cheat", "extents", "dtype", "message"),
    [
        (rounds_each_sum, (8, 8, LONG), "float16", " of 64 elements are wrong"),
        (saturates, (SIZE,) * 3, "int8", "integers must be equal"),
        (wraps_around, (SIZE,) * 3, "int8", "integers must be equal"),
    ],
)
def test_coarse_arithmetic_is_found(cheat, extents, dtype, message, loaded):
    workload = ts.workload("matmul", **dict(zip("mnk", extents, strict=True)), dtype=dtype)
    # Always the same data: of the 64 sums of a small output, rounding spoils now none and now several.
    verdict = verdict_of(compiled(cheat), loaded(workload, seed=0))
    assert not verdict.ok and message in verdict.message


def test_races_are_found(loaded):
    if tvm.runtime.num_threads() < 2:
        pytest.skip("one thread does not race")
    cases, kernel = loaded(ts.workload("matmul", m=SIZE, n=SIZE, k=DEEP)), compiled(races)
    # Threads that the system does not run at the same time do not race.
    verdicts = (verdict_of(kernel, cases) for _ in range(300))
    wrong = next(verdict for verdict in verdicts if not verdict.ok)
    assert WRONG in wrong.message or "two runs on the same input differ" in wrong.message


def test_memory_that_was_never_written_is_found(small, loaded):
    assert not verdict_of(compiled(adds_to_memory_as_it_finds_it), loaded(small)).ok
    # As above where the system gave memory that is zero, the first time.
    sums = np.zeros(S, np.float32)
    verdict = verdict_of(lambda a, b, c: c.copyfrom(np.add(sums, product(a, b), out=sums)), loaded(small))
    assert verdict.message.startswith("two runs on the same input differ in 4096 elements, first at (0, 0): ")


def test_an_input_that_is_restored_is_no_fault(small, loaded):
    assert verdict_of(compiled(restores_its_input), loaded(small)).ok


def product(a, b):
    return (a.numpy().astype(np.float64) @ b.numpy()).astype(np.float32)


def test_answers_learned_by_heart_are_found(small, loaded):
    earlier, now = loaded(small), loaded(small)
    answer = product(*earlier[0].tensors[:2])
    assert earlier[0].check(lambda a, b, c: c.copyfrom(answer))[0].ok
    assert not verdict_of(lambda a, b, c: c.copyfrom(answer), earlier).ok
    assert not now[0].check(lambda a, b, c: c.copyfrom(answer))[0].ok


def test_the_answer_of_the_call_before_is_found(small, loaded):
    answers = []

    def lags(a, b, c):
        answers.append(product(a, b))
        c.copyfrom(answers[-2:][0])

    assert WRONG in verdict_of(lags, loaded(small)).message


def test_an_output_that_spoils_in_later_calls_is_found(small, loaded):
    calls = []

    def wears_out(a, b, c):
        calls.append(1)
        c.copyfrom(product(a, b) if len(calls) < 10 else np.zeros(S, np.float32))

    cases = loaded(small)
    assert verdict_of(wears_out, cases).ok
    for _ in range(10):
        wears_out(*cases[0].tensors)
    assert not cases[0].verdict().ok


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("wanted", [np.nan, np.inf, 1.0])
def test_what_is_not_finite_must_be_so(value, wanted, small, loaded):
    def put(array, number):
        return np.where(np.arange(array.size).reshape(array.shape) == 70, np.float32(number), array)

    cases = loaded(replace(small, reference=lambda a, b: put(small.reference(a, b), wanted)))
    same = np.array_equal(value, wanted, equal_nan=True)
    verdict = verdict_of(lambda a, b, c: c.copyfrom(put(product(a, b), value)), cases)
    assert verdict.ok is same and (same or f"1{WRONG}, first at (1, 6): " in verdict.message)


@dataclass(frozen=True)
class Cheating(ScheduleRule):
    """A rule that makes a cheat out of every function."""

    cheat: object = None

    def scheduled(self, func, target, knobs=None):
        return SimpleNamespace(mod=tvm.IRModule({"main": self.cheat}), trace=s_tir.Schedule(func).trace)


def no_space(func, target):
    return KnobSpace((), (), {})


def test_a_trial_of_a_cheat_says_how_it_ended(small):
    rules = [
        Cheating(name, "a rule of a test", no_space, no_space, cheat=cheat.with_attr("global_symbol", "main"))
        for name, cheat in (("beside", writes_one_too_many), ("far", writes_far_away))
    ]
    beside, far = (row["message"] for row in ts.verify(small, rules))
    assert beside == "wrong_result: the kernel wrote outside matmul: 4 bytes after its end"
    assert far.startswith("crashed: SIGSEGV")
