import tunesmith as ts
from tunesmith.schedules.loop_nest import loop_nest
from tvm import s_tir
from tvm.script import tirx as T


def nest(func):
    return loop_nest(func).splitlines()


def test_an_unscheduled_matmul_is_three_loops():
    assert nest(ts.workload("matmul", m=2, n=3, k=4).func) == [
        "for i in range(2)",
        "  for j in range(3)",
        "    for k in range(4)",
        "      matmul: A, B -> matmul, reduced over v_k",
    ]


def test_kinds_buffers_and_notes_are_written():
    sch = s_tir.Schedule(ts.workload("matmul", m=8, n=16, k=4).func)
    block = sch.get_sblock("matmul")
    written = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, 8])
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.unroll(i1)
    sch.vectorize(j1)
    sch.annotate(j0, "note", 7)
    sch.reverse_compute_at(written, j0)
    sch.decompose_reduction(block, k)
    assert nest(sch.mod["main"])[:9] == [
        "matmul_local: float32[8, 16] in local",
        "parallel i_0 in range(3)",
        "  for j_0 in range(2)  # note=7",
        "    unrolled i_1_init in range(3)",
        "      vectorized j_1_init in range(8)",
        "        where i_0 * 3 + i_1_init < 8",
        "        matmul_init: sets matmul_local",
        "    for k in range(4)",
        "      unrolled i_1 in range(3)",
    ]
    assert nest(sch.mod["main"])[-1].strip() == "matmul_local: matmul_local -> matmul"


@T.prim_func(s_tir=True)
def opaque(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    T.func_attr({"global_symbol": "main"})
    while T.bool(True):
        if a[0] > T.float32(1):
            b[0] = a[0]
        else:
            T.evaluate(T.call_extern("int32", "abort"))
    for i in T.thread_binding(4, thread="threadIdx.x"):
        for j in range(2, 8):
            b[j] = a[i]


def test_code_without_blocks_is_written_too():
    assert nest(opaque) == [
        "while True",
        "  if a[0] > 1.0",
        "    b[0] = a[0]",
        "  else",
        '    T.call_extern("int32", "abort")',
        "threadIdx.x i in range(4)",
        "  for j in range(2, 2 + 6)",
        "    b[j] = a[i]",
    ]


def test_a_block_in_a_block_is_indented():
    sch = s_tir.Schedule(ts.workload("matmul", m=2, n=3, k=4).func)
    sch.blockize(sch.get_loops(sch.get_sblock("matmul"))[1])
    lines = nest(sch.mod["main"])
    assert [line.strip() for line in lines] == [
        "for i in range(2)",
        "matmul_o: A, B -> matmul, reduced over v_k_o",
        "for j in range(3)",
        "for k in range(4)",
        "matmul: matmul, A, B -> matmul, reduced over v_k_i",
    ]
    assert lines[2].startswith("    for")


@T.prim_func(s_tir=True)
def straight(a: T.Buffer((8,), "float32")):
    for i in range(4):
        a[i] = 0.0
        a[1] = 1.0
        a[2] = 2.0
        a[3] = 3.0
        a[4] = 4.0
        a[5] = 5.0
        a[6] = 6.0
        for j in range(8):
            a[j] = 7.0


def test_of_many_statements_in_a_row_the_middle_is_left_out():
    assert nest(straight) == [
        "for i in range(4)",
        "  a[i] = 0.0",
        "  a[1] = 1.0",
        "  ... 3 more",
        "  a[5] = 5.0",
        "  a[6] = 6.0",
        "  for j in range(8)",
        "    a[j] = 7.0",
    ]
