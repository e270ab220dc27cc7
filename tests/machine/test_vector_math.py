"""exp, log, tanh, erf and sigmoid in vectors: right over the whole range, and without calls."""

import math

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.arrays import aligned_empty, as_tensor
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import generate_code
from tvm import te

COUNT, LANES = 1 << 16, 16
FUNCTIONS = {
    "exp": (te.exp, math.exp, 1.2e-7),
    "exp2": (tvm.tirx.exp2, lambda x: 2.0**x, 1.8e-7),
    "log": (te.log, lambda x: math.log(x) if x > 0 else math.nan if x else -math.inf, 1.2e-7),
    "tanh": (te.tanh, math.tanh, 3.0e-7),
    "erf": (tvm.tirx.erf, math.erf, 3.3e-7),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + math.exp(-x)), 2.5e-7),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7228, 88.73, -87.33, -87.4, -105, 1e-40, 3e38, -3e38]


def compiled(function, dtype="float32", target=None, lanes=LANES, compiler=tvm.compile):
    x = te.placeholder((COUNT,), dtype, name="x")
    y = te.compute((COUNT,), lambda i: function(x[i]), name="y")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, inner = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, lanes])
    sch.vectorize(inner)
    return compiler(sch.mod, target=target or ts.host_target())


def everywhere():
    """Floats of every exponent and both signs, and the special ones."""
    bits = np.linspace(0, 2**32 - 1, COUNT, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32).copy()
    x[: len(SPECIAL)] = SPECIAL
    x[len(SPECIAL) : COUNT // 2] = np.linspace(-20, 20, COUNT // 2 - len(SPECIAL))
    return x


def called(executable, x, dtype="float32"):
    given, found = aligned_empty(x.shape, dtype), aligned_empty(x.shape, dtype)
    given[:] = x
    executable["main"](as_tensor(given), as_tensor(found))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_over_the_whole_range(name):
    function, exact, allowed = FUNCTIONS[name]
    check(compiled(function), exact, allowed, 0.0 if name == "sigmoid" else math.inf)


@pytest.mark.parametrize("lanes", [8, 16, 64])
def test_powers_of_two_are_right_as_this_machine_scales_them(lanes):
    exp2, exact, allowed = FUNCTIONS["exp2"]
    check(compiled(exp2, lanes=lanes, compiler=generate_code), exact, allowed, math.inf)


@pytest.mark.parametrize("compiler", [tvm.compile, generate_code])
def test_powers_of_two_with_whole_exponents_are_exact(compiler):
    x = np.resize(np.arange(-125, 130, dtype=np.float32), COUNT)
    found = called(compiled(tvm.tirx.exp2, compiler=compiler), x)
    with np.errstate(over="ignore"):
        assert np.array_equal(found, np.ldexp(1.0, x.astype(int)).astype(np.float32))


def check(executable, exact, allowed, beyond):
    x = everywhere()
    found = called(executable, x)

    def of(value):
        try:
            return exact(value)
        except OverflowError:
            return beyond

    want = np.array([of(float(v)) for v in x])
    with np.errstate(over="ignore"):
        rounded = want.astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(rounded))
    assert np.array_equal(np.isinf(found), np.isinf(rounded))
    finite = np.isfinite(rounded)
    # Near the denormals, products lose digits that no sum ever sees.
    error = np.abs(found[finite] - want[finite]) / np.maximum(np.abs(want[finite]), 1e-30)
    assert error.max() < allowed


def test_exp_near_its_ends():
    x = np.full(COUNT, -86.98, np.float32)
    x[: COUNT // 4] = np.linspace(88, 88.7228, COUNT // 4)
    x[COUNT // 4 : COUNT // 2] = np.linspace(-86.98, -86, COUNT // 4)
    found, want = called(compiled(te.exp), x).astype(np.float64), np.exp(x.astype(np.float64))
    assert (np.abs(found - want) / want).max() < 1.2e-7
    beyond = np.resize(np.float32([88.7229, 89, 104, 1e30, np.inf, -86.99, -88, -105, -1e30, -np.inf]), COUNT)
    assert called(compiled(te.exp), beyond)[:10].tolist() == [math.inf] * 5 + [0.0] * 5


@pytest.mark.parametrize(
    ("cpu", "compiler", "scales"),
    [
        ("skylake-avx512", generate_code, True),
        ("skylake-avx512", tvm.compile, False),
        # AVX-512 without its DQ.
        ("knl", generate_code, False),
        ("haswell", generate_code, False),
    ],
)
@pytest.mark.parametrize("lanes", [16, 64])
def test_powers_of_two_are_scaled_where_the_cpu_does(cpu, compiler, scales, lanes):
    target = as_target({"kind": "llvm", "mcpu": cpu})
    text = compiled(tvm.tirx.exp2, target=target, lanes=lanes, compiler=compiler).mod.inspect_source("s")
    assert ("vscalefps" in text) == ("vreduceps" in text) == scales
    assert "exp2f" not in text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_lane_is_a_call(name):
    text = compiled(FUNCTIONS[name][0]).mod.inspect_source("s")
    calls = [line for line in text.splitlines() if "call" in line]
    assert not [line for line in calls if any(name in line for name in ("expf", "erf", "logf"))]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "allowed"), [("float16", 1e-3), ("float64", 1e-14)])
def test_other_types(name, dtype, allowed):
    function, exact, _ = FUNCTIONS[name]
    x = np.linspace(-8, 8, COUNT).astype(dtype)
    found = called(compiled(function, dtype), x, dtype).astype(float)
    want = np.array([exact(float(v)) for v in x])
    finite = np.isfinite(want)
    assert np.array_equal(np.isfinite(found), finite)
    assert np.abs(found - want)[finite].max() < allowed * np.abs(want[finite]).max()
