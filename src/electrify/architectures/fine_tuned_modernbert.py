"""The head of a fine-tuned model in ModernBERT's classes: dense, activation, norm, classifier, of a
whole text's first token as of every token.

The norm divides by the deviation of the hidden units, which differs from state to state. It becomes
the same for all if most units are constants that are large compared with the others:

- units k and C + k are z_k and -z_k, z = Wx+b, C classes; the others are c and -c in turns. The
  mean is 0, and the deviation c sqrt(2 M / D) for M pairs of constants, up to the share |z|^2 / (2
  M c^2) of it: less than 1e-7 for c = 2^12, M = 4 and |z| = 3. c is larger if there are few pairs
  for many classes. The classifier takes half the difference of a pair, in which an error of the
  mean disappears.
- Classes for which there are not enough units: the dense layer undoes the weights of the encoder's
  last norm, whose result is normalised already, and the classifier does them again. The states of
  deviation d are then off by the share 1e-5 / (2 d^2).

There is no activation, and the dense layer has a bias: the configuration of the class has names for
both. Shape suffixes: D width.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn

from .fine_tuned import FineTunedHead, LinearOutput, same_weights

_CONSTANT = 2.0**12
# The largest that fits into float16.
_LARGE_CONSTANT = 2.0**15
# Units that hand on normalised states are so much larger that the second norm's eps vanishes.
_LARGER = 64.0
_SAID = {"classifier_bias": True, "classifier_activation": "linear", "classifier_pooling": "cls"}


class ModernBertHead(FineTunedHead):
    """The head of ModernBertForSequenceClassification, ForTokenClassification and
    ForQuestionAnswering."""

    def configure(self, config: Any) -> None:
        for name, value in _SAID.items():
            setattr(config, name, value)

    def write(self, model: Any, output: LinearOutput, *, whole: bool) -> None:
        layers = _layers(model)
        with torch.no_grad():
            if _has_room(*layers):
                _fit(*layers, output, constant=_constant_for(*layers))
            else:
                _hand_on(*layers, output, last=model.base_model.final_norm)

    def read(self, model: Any, *, whole: bool) -> LinearOutput | None:
        layers = _layers(model)
        if any(getattr(model.config, name) != value for name, value in _SAID.items()):
            return None
        if not _has_room(*layers):
            return None
        dense, _, out = layers
        classes = out.out_features
        head = nn.Linear(dense.in_features, classes)
        again = copy.deepcopy(layers)
        constant = float(dense.bias.detach()[2 * classes])
        if not constant > 0:
            return None
        with torch.no_grad():
            head.weight.copy_(dense.weight[:classes])
            head.bias.copy_(dense.bias[:classes])
            output = LinearOutput(head, float(out.weight[0, 0]) * 2 / constant, float(out.bias[0]))
            _fit(*again, output, constant=constant)
        return output if same_weights(again, layers) else None


def _layers(model: Any) -> tuple[nn.Linear, nn.LayerNorm, nn.Linear]:
    return model.head.dense, model.head.norm, model.classifier


def _has_room(dense: nn.Linear, norm: nn.LayerNorm, out: nn.Linear) -> bool:
    """Whether there are two units for every class, and two more."""
    return 2 * out.out_features + 2 <= dense.out_features


def _pairs(dense: nn.Linear, out: nn.Linear) -> int:
    """Pairs of constants beside the units of the classes."""
    return dense.out_features // 2 - out.out_features


def _constant_for(dense: nn.Linear, norm: nn.LayerNorm, out: nn.Linear) -> float:
    return _CONSTANT if 2 * _pairs(dense, out) >= out.out_features else _LARGE_CONSTANT


def _fit(
    dense: nn.Linear,
    norm: nn.LayerNorm,
    out: nn.Linear,
    output: LinearOutput,
    *,
    constant: float,
) -> None:
    head = output.layer
    classes = head.out_features
    pairs = _pairs(dense, out)
    for parameter in (dense.weight, dense.bias, out.weight, out.bias):
        parameter.zero_()
    for sign, start in ((1.0, 0), (-1.0, classes)):
        dense.weight[start : start + classes] = sign * head.weight
        dense.bias[start : start + classes] = sign * head.bias
        half = sign * constant / 2 * output.scale
        out.weight[:, start : start + classes] = half * torch.eye(classes)
    constants = dense.bias[2 * classes : 2 * classes + 2 * pairs]
    constants[0::2] = constant
    constants[1::2] = -constant
    out.bias.fill_(output.center)
    variance = 2 * pairs * constant**2 / dense.out_features
    norm.weight.fill_(math.sqrt(variance + norm.eps) / constant)


def _hand_on(
    dense: nn.Linear,
    norm: nn.LayerNorm,
    out: nn.Linear,
    output: LinearOutput,
    *,
    last: nn.LayerNorm,
) -> None:
    """last: the encoder's last norm."""
    head = output.layer
    dense.weight.copy_((_LARGER / last.weight).diag())
    dense.bias.zero_()
    norm.weight.copy_(last.weight)
    out.weight.copy_(output.scale * head.weight)
    out.bias.copy_(output.scale * head.bias + output.center)
