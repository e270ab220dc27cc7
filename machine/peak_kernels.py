"""Kernels that do nothing but one thing as fast as the machine can: multiply and add, read, or copy."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from .dot_instructions import DotInstruction


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
    """Build the same with an instruction: each int32 of ``acc[i]`` gains several products of it and x.

    A product of two operands that stay as they are would be computed once.
    """
    lanes, sums = instruction.lanes, f"int32x{instruction.lanes}"
    data, x = (
        f"{each}x{instruction.elements}" for each in (instruction.data_dtype, instruction.weight_dtype)
    )

    @T.prim_func(s_tir=True)
    def main(start: T.handle, factors: T.handle, result: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(start, (accumulators, lanes), "int32")
        F = T.match_buffer(factors, (2, lanes), "int32")
        R = T.match_buffer(result, (threads, accumulators, lanes), "int32")
        for t in T.parallel(threads):
            acc = T.alloc_buffer((accumulators, lanes), "int32", scope="local")
            for i in T.unroll(accumulators):
                for v in T.vectorized(lanes):
                    acc[i, v] = S[i, v]
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


def copy(threads: int, steps: int, lanes: int) -> Any:
    """Build a copy of each thread's float32 array of ``steps * lanes`` elements."""

    @T.prim_func(s_tir=True)
    def main(source: T.handle, target: T.handle) -> None:
        T.func_attr({"tirx.noalias": True})
        S = T.match_buffer(source, (threads, steps, lanes), "float32")
        D = T.match_buffer(target, (threads, steps, lanes), "float32")
        for t in T.parallel(threads):
            for s in T.serial(steps):
                for v in T.vectorized(lanes):
                    D[t, s, v] = S[t, s, v]

    return main
