"""Products with long sums: which are summed in parts, in how many, and that they are right."""

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import begin
from tunesmith.schedules.cpu.float32_matrix_unit import FLOAT32_MATRIX_UNIT
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.cpu.parted_sums import PARTED_SUMS
from tunesmith.schedules.forms.parted_sums import OUTPUT, restate
from tvm.tirx import ForKind

# Its caches are not asked for: L2 is taken for 512 KiB, a quarter of which is 32768 elements.
AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
AMX = as_target({"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux", "num-cores": 2})


def product(m, n, k, form="NN", op="matmul", **others):
    return ts.workload(op, m=m, n=n, k=k, transpose=form, **others)


def parts_of(workload, target=AVX512):
    space = PARTED_SUMS.space(workload.func, target)
    return None if space is None else space.default["parts"]


@pytest.mark.parametrize(
    "workload",
    [
        *(product(13, 37, 1024, form) for form in ("NN", "NT", "TN", "TT")),
        product(64, 64, 3072),
        product(1, 20, 1536),
        product(9, 24, 1024, op="batch_matmul", b=3),
        ts.workload("linear", m=32, n=18, k=2048, activation="gelu", residual=1),
        ts.workload("matmul", m=16, n=16, k=1024, dtype="float64"),
    ],
    ids=lambda w: w.label,
)
def test_parts_are_right(workload, assert_right):
    for parts in (2, 8):
        schedule = begin(workload.func, f"parted_sums_{parts}")
        space = MATMUL.space(restate(workload.func, parts), AVX512)
        PARTED_SUMS.rewrite(schedule, parts=parts, **space.default)
        assert_right(workload, schedule)


@pytest.mark.parametrize("n, k, parts", [(64, 4096, 8), (64, 8192, 16), (32, 12288, 12), (37, 9261, None)])
def test_a_part_of_the_weight_keeps_to_l2(n, k, parts):
    """The last: no divisor is a part of 512 or more that fits."""
    assert parts_of(product(32, n, k)) == parts


def test_every_point_of_data_across_the_sum_is_right(assert_right):
    workload = product(48, 20, 8192, "TN")
    space = PARTED_SUMS.space(workload.func, AVX512)
    for knobs in space.points[:: max(1, len(space) // 4)]:
        schedule = PARTED_SUMS.scheduled(workload.func, AVX512, knobs)
        assert_right(workload, schedule, optimized=knobs == space.default)
    with pytest.raises(InputError, match="stage"):
        space.check({"stage": 1})


def test_tiles_ask_for_the_next_panel_where_they_can_share_that():
    spaces = [PARTED_SUMS.space(product(*shape).func, AVX512) for shape in ((64, 64, 4096), (1, 32, 8192))]
    assert [space.default["fetch"] for space in spaces] == [1, 0]


def test_threads_share_the_parts():
    three = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 3})
    workload = product(32, 16, 15360)
    assert [parts_of(workload, target) for target in (AVX512, three)] == [8, 12]


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (product(64, 64, 512), "the weight keeps to L2"),
        (product(1024, 64, 2048), "the result is large"),
        (product(127, 2048, 8192), "few rows read the panels"),
        (product(16, 32, 16384, "NT"), "few rows read a weight along the sum as dots do"),
        (product(64, 256, 4096, "NT"), "and many columns are turned for few rows"),
        (product(2, 4, 2048), "there is too little to share"),
        (ts.workload("quantized_matmul", m=64, n=64, k=8192), "bytes are summed by other instructions"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_others_are_left_alone(workload, why):
    assert PARTED_SUMS.space(workload.func, AVX512) is None, why


def test_data_across_the_sum_may_have_more_results():
    shape = 256, 64, 1024
    assert parts_of(product(*shape)) is None and parts_of(product(*shape, "TN")) == 2


@pytest.mark.parametrize("form", ["NN", "NT"])
def test_panels_of_a_part_keep_to_half_of_l2_where_those_of_the_sum_exceed_it(form):
    """So many lines of four vectors: 1024 are 256 KiB. The last: no part divides the sum."""
    lengths = (2048, 3072, 8192, 11008, 4099)
    parts = [parts_of(product(512, 1024, length, form)) for length in lengths]
    assert parts == [None, 4, 8, 16, None]


def test_a_matrix_unit_leaves_the_default_to_parts():
    """Even of a product for which it is estimated to be the quicker one."""
    assert rules_for(product(700, 64, 4096).func, AMX)[0] is PARTED_SUMS
    first, *others = rules_for(product(700, 128, 8192).func, AMX)
    assert first is PARTED_SUMS and FLOAT32_MATRIX_UNIT in others


def test_a_form_that_does_not_fit_is_refused():
    for workload, parts in ((product(8, 8, 100), 3), (ts.workload("relu", m=64, n=3), 2)):
        with pytest.raises(InputError, match=f"no product whose sum consists of {parts} parts"):
            restate(workload.func, parts)


def test_parts_are_added_up_in_vectors_with_what_follows():
    workload = ts.workload("linear", m=64, n=64, k=8192, activation="relu")
    schedule = PARTED_SUMS.scheduled(workload.func, AVX512)
    products, output = schedule.mod.script().split(OUTPUT)
    assert "bias[" not in products.split("T.func_attr")[1] and "bias[" in output and "T.max(" in output
    kinds = [int(schedule.get(loop).kind) for loop in schedule.get_loops(schedule.get_sblock(OUTPUT))]
    assert kinds == [ForKind.PARALLEL, ForKind.VECTORIZED]
