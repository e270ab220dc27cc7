r"""exp, exp2, log, tanh, erf and sigmoid of float32 as polynomials, so that they are computed in vectors.

TVM lowers them to a call of the C library for each lane. Here they become arithmetic on whole vectors, 10 to
40 times as fast. The largest errors, over every 16th float32 against float64: exp 0.9 units in the last
place (below 1.7e-38 it is 0), exp2 the same, 2.8 with AVX-512, log 0.9, sigmoid 2.5, tanh 2.9e-7 and erf
3.2e-7 relative to the result.

.. math::
    e^x = 2^{i - 1} \, 2 e^r, \quad i = \mathrm{round}(x \log_2 e), \quad r = x - i \ln 2,
    \quad |r| \le \tfrac{1}{2} \ln 2

.. math:: 2^x = 2^{i - 1} \, 2^{1 + r}, \quad i = \mathrm{round}(x), \quad r = x - i

.. math:: \log x = i \ln 2 + \log(1 + f), \quad x = 2^i (1 + f), \quad
    \tfrac{1}{2} \sqrt 2 \le 1 + f < \sqrt 2

.. math:: \sigma(x) = \frac{1}{1 + e^{-x}}

tanh and erf are quotients of polynomials in x², saturated where float32 rounds them to 1.

References
----------
Moshier, "Cephes Mathematical Library", expf (ln 2 in two parts), logf (the polynomial).
Eigen, MathFunctionsImpl.h (the quotients' coefficients).
XNNPACK, f32-raddstoreexpminusmax (2^i by AVX-512's vscalefps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import e, inf, log2, nan
from typing import Any

from tvm import tirx
from tvm.ir import register_op_attr
from tvm.tirx import register_intrin_lowering

POLYNOMIALS = ("exp", "exp2", "log", "tanh", "erf", "sigmoid")
"""The functions that are computed so."""

POLYNOMIAL_CALLS = frozenset(f"tirx.{name}" for name in POLYNOMIALS)
"""What calls of them are named in TVM."""

EXPONENTIALS = frozenset({"tirx.exp", "tirx.exp2"})
"""Of these, those that weigh the elements of a row."""

# TVM would take these one by one. On 2 threads of a Zen 4 28x28 of 272 to 48 channels of bytes, 1x1,
# requantised, take 0.57 of that time, bias_gelu of 384 x 4096 0.94, layer_norm of 4000 x 12 0.91.
_VECTORIZABLE = ("nearbyint", "rsqrt", "erf")

CHAINS = 4
"""Vectors to compute together: each is a chain of operations that wait for each other, others fill the wait.

