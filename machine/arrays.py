"""Arrays that compiled kernels may touch, and the call path that makes any array one of them.

Compiled code loads whole vectors and trusts the pointer: an array that is not 64-byte aligned crashes the
process. Everything here copies where it must and shares memory where it can.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import tvm_ffi

from .errors import InputError
from .runtime import global_function

ALIGNMENT = 64
"""Bytes: what TVM's allocator gives and its generated code relies on."""

# NumPy's DLPack has no bfloat16 nor float8: arrays of other kinds pass as integers of the same width.
_DLPACK_KINDS = "fiub"

Argument = tuple[str, Sequence[int], str]
"""An argument of a kernel: its name, shape and dtype."""


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an array of undefined content that starts at a multiple of 64 bytes."""
    element = array_dtype(dtype)
    size = prod(shape) * element.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(element).reshape(tuple(shape))


def aligned_copy(array: Any) -> np.ndarray:
    """Return a contiguous, aligned, writable copy of an array, in this machine's byte order."""
    source = as_numpy(array)
    copy = aligned_empty(source.shape, source.dtype.newbyteorder("="))
    np.copyto(copy, source)
    return copy


def as_tensor(array: Any) -> Any:
    """Return a TVM tensor with the content of any array: NumPy's, torch's, TVM's, or one with DLPack.

    It shares the array's memory where that is aligned, contiguous and writable, and is a copy otherwise.

    Raises
    ------
    InputError
        It is none of these, or its dtype is one that TVM does not know.
    """
    if isinstance(array, tvm_ffi.Tensor) and _is_usable_tensor(array):
        return array
    source = as_numpy(array)
    try:
        return _shared_tensor(source if _is_usable(source) else aligned_copy(source))
    except (BufferError, TypeError, RuntimeError, ValueError):
        raise InputError(f"TVM has no dtype {source.dtype.name}: found an array of it") from None


def as_numpy(array: Any) -> np.ndarray:
    """Return a NumPy view of any array: NumPy's, torch's, TVM's, or one with DLPack.

    It is a copy where a torch or TVM tensor lies on a device.

    Raises
    ------
    InputError
        It is none of these, or another library's tensor that is not in this machine's memory.
    """
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    if isinstance(array, tvm_ffi.Tensor):
        return _from_tvm(array)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _from_torch(array, torch)
    if isinstance(array, np.generic) or hasattr(array, "__array__"):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array)
    raise InputError(
        f"an argument must be a NumPy array, a torch tensor or a TVM tensor: found {type(array).__name__}"
    )


