r"""Scaled dot-product attention of several heads, as transformers compute it; causal on demand.

.. math::
    s_{hij} = \frac{1}{\sqrt d} \sum_c Q_{hic} K_{g(h)jc}, \qquad
    p_{hij} = e^{s_{hij} - \max_k s_{hik}}, \qquad
    O_{hic} = \frac{\sum_j p_{hij} V_{g(h)jc}}{\sum_j p_{hij}}

Q and O are (heads, m, d), K and V are (kv_heads, n, d); a batch is counted among the heads. Each key head
serves heads / kv_heads query heads in a row: g(h) = h kv_heads / heads (grouped-query attention; one for
all is multi-query attention); kv_heads = 0, the default, means as many as heads. ``causal``: query i sees the
keys up to n - m + i, its own position when the last query meets the last key, as with keys kept from before;
n must be at least m.

Weights are powers of two, of scores times log2 e: the factor is one with the scale, and a power of two takes
fewer steps. The division comes last, once for an output, not once for a score. float16 and bfloat16 are
computed in float32 and rounded once. 4 m n d multiply-adds and additions a head for (2 m + 2 n) d elements:
compute-bound where m and n are more than some tens, if the scores stay in a cache.

References
----------
Vaswani et al., "Attention Is All You Need", 2017. Ainslie et al., "GQA", 2023. Rabe and Staats,
"Self-attention does not need O(n²) memory", 2021.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import tvm
from tvm import te

from ..machine.errors import InputError
from .arithmetic import LOG2_E, exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

MASKED = -1e30
"""What a masked score is: its exponential is 0, and unlike -inf it can be subtracted from itself."""


def check(heads: int, kv_heads: int, m: int, n: int, d: int, causal: int) -> None:
    """Raise InputError where key heads do not serve whole groups, or causal queries have no keys."""
    if kv_heads and heads % kv_heads:
        raise InputError(f"kv_heads must divide heads: heads={heads}, kv_heads={kv_heads}")
    if causal and n < m:
        raise InputError(f"with causal=1, n must be at least m: m={m}, n={n}")


def define(heads: int, kv_heads: int, m: int, n: int, d: int, causal: int, dtype: str) -> list[Any]:
    """Return the TE tensors Q, K, V and O."""
    wide, kv_heads = sum_dtype(dtype), kv_heads or heads
    group = heads // kv_heads
    Q = te.placeholder((heads, m, d), dtype, name="Q")
    K, V = (te.placeholder((kv_heads, n, d), dtype, name=name) for name in "KV")
    c, j = te.reduce_axis((0, d), name="c"), te.reduce_axis((0, n), name="j")
    t, u = te.reduce_axis((0, n), name="t"), te.reduce_axis((0, n), name="u")

    def of(h: Any) -> Any:
        return h if group == 1 else h // group

    product = te.compute(
        (heads, m, n),
        lambda h, i, k: te.sum(Q[h, i, c].astype(wide) * K[of(h), k, c].astype(wide), axis=c),
        name="product",
    )

    def score(h: Any, i: Any, k: Any) -> Any:
        scaled = product[h, i, k] * tvm.tirx.const(LOG2_E / sqrt(d), wide)
        masked = tvm.tirx.const(MASKED, wide)
        return tvm.tirx.Select(k <= i + (n - m), scaled, masked) if causal else scaled

    scores = te.compute((heads, m, n), score, name="score")
    row_max = te.compute((heads, m), lambda h, i: te.max(scores[h, i, t], axis=t), name="row_max")
    weights = te.compute(
        (heads, m, n), lambda h, i, k: tvm.tirx.exp2(scores[h, i, k] - row_max[h, i]), name="weight"
    )
    row_sum = te.compute((heads, m), lambda h, i: te.sum(weights[h, i, u], axis=u), name="row_sum")
    inverse = te.compute((heads, m), lambda h, i: tvm.tirx.const(1, wide) / row_sum[h, i], name="inverse")
    mixed = te.compute(
        (heads, m, d),
        lambda h, i, e: te.sum(weights[h, i, j] * V[of(h), j, e].astype(wide), axis=j),
        name="mixed",
    )
    attended = te.compute((heads, m, d), lambda h, i, e: mixed[h, i, e] * inverse[h, i], name="attention")
    return [Q, K, V, rounded_to(attended, dtype)]


def reference(Q: np.ndarray, K: np.ndarray, V: np.ndarray, heads: int, causal: int, **_: int) -> np.ndarray:
    """Return O, in float64 and rounded once."""
    q, k, v = exact(Q), *(np.repeat(exact(x), heads // len(x), axis=0) for x in (K, V))
    scores = q @ k.swapaxes(1, 2) / sqrt(Q.shape[2])
    if causal:
        m, n = scores.shape[1:]
        scores = np.where(np.tri(m, n, n - m, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return rounded(weights @ v / weights.sum(axis=2, keepdims=True), str(Q.dtype))


def vary(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> None:
    """Make queries and keys long, without making scores large: where these are long, those are short."""
    del V
    half = Q.shape[2] // 2
    Q[..., :half] *= 10
    K[..., half:] *= 10


def flops(heads: int, m: int, n: int, d: int, causal: int, **_: int) -> int:
    """Count two products' multiplications and additions; five operations a score; one an output.

    A score is scaled, compared, lessened by the maximum, exponentiated and summed. What a causal mask hides
    need not be computed.
    """
    scores = m * (n - m) + m * (m + 1) // 2 if causal else m * n
    return heads * (scores * (4 * d + 5) + m * d)


def _numpy(Q: np.ndarray, K: np.ndarray, V: np.ndarray, heads: int, causal: int, **_: int) -> Any:
    k, v = (np.repeat(x, heads // len(x), axis=0) for x in (K, V))
    m, n = Q.shape[1], K.shape[1]
    hidden = None if not causal else ~np.tri(m, n, n - m, dtype=bool)
    scale = Q.dtype.type(1 / sqrt(Q.shape[2]))

    def call() -> np.ndarray:
        scores = Q @ k.swapaxes(1, 2)
        scores *= scale
        if hidden is not None:
            scores[:, hidden] = -np.inf
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        return np.asarray(scores @ v)

    return call


def _torch(torch: Any, Q: Any, K: Any, V: Any, causal: int, **_: int) -> Any:
    q, k, v = (x.unsqueeze(0) for x in (Q, K, V))
    m, n = Q.shape[1], K.shape[1]
    mask = torch.ones(m, n, dtype=torch.bool).tril(n - m) if causal and m != n else None
    attention = torch.nn.functional.scaled_dot_product_attention
    options = {"attn_mask": mask, "is_causal": bool(causal) and mask is None, "enable_gqa": len(Q) != len(K)}
    return lambda: attention(q, k, v, **options)[0]


def _onnx(node: Any, Q: str, K: str, V: str, heads: int, kv_heads: int, d: int, causal: int, **_: int) -> Any:
    """Return the nodes of an exported model: ONNX has no fused form before opset 23."""
    if causal or kv_heads not in (0, heads):
        return None
    nodes = [
        node("Transpose", [K], ["kt"], perm=[0, 2, 1]),
        node("MatMul", [Q, "kt"], ["product"]),
        node("Mul", ["product", "scale"], ["score"]),
        node("Softmax", ["score"], ["weight"], axis=-1),
        node("MatMul", ["weight", V], ["y"]),
    ]
    return nodes, {"scale": np.float32(1 / sqrt(d))}


def _example(source: str, heads: int, m: int, n: int, d: int, **more: int) -> Example:
    return Example({"heads": heads, "m": m, "n": n, "d": d, **more}, source)


ATTENTION = Operator(
    name="attention",
    dims=(
        Dim("heads"),
        Dim("m"),
        Dim("n"),
        Dim("d"),
        Dim("kv_heads", default=0, minimum=0),
        Dim("causal", default=0, choices=(0, 1)),
    ),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    vary=vary,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        _example("BERT-base, 128 tokens", 12, 128, 128, 64),
        _example("8 heads, 1024 tokens", 8, 1024, 1024, 64),
        _example("ViT-B/16, one image", 12, 197, 197, 64),
        _example("GPT-2, 256 tokens, causal", 12, 256, 256, 64, causal=1),
        _example("Llama 3 8B, one token after 1023 kept", 32, 1, 1024, 128, kv_heads=8, causal=1),
        _example("Llama 3 8B, 128 tokens at once", 32, 128, 128, 128, kv_heads=8, causal=1),
        _example("Stable Diffusion 1.5, 64x64 pixels, one of two images", 8, 4096, 4096, 40),
        _example("odd: primes", 3, 17, 31, 13),
        _example("odd: groups, causal, kept keys", 6, 5, 19, 8, kv_heads=2, causal=1),
        _example("odd: whole tiles", 2, 32, 64, 32, causal=1),
        _example("odd: one element", 1, 1, 1, 1),
    ),
)
