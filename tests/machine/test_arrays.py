"""Any array may be handed to a kernel: it is right or refused, and never a crash."""

import gc

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tunesmith.machine.arrays import ALIGNMENT, Kernel, aligned_copy, aligned_empty, as_numpy, as_tensor
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target

SHAPE = (4, 64)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")


def element(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def offset_by_one_element(array):
    """Copy to an address that is no multiple of 64."""
    room = aligned_empty((array.size + 1,), array.dtype)
    room[1:] = array.ravel()
    return room[1:].reshape(array.shape)


def offset_by_one_byte(array):
    """Copy to an address that is not even a multiple of the element."""
    room = aligned_empty((array.nbytes + 1,), "uint8")
    view = room[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    copy = aligned_copy(array)
    copy.flags.writeable = False
    return copy


def swapped_bytes(array):
    if array.dtype.kind not in "fi":
        return array
    swapped = aligned_copy(array).view(array.dtype.newbyteorder())
    swapped[...] = array
    return swapped


ODD = {
    "aligned": aligned_copy,
    "element offset": offset_by_one_element,
    "byte offset": offset_by_one_byte,
    "read-only": read_only,
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
    "every second": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "reversed": lambda array: np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
    "swapped bytes": swapped_bytes,
    "subclass": lambda array: array.view(np.recarray) if array.dtype.kind in "fi" else array,
    "tvm": lambda array: as_tensor(aligned_copy(array)),
}


@pytest.fixture(scope="module")
def subtract():
    """Return kernels computing ``A - B`` with vector loads and stores, by dtype."""
    kernels = {}

    def kernel(dtype):
        if dtype not in kernels:
            A = tvm.te.placeholder(SHAPE, dtype, name="A")
            B = tvm.te.placeholder(SHAPE, dtype, name="B")
            C = tvm.te.compute(SHAPE, lambda i, j: A[i, j] - B[i, j], name="C")
            sch = tvm.s_tir.Schedule(tvm.te.create_prim_func([A, B, C]))
            sch.vectorize(sch.split(sch.get_loops(sch.get_sblock("C"))[1], [None, 16])[1])
            args = [(name, SHAPE, dtype) for name in "ABC"]
            kernels[dtype] = Kernel(tvm.compile(sch.mod, target=host_target()), args, origin="by hand")
        return kernels[dtype]

    return kernel


def operands(dtype):
    values = np.arange(2 * 256).reshape(2, *SHAPE) % 97
    return values[0].astype(element(dtype)), (values[1] // 2).astype(element(dtype))


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_inputs_give_the_right_result_and_stay_as_they_are(subtract, dtype, kind):
    a, b = operands(dtype)
    odd = ODD[kind](a)
    result = subtract(dtype)(odd, b)
    np.testing.assert_array_equal(result, a - b)
    assert result.dtype == element(dtype)
    np.testing.assert_array_equal(as_numpy(odd), a)


@pytest.mark.parametrize("kind", [name for name in ODD if name not in ("read-only", "swapped bytes")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_odd_outputs_are_written_in_place(subtract, dtype, kind):
    a, b = operands(dtype)
    out = ODD[kind](np.zeros(SHAPE, element(dtype)))
    assert subtract(dtype)(a, b, out=out) is out
    np.testing.assert_array_equal(as_numpy(out), a - b)


def test_an_output_that_is_also_an_input():
    A = tvm.te.placeholder((256,), "float32", name="A")
    C = tvm.te.compute((256,), lambda i: A[255 - i], name="C")
    built = tvm.compile(tvm.te.create_prim_func([A, C]), target=host_target())
    reverse = Kernel(built, [("A", (256,), "float32"), ("C", (256,), "float32")])
    array = aligned_copy(np.arange(256, dtype="float32"))
    assert reverse(array, out=array) is array
    np.testing.assert_array_equal(array, np.arange(256)[::-1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
def test_torch_tensors(subtract, dtype):
    torch = pytest.importorskip("torch")
    a, b = operands(dtype)
    kind = getattr(torch, dtype)
    left = torch.arange(256).remainder(97).reshape(SHAPE).to(kind)
    shifted = torch.zeros(257, dtype=kind)[1:].reshape(SHAPE).copy_(left)
    out = torch.zeros(SHAPE, dtype=kind)
    for tensor in (left, shifted, left.T.contiguous().T, left.requires_grad_(kind.is_floating_point)):
        assert subtract(dtype)(tensor, b, out=out) is out
        np.testing.assert_array_equal(as_numpy(out), a - b)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda a: (a,), r"the kernel takes 2 inputs \(A, B\): found 1"),
        (lambda a: (a, a, a), r"the kernel takes 2 inputs \(A, B\): found 3"),
        (lambda a: (a, a[:2]), r"B must be float32 of shape \(4, 64\): found float32 of shape \(2, 64\)"),
        (lambda a: (a.astype("float64"), a), r"A must be float32 .*: found float64 of shape \(4, 64\)"),
        (lambda a: (a, a.astype(object)), "B must be float32 .*: found object"),
        (
            lambda a: (a, [1.0]),
            "B: an argument must be a NumPy array, .*: found list",
        ),
        (lambda a: (None, a), "A: an argument must be .*: found NoneType"),
    ],
)
def test_wrong_inputs_are_named(subtract, inputs, message):
    with pytest.raises(InputError, match=message):
        subtract("float32")(*inputs(np.zeros(SHAPE, "float32")))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (
            np.zeros((64, 4), "float32"),
            r"C must be float32 of shape \(4, 64\): found .* \(64, 4\)",
        ),
        (np.broadcast_to(np.float32(0), SHAPE), "out must be writable: found a read-only array for C"),
    ],
)
def test_wrong_outputs_are_named(subtract, out, message):
    a, b = operands("float32")
    with pytest.raises(InputError, match=message):
        subtract("float32")(a, b, out=out)


def test_raw_takes_tensors(subtract):
    a, b = operands("float32")
    out = aligned_empty(SHAPE, "float32")
    subtract("float32").raw(as_tensor(aligned_copy(a)), as_tensor(aligned_copy(b)), as_tensor(out))
    np.testing.assert_array_equal(out, a - b)


def test_a_kernel_says_what_it_is(subtract):
    kernel = subtract("float32")
    assert kernel.origin == "by hand"
    assert repr(kernel) == "<Kernel (A: float32[4, 64], B: float32[4, 64]) -> C: float32[4, 64], by hand>"


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 7)])
@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "float8_e4m3fn"])
def test_aligned_empty(shape, dtype):
    for _ in range(8):
        array = aligned_empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, element(dtype))
        assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "float8_e4m3fn"])