class Kernel:
    """A compiled function that can be called with any arrays.

    Parameters
    ----------
    native : callable or tvm.runtime.Executable or tvm.runtime.Module
        The compiled function; of an executable or a module the function ``main``.
    args : sequence of (name, shape, dtype)
        The arguments in call order, the output last.
    origin : str
        Which schedule it runs and where that came from, for people.

    Attributes
    ----------
    raw : callable
        The function itself: TVM tensors in call order, no checks, a fraction of a microsecond a call.
    """

    def __init__(self, native: Any, args: Sequence[Argument], *, origin: str = "") -> None:
        # Looking the function up costs more than calling it.
        self.raw = native["main"] if hasattr(native, "__getitem__") else native
        self.args = tuple(
            (name, tuple(int(extent) for extent in shape), str(dtype)) for name, shape, dtype in args
        )
        self.origin = origin
        self._native = native

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run the kernel.

        Inputs are copied where the compiled code could not read them in place; they are never written.

        Parameters
        ----------
        *inputs : arrays
            NumPy arrays, torch tensors or TVM tensors of the shapes and dtypes of ``args``.
        out : array, optional
            Where to put the result; a new NumPy array if left out.

        Returns
        -------
        numpy.ndarray
            The result; ``out`` itself if it was given.

        Raises
        ------
        InputError
            The number of inputs, or an argument's shape or dtype, is wrong.
        """
        *wanted, (name, shape, dtype) = self.args
        if len(inputs) != len(wanted):
            names = ", ".join(argument[0] for argument in wanted)
            raise InputError(f"the kernel takes {len(wanted)} inputs ({names}): found {len(inputs)}")
        result = None if out is None else _checked_output(out, (name, shape, dtype))
        arrays = [_checked(array, argument) for array, argument in zip(inputs, wanted, strict=True)]
        if result is None:
            result = out = aligned_empty(shape, dtype)
        place = result if _is_usable(result) else aligned_empty(shape, dtype)
        # The compiled code assumes that its output overlaps nothing.
        tensors = [as_tensor(aligned_copy(a) if np.may_share_memory(a, place) else a) for a in arrays]
        self.raw(*tensors, as_tensor(place))
        if place is not result:
            np.copyto(result, place)
        return out

    def __repr__(self) -> str:
        """Return the signature and the origin."""
        *inputs, output = (f"{name}: {dtype}{list(shape)}" for name, shape, dtype in self.args)
        return f"<Kernel ({', '.join(inputs)}) -> {output}{', ' + self.origin if self.origin else ''}>"


def _checked(array: Any, argument: Argument) -> np.ndarray:
    """Return an argument as a NumPy view if its shape and dtype are the wanted ones."""
    name, shape, dtype = argument
    try:
        found = as_numpy(array)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if found.shape != shape or found.dtype.name != dtype:
        raise InputError(
            f"{name} must be {dtype} of shape {tuple(shape)}: found {found.dtype.name} of shape {found.shape}"
        )
    return found


def _checked_output(out: Any, argument: Argument) -> np.ndarray:
    """Return ``out`` as a view that can be written, if it is one."""
    result = _checked(out, argument)
    if not result.flags.writeable:
        raise InputError(f"out must be writable: found a read-only array for {argument[0]}")
    if not isinstance(out, np.ndarray) and _is_on_device(out):
        raise InputError(
            f"out must be in this machine's memory: found a tensor on {out.device} for {argument[0]}"
        )
    return result


def _shared_tensor(array: np.ndarray) -> Any:
    """Return a TVM tensor on the memory of a usable array."""
    name = array.dtype.name
    if array.dtype.kind in _DLPACK_KINDS:
        return _imported(array)
    return _seen_as(_imported(array.view(_integer_like(array.dtype))), name)


def _imported(array: np.ndarray) -> Any:
    if not array.size:
        # TVM counts the strides of an empty array by its extents; NumPy takes those of 0 for 1.
        compact = [prod(array.shape[i + 1 :]) * array.itemsize for i in range(array.ndim)]
        array = np.lib.stride_tricks.as_strided(array, strides=compact)
    # An empty array may lie anywhere.
    alignment = ALIGNMENT if array.size else 0
    return tvm_ffi.from_dlpack(array, require_alignment=alignment, require_contiguous=True)


def _seen_as(tensor: Any, dtype: str) -> Any:
    """Return a tensor's memory as another type of the same width."""
    shape = tvm_ffi.Shape(tuple(int(extent) for extent in tensor.shape))
    return global_function("runtime.TVMTensorCreateView")(tensor, shape, tvm_ffi.dtype(dtype), 0)


def _is_usable(array: np.ndarray) -> bool:
    """Tell whether compiled code may use the array's own memory."""
    return (
        array.flags.c_contiguous
        and array.flags.writeable
        and array.dtype.isnative
        and array.ctypes.data % ALIGNMENT == 0
    )


def _is_usable_tensor(tensor: Any) -> bool:
    """Tell whether a TVM tensor needs no copy; those made from other libraries' memory may."""
    return _is_on_device(tensor) or bool(tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0)


def _is_on_device(tensor: Any) -> bool:
    """Tell whether a torch or TVM tensor lies in the memory of an accelerator."""
    return not str(tensor.device).startswith("cpu")


def _from_tvm(tensor: Any) -> np.ndarray:
    """Return the memory of a TVM tensor as an array."""
    if _is_on_device(tensor):
        return np.asarray(tensor.numpy())
    element = array_dtype(tensor.dtype)
    if element.kind in _DLPACK_KINDS:
        return np.from_dlpack(tensor)
    return np.from_dlpack(_seen_as(tensor, _integer_like(element).name)).view(element)


def _from_torch(tensor: Any, torch: Any) -> np.ndarray:
    """Return the memory of a torch tensor as an array, also for dtypes that NumPy itself lacks."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if not hasattr(ml_dtypes, name):
        return np.asarray(tensor.numpy())
    element = np.dtype(getattr(ml_dtypes, name))
    return np.asarray(tensor.view(getattr(torch, _integer_like(element).name)).numpy()).view(element)


def _from_dlpack(array: Any) -> np.ndarray:
    """Return the memory of any other library's tensor as an array."""
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"NumPy cannot read a tensor of {type(array).__name__}: {reason}") from None


def array_dtype(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of a name, also those that ml_dtypes adds."""
    try:
        return np.dtype(dtype if isinstance(dtype, np.dtype) else str(dtype))
    except TypeError:
        raise InputError(f"NumPy has no dtype {str(dtype)!r}: it cannot hold such an array") from None


def _integer_like(element: np.dtype[Any]) -> np.dtype[Any]:
    """Return the integer dtype of the same width."""
    return np.dtype(f"int{element.itemsize * 8}" if element.itemsize > 1 else "uint8")
