"""MobileNetV2 as PyTorch users write it: inverted residuals, depthwise convolutions, batch norm, ReLU6.

Reference: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, 2018, table 2.
The weights are random: what is measured and compared does not depend on them.
"""

import torch
from torch import nn

# Expansion, output channels, blocks, stride of the first of them.
STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


def convolution(inputs, outputs, kernel=1, stride=1, groups=1):
    """A convolution with batch norm; what follows it is up to the caller."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Expand with 1x1, filter each channel with 3x3, project with 1x1; add the input where shapes allow."""

    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = [] if expansion == 1 else [*convolution(inputs, hidden), nn.ReLU6()]
        layers += [*convolution(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, *convolution(hidden, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    """(n, 3, 224, 224) images to (n, classes) logits; 3.5 million parameters, 0.6 GFLOP an image."""

    def __init__(self, classes=1000):
        super().__init__()
        layers, channels = [*convolution(3, 32, 3, 2), nn.ReLU6()], 32
        for expansion, outputs, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, outputs, stride if block == 0 else 1, expansion))
                channels = outputs
        self.features = nn.Sequential(*layers, *convolution(channels, 1280), nn.ReLU6())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def example():
    """The model in evaluation mode and one image, the same every time."""
    torch.manual_seed(0)
    model = MobileNetV2().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: statistics that are not 0 and 1
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model, (torch.randn(1, 3, 224, 224),)