A vector type of so many registers does it: LLVM then has each operation on all of them before the next. In
loops that are unrolled it takes one after the other, and a CPU looks ahead for one or two.
"""

# Above the first e^x is infinite. At the second i is -126, and no bit of 2^(i - 1) is set: it is 0, and so is
# all below 1.7e-38.
_EXP_HIGH, _EXP_LOW = 89.0, -126 / log2(e)
# ln 2 in two parts: the first has few bits, so that its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# e^r: of the polynomials of degree 6 that begin with 1 + r, the one of the least error: 3.1e-9 of the result.
_EXP = (1.38145837e-3, 8.36872403e-3, 4.16683890e-2, 1.66665211e-1, 0.49999994, 1.0, 1.0)

# Below the first 2^x is 0 here, from the second on infinite.
_EXP2_LOW, _EXP2_HIGH = -126.0, 128.0
# 2^r of -1/2 to 1/2, and of 0 to 1: of the polynomials that begin with 1, so that 2^0 is 1, those of the
# least error, 2.6e-9 and 8.2e-8 of the result.
_EXP2_AROUND_0 = (
    1.55946793e-4, 1.34066434e-3, 9.61769186e-3, 5.55031002e-2, 0.240226552, 0.693147242, 1.0,
)  # fmt: skip
_EXP2_UP_TO_1 = (1.86713017e-3, 9.01702978e-3, 5.57999089e-2, 0.240164489, 0.693151295, 1.0)

_MANTISSA_BITS = 23
# Adding 1.5 * 2^23 rounds a float32 to an integer, which then stands in the last bits. With 126 more these
# are the exponent of 2^(i - 1).
_ROUNDER = 1.5 * 2**_MANTISSA_BITS + 126

# Lanes of a register of AVX-512, and of vectors that are so many of them. On 2 threads of a Zen 4 attention
# takes 0.98 of the time with powers of two as of any CPU instead of exp, and 0.96 with AVX-512's own.
_REGISTER = 16
_REGISTERS = frozenset(_REGISTER << p for p in range(4))
# TVM asks for a lowering without saying for which CPU.
_has_scaling: ContextVar[bool] = ContextVar("has_scaling", default=False)

# log(1 + f) is f - f²/2 + f³ times this.
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
# The bits of sqrt(1/2), where 1 + f begins. Below the least normal number a power of two is taken out first.
_ROOT_BITS, _LEAST_NORMAL, _LIFTED = 0x3F3504F3, 2.0**-126, 24

_TANH_SATURATED = 7.90531110763549805
_TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-8,
    1.48572235717979e-5, 6.37261928875436e-4, 4.89352455891786e-3,
)  # fmt: skip
_TANH_EVEN = (1.19825839466702e-6, 1.18534705686654e-4, 2.26843463243900e-3, 4.89352518554385e-3)

_ERF_SATURATED = 4.0
_ERF_ODD = (
    -2.72614225801306e-10, 2.77068142495902e-8, -2.10102402082508e-6, -5.69250639462346e-5,
    -7.34990630326855e-4, -2.95459980854025e-3, -1.60960333262415e-2,
)  # fmt: skip
_ERF_EVEN = (
    -1.45660718464996e-5, -2.13374055278905e-4, -1.68282697438203e-3, -7.37332916720468e-3,
    -1.42647390514189e-2,
)  # fmt: skip


@cache
def use_vector_math() -> None:
    """Let TVM compile these functions of float32 for CPUs this way, in this process from now on.

    And let it make vectors of others: TVM takes erf, roundings and reciprocal roots one by one, and LLVM
    brings them together again in most loops, but not in all.
    """
    for name in _VECTORIZABLE:
        register_op_attr(f"tirx.{name}", "TVectorizable", True)
    for name, lowered in zip(POLYNOMIALS, (_exp, _exp2, _log, _tanh, _erf, _sigmoid), strict=True):
        register_intrin_lowering(f"tirx.{name}", target="llvm", f=_in_float32(name, lowered), level=99)


@contextmanager
def scaling(available: bool) -> Iterator[None]:
    """Say, for what is compiled within, whether the CPU scales by powers of two (AVX-512 F and DQ)."""
    before = _has_scaling.set(available)
    try:
        yield
    finally:
        _has_scaling.reset(before)


def _in_float32(name: str, lowered: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compute float16 in float32 as well; leave float64 to LLVM, and to TVM what LLVM does not have."""

    def rule(call: Any) -> Any:
        (x,) = call.args
        dtype = str(x.ty.dtype)
        if dtype.startswith("float16"):
            return lowered(x.astype(dtype.replace("float16", "float32"))).astype(dtype)
        if dtype.startswith("float32"):
            return lowered(x)
        if name == "sigmoid":
            return _constant(1.0, x) / (_constant(1.0, x) + _llvm("exp", _constant(0.0, x) - x))
        return _llvm(name, x) if name in ("exp", "exp2", "log", "tanh") else _erf_by_lanes(call)

    return rule


def _erf_by_lanes(call: Any) -> Any:
    """Call erf of the C library, which takes one number, for each of a vector."""
    ((x,), lanes) = call.args, call.ty.dtype.lanes
    if lanes == 1:
        return call
    places = [tirx.const(lane, "int32") for lane in range(lanes)]
    return tirx.Shuffle([tirx.erf(tirx.Shuffle([x], [place])) for place in places], places)


