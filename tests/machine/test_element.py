"""The bits and bytes of one element."""

import pytest
import tvm
from tunesmith.machine.element import element_bits, element_bytes


@pytest.mark.parametrize(
    ("dtype", "bits", "size"),
    [("float32", 32, 4), ("bfloat16", 16, 2), ("bool", 8, 1), ("int4", 4, 1), ("float64x8", 64, 8)],
)
def test_of_a_name_and_of_what_tvm_has(dtype, bits, size):
    for named in (dtype, tvm.DataType(dtype)):
        assert (element_bits(named), element_bytes(named)) == (bits, size)
