"""Shapes as they are written on the command line."""

import pytest
import tunesmith as ts
from tunesmith.kernels.shapes import parse_shape


def test_integers_and_words():
    assert parse_shape("m=1024, n=-3,layout=NCHW,k=1.5") == {"m": 1024, "n": -3, "layout": "NCHW", "k": "1.5"}


@pytest.mark.parametrize("text", ["", "m", "m=", "=3", "m=1,,n=2", "m=1,", "m 1", "1m=3"])
def test_malformed_text(text):
    with pytest.raises(ts.InputError, match="a shape is written NAME=VALUE,NAME=VALUE"):
        parse_shape(text)


def test_a_dimension_given_twice():
    with pytest.raises(ts.InputError, match="m is given twice in 'm=1,m=2'"):
        parse_shape("m=1,m=2")
