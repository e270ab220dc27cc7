"""Which sums of products are found, and the roles of their axes."""

import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS, as_prim_func
from tunesmith.schedules import rules_for
from tunesmith.schedules.nests.contraction import find_contraction
from tvm import te, topi

CONV = {"n": 2, "h": 7, "w": 9, "ci": 4, "co": 6, "kh": 3, "kw": 2}


def placeholder(*shape, name="x", dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def total(extent, name="k"):
    return te.reduce_axis((0, extent), name=name)


def dense(rows=(5,), columns=6, depth=7, weight_first=False, column_outside=False):
    """Return the tensors of x (rows.., k) times w (k, n), written in several ways."""
    x, w, k = placeholder(*rows, depth), placeholder(depth, columns, name="w"), total(depth)

    def at(*index):
        *row, j = (*index[1:], index[0]) if column_outside else index
        terms = (w[k, j], x[(*row, k)]) if weight_first else (x[(*row, k)], w[k, j])
        return te.sum(terms[0] * terms[1], axis=k)

    shape = (columns, *rows) if column_outside else (*rows, columns)
    return [x, w, te.compute(shape, at, name="dense")]


def found(tensors):
    return find_contraction(as_prim_func(tensors))


def found_conv(dims):
    return find_contraction(ts.workload("conv2d", **dims).func)


@pytest.mark.parametrize("weight_first", [False, True])
def test_a_matmul(weight_first):
    nest = found(dense(weight_first=weight_first))
    assert (nest.block, nest.rows, nest.column, nest.reductions) == ("dense", (0,), 1, (2,))
    assert (nest.row_extent, nest.outer_rows, nest.columns, nest.depth) == (5, 1, 6, 7)
    assert nest.weight_axes == (2, 1)
    assert (nest.output_column, nest.output_rank) == (1, 2)
    assert nest.plain
    assert (nest.prologue, nest.staged, nest.epilogue) == ((), None, ())


@pytest.mark.parametrize("transpose", ["NN", "NT", "TN"])
def test_rows_of_a_single_column_are_columns(transpose):
    """256 rows by 1024 take a sixth of the time so, and are 2.5 times PyTorch's speed (0.5 before)."""
    shape = {"m": 40, "n": 1, "k": 64, "transpose": transpose}
    nest = find_contraction(ts.workload("matmul", **shape).func)
    assert (nest.columns, nest.row_extent, nest.output_column) == (40, 1, 0)
    turned = nest.weight_axes[-1] == nest.reductions[-1]
    assert turned == (transpose != "TN")
    # Instructions of integers tell a signed operand from an unsigned one.
    of_bytes = find_contraction(ts.workload("quantized_matmul", m=40, n=1, k=64).func)
    assert (of_bytes.columns, of_bytes.row_extent) == (1, 40)


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ({"n": 3, "k": 128}, 40),
        ({"n": 4, "k": 128}, 4),  # enough for a vector of their own
        ({"n": 3, "k": 112}, 3),  # too short a sum
        ({"n": 3, "k": 136}, 3),  # of no whole vectors
        ({"n": 3, "k": 128, "transpose": "NN"}, 3),  # not contiguous in both
        ({"m": 2, "n": 3, "k": 128}, 3),  # few either way
    ],
)
def test_rows_of_a_few_columns_are_columns_where_sums_are_long(shape, columns):
    nest = find_contraction(ts.workload("matmul", **{"m": 40, "transpose": "NT", **shape}).func)
    assert nest.columns == columns
    batched = ts.workload("batch_matmul", **{"b": 2, "m": 40, "n": 3, "k": 128, "transpose": "NT"})
    assert find_contraction(batched.func).columns == 3


def test_a_weight_stored_by_output_and_its_epilogue():
    nest = find_contraction(ts.workload("linear_relu", dtype="bfloat16", m=5, n=6, k=7).func)
    assert (nest.rows, nest.column, nest.reductions, nest.weight_axes) == ((0,), 1, (2,), (1, 2))
    assert nest.epilogue == ("bias_add", "relu", "cast")
    assert nest.dtype == "float32"


def test_rows_of_several_axes():
    nest = found(dense(rows=(2, 3, 5)))
    assert (nest.rows, nest.column, nest.row_extent, nest.outer_rows) == ((0, 1, 2), 3, 5, 6)


