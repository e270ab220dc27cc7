"""Code generation: a module of scheduled functions becomes machine code, by way of TVM and LLVM."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_map, structural_walk

from ..machine.facts import has_feature
from ..machine.vector_math import scaling
from .passes.bfloat16_bits import store_constants_singly
from .passes.in_place import with_shared_buffers
from .passes.loop_partition import is_plain, partition_loops
from .passes.masked_vectors import mask_vectors
from .restatement import with_functions

# LLVM's schedulers take time that grows with the square of the memory accesses in straight-line code, up to
# this many (1000 if nothing is said); beyond, they keep their order. A thousand stores of zeros, into which
# LLVM unrolls an initialisation, take 0.4 s with it and 4 s without. Tiles of registers have fewer.
_OPTIONS = ("-dag-maps-huge-region:uint=256",)
# A third of LLVM's time goes into finding better induction variables. Without, kernels on x86 take as long
# (1.00 in geometric mean over 110 of them), and some few 3 to 6 % longer.
_QUICK_OPTIONS = {"x86_64": ("-disable-lsr:bool=true",)}
# How LLVM is to compile for a CPU. It takes vectors scattered in memory to be worth it: the windows of 7x7
# pixels of 512 channels, copied so, take 4 times as long as element by element (2 threads of a Zen 5).
_TUNING = {"x86_64": ("+prefer-no-scatter",)}
# What the CPU must have for `scaling`, by LLVM's names.
_SCALING = ("avx512f", "avx512dq")
# Passes of TVM that LLVM does without as well.
_NOT_QUICK = ("tirx.RemoveNoOp", "s_tir.RenormalizeSplitPattern", "tirx.CommonSubexprElim")
# Passes of TVM that find nothing to do in plain loops over flat buffers for a CPU: they take each index apart
# to find that out, a tenth to a fifth of the time of all passes.
_OF_BLOCKS = (
    *("s_tir.CompactBufferAllocation", "s_tir.LowerMatchBuffer", "s_tir.InjectPermutedLayout"),
    *("s_tir.InjectSoftwarePipeline", "tirx.FlattenBuffer", "s_tir.InjectVirtualThread"),
)
# A pass that `finished` ends with, and TVM runs twice more: 4 % of the time in which a kernel is compiled.
# Kernels take as long without (21 of them).
_AGAIN = ("s_tir.StmtSimplify",)
# Without the second, indices are sums of vectors, of which TVM does not know where they end.
_FLATTEN = tvm.ir.transform.Sequential([tirx.transform.FlattenBuffer(), s_tir.transform.StmtSimplify()])

# What `storage_align` leaves at a buffer.
_ALIGNMENT = "buffer_dim_align"


def generate_code(mod: Any, target: Any, quick: bool = False, **options: Any) -> Any:
    """Compile a module whose functions are scheduled; the last step before it runs.

    Parameters
    ----------
    mod : IRModule
        What to compile.
    target : tvm.target.Target
        What for.
    quick : bool
        Whether to compile in half the time what need not be the very fastest: a candidate, which is called
        with the right arguments only and compared with others of its kind.
    options : Any
        Further options of ``tvm.compile``.

    Returns
    -------
    tvm.runtime.Executable
        The code.
    """
    has_scaling = all(has_feature(target, name) for name in _SCALING)
    target = _with_llvm_options(str(target), quick)
    done = finished(mod, target)
    plain = target.kind.name == "llvm" and _all_lowered(done, mod)
    left_out = [*(_NOT_QUICK if quick else ()), *(_OF_BLOCKS if plain else ())]
    left_out += _AGAIN if quick and plain else ()
    config = {"tirx.disable_assert": True} if quick and not _asserts(mod) else {}
    with scaling(has_scaling), _passes_without(left_out, config):
        return tvm.compile(done, target=target, **options)


def finished(mod: Any, target: Any = None) -> Any:
    """Do to scheduled functions what TVM's primitives do not; ``tvm.compile`` alone does the rest.

    Buffers become one (`in_place`), loops are cut before their incomplete iteration (`loop_partition`), and
    vectors that end beyond their array are masked where the target, if given, has masks (`masked_vectors`).
    Constants of bfloat16 are stored one by one (`bfloat16_bits`). Functions of the module that want nothing
    of this stay as they are.
    """
    changed = partition_loops(with_shared_buffers(mod))
    changed = changed if target is None else mask_vectors(changed, target)
    changed = changed if changed is mod else _with_flat_buffers(changed, mod)
    return _with_single_constants(changed)


def _with_single_constants(mod: Any) -> Any:
    """Return a module whose functions store constants of bfloat16 one by one; itself if none does."""
    functions = {name: func for name, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
    single = {name: store_constants_singly(func) for name, func in functions.items()}
    return with_functions(mod, {n: f for n, f in single.items() if not f.same_as(functions[n])})


def is_finished(mod: Any) -> bool:
    """Tell whether nothing is left to do that must be done."""
    return finished(mod) is mod


def _with_flat_buffers(mod: Any, before: Any) -> Any:
    """Return a module whose functions that were lowered have buffers of one dimension: see `is_plain`."""
    lowered = {
        name: func
        for name, func in mod.functions.items()
        if not func.same_as(before[name]) and is_plain(func)
    }
    flat = _FLATTEN(tvm.IRModule(lowered)).functions
    return with_functions(
        mod, {name: func.with_body(_without_alignment(func.body)) for name, func in flat.items()}
    )


def _without_alignment(body: Any) -> Any:
    """Return statements of which TVM does not set flat buffers apart: what they hold is already."""

    def without(allocation: Any) -> Any:
        kept = {key: value for key, value in allocation.annotations.items() if key != _ALIGNMENT}
        return (
            tirx.AllocBuffer(allocation.buffer, kept)
            if len(kept) < len(allocation.annotations)
            else allocation
        )

    return structural_map(body, (tirx.AllocBuffer, without))


@lru_cache(maxsize=16)
def _with_llvm_options(target: str, quick: bool) -> Any:
    config = json.loads(target)
    if config["kind"] == "llvm":
        architecture = config.get("mtriple", "").split("-")[0]
        more = _QUICK_OPTIONS.get(architecture, ()) if quick else ()
        config["cl-opt"] = [*config.get("cl-opt", ()), *_OPTIONS, *more]
        if architecture in _TUNING:
            config["mattr"] = [*config.get("mattr", ()), *_TUNING[architecture]]
    return tvm.target.Target(config)


def _all_lowered(mod: Any, before: Any) -> bool:
    """Tell whether all functions of a module were lowered to plain loops over flat buffers."""
    return all(is_plain(func) and not func.same_as(before[name]) for name, func in mod.functions.items())


def _asserts(mod: Any) -> bool:
    """Tell whether a function has assertions of its own.

    Where none has, none are compiled in a hurry: the checks of the arguments' types, shapes and strides are a
    fifth of what LLVM compiles.
    """
    own: list[Any] = []
    for func in mod.functions.values():
        structural_walk(func.body, [(tirx.AssertStmt, own.append)])
    return bool(own)


def _passes_without(names: list[str], config: dict[str, Any]) -> Any:
    """Return the current context of passes, but without some, and with more configuration.

    Whoever looks at the passes with instruments sees all of them: leaving a context would end what they note.
    """
    now = tvm.transform.PassContext.current()
    if now.instruments:
        return nullcontext()
    return tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=[*now.disabled_pass, *names],
        config={**now.config, **config},
    )
