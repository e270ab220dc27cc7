from tunesmith.schedules.assembly import inner_loop

X86 = """
main:
	movq	%rsp, %rbp
.LBB0_1:
	vmovups	(%rax), %zmm9
.LBB0_2:
	vbroadcastss	-64(%rbx,%rax), %zmm16
	vfmadd231ps	(%rcx), %zmm16, %zmm0 {%k1} {z}
	vfmadd231ps	%zmm17, %zmm16, %zmm1
	vfmadd231ps	(%rdx){1to16}, %zmm16, %zmm1
	leaq	(%rax,%rax), %rcx
	prefetcht0	(%rax)
	cmpq	$4, 8(%rsi)
	vmovups	%zmm1, (%r15) {%k1}
	vmovups	%zmm2, 64(%rsp)  # 64-byte Spill
	vmovups	-32(%rbp), %zmm2
	jne	.LBB0_2
	callq	main
	jmp	.LBB0_1
.LBB0_3:
	vmovss	(%rax), %xmm2
	vmovss	(%rcx), %xmm1
	vfmadd213ss	%xmm1, %xmm2, %xmm3
	jne	.LBB0_3
"""

ARM = """
main:
.LBB0_1:
	ld1r	{ v24.4s }, [x1], #4
	ldp	q28, q27, [sp, #16]
	str	q0, [x29, #-16]
	fmla	v22.4s, v27.4s, v25.s[0]
	fmla	v22.4s, v27.4s, v25.s[1]
	fmla	v2.4s, v27.4s, v25.4s
	prfm	pldl1keep, [x1]
	subs	x0, x0, #1
	b.ne	.LBB0_1
	ret
"""


def counts(loop):
    return loop.multiply_adds, loop.bits, loop.accumulators, loop.loads, loop.stores, loop.spills


def test_products_that_another_instruction_adds_up():
    loop = inner_loop(
        ".LBB0_1:\n\tvpmaddwd\t(%rax), %ymm14, %ymm12\n\tvpaddd\t%ymm5, %ymm12, %ymm5\n"
        "\tvpmaddwd\t%ymm13, %ymm14, %ymm12\n\tvpaddd\t%ymm6, %ymm12, %ymm6\n\tjne\t.LBB0_1\n"
    )
    assert counts(loop) == (2, 256, 2, 1, 0, 0)


def test_an_encoding_may_be_named():
    loop = inner_loop(".LBB0_1:\n\t{vex}\tvpdpbusd\t(%rax), %ymm14, %ymm12\n\tjne\t.LBB0_1\n")
    assert counts(loop) == (1, 256, 1, 1, 0, 0)


def test_x86_is_read():
    loop = inner_loop(X86)
    assert (loop.label, loop.instructions) == (".LBB0_2", 11)
    assert counts(loop) == (3, 512, 2, 5, 2, 2)
    assert str(loop) == (
        "inner loop .LBB0_2: 3 multiply-adds of 512 bits into 2 registers, "
        "5 loads, 2 stores, 2 spills, 11 instructions"
    )


def test_aarch64_is_read():
    assert counts(inner_loop(ARM)) == (3, 128, 2, 2, 1, 1)
    assert counts(inner_loop(ARM.replace("main:", "main:\n\tmov\tx29, sp"))) == (3, 128, 2, 2, 1, 2)


def test_scalable_vectors_have_no_width():
    loop = inner_loop(".LBB0_1:\n\tfmla\tz0.s, p0/m, z1.s, z2.s\n\tb.ne\t.LBB0_1\n")
    assert counts(loop) == (1, 0, 1, 0, 0, 0) and "scalable bits" in str(loop)


def test_the_narrowest_width_counts():
    assert inner_loop(X86.replace("%zmm17, %zmm16, %zmm1", "%xmm17, %xmm16, %xmm1")).bits == 128
    scalar = "\tvfmadd231ss\t%xmm17, %xmm16, %xmm1\n\tjne\t.LBB0_2"
    assert inner_loop(X86.replace("\tjne\t.LBB0_2", scalar)).bits == 32


def test_the_loop_with_most_multiply_adds_among_its_instructions_counts():
    multiply_adds = "".join(f"\tvfmadd231ps\t%zmm1, %zmm2, %zmm{i}\n" for i in range(3, 7))
    moves = 20 * "\tvmovups\t%zmm3, (%rax)\n"
    change = f".LBB0_9:\n{multiply_adds}{moves}\tjne\t.LBB0_9\n"
    assert inner_loop(change).label == ".LBB0_9"
    assert inner_loop(X86 + change).label == ".LBB0_2"


def test_no_loop_no_answer():
    assert inner_loop("main:\n\tvfmadd231ps\t%zmm17, %zmm16, %zmm1\n\tret\n") is None
    assert inner_loop(".LBB0_1:\n\tvaddps\t%zmm17, %zmm16, %zmm1\n\tjne\t.LBB0_1\n") is None
    assert inner_loop("f:\n\tvfmadd231ps\t%zmm1, %zmm2, %zmm3\n\tcallq\tf\n") is None
