"""Loops that need not run where a flag is set."""

import numpy as np
import pytest
from tunesmith.kernels.operator import as_prim_func
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.passes.needless_loops import run_unless
from tvm import s_tir, te, tirx


def marked():
    """Return doubled elements, or where a flag is set the elements as they are; that loop is marked."""
    flag, x = te.placeholder((1,), name="flag"), te.placeholder((8,), name="x")
    doubled = te.compute((8,), lambda i: tirx.if_then_else(flag[0] > 0, x[i], x[i] * 2.0), name="doubled")
    sch = s_tir.Schedule(as_prim_func([flag, x, doubled]))
    run_unless(sch, sch.get_loops(sch.get_sblock("doubled"))[0], "flag")
    return sch


@pytest.mark.parametrize(("flag", "expected"), [(0.0, [0, 2, 4, 6, 8, 10, 12, 14]), (1.0, [-112] * 8)])
def test_nothing_is_written_where_the_flag_is_set(flag, expected, run):
    (got,) = run(marked(), [np.array([flag], "float32"), np.arange(8, dtype="float32")], 1)
    assert got.tolist() == expected


def test_the_question_is_asked_once():
    text = finished(marked().mod).script()
    assert text.count("if flag_1[") == text.count("flag_1[") == 1 and "if_then_else" not in text


def test_a_flag_that_nobody_asks_for_is_an_error():
    sch = marked()
    sch.unannotate(sch.get_loops(sch.get_sblock("doubled"))[0], "tunesmith.needless_where")
    run_unless(sch, sch.get_loops(sch.get_sblock("doubled"))[0], "banner")
    with pytest.raises(KeyError, match="banner"):
        finished(sch.mod)