@pytest.mark.parametrize(
    "rows, order", [((50, 1), (1, 0)), ((1, 50), (0, 1)), ((9, 2, 7), (1, 2, 0)), ((4, 4), (0, 1))]
)
def test_a_register_tile_spans_the_longest_rows(rows, order):
    nest = found(dense(rows=rows))
    assert nest.rows == order
    assert nest.row_extent == max(rows)


def test_pixels_of_a_line_are_tiled_together_unless_there_is_one():
    line, column = ({**CONV, "kw": 1, "h": 12, "w": w} for w in (3, 1))
    assert found_conv(line).row_extent == 3
    assert found_conv(column).row_extent == 10


def test_columns_before_rows():
    nest = found(dense(column_outside=True))
    assert (nest.columns, nest.output_column) == (5, 1)


@pytest.mark.parametrize("shared", ["none", "A", "B"])
def test_a_batch_of_products(shared):
    shape = {"b": 2, "m": 4, "n": 6, "k": 5}
    nest = find_contraction(ts.workload("batch_matmul", shared=shared, **shape).func)
    assert (nest.batch, nest.batches) == (((0,), 2) if shared == "none" else ((), 1))
    # What only one operand has, is its rows: a batch that shares B is one product with more rows.
    assert nest.extents[nest.column] == (4 if shared == "A" else 6)
    assert nest.sums == 2 * 4 * 6 * 5


@pytest.mark.parametrize("padding", [0, 1])
def test_a_conv2d_in_blocks_is_found_between_its_copies(padding):
    shape = {"n": 1, "h": 8, "w": 9, "ci": 32, "co": 48, "kh": 3, "kw": 3, "padding": padding}
    nest = find_contraction(ts.workload("conv2d", **shape, relu=1, layout="NCHW16c").func)
    # Without padding, data is read where it lies: channels of a block are neighbours.
    assert (nest.staged, nest.weight_block) == ("pad" if padding else None, "taps")
    assert (nest.epilogue, nest.rest) == (("relu",), ("blocks",))


@pytest.mark.parametrize("window", [{}, {"stride": 2}, {"dilation": 2}, {"stride": 3, "padding": 2}])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_conv2d(layout, window):
    workload = ts.workload("conv2d", layout=layout, bias=1, relu=1, **CONV, **window)
    nest = find_contraction(workload.func)
    assert nest.block == "conv2d"
    assert nest.epilogue == ("bias_add", "relu")
    assert nest.staged == ("pad" if "padding" in window else None)
    assert (nest.columns, nest.depth, nest.plain) == (6, 24, False)
    shape = dict(zip(layout, workload.output.shape, strict=True))
    assert (nest.row_extent, nest.outer_rows) == (shape["W"], shape["N"] * shape["H"])
    assert nest.output_column == layout.index("C")
    # The channel comes last in the sum: it is contiguous, or is made so.
    assert nest.extents[nest.reductions[-1]] == CONV["ci"]
    assert nest.data_channel == layout.index("C")


def test_a_convolution_with_a_residual():
    data, weight = placeholder(1, 7, 7, 4), placeholder(3, 3, 4, 6, name="weight")
    other, bias = placeholder(1, 7, 7, 6, name="other"), placeholder(6, name="bias")
    y = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1)
    y = topi.nn.relu(topi.add(topi.add(y, bias), other))
    nest = found([data, weight, bias, other, y])
    assert len(nest.epilogue) == 3
    assert nest.staged is not None


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_weight_that_is_padded_before_it_is_laid_out_anew(dtype, target):
    """Of a transposed convolution whose stride does not divide its kernel."""
    workload = ts.workload(
        "conv2d_transpose", dtype=dtype, n=1, h=5, w=5, ci=4, co=16, kh=3, kw=3, stride=2, padding=1
    )
    nest = find_contraction(workload.func)
    assert nest.prologue == ("pad", "weight_pad", "weight_by_phase")
    assert (nest.staged, nest.weight_block, nest.constant_weight) == ("pad", "weight_by_phase", False)
    constant = find_contraction(workload.func.with_attr(CONSTANT_ARGUMENTS, [1]))
    assert constant.constant_weight
    assert rules_for(workload.func, target)[0].name != "general"


