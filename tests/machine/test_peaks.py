"""Peaks: the kernels compute what they are counted for, and the cache keeps what was measured."""

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tunesmith.machine import multiply_adds, peak_kernels, peaks
from tunesmith.machine.arrays import aligned_copy, aligned_empty, as_tensor
from tunesmith.machine.dot_instructions import DOT_INSTRUCTIONS, VDPBF16PS_512
from tunesmith.machine.facts import facts, has_feature
from tunesmith.machine.peaks import Peaks, measured_peaks, roofline_seconds
from tunesmith.machine.target import host_target

SOME = Peaks({"float32": 100.0, "float64": 50.0, "int8": 200.0, "int32": 70.0}, 10.0, 300.0, 200.0, 100.0, 2)


def built(func):
    return tvm.compile(func, target=host_target())


@pytest.mark.parametrize("accumulators", multiply_adds.ACCUMULATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_multiply_add_is_done_in_registers(accumulators, dtype):
    here = facts(host_target())
    if accumulators > here.vector_registers - 2:
        pytest.skip("does not fit the registers")
    lanes, rounds = here.lanes(dtype), 1000
    executable = built(peak_kernels.multiply_add(2, accumulators, lanes, dtype, rounds))
    rng = np.random.default_rng(0)
    start, factors = rng.random((accumulators, lanes)).astype(dtype), rng.random((2, lanes)).astype(dtype)
    result = aligned_empty((2, accumulators, lanes), dtype)
    executable["main"](as_tensor(start), as_tensor(factors), as_tensor(result))
    want = start.astype("float64")
    for _ in range(rounds):
        want = want * factors[0] + factors[1]
    np.testing.assert_allclose(result, np.broadcast_to(want, result.shape), rtol=1e-4)

    multiply_adds = re.findall(
        r"^\s+(vfn?madd\w+)\s(.*)$", executable.mod.inspect_source("asm"), re.MULTILINE
    )
    if host_target().attrs["mtriple"].startswith("x86") and here.vector_bits >= 256:
        assert multiply_adds
        assert len(multiply_adds) % accumulators == 0
        assert not any("(" in operands for _, operands in multiply_adds), "an operand lies in memory"


@pytest.mark.parametrize(
    "instruction", [each for each in DOT_INSTRUCTIONS if each.sums_dtype == "int32"], ids=str
)
def test_dot_products_sum_every_product(instruction):
    if not has_feature(host_target(), instruction.feature):
        pytest.skip(f"this CPU has no {instruction.feature}")
    accumulators, lanes, rounds = 3, instruction.lanes, 5
    start = np.arange(accumulators * lanes, dtype="int32").reshape(accumulators, lanes)
    kind = np.iinfo(instruction.weight_dtype)
    x = np.random.default_rng(0).integers(kind.min, kind.max, (lanes, instruction.products), kind.dtype)
    factors = np.repeat(x.view("int32").T, 2, axis=0)
    result = aligned_empty((2, accumulators, lanes), "int32")
    executable = built(peak_kernels.dot_products(instruction, 2, accumulators, rounds))
    executable["main"](*map(as_tensor, map(aligned_copy, (start, factors))), as_tensor(result))
    want = start
    for _ in range(rounds):
        data = want.view(instruction.data_dtype).reshape(accumulators, *x.shape)
        want = (want + (data.astype("int64") * x).sum(axis=2)).astype("int32")
    np.testing.assert_array_equal(result, np.broadcast_to(want, result.shape))
    asm = executable.mod.inspect_source("asm")
    # With VNNI, LLVM makes one instruction of products of int16 and their addition.
    # Of two encodings the assembly names the older one, which a CPU may have as well.
    mnemonic = rf"(?:{{vex}}\s+)?(?:v?{instruction.mnemonic.lstrip('v')}|vpdpwssd)"
    found = re.findall(rf"^\s+{mnemonic}\s(.*)$", asm, re.MULTILINE)
    assert found
    assert len(found) % accumulators == 0
    assert not any("(" in operands for operands in found), "an operand lies in memory"


def test_products_of_bfloat16_are_summed_in_pairs():
    """Each float32 gains the product of its upper half and that of a number: it doubles in each round."""
    if not has_feature(host_target(), VDPBF16PS_512.feature):
        pytest.skip(f"this CPU has no {VDPBF16PS_512.feature}")
    accumulators, lanes, rounds = 3, VDPBF16PS_512.lanes, 5
    start = np.arange(accumulators * lanes, dtype="float32").reshape(accumulators, lanes)
    factors, result = np.ones((2, lanes), "float32"), aligned_empty((2, accumulators, lanes), "float32")
    executable = built(peak_kernels.dot_products(VDPBF16PS_512, 2, accumulators, rounds))
    executable["main"](*map(as_tensor, map(aligned_copy, (start, factors))), as_tensor(result))
    np.testing.assert_array_equal(result, np.broadcast_to(start * 2**rounds, result.shape))
    found = re.findall(r"^\s+vdpbf16ps\s(.*)$", executable.mod.inspect_source("asm"), re.MULTILINE)
    assert found and not any("(" in operands for operands in found), "an operand lies in memory"


@pytest.mark.parametrize("takes", [True, False])
def test_the_peak_of_bfloat16_is_that_of_its_instruction(takes, monkeypatch):
    rates = {"float32": 2.0, "bfloat16": 4.0}
    monkeypatch.setattr(peaks, "takes_bfloat16", lambda: takes)
    monkeypatch.setattr(peaks, "multiply_add_peak", lambda _here, _threads, dtype: rates.get(dtype, 1.0))
    for each in ("_read_bandwidth", "_memory_bandwidth"):
        monkeypatch.setattr(peaks, each, lambda *_: 1.0)
    assert peaks._measure().gflops["bfloat16"] == (4.0 if takes else 2.0)


def test_the_peak_of_float32_is_that_of_vectors(monkeypatch):
    """Also where tiles multiply its parts."""
    monkeypatch.setattr(multiply_adds, "has_feature", lambda *_: True)
    assert multiply_adds.tiles_of("float32") is None
    assert multiply_adds.tiles_of("bfloat16").mnemonic == "tdpbf16ps"


def test_reading_reads_everything_every_time():
    threads, accumulators, lanes, steps, rounds = 2, 3, 8, 5, 4
    source = aligned_copy(np.arange(threads * steps * accumulators * lanes, dtype="float32"))
    source = source.reshape(threads, steps, accumulators, lanes)
    result = aligned_empty((threads, accumulators, lanes), "float32")
    built(peak_kernels.read(threads, accumulators, lanes, steps, rounds))["main"](
        as_tensor(source), as_tensor(result)
    )
    np.testing.assert_array_equal(result, rounds * source.sum(axis=1))


def test_copying_copies_everything():
    source = aligned_copy(np.arange(2 * 5 * 3 * 8, dtype="float32").reshape(2, 5, 3, 8))
    target = aligned_empty(source.shape, "float32")
    executable = built(peak_kernels.copy(2, 5, 3, 8))
    executable["main"](as_tensor(source), as_tensor(target))
    np.testing.assert_array_equal(target, source)
    if host_target().attrs["mtriple"].startswith("x86"):
        assert "movnt" in executable.mod.inspect_source("asm"), "no line of what is written is read first"


def test_this_machine_has_peaks():
    found = measured_peaks()
    assert set(found.gflops) == {
        *("float32", "float64", "float16", "bfloat16"),
        *("int8", "uint8", "int32"),
    }
    rates = [*found.gflops.values(), found.memory_gbps, found.l1_gbps, found.l2_gbps, found.l3_gbps]
    assert all(np.isfinite(rate) and rate > 0 for rate in rates)
    assert found.gflops["float16"] >= found.gflops["float32"]
    assert found.threads == tvm.runtime.num_threads()
    assert roofline_seconds(1e9, 1, "float32") == pytest.approx(1 / found.gflops["float32"])


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "dtype", "seconds"),
    [
        (100e9, 1e9, "float32", 1.0),
        (100e9, 30e9, "float32", 3.0),
        (100e9, 0, "float64", 2.0),
        (100e9, 0, "float8_e4m3fn", 1.0),
        (100e9, 0, "int8", 0.5),
        (140e9, 0, "int32", 2.0),
        (140e9, 0, "uint16", 2.0),
    ],
)
def test_roofline(flops, bytes_moved, dtype, seconds):
    assert SOME.seconds(flops, bytes_moved, dtype) == pytest.approx(seconds)


