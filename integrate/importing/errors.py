"""Why a model cannot be imported: each kind is an :class:`~tunesmith.machine.errors.InputError`."""

from __future__ import annotations

from ...machine.errors import InputError


class UnsupportedOperatorError(InputError):
    """The model has operators that TVM's importer does not know."""


class UnsupportedTypeError(InputError):
    """The model computes with a type that TVM cannot compute with."""


class ConversionError(InputError):
    """TVM's importer fails on a node with an operator that it knows, or converts it wrongly."""


class DataDependentShapeError(InputError):
    """An extent depends on the values of the inputs, and code is compiled for known shapes."""


class NotATensorError(InputError):
    """An input or output is a sequence, an optional or text."""