def test_a_constant_weight_is_known_by_its_attribute():
    func = as_prim_func(dense())
    assert not find_contraction(func).constant_weight
    for free, constant in (([1], True), ([0], False)):
        marked = func.with_attr("layout_free_buffers", free)
        assert find_contraction(marked).constant_weight is constant


def two_products():
    x, w, k, r = placeholder(4, 4), placeholder(4, 4, name="w"), total(4), total(4, "r")
    y = te.compute((4, 4), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="first")
    return [x, w, te.compute((4, 4), lambda i, j: te.sum(y[i, r] * w[r, j], axis=r), name="second")]


def batched_by_a_window():
    x, w, k = placeholder(3, 4, 5), placeholder(2, 5, 6, name="w"), total(5)
    return [x, w, te.compute((2, 4, 6), lambda b, i, j: te.sum(x[b + 1, i, k] * w[b, k, j], axis=k))]


def symbolic():
    m = te.var("m", "int64")
    x, w, k = te.placeholder((m, 5), name="x"), placeholder(5, 6, name="w"), total(5)
    return [x, w, te.compute((m, 6), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))]


def summed():
    x = placeholder(4, 5)
    return [x, topi.sum(x, axis=1)]


def of_three():
    x, w, k = placeholder(4, 5), placeholder(5, 6, name="w"), total(5)
    return [x, w, te.compute((4, 6), lambda i, j: te.sum(x[i, k] * w[k, j] * w[k, j], axis=k))]


def outer_product_of_one_operand():
    x, k = placeholder(4, 5), total(5)
    return [x, te.compute((4, 4), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k))]


def largest_product():
    x, w, k = placeholder(4, 5), placeholder(5, 6, name="w"), total(5)
    return [x, w, te.compute((4, 6), lambda i, j: te.max(x[i, k] * w[k, j], axis=k))]


def vector_product():
    x, w, k = placeholder(5), placeholder(5, 6, name="w"), total(5)
    return [x, w, te.compute((6,), lambda j: te.sum(x[k] * w[k, j], axis=k))]


def two_windows():
    x, w, k = placeholder(9), placeholder(10, name="w"), total(5)
    return [x, w, te.compute((5, 6), lambda i, j: te.sum(x[i + k] * w[j + k], axis=k))]


def softmax_after():
    x, w, y = dense()
    return [x, w, topi.nn.softmax(y)]


NOT_FOUND = [
    two_products,
    batched_by_a_window,
    symbolic,
    summed,
    of_three,
    largest_product,
    vector_product,
    two_windows,
    softmax_after,
]


@pytest.mark.parametrize("tensors", NOT_FOUND, ids=lambda f: f.__name__)
def test_what_is_no_contraction_gets_other_rules(tensors, target):
    func = as_prim_func(tensors())
    assert find_contraction(func) is None
    rules = rules_for(func, target)
    assert rules[-1].name == "general" and not {"matmul", "conv2d"} & {rule.name for rule in rules}
    for rule in rules:
        tvm.compile(rule.scheduled(func, target).mod, target=target)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_groups_belong_to_both_operands_and_are_none(layout):
    assert find_contraction(ts.workload("conv2d", groups=2, layout=layout, **CONV).func) is None


@pytest.mark.parametrize("op", ["relu", "add"])
def test_no_sum_is_none(op):
    assert find_contraction(ts.workload(op, m=4, n=4).func) is None


UNUSUAL = {
    "weight_first": dense(rows=(21,), columns=40, depth=17, weight_first=True),
    "rows_of_two_axes": dense(rows=(3, 21), columns=40, depth=17),
    "rows_of_three_axes": dense(rows=(2, 5, 13), columns=33, depth=17),
    "long_rows_outside": dense(rows=(21, 2), columns=40, depth=17),
    "one_row_inside": dense(rows=(50, 1), columns=40, depth=17),
    "columns_before_rows": dense(rows=(21,), columns=40, depth=17, column_outside=True),
    "operand_twice": outer_product_of_one_operand(),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_products_are_right_under_every_rule(name, target, assert_same_outputs):
    func = as_prim_func(UNUSUAL[name])
    for rule in rules_for(func, target):
        assert_same_outputs(func, rule.scheduled(func, target))
