"""Code generation: what LLVM is told beside the target, and what is left out in a hurry."""

import json
from collections import Counter

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import as_target
from tunesmith.schedules import apply_default, code_generation
from tunesmith.schedules.code_generation import finished, generate_code
from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi import structural_walk


@pytest.fixture
def compiled_for(monkeypatch):
    """Return a function that tells the target that a module is compiled for, and in which context."""

    def compiled_for(mod, target, quick):
        seen = []

        def compile_(mod, target):
            checks = not tvm.transform.PassContext.current().config.get("tirx.disable_assert", False)
            seen.extend((json.loads(str(target)), checks))

        monkeypatch.setattr(code_generation.tvm, "compile", compile_)
        generate_code(mod, tvm.target.Target(target), quick)
        return seen

    return compiled_for


SMALL = tvm.IRModule({"main": ts.workload("relu", m=4, n=4).func})


def llvm(architecture, **more):
    return {"kind": "llvm", "mtriple": f"{architecture}-linux-gnu", **more}


def test_options_of_the_target_stay(compiled_for):
    target, checks = compiled_for(SMALL, llvm("x86_64", **{"cl-opt": ["-disable-lftr:bool=true"]}), False)
    assert target["cl-opt"] == ["-disable-lftr:bool=true", "-dag-maps-huge-region:uint=256"]
    assert checks


def test_vectors_are_not_scattered_on_x86(compiled_for):
    target, _ = compiled_for(SMALL, llvm("x86_64", mattr=["+avx512f"]), False)
    assert target["mattr"] == ["+avx512f", "+prefer-no-scatter"]
    target, _ = compiled_for(SMALL, llvm("aarch64"), False)
    assert "mattr" not in target


def test_elements_that_lie_apart_are_stored_one_by_one():
    target = as_target(llvm("x86_64", mcpu="znver5"))
    func = ts.workload("transpose", a=3, b=7, c=17, d=19, order="dcba").func
    schedule, _ = apply_default(func, target)
    assert "vscatter" not in generate_code(schedule.mod, target).mod.inspect_source("asm")


@pytest.mark.parametrize(("architecture", "left_out"), [("x86_64", True), ("aarch64", False)])
def test_in_a_hurry_less_is_done(compiled_for, architecture, left_out):
    target, checks = compiled_for(SMALL, llvm(architecture), True)
    assert ("-disable-lsr:bool=true" in target["cl-opt"]) is left_out
    assert not checks


def passes_of(mod, quick=False):
    """Count the passes of a compilation by name, seen by an instrument that notes until its context ends."""
    seen, ended = Counter(), []

    @tvm.instrument.pass_instrument
    class Names:
        def run_before_pass(self, mod, info):
            assert not ended
            seen[str(info.name)] += 1

        def exit_pass_ctx(self):
            ended.append(True)

    with tvm.transform.PassContext(instruments=[Names()]):
        generate_code(mod, ts.host_target(), quick)
        assert not ended
    return seen


@pytest.mark.parametrize("quick", [False, True])
def test_instruments_see_all_passes_and_the_names_of_those_that_are_left_out_are_right(quick):
    """TVM takes any name."""
    left_out = {*code_generation._NOT_QUICK, *code_generation._OF_BLOCKS, *code_generation._AGAIN}
    assert left_out <= set(passes_of(SMALL, quick))


def test_what_plain_loops_do_without_would_change_nothing(monkeypatch, target):
    workload = ts.workload("matmul", m=37, n=50, k=20)
    mod = ts.schedule_rules()["matmul"].scheduled(workload.func, target).mod
    compile_, left_out = tvm.compile, []

    def noted(*args, **options):
        left_out.append({*map(str, tvm.transform.PassContext.current().disabled_pass)})
        return compile_(*args, **options)

    monkeypatch.setattr(code_generation.tvm, "compile", noted)
    code, _ = generate_code(mod, target), generate_code(mod, target, quick=True)
    of_blocks, again = set(code_generation._OF_BLOCKS), set(code_generation._AGAIN)
    assert left_out == [of_blocks, of_blocks | again | set(code_generation._NOT_QUICK)]
    generate_code(SMALL, target, quick=True)
    assert left_out[2] == set(code_generation._NOT_QUICK), "these are no plain loops"
    monkeypatch.setattr(code_generation, "_OF_BLOCKS", ())
    assert generate_code(mod, target).mod.inspect_source("asm") == code.mod.inspect_source("asm")
    assert left_out[3] == set()


def test_other_kinds_are_left_alone(compiled_for):
    target, _ = compiled_for(SMALL, {"kind": "c"}, False)
    assert "cl-opt" not in target


@T.prim_func(s_tir=True)
def asserts(a: T.Buffer((4,)), b: T.Buffer((4,))):
    assert a[0] > T.float32(0), "positive numbers only"
    b[0] = a[0]


def test_assertions_of_a_function_are_kept(compiled_for):
    _, checks = compiled_for(tvm.IRModule({"main": asserts}), llvm("x86_64"), True)
    assert checks


@pytest.mark.parametrize("quick", [False, True])
def test_the_code_is_right(quick):
    x = np.arange(16, dtype="float32").reshape(4, 4) - 8
    y = tvm.runtime.tensor(np.full_like(x, np.nan))
    generate_code(SMALL, ts.host_target(), quick)["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


def test_vectors_of_instructions_survive_what_shrinks_buffers():
    """A group of four products by 16 columns is one vector, which is longer than its last dimension."""
    target = as_target(llvm("x86_64", mcpu="znver4", **{"num-cores": 2}))
    workload = ts.workload("quantized_matmul", m=20, n=100, k=8)
    schedule = ts.schedule_rules()["quantized"].scheduled(workload.func, target)
    lowered, sizes = finished(schedule.mod, target), {}

    def note(allocation):
        (size,) = allocation.buffer.shape
        sizes[str(allocation.buffer.name)] = int(size)

    structural_walk(lowered["main"].body, [(tirx.AllocBuffer, note)])
    assert sizes["B_pad_global"] == 8 * 128
    assert finished(lowered, target) is lowered
