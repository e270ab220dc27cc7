from __future__ import annotations

import pytest
import tunesmith as ts
from tunesmith.integrate.importing.shapes import parse_input_shapes


def test_reads_shapes_of_several_inputs() -> None:
    text = "gpu_0/data_0:[1,3,224,224] b: [ 1, 2 ],c:[]"
    assert parse_input_shapes(text) == {"gpu_0/data_0": (1, 3, 224, 224), "b": (1, 2), "c": ()}


@pytest.mark.parametrize("text", ["", "a", "a:1,2", "a:[1,2", "a:[1] b", "[1,2]", "a:[1] ]"])
def test_another_form_is_shown_the_right_one(text: str) -> None:
    with pytest.raises(ts.InputError, match=r'written "name:\[1,3,224,224\] other:\[1,2\]"'):
        parse_input_shapes(text)


@pytest.mark.parametrize("extents", ["0", "-1", "1,x", "1,,2", "1.5"])
def test_extents_are_positive_integers(extents: str) -> None:
    with pytest.raises(ts.InputError, match=r"extents are positive integers: a:\["):
        parse_input_shapes(f"a:[{extents}]")
