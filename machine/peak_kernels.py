"""Kernels that do nothing but one thing as fast as the machine can: multiply and add, read, or copy."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from .dot_instructions import DotInstruction
from .streaming_store import IMPORT_LLVM, streaming_store
from .tile_instructions import (
    CONFIGURATION_WORDS,
    ROW_BYTES,
    TILE_ROWS,
    TileInstruction,
    configured,
    loaded,
    permission,
    released,
    stored,
    zeroed,
)

# LLVM IR of nothing: a comment.
_NO_CODE = ";"


def multiply_add(threads: int, accumulators: int, lanes: int, dtype: str, rounds: int) -> Any:
    """Build ``acc[i] = acc[i] * x + y`` on independent vectors held in registers.

    Start values, x and y come from arguments: with constants LLVM works some of it out beforehand.
    Each of the threads does ``rounds * accumulators * lanes`` multiply-adds.
    """

    @T.prim_func(s_tir=True)
    def main(start: T.handle, factors: T.handle, result: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(start, (accumulators, lanes), dtype)
        F = T.match_buffer(factors, (2, lanes), dtype)
        R = T.match_buffer(result, (threads, accumulators, lanes), dtype)
        for t in T.parallel(threads):
            acc = T.alloc_buffer((accumulators, lanes), dtype, scope="local")
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    acc[i, v] = S[i, v]
            for _ in T.serial(rounds):
                for i in T.unroll(accumulators):
                    for v in T.vectorized(lanes):
                        acc[i, v] = acc[i, v] * F[0, v] + F[1, v]
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    R[t, i, v] = acc[i, v]

    return main


def dot_products(instruction: DotInstruction, threads: int, accumulators: int, rounds: int) -> Any:
    """Build the same with an instruction: each element of ``acc[i]`` gains several products of it and x.

    A product of two operands that stay as they are would be computed once.
    """
    lanes, dtype, code = instruction.lanes, instruction.sums_dtype, instruction.code or _NO_CODE
    sums = f"{dtype}x{lanes}"
    data, x = (
        f"{each}x{instruction.elements}" for each in (instruction.data_dtype, instruction.weight_dtype)
    )

    @T.prim_func(s_tir=True)
    def main(start: T.handle, factors: T.handle, result: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(start, (accumulators, lanes), dtype)
        F = T.match_buffer(factors, (2, lanes), dtype)
        R = T.match_buffer(result, (threads, accumulators, lanes), dtype)
        for t in T.parallel(threads):
            acc = T.alloc_buffer((accumulators, lanes), dtype, scope="local")
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    acc[i, v] = S[i, v]
            with T.attr(T.int32(0), IMPORT_LLVM, code):
                for _ in T.serial(rounds):
                    for i in T.unroll(accumulators):
                        acc[i, T.ramp(T.int32(0), 1, lanes)] = instruction.added(
                            acc.vload([i, 0], sums),
                            T.reinterpret(acc.vload([i, 0], sums), dtype=data),
                            T.reinterpret(F.vload([0, 0], sums), dtype=x),
                        )
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    R[t, i, v] = acc[i, v]

    return main


def tile_products(instruction: TileInstruction, threads: int, tiles: int, rounds: int) -> Any:
    """Build the same with tiles: ``tiles`` of them gain the products of one of data and one of weight.

    What describes the tiles is an argument: the sums come first, then the two operands. Each of the threads
    does ``rounds * tiles`` products of tiles.
    """
    t, zero = tirx.Var("t", "int64"), T.int64(0)
    words = tirx.decl_buffer((CONFIGURATION_WORDS,), "int64", "words")
    operands = tirx.decl_buffer((2, TILE_ROWS, ROW_BYTES), "int8", "operands")
    result = tirx.decl_buffer((threads, tiles, TILE_ROWS, instruction.lanes), instruction.sum_dtype, "result")
    data, weight = tiles, tiles + 1
    products = [tirx.Evaluate(instruction.added(sums, data, weight)) for sums in range(tiles)]
    calls = [
        configured(words),
        *(zeroed(sums) for sums in range(tiles)),
        *(loaded(tiles + i, tirx.address_of(operands[i, 0, 0]), ROW_BYTES) for i in range(2)),
    ]
    ends = [*(stored(i, tirx.address_of(result[t, i, 0, 0]), ROW_BYTES) for i in range(tiles)), released()]
    repeated = tirx.For(
        tirx.Var("r", "int64"), zero, T.int64(rounds), tirx.ForKind.SERIAL, tirx.SeqStmt(products)
    )
    body = tirx.SeqStmt([*map(tirx.Evaluate, calls), repeated, *map(tirx.Evaluate, ends)])
    shared = tirx.For(t, zero, T.int64(threads), tirx.ForKind.PARALLEL, body)
    asked = tirx.SeqStmt([tirx.Evaluate(permission()), shared])
    return tirx.PrimFunc([words, operands, result], asked).with_attr("global_symbol", "main")


def read(threads: int, accumulators: int, lanes: int, steps: int, rounds: int) -> Any:
    """Build a sum over each thread's own float32 array, done ``rounds`` times.

    A thread's array has ``steps * accumulators * lanes`` elements.
    """

    @T.prim_func(s_tir=True)
    def main(source: T.handle, result: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(source, (threads, steps, accumulators, lanes), "float32")
        R = T.match_buffer(result, (threads, accumulators, lanes), "float32")
        for t in T.parallel(threads):
            acc = T.alloc_buffer((accumulators, lanes), "float32", scope="local")
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    acc[i, v] = T.float32(0)
            for _ in T.serial(rounds):
                for s in T.serial(steps):
                    for i in T.unroll(accumulators):
                        for v in T.vectorized(lanes):
                            acc[i, v] = acc[i, v] + S[t, s, i, v]
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    R[t, i, v] = acc[i, v]

    return main


def copy(threads: int, steps: int, vectors: int, lanes: int) -> Any:
    """Build a copy of each thread's float32 array, written past the caches: no line of it is read first.

    A thread's array has ``steps * vectors * lanes`` elements.
    """
    stored, code = streaming_store(lanes, "float32")
    vector = f"float32x{lanes}"

    @T.prim_func(s_tir=True)
    def main(source: T.handle, target: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(source, (threads, steps, vectors, lanes), "float32")
        D = T.match_buffer(target, (threads, steps, vectors, lanes), "float32")
        for t in T.parallel(threads):
            for s in T.serial(steps):
                for i in T.unroll(vectors):
                    with T.attr(T.int32(0), IMPORT_LLVM, code):
                        T.evaluate(
                            stored(D, ((t * steps + s) * vectors + i) * lanes, S.vload([t, s, i, 0], vector))
                        )

    return main