def _llvm(name: str, x: Any) -> Any:
    """Call LLVM's own function, which calls the C library's."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, f"llvm.{name}", x)


def _let(value: Any, body: Callable[[Any], Any]) -> Any:
    """Compute a value once and use it several times."""
    name = tirx.Var("t", value.ty.dtype)
    return tirx.Let(name, value, body(name))


def _constant(value: float, like: Any) -> Any:
    return tirx.const(value, like.ty.dtype)


def _horner(coefficients: Sequence[float], x: Any) -> Any:
    """Evaluate a polynomial, the coefficient of the highest power first."""
    result = _constant(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = result * x + _constant(coefficient, x)
    return result


def _clamped(x: Any, low: float, high: float) -> Any:
    """Bound x; NaN stays NaN, since a comparison with it keeps the second operand."""
    return tirx.min(_constant(high, x), tirx.max(_constant(low, x), x))


def _exp(x: Any) -> Any:
    rounder = _constant(_ROUNDER, x)

    def of(bounded: Any) -> Any:
        return _let(bounded * _constant(log2(e), x) + rounder, lambda shifted: result(bounded, shifted))

    def result(bounded: Any, shifted: Any) -> Any:
        whole = shifted - rounder
        r = bounded - whole * _constant(_LN2_HIGH, x) - whole * _constant(_LN2_LOW, x)
        return _times_power(_EXP, r, shifted)

    return _let(_clamped(x, _EXP_LOW, _EXP_HIGH), of)


def _exp2(x: Any) -> Any:
    if _has_scaling.get() and _lanes(x) in _REGISTERS:
        return _let(x, _exp2_scaled)
    rounder = _constant(_ROUNDER, x)

    def of(bounded: Any) -> Any:
        return _let(bounded + rounder, lambda shifted: result(bounded, shifted))

    def result(bounded: Any, shifted: Any) -> Any:
        return _times_power(_EXP2_AROUND_0, bounded - (shifted - rounder), shifted)

    return _let(_clamped(x, _EXP2_LOW, _EXP2_HIGH), of)


def _times_power(coefficients: Sequence[float], r: Any, shifted: Any) -> Any:
    """Return a polynomial in r times 2^i; ``shifted`` is i + ``_ROUNDER``.

    All its bits but the exponent of 2^(i - 1) are shifted out. Times twice the polynomial, what is too large
    becomes infinite.
    """
    power = tirx.reinterpret(_integer_type(r), shifted) << _integer(_MANTISSA_BITS, r)
    return _let(r, lambda r: _horner([2 * c for c in coefficients], r) * tirx.reinterpret(r.ty.dtype, power))


def _log(x: Any) -> Any:
    """Return the logarithm of numbers above 0; of 0 -inf, of infinity that, of others NaN."""
    zero, lifted = _constant(0.0, x), _integer(_LIFTED, x)

    def of(x: Any) -> Any:
        is_small = x < _constant(_LEAST_NORMAL, x)
        normal = tirx.Select(is_small, x * _constant(2.0**_LIFTED, x), x)
        below = tirx.Select(is_small, lifted, lifted - lifted)
        bits = tirx.reinterpret(_integer_type(x), normal)
        return _let(bits, lambda bits: _let((bits - root) >> mantissa, lambda i: parted(x, bits, i, below)))

    root, mantissa = _integer(_ROOT_BITS, x), _integer(_MANTISSA_BITS, x)

    def parted(x: Any, bits: Any, i: Any, below: Any) -> Any:
        f = tirx.reinterpret(x.ty.dtype, bits - (i << mantissa)) - _constant(1.0, x)
        power = (i - below).astype(x.ty.dtype)
        return _let(f, lambda f: _let(power, lambda power: ended(x, f, power)))

    def ended(x: Any, f: Any, power: Any) -> Any:
        small = _let(f * f, lambda s: s * f * _horner(_LOG, f) + power * _constant(_LN2_LOW, x) - s * half)
        result = small + f + power * _constant(_LN2_HIGH, x)
        others = tirx.Select(x < zero, _constant(nan, x), tirx.Select(x == zero, _constant(-inf, x), x))
        return tirx.Select(tirx.all(x > zero, x < _constant(inf, x)), result, others)

    half = _constant(0.5, x)
    return _let(x, of)


def _exp2_scaled(x: Any) -> Any:
    """Return 2^x by AVX-512's instructions for x - floor(x) and p 2^floor(x), which bound it themselves."""
    every, current = tirx.const(-1, "int16"), tirx.const(4, "int32")  # lanes; the direction of rounding
    down = tirx.const(1, "int32")

    def fraction(x: Any) -> Any:
        return tirx.call_llvm_pure_intrin(
            x.ty.dtype, "llvm.x86.avx512.mask.reduce.ps.512", x, down, x, every, current
        )

    def scaled(p: Any, x: Any) -> Any:
        return tirx.call_llvm_pure_intrin(
            x.ty.dtype, "llvm.x86.avx512.mask.scalef.ps.512", p, x, p, every, current
        )

    return _let(_by_registers(fraction, x), lambda r: _by_registers(scaled, _horner(_EXP2_UP_TO_1, r), x))


def _by_registers(function: Callable[..., Any], *vectors: Any) -> Any:
    """Apply a function of registers to vectors of several."""
    lanes = _lanes(vectors[0])
    if lanes == _REGISTER:
        return function(*vectors)
    whole, half = (vectors[0].ty.dtype.with_lanes(n) for n in (lanes, lanes // 2))
    parts = (
        _by_registers(function, *(tirx.call_intrin(half, f"tirx.vector{part}", v) for v in vectors))
        for part in ("low", "high")
    )
    return tirx.call_intrin(whole, "tirx.vectorcombine", *parts)


def _lanes(vector: Any) -> int:
    return int(vector.ty.dtype.lanes)


def _integer_type(like: Any) -> str:
    return str(like.ty.dtype).replace("float32", "int32")


def _integer(value: int, like: Any) -> Any:
    return tirx.const(value, _integer_type(like))


def _sigmoid(x: Any) -> Any:
    one = _constant(1.0, x)
    return one / (one + _exp(_constant(0.0, x) - x))


def _tanh(x: Any) -> Any:
    return _quotient(x, _TANH_SATURATED, _TANH_ODD, _TANH_EVEN)


def _erf(x: Any) -> Any:
    return _quotient(x, _ERF_SATURATED, _ERF_ODD, _ERF_EVEN)


def _quotient(x: Any, saturated: float, odd: Sequence[float], even: Sequence[float]) -> Any:
    """Return x P(x²) / Q(x²), bounded by ±1."""

    def of(bounded: Any) -> Any:
        return _let(bounded * bounded, lambda s: bounded * _horner(odd, s) / _horner(even, s))

    return _clamped(_let(_clamped(x, -saturated, saturated), of), -1.0, 1.0)
