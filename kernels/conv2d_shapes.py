"""Convolutions worth running, and the layers they come from.

References
----------
ResNet-50: He et al., "Deep Residual Learning for Image Recognition", 2015, with the stride in the 3x3
convolutions as torchvision and the ONNX model zoo have it.
MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018, table 2.
VGG-19: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014.
DeepLab: Chen et al., "Rethinking Atrous Convolution for Semantic Image Segmentation", 2017.
ResNeXt-50: Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2016, 32x4d.
"""

from __future__ import annotations

from typing import Any

from .operator import Example

# layer, height and width, input channels, output channels, kernel, stride
_RESNET50 = (
    ("stage 1, 3x3", 56, 64, 64, 3, 1),
    ("stage 2, 3x3", 28, 128, 128, 3, 1),
    ("stage 3, 3x3", 14, 256, 256, 3, 1),
    ("stage 4, 3x3", 7, 512, 512, 3, 1),
    ("first convolution", 224, 3, 64, 7, 2),
    ("stage 1, first reduction", 56, 64, 64, 1, 1),
    ("stage 1, expansion and shortcut", 56, 64, 256, 1, 1),
    ("stage 1, reduction", 56, 256, 64, 1, 1),
    ("stage 2, first reduction", 56, 256, 128, 1, 1),
    ("stage 2, first 3x3", 56, 128, 128, 3, 2),
    ("stage 2, shortcut", 56, 256, 512, 1, 2),
    ("stage 2, expansion", 28, 128, 512, 1, 1),
    ("stage 2, reduction", 28, 512, 128, 1, 1),
    ("stage 3, first reduction", 28, 512, 256, 1, 1),
    ("stage 3, first 3x3", 28, 256, 256, 3, 2),
    ("stage 3, shortcut", 28, 512, 1024, 1, 2),
    ("stage 3, expansion", 14, 256, 1024, 1, 1),
    ("stage 3, reduction", 14, 1024, 256, 1, 1),
    ("stage 4, first reduction", 14, 1024, 512, 1, 1),
    ("stage 4, first 3x3", 14, 512, 512, 3, 2),
    ("stage 4, shortcut", 14, 1024, 2048, 1, 2),
    ("stage 4, expansion", 7, 512, 2048, 1, 1),
    ("stage 4, reduction", 7, 2048, 512, 1, 1),
)

# layer, height and width, input channels, output channels
_MOBILENETV2_POINTWISE = (
    ("bottleneck 1, projection", 112, 32, 16),
    ("bottleneck 2, first expansion", 112, 16, 96),
    ("bottleneck 2, first projection", 56, 96, 24),
    ("bottleneck 2 and 3, expansion", 56, 24, 144),
    ("bottleneck 2, projection", 56, 144, 24),
    ("bottleneck 3, first projection", 28, 144, 32),
    ("bottleneck 3 and 4, expansion", 28, 32, 192),
    ("bottleneck 3, projection", 28, 192, 32),
    ("bottleneck 4, first projection", 14, 192, 64),
    ("bottleneck 4 and 5, expansion", 14, 64, 384),
    ("bottleneck 4, projection", 14, 384, 64),
    ("bottleneck 5, first projection", 14, 384, 96),
    ("bottleneck 5 and 6, expansion", 14, 96, 576),
    ("bottleneck 5, projection", 14, 576, 96),
    ("bottleneck 6, first projection", 7, 576, 160),
    ("bottleneck 6 and 7, expansion", 7, 160, 960),
    ("bottleneck 6, projection", 7, 960, 160),
    ("bottleneck 7, projection", 7, 960, 320),
    ("last convolution", 7, 320, 1280),
)

# layer, height and width, channels, stride
_MOBILENETV2_DEPTHWISE = (
    ("bottleneck 1, depthwise", 112, 32, 1),
    ("bottleneck 2, first depthwise", 112, 96, 2),
    ("bottleneck 2, depthwise", 56, 144, 1),
    ("bottleneck 3, first depthwise", 56, 144, 2),
    ("bottleneck 3, depthwise", 28, 192, 1),
    ("bottleneck 4, first depthwise", 28, 192, 2),
    ("bottleneck 4, depthwise", 14, 384, 1),
    ("bottleneck 5, depthwise", 14, 576, 1),
    ("bottleneck 6, first depthwise", 14, 576, 2),
    ("bottleneck 6 and 7, depthwise", 7, 960, 1),
)

