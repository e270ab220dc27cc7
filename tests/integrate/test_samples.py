from __future__ import annotations

import pytest
import tunesmith as ts
from tunesmith.integrate.running.outputs import compare_outputs
from tunesmith.integrate.samples import sample, sample_names


def test_the_nine_light_models_are_there() -> None:
    assert len(sample_names()) == 9
    resnet = sample("light_resnet50")
    (x,) = resnet.inputs.values()
    assert (x.shape, x.flat[0], x.max() < 1) == ((1, 3, 224, 224), 0, True)
    assert resnet.outputs["output_0"].shape == (1, 1000)


def test_an_unknown_sample() -> None:
    with pytest.raises(ts.InputError, match=r"sample model 'light_resnet'; did you mean .*light_resnet50"):
        sample("light_resnet")


@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet"])
def test_a_real_model_gives_its_expected_output(name: str) -> None:
    wanted = sample(name)
    package = ts.compile_model(ts.load_model(wanted.path))
    (check,) = compare_outputs(package.run(wanted.inputs), wanted.outputs)
    assert check.ok, check.message
    assert {c.origin for c in package.choices} == {"default"}
