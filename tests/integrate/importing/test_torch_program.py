from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts

torch = pytest.importorskip("torch")
nn: Any = torch.nn


class Encoder(nn.Module):  # type: ignore[misc]
    """Token and position embeddings, one layer, the last token's state: shapes are computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 8), nn.Embedding(10, 8)
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, ids: Any) -> Any:
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))
        heads = self.linear(x).view(batch, length, 2, 4).transpose(1, 2)
        x = (heads @ heads.transpose(-1, -2)).softmax(-1) @ heads
        return self.norm(x.transpose(1, 2).reshape(batch, length, 8))[:, -1]


class Upscale(nn.Module):  # type: ignore[misc]
    """A transposed convolution after a convolution, and a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x: Any) -> Any:
        y = self.up(self.down(x).relu())
        return torch.stack([x, y], 1), y


@pytest.fixture(scope="module")
def encoder() -> Any:
    torch.manual_seed(0)
    return Encoder().eval()


@pytest.fixture(scope="module")
def ids() -> Any:
    return torch.arange(12).reshape(3, 4)


def check(model: Any, module: Any, *inputs: Any) -> None:
    arrays = {spec.name: x.numpy() for spec, x in zip(model.inputs, inputs, strict=False)}
    got = ts.compile_model(model).run({**arrays, **{n: w.numpy() for n, w in model.weights.items()}})
    wanted = module(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert [spec.shape for spec in model.outputs] == [tuple(w.shape) for w in wanted]
    for array, tensor in zip(got.values(), wanted, strict=True):
        np.testing.assert_allclose(array, tensor.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_with_example_inputs(encoder: Any, ids: Any) -> None:
    model = ts.load_model(encoder, example_inputs=(ids,))
    assert [(s.name, s.shape, s.dtype) for s in model.inputs] == [("ids", (3, 4), "int64")]
    assert model.name == "Encoder"
    check(model, encoder, ids)


def test_convolutions_transposed_ones_and_stacks() -> None:
    module, x = Upscale().eval(), torch.randn(1, 2, 4, 6)
    check(ts.load_model(module, example_inputs={"x": x}), module, x)


def test_a_program_with_dynamic_dimensions_is_bound(encoder: Any, ids: Any) -> None:
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(encoder, (ids[:2],), dynamic_shapes=(dynamic,))
    with pytest.raises(
        ts.InputError, match=r'of input \'ids\' is not bound; give --input-shapes "ids:\[1,1\]"'
    ):
        ts.load_model(program)
    check(ts.load_model(program, {"ids": (3, 4)}), encoder, ids)


def test_shapes_that_break_a_constraint_of_the_program() -> None:
    module, dim = nn.Flatten().eval(), torch.export.Dim("n", min=2, max=4)
    program = torch.export.export(module, (torch.ones(3, 2, 2),), dynamic_shapes=({0: dim},))
    with pytest.raises(ts.InputError, match=r"this torch program does not take input:\[9, 2, 2\]"):
        ts.load_model(program, {"input": (9, 2, 2)})


def test_kept_weights_are_inputs_with_their_names(encoder: Any, ids: Any) -> None:
    model = ts.load_model(encoder, example_inputs=(ids,), keep_weights=True)
    assert model.inputs[0].name == "ids"
    assert set(model.weights) == set(encoder.state_dict()) == {spec.name for spec in model.inputs[1:]}
    check(model, encoder, ids)


def test_negative_and_large_indices_stay_inside(ids: Any) -> None:
    class Pick(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, at: Any) -> Any:
            return x[:, at], x.select(0, -1)

    x, at = torch.randn(2, 5), torch.tensor([-1, 0, -5])
    model = ts.load_model(Pick().eval(), example_inputs=(x, at))
    check(model, Pick(), x, at)
    beyond = ts.compile_model(model).run({"x": x.numpy(), "at": np.array([5, 7, -6])})["output_0"]
    np.testing.assert_array_equal(beyond, x.numpy()[:, [0, 2, 4]])


def test_unsupported_operators_are_named_with_their_node() -> None:
    class Odd(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.linalg.svdvals(x)

    with pytest.raises(
        ts.InputError, match=r"unsupported PyTorch operator: aten\._linalg_svd\.default \(node '_linalg"
    ):
        ts.load_model(Odd().eval(), example_inputs=(torch.ones(2, 2),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs example_inputs"),
        ({"example_inputs": (1.0,)}, "cannot export|no tensor"),
        ({"example_inputs": (torch.ones(2, 3),)}, "torch.export cannot export Linear"),
        ({"example_inputs": (torch.ones(2, 2),), "weights": {"w": 1}}, "weights is for Relax modules"),
        (
            {"example_inputs": (torch.ones(2, 2),), "input_shapes": {"x": (2,)}},
            "input_shapes is for models with",
        ),
    ],
)
def test_arguments_that_do_not_fit_a_module(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(nn.Linear(2, 2).eval(), **arguments)


def test_a_module_in_training_mode_is_refused() -> None:
    with pytest.raises(ts.InputError, match=r"training mode: call module\.eval"):
        ts.load_model(nn.Linear(2, 2), example_inputs=(torch.ones(2, 2),))


@pytest.mark.parametrize("ending", [".pt2", ".pt", ".pth"])
def test_files_that_would_run_code_are_refused(tmp_path: Path, ending: str) -> None:
    program = torch.export.export(nn.Linear(2, 2).eval(), (torch.ones(2, 2),))
    torch.export.save(program, tmp_path / "m.pt2")
    (tmp_path / "m.pt2").rename(tmp_path / f"m{ending}")
    with pytest.raises(ts.InputError, match=r"would run whatever code came with it.*torch\.export\.load"):
        ts.load_model(tmp_path / f"m{ending}")


def test_the_example_of_the_documentation_runs() -> None:
    page = (Path(ts.__file__).parent / "docs" / "import.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)
    exec(compile(example, "import.md", "exec"), {"__name__": "__main__"})
