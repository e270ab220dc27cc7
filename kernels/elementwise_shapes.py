"""Activations worth running, and the layers they come from.

References
----------
BERT: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018.
GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
ViT: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020.
Llama: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023.
Gemma 2: "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
EfficientNet: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019.
MobileNetV2: Sandler et al., 2018. MobileNetV3: Howard et al., "Searching for MobileNetV3", 2019.
pix2pix: Isola et al., "Image-to-Image Translation with Conditional Adversarial Networks", 2016.
Stable Diffusion: Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", 2021.
YOLOv3: Redmon and Farhadi, 2018, at 416x416 pixels. YOLOv5s: at 640x640 pixels.
"""

from __future__ import annotations

from .operator import Example

# rows, columns, layer
_LAYERS: dict[str, tuple[tuple[int, int, str], ...]] = {
    "exp": (
        (10647, 2, "YOLOv3, widths and heights of all boxes"),
        (4, 4096, "Stable Diffusion, variance of the encoder's 64x64 latents"),
        (1536, 128, "BERT-base, 128 tokens: numerators of attention's softmax"),
    ),
    "tanh": (
        (1, 768, "BERT-base, the pooler"),
        (65536, 3, "pix2pix, the generator's 256x256 image"),
        (1, 256000, "Gemma 2, one token: the vocabulary's capped logits"),
    ),
    "sigmoid": (
        (25200, 85, "YOLOv5s, all predictions"),
        (1, 480, "EfficientNet-B0, gate of a block at 14x14 pixels"),
        (1, 4096, "LSTM of 1024 units, one step: its gates"),
    ),
    "silu": (
        (102400, 32, "YOLOv5s, first convolution, 320x320 pixels"),
        (12544, 32, "EfficientNet-B0, first convolution, 112x112 pixels"),
        (196, 480, "EfficientNet-B0, expansion at 14x14 pixels"),
        (4096, 320, "Stable Diffusion, residual block at 64x64 pixels"),
    ),
    "gelu_tanh": (
        (1, 3072, "GPT-2, one token: feed-forward"),
        (128, 3072, "GPT-2, 128 tokens: feed-forward"),
        (1024, 3072, "GPT-2, 1024 tokens: feed-forward"),
    ),
    "bias_gelu": (
        (128, 3072, "BERT-base, 128 tokens: feed-forward"),
        (384, 4096, "BERT-large, 384 tokens: feed-forward"),
        (197, 3072, "ViT-B/16, one image: feed-forward"),
    ),
    "swiglu": (
        (1, 11008, "Llama 7B, one token: feed-forward"),
        (128, 11008, "Llama 7B, 128 tokens: feed-forward"),
        (128, 14336, "Llama 3 8B, 128 tokens: feed-forward"),
    ),
    "hard_swish": (
        (12544, 16, "MobileNetV3-Large, first convolution, 112x112 pixels"),
        (784, 240, "MobileNetV3-Large, expansion at 28x28 pixels"),
        (196, 672, "MobileNetV3-Large, expansion at 14x14 pixels"),
        (49, 960, "MobileNetV3-Large, last convolution"),
    ),
    "scale_shift_clip": (
        (12544, 32, "MobileNetV2, batch norm and ReLU6 at 112x112 pixels"),
        (3136, 144, "MobileNetV2, batch norm and ReLU6 at 56x56 pixels"),
        (196, 576, "MobileNetV2, batch norm and ReLU6 at 14x14 pixels"),
        (49, 1280, "MobileNetV2, batch norm and ReLU6 of the last convolution"),
    ),
}

_COMMON = (
    (4096, 4096, "square, larger than the caches"),
    (1, 1009, "odd: one row, a prime"),
    (7, 3, "odd: rows shorter than a vector"),
    (1, 1, "odd: one element"),
)

EXAMPLES: dict[str, tuple[Example, ...]] = {
    name: tuple(Example({"m": m, "n": n}, source) for m, n, source in (*layers, *_COMMON))
    for name, layers in _LAYERS.items()
}
"""By the operator's name."""
