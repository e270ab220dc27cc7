from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.integrate.extraction import ModelWorkload
from tunesmith.integrate.tuning.selection import numbered, selected

SMALL, LARGE = ts.workload("relu", m=4, n=4), ts.workload("matmul", m=16, n=16, k=16)


def found(number, workload, *names):
    return ModelWorkload(replace(workload, name=names[0]), names, 1, 0.25, number)


TASKS = [
    found(0, LARGE, "fused_conv2d_add_relu", "fused_conv2d7_add_relu"),
    found(1, LARGE, "conv2d1"),
    found(2, LARGE, "matmul"),
    found(3, SMALL, "fused_relu_conv2d"),
]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("all", [0, 1, 2, 3]), ("2", [2]), ("3,0", [0, 3]), ("1-2", [1, 2]), ("-1", [0, 1]), ("2-", [2, 3])],
)
def test_an_expression_chooses_tasks(expression, expected):
    assert numbered(expression, 4) == expected


@pytest.mark.parametrize("expression", ["4", "0,9", "3-1", "2-7"])
def test_a_task_that_is_not_there_is_refused(expression):
    with pytest.raises(ts.InputError, match="must lie within 0-3"):
        numbered(expression, 4)


@pytest.mark.parametrize("expression", ["", "x", "-", "1,,2", "1 2"])
def test_another_form_is_refused(expression):
    with pytest.raises(ts.InputError, match="takes list, all, or numbers"):
        numbered(expression, 4)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"functions": "conv2d*"}, [0, 1]),
        ({"functions": "conv2d7_*"}, [0]),
        ({"functions": "fused_*"}, [0, 3]),
        ({"functions": "matmul, *relu_conv2d"}, [2, 3]),
        ({"min_flops": 1000}, [0, 1, 2]),
        ({"min_flops": 1000, "functions": "*conv2d*", "tasks": "1-"}, [1]),
    ],
)
def test_filters_compose(filters, expected):
    assert [each.task for each in selected(TASKS, **filters)] == expected


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"functions": "nothing*"}, "none of the model's 4 functions fits functions=nothing*; see"),
        ({"tasks": "3", "min_flops": 1e3}, "fits tasks=3, min_flops=1000; see --tasks list"),
        ({"min_flops": -1}, "0 or more: min_flops=-1"),
        ({"min_flops": float("nan")}, "0 or more: min_flops=nan"),
    ],
)
def test_an_empty_selection_is_refused(filters, message):
    with pytest.raises(ts.InputError) as error:
        selected(TASKS, **filters)
    assert message in str(error.value)


def test_a_model_without_functions_is_refused():
    with pytest.raises(ts.InputError, match="the model has no function that can be tuned"):
        selected([])