# layer, height and width, input channels, output channels
_VGG19 = (
    ("first convolution", 224, 3, 64),
    ("stage 1", 224, 64, 64),
    ("stage 2, first", 112, 64, 128),
    ("stage 2", 112, 128, 128),
    ("stage 3, first", 56, 128, 256),
    ("stage 3", 56, 256, 256),
    ("stage 4, first", 28, 256, 512),
    ("stage 4", 28, 512, 512),
    ("stage 5", 14, 512, 512),
)

# layer, height and width, channels, stride
_RESNEXT50 = (
    ("stage 1, 3x3", 56, 128, 1),
    ("stage 2, first 3x3", 56, 256, 2),
    ("stage 2, 3x3", 28, 256, 1),
    ("stage 3, first 3x3", 28, 512, 2),
    ("stage 3, 3x3", 14, 512, 1),
    ("stage 4, first 3x3", 14, 1024, 2),
    ("stage 4, 3x3", 7, 1024, 1),
)

# layer, height and width, input channels, output channels, dilation
_DEEPLAB = (
    ("stage 4, 3x3, dilated by 2", 28, 512, 512, 2),
    ("stage 3, 3x3, dilated by 2", 28, 256, 256, 2),
    ("stage 4, 3x3, dilated by 4", 28, 512, 512, 4),
    ("pyramid, dilated by 12", 28, 2048, 256, 12),
    ("pyramid, dilated by 24", 28, 2048, 256, 24),
)


def _layer(source: str, size: int, ci: int, co: int, kernel: int, stride: int = 1, **more: Any) -> Example:
    """Build one layer's shape: one square image, padded so that only the stride shrinks it."""
    shape = {"n": 1, "h": size, "w": size, "ci": ci, "co": co, "kh": kernel, "kw": kernel}
    return Example({**shape, "stride": stride, "padding": kernel // 2, **more}, source)


def _odd(why: str, h: int, w: int, ci: int, co: int, kh: int, kw: int, **more: Any) -> Example:
    """Build a shape that no model needs and every schedule must survive."""
    return Example({"n": 1, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw, **more}, f"odd: {why}")


CONV2D_EXAMPLES: tuple[Example, ...] = (
    *(_layer(f"ResNet-50, {layer}", *extents) for layer, *extents in _RESNET50),
    _layer("ResNet-50, stage 1, 3x3, folded batch norm and ReLU", 56, 64, 64, 3, bias=1, relu=1),
    _layer("ResNet-50, stage 1, 3x3, as PyTorch lays it out", 56, 64, 64, 3, layout="NCHW"),
    _layer("ResNet-50, stage 1, 3x3, as oneDNN lays it out", 56, 64, 64, 3, layout="NCHW16c"),
    _layer("MobileNetV2, first convolution", 224, 3, 32, 3, 2),
    *(_layer(f"MobileNetV2, {layer}", s, ci, co, 1) for layer, s, ci, co in _MOBILENETV2_POINTWISE),
    *(
        _layer(f"MobileNetV2, {layer}", s, c, c, 3, stride, groups=c)
        for layer, s, c, stride in _MOBILENETV2_DEPTHWISE
    ),
    *(
        _layer(f"MobileNetV2, {layer}, as PyTorch lays it out", s, c, c, 3, groups=c, layout="NCHW")
        for layer, s, c in (("bottleneck 2, depthwise", 56, 144), ("bottleneck 6 and 7, depthwise", 7, 960))
    ),
    *(
        _layer(f"ResNeXt-50 32x4d, {layer}", s, c, c, 3, stride, groups=32)
        for layer, s, c, stride in _RESNEXT50
    ),
    *(_layer(f"VGG-19, {layer}", s, ci, co, 3, bias=1, relu=1) for layer, s, ci, co in _VGG19),
    *(
        _layer(f"DeepLabv3 on ResNet-50, {layer}", s, ci, co, 3, padding=d, dilation=d)
        for layer, s, ci, co, d in _DEEPLAB
    ),
    _odd("primes", 17, 19, 13, 23, 3, 5),
    _odd(
        "primes, strided, padded, channels first",
        17,
        19,
        13,
        23,
        5,
        3,
        stride=3,
        padding=2,
        layout="NCHW",
    ),
    _odd("smaller than a register tile", 3, 3, 2, 3, 3, 3, padding=1, bias=1, relu=1),
    _odd(
        "depthwise, strided, channels first",
        11,
        13,
        6,
        12,
        5,
        3,
        stride=2,
        padding=1,
        groups=6,
        layout="NCHW",
    ),
    _odd("two channels in, six out, two groups", 7, 5, 4, 6, 3, 3, padding=1, groups=2),
    _odd("one pixel, one channel", 1, 1, 1, 1, 1, 1),
)