def test_as_tensor_shares_memory_where_it_may(dtype):
    array = aligned_empty((3, 5), dtype)
    array[...] = 0
    tensor = as_tensor(array)
    array[1, 2] = 1
    assert str(tensor.dtype) == dtype
    assert as_numpy(tensor)[1, 2] == 1


def test_as_tensor_copies_where_it_must():
    array = offset_by_one_element(np.zeros((3, 5), "float32"))
    tensor = as_tensor(array)
    array[...] = 1
    assert not as_numpy(tensor).any()


def test_an_unaligned_tensor_is_copied():
    foreign = tvm_ffi.from_dlpack(offset_by_one_element(np.ones((3, 5), "float32")))
    tensor = as_tensor(foreign)
    assert tensor.data_ptr() % ALIGNMENT == 0
    assert as_numpy(tensor).all()


class Foreign:
    """A tensor of a library that tunesmith has never heard of."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        if self.device[0] != 1:
            raise BufferError("it lies elsewhere")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_any_tensor_with_dlpack_is_read_in_place():
    array = aligned_copy(np.ones((3, 5), "float32"))
    assert np.shares_memory(as_numpy(Foreign(array)), array)


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(InputError, match="NumPy cannot read a tensor of Foreign: "):
        as_numpy(Foreign(np.ones(3), device=(2, 0)))


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_as_tensor_of_scalars_and_empty_arrays(shape):
    assert tuple(as_tensor(np.zeros(shape, "float32")).shape) == shape
    assert tuple(as_tensor(np.zeros(shape, ml_dtypes.bfloat16)).shape) == shape


@pytest.mark.parametrize("dtype", ["complex64", "object", "U3", "M8[s]", "longdouble"])
def test_as_tensor_refuses_other_dtypes(dtype):
    with pytest.raises(InputError, match="TVM has no dtype"):
        as_tensor(np.zeros(3, dtype))


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 3), (3, 0), (0, 0, 5)])
def test_strides_of_empty_arrays_are_those_of_tvm(shape):
    # Compiled code compares them; NumPy takes an extent of 0 for 1.
    compact = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    assert tuple(as_tensor(np.zeros(shape, "float32")).strides) == compact


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_keeps_its_memory(dtype):
    tensors = [as_tensor(np.full((256, 256), i, element(dtype))) for i in range(8)]
    views = [as_numpy(as_tensor(np.full((256, 256), i, element(dtype)))) for i in range(8)]
    gc.collect()
    noise = [np.full((256, 256), 99, element(dtype)) for _ in range(16)]
    assert all((as_numpy(tensor) == i).all() for i, tensor in enumerate(tensors))
    assert all((view == i).all() for i, view in enumerate(views))
    assert len(noise) == 16
