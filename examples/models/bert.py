"""A BERT-like encoder in PyTorch: six layers of self-attention and feed-forward, post-norm, GELU.

Reference: Devlin et al., BERT, 2018, with the width of BERT-base and half its depth (as DistilBERT has).
The weights are random: what is measured and compared does not depend on them.
"""

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    """``softmax(Q K^T / sqrt(d)) V`` with several heads, written out as most exported models have it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)

    def split(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, self.depth).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.depth) + mask
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2)
        return self.output(mixed.reshape(x.shape))


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to its input and normalized."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


class Encoder(nn.Module):
    """(n, length) tokens and their (n, length) mask of zeros and ones to (n, length, width) features."""

    def __init__(self, layers=6, width=768, heads=12, tokens=30522, positions=512):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, tokens, mask):
        x = self.norm(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return x


def example(length=128):
    """The model in evaluation mode, tokens, and a mask that hides the last few; the same every time."""
    torch.manual_seed(0)
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - length // 8 :] = 0
    return Encoder().eval(), (torch.randint(0, 30522, (1, length)), mask)
