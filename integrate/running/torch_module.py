"""A package where a PyTorch program expects a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from ...machine.arrays import as_tensor
from ...machine.errors import InputError
from .inputs import called_with

if TYPE_CHECKING:
    from .package import Package


class PackageModule(torch.nn.Module):
    """A compiled model as a module for inference.

    It has no parameters: its weights belong to the package. It runs on this machine's CPU; tensors elsewhere
    are copied here, and the outputs are here.

    Parameters
    ----------
    package : Package
        The compiled model.
    """

    def __init__(self, package: Package) -> None:
        super().__init__()
        self.package = package

    def forward(self, *tensors: torch.Tensor, **by_name: torch.Tensor) -> Any:
        """Run one inference.

        Parameters
        ----------
        *tensors, **by_name
            The inputs, in the model's order or by name.

        Returns
        -------
        torch.Tensor or tuple of torch.Tensor
            The output, or all of them where there are several.

        Raises
        ------
        InputError
            A gradient is asked for, or the inputs are wrong.
        """
        given = called_with(self.package.inputs, tensors, by_name)
        if torch.is_grad_enabled():
            _require_no_gradient(given)
        outputs = [from_dlpack(as_tensor(array)) for array in self.package.run(given).values()]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def extra_repr(self) -> str:
        """Return what ``print`` shows between the brackets."""
        return repr(self.package)


def _require_no_gradient(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise InputError(
                f"a package computes no gradients: input {name} requires one; "
                "call it under torch.no_grad(), or with the input's detach()"
            )
