"""Pooling layers worth running, and the models they come from.

References
----------
ResNet-50: He et al., "Deep Residual Learning for Image Recognition", 2015.
VGG-19: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014.
U-Net: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015.
Inception-v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
DenseNet-121: Huang et al., "Densely Connected Convolutional Networks", 2016.
MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
EfficientNet: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019.
YOLOv5s: the pyramid pooling at 640x640 pixels.
"""

from __future__ import annotations

from typing import Any

from .operator import Example


def _image(source: str, size: int, c: int, n: int = 1, **more: Any) -> Example:
    return Example({"n": n, "h": size, "w": size, "c": c, **more}, source)


def _window(source: str, size: int, c: int, kernel: int, stride: int, padding: int, **more: Any) -> Example:
    return _image(source, size, c, kernel=kernel, stride=stride, padding=padding, **more)


_ODD_WINDOWS = (
    Example(
        {"n": 2, "h": 17, "w": 19, "c": 23, "kernel": 3, "stride": 2, "padding": 1},
        "odd: primes, strided and padded",
    ),
    Example(
        {"n": 2, "h": 11, "w": 13, "c": 5, "kernel": 5, "stride": 3, "padding": 2, "layout": "NCHW"},
        "odd: primes, channels first, fewer than a vector",
    ),
    Example(
        {"n": 1, "h": 2, "w": 3, "c": 7, "kernel": 3, "stride": 1, "padding": 2},
        "odd: windows larger than the image, most of them outside",
    ),
    Example({"n": 1, "h": 1, "w": 1, "c": 1, "kernel": 1}, "odd: one element"),
)

MAXIMUM_EXAMPLES: tuple[Example, ...] = (
    _window("ResNet-50, after the first convolution", 112, 64, 3, 2, 1),
    _window("ResNet-50, after the first convolution, channels first", 112, 64, 3, 2, 1, layout="NCHW"),
    _window("VGG-19, stage 1", 224, 64, 2, 2, 0),
    _window("VGG-19, stage 2", 112, 128, 2, 2, 0),
    _window("VGG-19, stage 3", 56, 256, 2, 2, 0),
    _window("VGG-19, stage 4", 28, 512, 2, 2, 0),
    _window("VGG-19, stage 5", 14, 512, 2, 2, 0),
    _window("U-Net, first contraction", 568, 64, 2, 2, 0),
    _window("Inception-v3, stem", 147, 64, 3, 2, 0),
    _window("YOLOv5s, pyramid pooling", 20, 256, 5, 1, 2),
    _window("ResNet-50, 32 images, larger than the caches", 112, 64, 3, 2, 1, n=32),
    *_ODD_WINDOWS,
)

AVERAGE_EXAMPLES: tuple[Example, ...] = (
    _window("Inception-v3, 35x35 pixels, pooled branch", 35, 192, 3, 1, 1),
    _window("Inception-v3, 17x17 pixels, pooled branch", 17, 768, 3, 1, 1),
    _window("Inception-v3, 8x8 pixels, pooled branch", 8, 1280, 3, 1, 1),
    _window("DenseNet-121, first transition", 56, 128, 2, 2, 0),
    _window("DenseNet-121, first transition, as PyTorch lays it out", 56, 128, 2, 2, 0, layout="NCHW"),
    _window("DenseNet-121, second transition", 28, 256, 2, 2, 0),
    _window("DenseNet-121, third transition", 14, 512, 2, 2, 0),
    _window("DenseNet-121, 64 images, larger than the caches", 56, 128, 2, 2, 0, n=64),
    *_ODD_WINDOWS,
)

GLOBAL_EXAMPLES: tuple[Example, ...] = (
    _image("ResNet-50, before the classifier", 7, 2048),
    _image("ResNet-50, before the classifier, as PyTorch lays it out", 7, 2048, layout="NCHW"),
    _image("MobileNetV2, before the classifier", 7, 1280),
    _image("DenseNet-121, before the classifier", 7, 1024),
    _image("EfficientNet-B0, squeeze of the first block", 112, 32),
    _image("EfficientNet-B0, squeeze at 14x14 pixels", 14, 480),
    _image("EfficientNet-B7, four images, squeeze of the first block, larger than the caches", 300, 64, n=4),
    Example({"n": 3, "h": 17, "w": 19, "c": 23}, "odd: primes"),
    Example({"n": 2, "h": 3, "w": 5, "c": 7, "layout": "NCHW"}, "odd: smaller than a vector, channels first"),
    Example({"n": 1, "h": 1, "w": 1, "c": 1}, "odd: one element"),
)
