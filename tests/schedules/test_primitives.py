import ast
import inspect

import pytest
from tunesmith.schedules.primitives import PRIMITIVES, UNKNOWN, in_words
from tvm import s_tir

# Methods of a schedule that leave no step behind.
SILENT = (
    "can_decompose_padding copy fork_seed get get_sref id_ is_ remove_rv same_as seed show work_on".split()
)


def test_every_primitive_of_tvm_has_a_sentence():
    methods = {name for name, value in inspect.getmembers(s_tir.Schedule, callable) if name[0] != "_"}
    assert set(PRIMITIVES) == {n for n in methods if n[0].islower()} - set(SILENT)


@pytest.mark.parametrize("sentence", PRIMITIVES.values())
def test_a_sentence_ends_with_a_stop(sentence):
    assert sentence[0].isupper() and sentence.endswith(".")


def test_a_step_is_told_by_its_primitive():
    assert in_words("l1, l2 = sch.split(loop=l0, factors=[None, 8])") == PRIMITIVES["split"]
    assert in_words("sch.parallel(loop=l1)") == PRIMITIVES["parallel"]
    assert in_words("sch.of_tomorrow(loop=l1)") == in_words("") == UNKNOWN


def test_the_table_names_nothing_twice():
    (table,) = [
        node.value
        for node in ast.parse(inspect.getsource(inspect.getmodule(in_words))).body
        if isinstance(node, ast.AnnAssign)
    ]
    names = [key.value for key in table.keys]
    assert len(names) == len(set(names)) == len(PRIMITIVES)
