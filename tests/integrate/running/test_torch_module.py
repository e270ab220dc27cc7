from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import tunesmith as ts

torch = pytest.importorskip("torch")


def test_a_package_is_a_torch_module(net_package: Any, net_input: np.ndarray, net_output: np.ndarray) -> None:
    module = net_package.as_torch_module()
    x = torch.from_numpy(net_input)
    for got in (module(x), module(x=x), torch.nn.Sequential(module, torch.nn.Identity())(x)):
        assert isinstance(got, torch.Tensor)
        np.testing.assert_allclose(got.numpy(), net_output, rtol=1e-4, atol=1e-5)
    assert not list(module.parameters()) and "net (x: float32[1, 3, 12, 12])" in repr(module)


def test_outputs_are_the_callers_own(net_package: Any, net_input: np.ndarray) -> None:
    module, x = net_package.as_torch_module(), torch.from_numpy(net_input)
    first = module(x)
    kept = first.clone()
    module(-x)
    assert torch.equal(first, kept)
    first.zero_()
    assert torch.equal(module(x), kept)


def test_any_memory_layout_is_taken(net_package: Any, net_input: np.ndarray) -> None:
    module, x = net_package.as_torch_module(), torch.from_numpy(net_input)
    want = module(x)
    strided = torch.empty(1, 3, 12, 24)[..., ::2].copy_(x)
    shifted = torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x)
    for other in (x.contiguous(memory_format=torch.channels_last), strided, shifted):
        assert torch.equal(module(other), want)


def test_a_gradient_is_refused(net_package: Any, net_input: np.ndarray) -> None:
    module, x = net_package.as_torch_module(), torch.from_numpy(net_input).requires_grad_()
    message = r"computes no gradients: input x requires one; .*torch\.no_grad"
    with torch.enable_grad(), pytest.raises(ts.InputError, match=message):
        module(x)
    with torch.no_grad():
        assert torch.equal(module(x), module(x.detach()))


def test_wrong_tensors_are_named(net_package: Any) -> None:
    module = net_package.as_torch_module()
    with pytest.raises(ts.InputError, match=r"input x must be float32 .*: found float64 of shape \(1, 3\)"):
        module(torch.zeros(1, 3, dtype=torch.float64))


def test_without_torch_it_is_said(net_package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tunesmith.integrate.running.torch_module", raising=False)
    with pytest.raises(ts.InputError, match="PyTorch is not installed"):
        net_package.as_torch_module()
