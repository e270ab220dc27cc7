import numpy as np
from tunesmith.tuning.learning.knob_features import KnobFeatures, dimensions, open_knobs

POINTS = [{"a": 1, "b": 4, "fixed": 3, "c": 0}, {"a": 8, "b": 2, "fixed": 3, "c": 1}]


def columns(features, shape):
    return dict(zip(features.names, features.of(POINTS, shape).T.tolist(), strict=True))


def test_knobs_products_and_ratios_are_logarithms():
    found = columns(KnobFeatures(open_knobs(POINTS), ()), {})
    assert (
        found["a"] == [0, 3]
        and found["b"] == [2, 1]
        and found["a * b"] == [2, 4]
        and found["a / b"] == [-2, 2]
    )
    # A choice of 0 is told apart from 1.
    assert found["c"] == [-1, 0] and "fixed" not in found


def test_what_is_beyond_the_edge_is_a_share_of_the_dimension():
    found = columns(KnobFeatures(("a", "b"), ("m",)), {"m": 10})
    assert np.allclose(found["m beyond whole a"], [0, 0.6])
    assert np.allclose(found["m beyond whole a * b"], [0.2, 0.6])
    assert "m / a" not in found


def test_between_workloads_knobs_are_seen_beside_the_dimensions():
    found = columns(KnobFeatures(("a", "b"), ("m",), workloads=2), {"m": 16})
    assert found["m / a"] == [4, 1] and found["m / (a * b)"] == [2, 0]


def test_without_open_knobs_there_is_one_column():
    assert KnobFeatures((), ()).of(POINTS, {}).shape == (2, 1) and len(KnobFeatures((), ()).names) == 1


def test_flags_words_and_dimensions_that_are_always_1_are_left_out():
    shapes = [
        {"m": 1, "n": 1, "padding": 0, "layout": "NHWC"},
        {"m": 7, "n": 1, "padding": 1, "layout": "NHWC"},
    ]
    assert dimensions(shapes) == ("m",)


def test_a_knob_that_some_points_do_not_have_is_none_to_learn_from():
    since = [{"a": 1, "new": 0}, {"a": 2, "new": 1}]
    for points in ([{"a": 4}, *since], [*since, {"a": 4}]):
        assert open_knobs(points) == ("a",)