@pytest.fixture
def measurements(monkeypatch, tmp_path):
    """Count measurements, which take no time here, and keep peaks in a folder of their own."""
    taken = []

    def measure():
        taken.append(replace(SOME, memory_gbps=10.0 + len(taken)))
        return taken[-1]

    monkeypatch.setattr(peaks, "_measure", measure)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peaks._peaks_of_process.cache_clear()
    yield taken
    peaks._peaks_of_process.cache_clear()


def new_process():
    peaks._peaks_of_process.cache_clear()


def test_peaks_are_measured_once(measurements, tmp_path):
    first = measured_peaks()
    new_process()
    assert measured_peaks() == first
    assert len(measurements) == 1
    assert len(list((tmp_path / "tunesmith").iterdir())) == 1


def test_refresh_measures_again_and_keeps_the_better_of_each(measurements, monkeypatch):
    measured_peaks()
    assert measured_peaks(refresh=True).memory_gbps == 11.0
    new_process()
    assert measured_peaks().memory_gbps == 11.0
    assert len(measurements) == 2
    rates = {dtype: rate + 1 for dtype, rate in SOME.gflops.items()}
    monkeypatch.setattr(peaks, "_measure", lambda: replace(SOME, memory_gbps=3.0, gflops=rates))
    assert measured_peaks(refresh=True) == replace(SOME, memory_gbps=11.0, gflops=rates)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"gflops": 3}', '{"gflops": {"float32": "?"}}'])
def test_a_broken_file_is_measured_again(measurements, text):
    measured_peaks()
    peaks._cache_file().write_text(text)
    new_process()
    assert measured_peaks().memory_gbps == 11.0


def test_other_thread_counts_have_other_files(measurements, monkeypatch):
    measured_peaks()
    monkeypatch.setattr(tvm.runtime, "num_threads", lambda: 1024)
    new_process()
    measured_peaks()
    assert len(measurements) == 2


def test_a_folder_that_cannot_be_written_is_said_once(measurements, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(3):
        assert measured_peaks().memory_gbps == 10.0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert re.match(r"tunesmith: cannot keep the measured peaks in .*: Not a directory", said[0])
