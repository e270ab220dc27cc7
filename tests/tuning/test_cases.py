import signal

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import Workload
from tunesmith.tuning.measuring import cases as cases_file
from tunesmith.tuning.measuring.cases import CASES, LoadedCase, check_runs, prepare_cases
from tunesmith.tuning.measuring.guards import GuardedArray
from tunesmith.tuning.measuring.verification import index_limits, inputs_for
from tvm import rpc, te

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool"]


@pytest.fixture(scope="module")
def cases(small, tmp_path_factory):
    return prepare_cases(small, str(tmp_path_factory.mktemp("cases")))


@pytest.fixture(params=["here", "on a device"])
def case(cases, request, monkeypatch):
    monkeypatch.setattr(cases_file, "_SLOW_S", 1e9)  # However busy the machine is.
    device = None if request.param == "here" else rpc.LocalSession().cpu()
    return LoadedCase(cases, 0, device)


def matmul(a, b, c):
    """Compute what is right, as a kernel would: from tensors into a tensor."""
    c.copyfrom((a.numpy().astype(np.float64) @ b.numpy()).astype(np.float32))


def test_a_right_kernel_is_right_here_and_on_a_device(case):
    verdict, seconds = case.check(matmul)
    assert verdict.ok and verdict.max_error < 1e-6 and seconds > 0
    assert case.verdict().ok


def test_an_output_that_was_not_written_is_wrong(case):
    case.check(matmul)
    verdict, _ = case.check(lambda a, b, c: None)
    assert not verdict.ok and "4096 of 4096 elements are wrong" in verdict.message


def test_a_changed_input_is_named_and_put_right(case):
    def changes(a, b, c):
        matmul(a, b, c)
        b.copyfrom(-b.numpy())

    assert case.check(changes)[0].message == "the kernel changed its input B"
    assert case.check(matmul)[0].ok


def test_two_runs_must_be_equal(case):
    runs = []

    def differs(a, b, c):
        matmul(a, b, c)
        out = c.numpy()
        if runs:
            out[3, 5] = np.nextafter(out[3, 5], np.float32(np.inf))
        runs.append(c.copyfrom(out))

    verdict, _ = case.check(differs)
    assert "two runs on the same input differ in 1 elements, first at (3, 5): " in verdict.message


def test_slow_kernels_run_once(case, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(cases_file, "seconds_of", lambda kernel, tensors: kernel(*tensors) or 0.05)
    runs = []
    case.check(lambda *tensors: runs.append(matmul(*tensors)))
    assert len(runs) == 1 and check_runs(0.05) == CASES and check_runs(0.04) == 2 * CASES


def test_data_is_fresh_unless_seeded(small, tmp_path):
    drawn = [prepare_cases(small, str(tmp_path / str(n)), seed) for n, seed in enumerate((None, None, 7, 7))]
    one, other, seeded, again = [np.load(cases.file(0, 0)) for cases in drawn]
    assert not np.array_equal(one, other) and np.array_equal(seeded, again)
    inputs = [np.load(drawn[0].file(case, 0)) for case in range(CASES)]
    assert len({array.tobytes() for array in inputs}) == CASES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 2)])
def test_zones_surround_an_array_of_any_kind(dtype, shape):
    one, other = (GuardedArray(shape, dtype, nth) for nth in (0, 1))
    assert one.tensor.shape == shape and one.tensor.dtype == dtype and one.array.dtype == np.dtype(dtype)
    assert not one.array.size or one.array.ctypes.data % 64 == 0
    assert all(
        len(zone) >= 64 and not np.array_equal(zone, unlike)
        for zone, unlike in zip(one._zones, other._zones, strict=True)
    )
    assert one.mend_zones() == ""


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (4096 + 15 * 4, "4 bytes after its end"),
        (4096 + 15 * 4 + 11, "12 bytes after its end"),
        (4095, "4 bytes before its begin"),
        (0, "4096 bytes before its begin"),
        (4096 * 2 + 15 * 4 - 1, "4096 bytes after its end"),
    ],
)
def test_a_write_beside_an_array_is_found(at, message):
    guarded = GuardedArray((3, 5), "float32", 0)
    guarded._all[at] ^= 0x55
    assert guarded.mend_zones() == message
    assert guarded.mend_zones() == ""


def test_a_write_behind_an_array_is_found_on_a_device():
    guarded = GuardedArray((3, 5), "bfloat16", 1, rpc.LocalSession().cpu())
    guarded.array[...] = 2
    guarded.push()
    assert np.all(guarded.tensor.numpy().astype(np.float32) == 2)
    beyond = guarded._there._create_view((16,), "bfloat16")
    beyond.copyfrom(np.full(16, 3, guarded.array.dtype))
    guarded.pull()
    assert guarded.mend_zones() == "2 bytes after its end" and np.all(guarded.array == 3)


def take(rows, dtype="int64", cast=False):
    table, at = te.placeholder((rows, 4), "float32", "table"), te.placeholder((6,), dtype, "at")
    out = te.compute((6, 4), lambda i, j: table[at[i].astype("int64") if cast else at[i], j] * 2.0, "out")
    func = te.create_prim_func([table, at, out], index_dtype_override="int64")
    return func.with_attr("global_symbol", "main")


@pytest.mark.parametrize(("func", "limit"), [(take(10), 10), (take(1), 1), (take(1000, "uint8", True), 1000)])
def test_positions_are_within_the_array_they_point_into(func, limit):
    workload = Workload("take", {}, "float32", func, 24)
    assert index_limits(func) == {"at": limit}
    drawn = inputs_for(workload.inputs, 0, "float32", index_limits(func))[1]
    assert drawn.dtype == workload.inputs[1].dtype and drawn.min() >= 0 and drawn.max() < limit


def test_a_gather_is_verified(small):
    assert index_limits(small.func) == {}
    assert all(row["ok"] for row in ts.verify(Workload("take", {}, "float32", take(10), 24)))


def test_ctrl_c_waits_until_a_file_is_written(small, tmp_path, monkeypatch):
    """NumPy turns one that comes while it writes into an error of its own."""
    written = []

    def save(file, array):
        signal.raise_signal(signal.SIGINT)
        written.append(file)

    monkeypatch.setattr(np, "save", save)
    with pytest.raises(KeyboardInterrupt):
        prepare_cases(small, str(tmp_path / "cases"))
    assert len(written) == 1
